"""Feedback about a turn, and the credit that follows from it.

Receipts of feedback, its optional fields, and the baseline: the running mean of outcomes with which
each outcome is compared.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args
from uuid import UUID

from typing_extensions import TypedDict

from crabpath_retrievers.core.query import (
    find_id,
    parse_namespace,
    parse_session,
    parse_text,
    parse_texts,
    require_list,
    require_number,
)
from crabpath_retrievers.core.text import (
    format_value,
    is_blank,
    remove_pictures,
    to_name,
    to_storable,
)
from crabpath_retrievers.errors import InvalidInputError

RewardSource = Literal["human", "self", "harvested", "teacher"]
"""Source of feedback; settings hold a weight for each."""

FeedbackStatus = Literal["waiting", "applied", "refused", "undone", "repeated"]
"""Status of recorded feedback."""

ReceiptReason = Literal[
    "outranked",
    "id_taken",
    "unknown_turn",
    "other_session",
    "no_turn",
    "not_returned",
    "both_sides",
    "frozen",
    "forgotten",
]
"""Why feedback is refused."""

DEFAULT_NAMESPACE = "default"
"""Namespace of feedback that names neither a turn nor a namespace."""

DOCUMENT_FIELDS = ("used", "unused", "relevant", "irrelevant")
"""Fields of feedback that hold ids of documents."""

MAX_NOTE_CHARS = 20_000
"""Longest text of a note or correction, in characters; notes are returned whole."""

_OPPOSITES = {"irrelevant": ("relevant", "used"), "unused": ("used",)}
_LONGEST_ID = 200
_LONGEST_USER = 512


@dataclass(frozen=True, slots=True)
class Feedback:
    """Feedback of a host about a turn.

    Attributes:
        turn_id: The turn, or the host's run that asked; None for the last turn of the namespace.
        outcome: How well the chain did, in [-1, 1].
        used: The returned documents that the answer rests on; None if not known. Each is named by
            its id or source, here and below, or given itself, as a document or node.
        unused: Returned documents that it does not rest on; None if not known.
        relevant: Documents of the memory that answer the question, returned or not, whatever
            the outcome; returned ones that are neither here nor in ``used`` count as not used.
            None if not known.
        irrelevant: Documents of the memory that do not answer it, returned or not.
        answer: The chain's answer; the documents that it rests on are then attributed.
        correction: What would have been right, in words, at most 20,000 characters; blank is
            None. It becomes a note of the namespace with
            inhibitory edges to the documents used in a failure, else to its best document.
        source: Who gave it.
        feedback_id: Recording the same id again with the same content changes nothing; with other
            content it replaces the former one. None makes a new one.
        namespace: Namespace of the turn; None for that of the turn, or "default" without one.
        user: User who gave it, as the host knows them: feedback can be listed and undone by user,
            and is bounded where several users share a namespace; None if not known.
        session: Conversation that it comes from: without a turn it is about the last turn of this
            one, and with a turn of another one it is refused; None if not known.
    """

    turn_id: str | None
    outcome: float
    used: Sequence[str] | None = None
    unused: Sequence[str] | None = None
    relevant: Sequence[str] | None = None
    irrelevant: Sequence[str] | None = None
    answer: str | None = None
    correction: str | None = None
    source: RewardSource = "human"
    feedback_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    namespace: str | None = None
    user: str | None = None
    session: str | None = None

    def __post_init__(self) -> None:
        """Validate the fields and normalise texts for storage.

        Raises:
            InvalidInputError: The outcome is no number in [-1, 1], a field has a wrong type, a
                correction is too long, or a document is called both right and wrong.
        """
        set_ = object.__setattr__
        set_(self, "outcome", validate_outcome(self.outcome))
        for name in DOCUMENT_FIELDS:
            given = getattr(self, name)
            set_(self, name, None if given is None else tuple(name_documents(given, name)))
        for name, others in _OPPOSITES.items():
            right = {node for other in others for node in getattr(self, other) or ()}
            if both := [node for node in getattr(self, name) or () if node in right]:
                msg = (
                    f"{format_value(both[0])} is in {name} and in {' or '.join(others)}: "
                    "name each document on one side only"
                )
                raise InvalidInputError(msg)
        set_(self, "turn_id", None if self.turn_id is None else parse_text("turn_id", self.turn_id))
        set_(self, "answer", _read_text("answer", self.answer))
        set_(self, "correction", _read_text("correction", self.correction))
        if len(self.correction or "") > MAX_NOTE_CHARS:
            msg = (
                f"correction must have at most {MAX_NOTE_CHARS} characters, not "
                f"{len(self.correction or '')}; what is longer is a document: use add_documents"
            )
            raise InvalidInputError(msg)
        if self.namespace is not None:
            set_(self, "namespace", parse_namespace(self.namespace))
        known = get_args(RewardSource)
        if not isinstance(self.source, str) or self.source not in known:
            msg = f"unknown source {format_value(self.source)}: use one of {', '.join(known)}"
            raise InvalidInputError(msg)
        own: object = self.feedback_id  # callers without type checks pass None
        name = uuid.uuid4().hex if own is None else parse_text("feedback_id", own)
        if not 1 <= len(name) <= _LONGEST_ID:
            msg = f"feedback_id must have 1 to {_LONGEST_ID} characters, not {len(name)}"
            raise InvalidInputError(msg)
        set_(self, "feedback_id", name)
        set_(self, "user", None if self.user is None else validate_user(self.user))
        set_(self, "session", None if self.session is None else parse_session(self.session))

    @property
    def stated_documents(self) -> frozenset[str]:
        """Documents stated as relevant or irrelevant, returned or not."""
        return frozenset((*(self.relevant or ()), *(self.irrelevant or ())))

    def to_dict(self) -> dict[str, Any]:
        """Return the feedback as plain, JSON-safe data."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Feedback":
        """Build feedback from data of :meth:`to_dict`.

        Raises:
            InvalidInputError: The data are not what ``to_dict`` returns.
        """
        try:
            return cls(**data)
        except TypeError as error:
            msg = f"this is no feedback as a mapping: {error}"
            raise InvalidInputError(msg) from error

    @classmethod
    def from_record(cls, text: str) -> "Feedback":
        """Build feedback from its stored JSON, which may hold documents added to its turn too.

        Raises:
            InvalidInputError: The JSON is not that of feedback.
        """
        data = json.loads(text)
        return cls.from_dict({name: data[name] for name in data if name != "added"})


