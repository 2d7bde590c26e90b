"""What became of the answers of a memory."""

from crabpath_retrievers.driver import arun, perform
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.feedback.inbox import Tally
from crabpath_retrievers.feedback.receipt import Receipt
from crabpath_retrievers.memory.parts import Parts
from crabpath_retrievers.outcome import Feedback
from crabpath_retrievers.text import shown
from crabpath_retrievers.time_limit import within_limit


class Outcomes(Parts):
    """How a memory learns."""

    @within_limit
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
            StoreError: It could not be kept; :class:`StoreUnavailableError` also where a server is
                silent for ``settings.time_limit`` seconds.
        """
        self._require_open()
        if not isinstance(feedback, Feedback):
            msg = f"record takes a Feedback(turn_id, outcome), not {shown(feedback)}"
            raise InvalidInputError(msg)
        return self._recorder.record(feedback)

    async def arecord(self, feedback: Feedback) -> Receipt:
        """As :meth:`record`, off the event loop."""
        return await arun(perform(self.record, feedback))

    def learn_waiting(self) -> Tally:
        """Learn from the feedback that waits, and bring the vector index up to date with it.

        For memories whose ``settings.learning.apply`` leaves learning to others, and after a store
        was away. What is learned in a process of its own, by ``crabpath learn``, is read from the
        graph store until this has indexed it.

        Returns:
            How much was applied, refused, or cannot be learned from.

        Raises:
            StoreError: A store failed; what is left goes on waiting.
        """
        self._require_open()
        return self._recorder.learn_waiting()

    async def alearn_waiting(self) -> Tally:
        """As :meth:`learn_waiting`, off the event loop."""
        return await arun(perform(self.learn_waiting))
