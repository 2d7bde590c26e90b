"""Which events of a host count as feedback, with which outcome and reward source."""

from collections.abc import Collection
from typing import Literal, get_args

from crabpath_retrievers.config.base import Signed, Texts, ValidatedSettings
from crabpath_retrievers.core.feedback import RewardSource, validate_outcome
from crabpath_retrievers.core.text import to_plain

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


class Rule(ValidatedSettings):
    """Outcome and source of one kind of event: ``Rule(outcome, source, on)``."""

    outcome: Signed
    """Outcome in [-1, 1]. For scores, the outcome of a full score: a score s in [0, 1] becomes
    ``outcome * (2 * s - 1)``."""
    source: RewardSource
    """Reward source; ``settings.learning.sources`` has its weight."""
    on: bool = True
    """Whether the event counts at all."""

    def __init__(self, outcome: float, source: RewardSource, on: bool = True) -> None:  # noqa: FBT001, FBT002  as written in a table
        """Make a rule.

        Raises:
            InvalidInputError: The outcome is not a number in [-1, 1], or the source is unknown.
        """
        super().__init__(outcome=outcome, source=source, on=on)

    def convert_score(self, score: float | bool) -> float:  # noqa: FBT001  LangSmith scores are booleans too
        """Convert a score in [0, 1] to an outcome; True is 1, False is 0.

        Raises:
            InvalidInputError: The score is not a number in [0, 1].
        """
        said = to_plain(score)
        number = float(said) if isinstance(said, bool) else said
        return self.outcome * (2.0 * validate_outcome(number, name="score", least=0.0) - 1.0)


class OutcomePolicy(ValidatedSettings):
    """Maps events of a host to outcomes and reward sources.

    One policy serves LangChain, LangGraph and LlamaIndex; docs/how-to/feedback-callbacks.md lists
    the events that each of them reports. A chain is whatever the host runs around the retrieval: a
    chain, a graph, an agent, a query.

    ================ ======= ========= === ====================================================
    Event            Outcome Source    On  When
    ================ ======= ========= === ====================================================
    correction       -1      human     yes a user states the right answer
    langsmith        2s - 1  human     yes pulled feedback; ``teacher`` where a model gave it
    score            2s - 1  teacher   yes an evaluator gave a score s in [0, 1]; ``human`` where
                                           ``handler.score`` gave it: a user's thumb
    tool_error       -0.2    harvested yes a tool failed, whether or not the chain did
    chain_error      -0.3    harvested yes the chain failed
    silent_success   0.2     harvested no  the chain answered, without further feedback
    ================ ======= ========= === ====================================================

    When a run ends, its highest event in this table counts. Later the last word of a person stands;
    an observed event replaces only a lower one.
    """

    correction: Rule = Rule(-1.0, "human")
    langsmith: Rule = Rule(1.0, "human")
    score: Rule = Rule(1.0, "teacher")
    tool_error: Rule = Rule(-0.2, "harvested")
    chain_error: Rule = Rule(-0.3, "harvested")
    silent_success: Rule = Rule(0.2, "harvested", on=False)
    feedback_keys: Texts = (
        "user_score",
        "user_feedback",
        "thumbs",
        "thumbs_up",
        "correctness",
        "helpfulness",
    )
    """Keys of LangSmith feedback that count; others are ignored."""
    not_about_documents: Texts = (
        "ConnectionError",
        "TimeoutError",
        "TransportError",
        "APIConnectionError",
        "RateLimitError",
        "InternalServerError",
        "AuthenticationError",
    )
    """Names of exceptions, or of their base classes, that say nothing about the retrieved
    documents, such as transport errors. Interrupts and cancelled runs never count."""

    def rule(self, kind: EventKind) -> Rule:
        """Return the rule of a kind of event."""
        found: Rule = getattr(self, kind)
        return found

    def first(self, seen: Collection[EventKind]) -> EventKind | None:
        """Return the highest of the given kinds, in the table above, that counts; None if none."""
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
