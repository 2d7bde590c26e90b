"""Which events of a host count as feedback, with which outcome and reward source."""

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Literal, get_args

from crabpath_retrievers.core.feedback import RewardSource, validate_outcome
from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.errors import InvalidInputError

EventKind = Literal[
    "correction", "langsmith", "score", "tool_error", "chain_error", "silent_success"
]
"""Kinds of events that may count, the most specific first."""

OBSERVED_KINDS: tuple[EventKind, ...] = ("tool_error", "chain_error", "silent_success")
"""Kinds that are observed, not stated by a person or an evaluator."""

PAUSE_EXCEPTIONS = frozenset({"GraphInterrupt"})
"""Names of exceptions by which a chain waits for a person."""

_NEVER_COUNTED = PAUSE_EXCEPTIONS | {
    "GraphBubbleUp",
    "CancelledError",
    "NodeCancelledError",
    "GeneratorExit",
    "KeyboardInterrupt",
    "SystemExit",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """How one kind of event counts.

    Attributes:
        outcome: Outcome in [-1, 1]. For scores, the outcome of a full score: a score s in [0, 1]
            becomes ``outcome * (2 * s - 1)``.
        source: Reward source; ``settings.learning.sources`` has its weight.
        on: Whether the event counts at all.
    """

    outcome: float
    source: RewardSource
    on: bool = True

    def __post_init__(self) -> None:
        """Refuse values that cannot be learned from.

        Raises:
            InvalidInputError: The outcome is not a number in [-1, 1], or the source is unknown.
        """
        validate_outcome(self.outcome)
        if self.source not in get_args(RewardSource):
            msg = f"unknown source {self.source!r}: use one of {', '.join(get_args(RewardSource))}"
            raise InvalidInputError(msg)

    def convert_score(self, score: float | bool) -> float:  # noqa: FBT001  LangSmith scores are booleans too
        """Convert a score in [0, 1] to an outcome; True is 1, False is 0.

        Raises:
            InvalidInputError: The score is not a number in [0, 1].
        """
        number = float(score) if isinstance(score, bool) else score
        return self.outcome * (2.0 * validate_outcome(number, name="score", least=0.0) - 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomePolicy:
    """How the events of a host count as feedback.

    One policy serves LangChain, LangGraph and LlamaIndex; ``docs/callbacks.md`` lists the events
    that each of them reports. A chain is whatever the host runs around the retrieval: a chain, a
    graph, an agent, a query.

    ================ ======= ========= === ====================================================
    Event            Outcome Source    On  When
    ================ ======= ========= === ====================================================
    correction       -1      human     yes a user states the right answer
    langsmith        2s - 1  human     yes pulled feedback; ``teacher`` where a model gave it
    score            2s - 1  teacher   yes an evaluator or a thumb gave a score s in [0, 1]
    tool_error       -0.2    harvested yes a tool failed, whether or not the chain did
    chain_error      -0.3    harvested yes the chain failed
    silent_success   0.2     harvested no  the chain answered, without further feedback
    ================ ======= ========= === ====================================================

    Each turn is learned from once. When a run ends, its highest event in this table counts. A
    higher event that comes later replaces a lower one, which is undone; a lower or equal one is
    refused.

    Attributes:
        correction, langsmith, score, tool_error, chain_error, silent_success: The table.
        feedback_keys: Keys of LangSmith feedback that count; others are ignored.
        not_about_documents: Names of exceptions, or of their base classes, that say nothing about
            the retrieved documents, such as transport errors. Interrupts and cancelled runs never
            count.
    """

    correction: Rule = Rule(-1.0, "human")
    langsmith: Rule = Rule(1.0, "human")
    score: Rule = Rule(1.0, "teacher")
    tool_error: Rule = Rule(-0.2, "harvested")
    chain_error: Rule = Rule(-0.3, "harvested")
    silent_success: Rule = Rule(0.2, "harvested", on=False)
    feedback_keys: tuple[str, ...] = (
        "user_score",
        "user_feedback",
        "thumbs",
        "thumbs_up",
        "correctness",
        "helpfulness",
    )
    not_about_documents: tuple[str, ...] = (
        "ConnectionError",
        "TimeoutError",
        "TransportError",
        "APIConnectionError",
        "RateLimitError",
        "InternalServerError",
        "AuthenticationError",
    )

    def __post_init__(self) -> None:
        """Refuse values of wrong types.

        Raises:
            InvalidInputError: An event has no rule, or a list of names is a single text.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in get_args(EventKind) and not isinstance(value, Rule):
                msg = f"{field.name} must be a Rule(outcome, source, on), not {format_value(value)}"
                raise InvalidInputError(msg)
            if field.name not in get_args(EventKind):
                object.__setattr__(self, field.name, _require_texts(field.name, value))

    def rule(self, kind: EventKind) -> Rule:
        """Return the rule of a kind of event."""
        found: Rule = getattr(self, kind)
        return found

    def first(self, seen: Collection[EventKind]) -> EventKind | None:
        """Return the highest kind in the table that counts; None if none does."""
        return next(
            (kind for kind in get_args(EventKind) if kind in seen and self.rule(kind).on), None
        )

    def is_about_documents(self, names: Collection[str]) -> bool:
        """Whether an error may say something about the retrieved documents.

        Args:
            names: Names of its class and base classes, from :func:`collect_exception_names`.
        """
        return {*names}.isdisjoint({*_NEVER_COUNTED, *self.not_about_documents})


def collect_exception_names(error: type[BaseException]) -> frozenset[str]:
    """Return the names of an error class and its base classes; needs no framework."""
    return frozenset(base.__name__ for base in error.__mro__)


def rank_kind(kind: str) -> int:
    """Return the rank of a kind: 0 for the most specific; unknown kinds come last."""
    kinds = get_args(EventKind)
    return kinds.index(kind) if kind in kinds else len(kinds)


def _require_texts(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, (tuple, list, set, frozenset)) and all(isinstance(v, str) for v in value):
        return tuple(value)
    msg = f"{name} must be a tuple of texts, not {format_value(value)}"
    raise InvalidInputError(msg)
