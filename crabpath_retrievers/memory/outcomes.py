"""What became of the answers of a memory."""

from crabpath_retrievers.driver import arun, perform
from crabpath_retrievers.feedback.receipt import Receipt
from crabpath_retrievers.memory.parts import Parts
from crabpath_retrievers.outcome import Feedback


class Outcomes(Parts):
    """How a memory learns."""

    def record(self, feedback: Feedback) -> Receipt:
        """Learn from what became of a turn, now or a week later.

        The feedback is kept durably first; then it is applied as ``settings.learning.apply`` says,
        once: the same ``feedback_id`` again changes nothing and tells how it stands. Each turn is
        learned from once, by the first feedback about it.

        Args:
            feedback: What is known. Without a turn id it counts for the last turns of its
                namespace, the more the later.

        Returns:
            ``applied``; ``waiting`` while it is not learned from yet; or ``refused`` with the
            reason in ``note``, when there is no such turn in that namespace, another feedback
            consumed it, or its namespace is frozen; or ``undone``, see :meth:`CrabPath.undo`.

        Raises:
            StoreError: It could not be kept.
        """
        self._require_open()
        return self._recorder.record(feedback)

    async def arecord(self, feedback: Feedback) -> Receipt:
        """As :meth:`record`, off the event loop."""
        return await arun(perform(self.record, feedback))
