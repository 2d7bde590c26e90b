"""Which events of a host count as an outcome, how much, and who is thought to say so."""

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Literal, get_args

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.outcome import RewardSource, learnable
from crabpath_retrievers.text import shown

Kind = Literal["correction", "langsmith", "score", "tool_error", "chain_error", "silent_success"]
"""Events that may count, the most specific first."""

SEEN: tuple[Kind, ...] = ("tool_error", "chain_error", "silent_success")
"""Those that nobody says: they are seen."""

PAUSES = frozenset({"GraphInterrupt"})
"""Exceptions, by name, by which a chain waits for a person."""

_NEVER_COUNTED = PAUSES | {
    "GraphBubbleUp",
    "CancelledError",
    "NodeCancelledError",
    "GeneratorExit",
    "KeyboardInterrupt",
    "SystemExit",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """What one kind of event means.

    Attributes:
        outcome: z in [-1, 1]. For scores the outcome of a full score: a score s in [0, 1] becomes
            ``outcome * (2 * s - 1)``.
        source: Who is thought to say so; ``settings.learning.sources`` weighs each.
        on: Whether the event counts at all.
    """

    outcome: float
    source: RewardSource
    on: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be learned from.

        Raises:
            InvalidInputError: The outcome is no number in [-1, 1], or there is no such source.
        """
        learnable(self.outcome)
        if self.source not in get_args(RewardSource):
            msg = f"unknown source {self.source!r}: use one of {', '.join(get_args(RewardSource))}"
            raise InvalidInputError(msg)

    def convert_score(self, score: float | bool) -> float:  # noqa: FBT001  LangSmith scores are booleans too
        """The outcome of a score in [0, 1]; True is 1, False is 0.

        Raises:
            InvalidInputError: It is no such number.
        """
        given = float(score) if isinstance(score, bool) else score
        return self.outcome * (2.0 * learnable(given, name="score", least=0.0) - 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomePolicy:
    """What the events of a host are worth, as data.

    One policy serves LangChain, LangGraph and LlamaIndex; ``docs/callbacks.md`` says which events
    each of them tells of. A chain is what the host runs around the retrieval: a chain, a graph, an
    agent, a query.

    ================ ======= ========= === ====================================================
    Event            Outcome Source    On  When
    ================ ======= ========= === ====================================================
    correction       -1      human     yes a user says what would have been right
    langsmith        2s - 1  human     yes pulled feedback; ``teacher`` where a model gave it
    score            2s - 1  teacher   yes an evaluator, or a thumb, gave a score s in [0, 1]
    tool_error       -0.2    harvested yes a tool failed, whatever the chain made of it
    chain_error      -0.3    harvested yes the chain failed
    silent_success   0.2     harvested no  the chain answered, and nobody complained
    ================ ======= ========= === ====================================================

    A turn is learned from once. Within a run the event that stands highest in this table counts,
    when the run ends. Later a higher one takes the place of a lower one, which is undone; a lower
    or an equal one is refused.

    Attributes:
        correction, langsmith, score, tool_error, chain_error, silent_success: The table.
        feedback_keys: Keys of LangSmith feedback that count; others are left alone.
        not_about_documents: Names of exceptions (or of their bases) which say nothing about what
            was retrieved: transport failed. Interrupts and cancelled runs never count.
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
        """Refuse what is no table of rules.

        Raises:
            InvalidInputError: An event without a rule, or one text where several are meant.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in get_args(Kind) and not isinstance(value, Rule):
                msg = f"{field.name} must be a Rule(outcome, source, on), not {shown(value)}"
                raise InvalidInputError(msg)
            if field.name not in get_args(Kind):
                object.__setattr__(self, field.name, _require_texts(field.name, value))

    def rule(self, kind: Kind) -> Rule:
        """What events of a kind mean."""
        found: Rule = getattr(self, kind)
        return found

    def first(self, seen: Collection[Kind]) -> Kind | None:
        """The highest event of the table that counts; None where none of them does."""
        return next((kind for kind in get_args(Kind) if kind in seen and self.rule(kind).on), None)

    def is_about_documents(self, names: Collection[str]) -> bool:
        """Whether an error may say something about what was retrieved.

        Args:
            names: Of its class and of the bases of that: see :func:`names_of`.
        """
        return {*names}.isdisjoint({*_NEVER_COUNTED, *self.not_about_documents})


def names_of(error: type[BaseException]) -> frozenset[str]:
    """Names of the class of an error and of its bases: no framework is imported to know it."""
    return frozenset(base.__name__ for base in error.__mro__)


def rank(kind: str) -> int:
    """0 for the most specific kind of event; what is no event comes last."""
    kinds = get_args(Kind)
    return kinds.index(kind) if kind in kinds else len(kinds)


def _require_texts(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, (tuple, list, set, frozenset)) and all(isinstance(v, str) for v in value):
        return tuple(value)
    msg = f"{name} must be a tuple of texts, not {shown(value)}"
    raise InvalidInputError(msg)
