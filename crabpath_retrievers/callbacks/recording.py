"""Records feedback; more specific feedback replaces less specific feedback."""

import logging
from collections.abc import Callable, Iterable

from crabpath_retrievers.callbacks.found import RetrievedTurn
from crabpath_retrievers.callbacks.runs import ChainRun
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.feedback.precedence import FeedbackSink, record_superseding
from crabpath_retrievers.feedback.receipt import Receipt
from crabpath_retrievers.outcome import Feedback
from crabpath_retrievers.text import to_storable

_log = logging.getLogger(__name__)
OnReceipt = Callable[[Feedback, Receipt], object]


class FeedbackRecorder:
    """Records the feedback of chains. Every method may block."""

    def __init__(self, memory: FeedbackSink, on_receipt: OnReceipt | None = None) -> None:
        """Record in ``memory``, and call ``on_receipt`` with every feedback and receipt."""
        self.memory, self._on_receipt = memory, on_receipt

    def record(self, given: Iterable[Feedback]) -> list[Receipt]:
        """Record feedback; less specific feedback about the same turn is undone.

        Raises:
            StoreError: The feedback could not be stored.
        """
        return [self._record_one(feedback) for feedback in given]

    def find_stored_turn(self, name: str) -> ChainRun | None:
        """Find a turn in the store by its id or its retriever run; None if there is none."""
        logged = self.memory.store.turns.find(to_storable(name))
        if logged is None:
            return None
        turn = logged.turn
        names = tuple((item.node,) for item in turn.returned)
        known = RetrievedTurn(turn.id, turn.namespace, turn.run_id or "", "", names)
        return ChainRun(turn.id, None, 0.0, turns={turn.id: known})

    def _record_one(self, feedback: Feedback) -> Receipt:
        receipt = record_superseding(self.memory, feedback)
        self._notify(feedback, receipt)
        return receipt

    def _notify(self, feedback: Feedback, receipt: Receipt) -> None:
        """Call ``on_receipt``; its errors must not lose the feedback that follows."""
        if self._on_receipt is None:
            return
        try:
            self._on_receipt(feedback, receipt)
        except Exception:
            _log.exception("on_receipt failed for feedback %r", receipt.feedback_id)


def require_memory(source: object) -> CrabPath:
    """Return the memory of a retriever, or the memory itself.

    Raises:
        InvalidInputError: ``source`` is neither.
    """
    memory = getattr(source, "memory", source)
    if isinstance(memory, CrabPath):
        return memory
    msg = f"pass a CrabPathRetriever or its memory, not {type(source).__name__}"
    raise InvalidInputError(msg)