def name_documents(given: Any, field: str = "documents") -> list[str]:
    """Collect names of documents: the ids of documents and nodes, and texts as they are.

    Raises:
        InvalidInputError: An item is neither a document nor an id.
    """
    many = isinstance(given, str) or (find_id(given) is None and not isinstance(given, UUID))
    names = given if many else [given]
    if not isinstance(names, str):
        names = [find_id(item) or item for item in require_list(field, names, "a list of texts")]
    return parse_texts(names, name=field)


def _read_text(name: str, value: object) -> str | None:
    """Normalise a text for storage; None for None or a blank one."""
    if value is not None and not isinstance(value, str):
        msg = f"{name} must be a text, not {format_value(value)}"
        raise InvalidInputError(msg)
    return None if is_blank(value) else remove_pictures(to_storable(str(value)))


def validate_user(name: object) -> str:
    """Check the name of a user, and normalise it for storage."""
    user = to_name(name).strip() if isinstance(name, str) else ""
    if not 1 <= len(user) <= _LONGEST_USER:
        msg = f"user must be a text of 1 to {_LONGEST_USER} characters, not {format_value(name)}"
        raise InvalidInputError(msg)
    return user


@dataclass(frozen=True, slots=True)
class Credit:
    """Credit that one feedback assigns to one turn.

    Attributes:
        outcome: z, how well the turn did, in [-1, 1].
        weight: Weight of the source times the share of the turn, in [0, 1].
        documents: Credit in [-1, 1] of every document with finer evidence: above 0 used in a
            success or stated as relevant, below 0 used in a failure, 0 returned and not used or
            stated as irrelevant.
        inferred: Those of them whose credit was attributed from an answer. There 0 means that the
            answer does not show its use, which is weak evidence.
        added: Those of them that the turn did not return.
        irrelevant: Those of them that are stated as irrelevant.
        relevant: Those of them that are stated as relevant, whether they were shown or not.
    """

    outcome: float
    weight: float = 1.0
    documents: Mapping[str, float] = field(default_factory=dict)
    inferred: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    irrelevant: frozenset[str] = frozenset()
    relevant: frozenset[str] = frozenset()

    @property
    def has_stated_use(self) -> bool:
        """Whether the host stated the use of any document."""
        return not self.inferred.issuperset(self.documents)

    @property
    def is_informative(self) -> bool:
        """Whether the outcome, or the credit of any document, is other than 0."""
        return bool(self.outcome) or any(self.documents.values())

    @property
    def used(self) -> tuple[str, ...]:
        """Documents used in a success, or stated as relevant."""
        return tuple(node for node, credit in self.documents.items() if credit > 0)


def validate_outcome(value: object, *, name: str = "outcome", least: float = -1.0) -> float:
    """Validate a number in [``least``, 1], where -1 is failure and 1 is success."""
    return require_number(name, value, least, 1.0)


