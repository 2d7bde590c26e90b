"""Recording feedback so that the more specific takes the place of the less specific."""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol, get_args

from crabpath_retrievers.callbacks.found import Found
from crabpath_retrievers.callbacks.policy import Kind, rank
from crabpath_retrievers.callbacks.runs import Root
from crabpath_retrievers.errors import InvalidInputError, NotFoundError
from crabpath_retrievers.feedback.receipt import Receipt
from crabpath_retrievers.memory import CrabPath
from crabpath_retrievers.outcome import Feedback
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.text import storable

_log = logging.getLogger(__name__)
_SEEN: tuple[Kind, ...] = ("tool_error", "chain_error", "silent_success")
Told = Callable[[Feedback, Receipt], object]


class Learns(Protocol):
    """What feedback is given to: a memory, or a store beside the process that serves it."""

    @property
    def store(self) -> GraphStore:
        """Where turns and feedback are kept."""

    def record(self, feedback: Feedback) -> Receipt:
        """Learn from feedback."""

    def undo(self, feedback_id: str, *, namespace: str | None = None) -> Receipt:
        """Take back what one taught."""


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
        self._make_way(feedback)
        receipt = self.memory.record(feedback)
        if receipt.status == "refused":
            usual = kind_of(feedback.feedback_id) in _SEEN  # somebody said something finer before
            level = logging.DEBUG if usual else logging.WARNING
            _log.log(level, "feedback %r is refused: %s", receipt.feedback_id, receipt.note)
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

    def _make_way(self, feedback: Feedback) -> None:
        """Undo what less specific feedback of a chain taught about the same turn."""
        own = kind_of(feedback.feedback_id)
        if own is None or own in _SEEN:
            return
        turn_id = str(feedback.turn_id)
        logged = self.memory.store.turns.find(turn_id, namespace=feedback.namespace)
        if logged is None or logged.frozen:
            return
        weaker = {f"callback:{kind}:{turn_id}" for kind in _SEEN}  # some of it may still wait
        consumer = kind_of(logged.consumed or "")
        if logged.consumed and consumer is not None and rank(consumer) > rank(own):
            weaker.add(logged.consumed)
        for feedback_id in weaker:
            with suppress(NotFoundError):
                self.memory.undo(feedback_id, namespace=feedback.namespace)


def kind_of(feedback_id: str) -> Kind | None:
    """What kind of event feedback came from; None when it came from none."""
    prefix, _, rest = feedback_id.partition(":")
    if prefix == "langsmith":
        return "langsmith"
    kind = rest.partition(":")[0]
    return next((k for k in get_args(Kind) if prefix == "callback" and k == kind), None)


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
