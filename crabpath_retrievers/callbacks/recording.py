"""Recording feedback so that the more specific takes the place of the less specific."""

import logging
from collections.abc import Callable, Iterable

from crabpath_retrievers.callbacks.found import Found
from crabpath_retrievers.callbacks.runs import Root
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.feedback.precedence import Learns, record_over
from crabpath_retrievers.feedback.receipt import Receipt
from crabpath_retrievers.outcome import Feedback
from crabpath_retrievers.text import storable

_log = logging.getLogger(__name__)
Told = Callable[[Feedback, Receipt], object]


class Scribe:
    """Records what chains taught. Every method may block."""

    def __init__(self, memory: Learns, told: Told | None = None) -> None:
        """Record in ``memory``, and tell ``told`` of every receipt."""
        self.memory, self._told = memory, told

    def record(self, given: Iterable[Feedback]) -> list[Receipt]:
        """Record feedback; what is less specific and was learned from the same turn is undone.

        Raises:
            StoreError: It could not be kept.
        """
        return [self._recorded(feedback) for feedback in given]

    def asked(self, name: str) -> Root | None:
        """A turn that no handler remembers, by its id or its retriever run; None without one."""
        logged = self.memory.store.turns.find(storable(name))
        if logged is None:
            return None
        turn = logged.turn
        names = tuple((item.node,) for item in turn.returned)
        known = Found(turn.id, turn.namespace, turn.run_id or "", "", names)
        return Root(turn.id, None, 0.0, turns={turn.id: known})

    def _recorded(self, feedback: Feedback) -> Receipt:
        receipt = record_over(self.memory, feedback)
        self._tell(feedback, receipt)
        return receipt

    def _tell(self, feedback: Feedback, receipt: Receipt) -> None:
        """Tell who wants to know; what fails there must not lose the feedback that follows."""
        if self._told is None:
            return
        try:
            self._told(feedback, receipt)
        except Exception:
            _log.exception("on_receipt failed for feedback %r", receipt.feedback_id)


def memory_of(source: object) -> CrabPath:
    """The memory of a retriever, or the memory itself.

    Raises:
        InvalidInputError: It is neither.
    """
    memory = getattr(source, "memory", source)
    if isinstance(memory, CrabPath):
        return memory
    msg = f"pass a CrabPathRetriever or its memory, not {type(source).__name__}"
    raise InvalidInputError(msg)