class Receipt(NamedTuple):
    """Status of recorded feedback.

    Attributes:
        feedback_id: Id under which it is stored; recording the same id again returns its status.
        status: ``waiting`` until it is applied, then ``applied``; ``refused`` if nothing can be
            learned from it; ``undone`` after an undo, and where its giver has changed their mind;
            ``repeated`` where its giver had said the same under another id.
        note: Why it is refused or still waits, or which part of it was ignored; None otherwise.
        reason: Why it is refused, for programs; None otherwise, and where it was refused earlier.
        repeated: Whether its giver had said so before, so that nothing was changed.
        turn_id: Id of the turn that was judged, the latest of several; None where nothing was
            learned from it now.
    """

    feedback_id: str
    status: FeedbackStatus
    note: str | None = None
    reason: ReceiptReason | None = None
    repeated: bool = False
    turn_id: str | None = None


class SignalFields(TypedDict, total=False):
    """Fields of :class:`~crabpath_retrievers.core.feedback.Feedback` that events may have, too."""

    used: Sequence[str] | None
    unused: Sequence[str] | None
    relevant: Sequence[str] | None
    irrelevant: Sequence[str] | None
    answer: str | None
    namespace: str | None
    user: str | None


class FeedbackFields(SignalFields, total=False):
    """Optional fields of :class:`~crabpath_retrievers.core.feedback.Feedback`."""

    correction: str | None
    source: RewardSource
    feedback_id: str
    session: str | None


MOST_LATER = 1000
"""Most later outcomes through which one is taken out of the mean: it has a share of 4e-7 there."""

_MAX_COUNT = 100
_PRIOR_MEAN, _PRIOR_COUNT = 0.5, 4.0  # Beta(3, 1) on success, as outcomes in [-1, 1]


@dataclass(frozen=True, slots=True)
class Baseline:
    """The running mean of outcomes, b.

    The baseline of REINFORCE (Williams 1992, §3; Sutton & Barto 2018, §13.4).

    Attributes:
        mean: Mean of the outcomes, in [-1, 1]; 0 before the first.
        count: Number of outcomes. From 100 on the mean is exponential: the share of an outcome
            halves every 69 turns.
    """

    mean: float = 0.0
    count: int = 0

    def __post_init__(self) -> None:
        """Validate the mean."""
        validate_outcome(self.mean, name="the mean outcome")

    @property
    def evidence(self) -> float:
        """Weight of an outcome without stated use as evidence about documents, in [0, 1].

        ``2 P(success) - 1``, at least 0, with the mean of a Beta(3, 1) posterior as P(success).
        Where chains fail as often as not, a failure was to be expected whatever was returned, and a
        success does not show that what was returned is right for other questions.
        """
        count = min(self.count, _MAX_COUNT)
        total = count * self.mean + _PRIOR_COUNT * _PRIOR_MEAN
        return max(0.0, total / (count + _PRIOR_COUNT))

    def with_outcome(self, z: float) -> "Baseline":
        """Return the baseline with one more outcome."""
        count = self.count + 1
        return _make_baseline(self.mean + (z - self.mean) / min(count, _MAX_COUNT), count)

    def without(self, z: float, later: Sequence[float]) -> "Baseline":
        """Return the baseline as if one outcome had never entered it.

        The mean is an exponential average: the ``later`` outcomes are taken out, newest first, then
        ``z``, and the later ones are put in again. If there are more than ``MOST_LATER`` later
        ones, the weight of ``z`` in the mean is negligible, and only the count is changed.

        Args:
            later: Outcomes that entered after ``z`` and are still in effect, oldest first.
        """
        if len(later) > MOST_LATER:
            return Baseline(self.mean, self.count - 1)
        before = self
        for outcome in (*reversed(later), z):
            if before.count <= 1:
                before = Baseline()
                break
            share = 1 / min(before.count, _MAX_COUNT)
            before = _make_baseline((before.mean - share * outcome) / (1 - share), before.count - 1)
        for outcome in later:
            before = before.with_outcome(outcome)
        return before


def _make_baseline(mean: float, count: int) -> Baseline:
    """Make a baseline; a mean that rounding has carried beyond [-1, 1] is clipped."""
    return Baseline(max(-1.0, min(1.0, mean)), count)


def advantage(z: float, baseline: float) -> float:
    """Return the advantage z - b, clipped to 0 if its sign differs from that of z; in [-2, 2].

    A success below the average changes nothing instead of lowering what it credits, and a failure
    above the average changes nothing instead of raising what it blames. A document that was
    returned and not used (z = 0) is no evidence in either direction: not every answer needs every
    document.
    """
    if z > 0:
        return max(0.0, z - baseline)
    return min(0.0, z - baseline) if z < 0 else 0.0
