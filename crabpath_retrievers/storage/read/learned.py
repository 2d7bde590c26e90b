"""Reads of the learned state of namespaces, of feedback, and of regions with their transitions."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.core.changes import EpisodeContent, TransitionCount
from crabpath_retrievers.core.feedback import Feedback, FeedbackStatus
from crabpath_retrievers.core.records import (
    OVERLAY_KINDS,
    TYPED_KINDS,
    EdgeKind,
    ReturnedDocument,
    StoredWeight,
    Vector,
    parse_returned,
)
from crabpath_retrievers.errors import NotFoundError, StoreError
from crabpath_retrievers.storage.read.walk import CLOCK_COLUMNS, Clock
from crabpath_retrievers.storage.schema import (
    contents,
    episodes,
    feedback,
    feedback_effects,
    meta,
    namespaces,
    nodes,
    notes,
    overlay,
    pair_counts,
    transitions,
    usage,
)
from crabpath_retrievers.storage.sql_tools import (
    CompiledSelect,
    Queries,
    decode_rows,
    decode_vector,
)

EdgeTriple = tuple[int, int, EdgeKind]
"""An edge: keys of source and target, and its kind."""


class NamespaceState(NamedTuple):
    """State of a namespace.

    All counters of the clock are 0 for one that does not exist; the model, as JSON, is None before
    it first learned.
    """

    clock: Clock
    model: str | None = None
    frozen: bool = False

    @property
    def version(self) -> int:
        """Incremented by every change of learned state; 0 at the start."""
        return self.clock.learned


class StoredEpisode(NamedTuple):
    """Turns with the same query.

    Credit and counts are as in :class:`EpisodeContent`; the unit query vector, shape ``[d]``, is in
    half precision.
    """

    id: str
    query: str
    turns: float
    labelled_turns: float
    documents: dict[str, float]
    vector: Vector
    clock: int
    credit_by_user: dict[str, dict[str, float]] = {}  # noqa: RUF012 - nobody writes to it

    @property
    def content(self) -> EpisodeContent:
        """Content of the episode, for a change that adds to it."""
        credit = self.documents, self.credit_by_user
        return EpisodeContent(self.turns, self.labelled_turns, *credit, self.clock)


class KnownNode(NamedTuple):
    """A node that a turn or feedback names.

    The vector, shape ``[d]``, is None if queries of the namespace cannot find it; ``wins`` counts
    the turns that used it.
    """

    id: str
    key: int
    vector: Vector | None
    wins: float


class UsageCounts(NamedTuple):
    """Turns that used a returned document, turns that did not; nats of reward lost by failures."""

    wins: float
    losses: float
    decay: float


class NamespaceRecord(NamedTuple):
    """A namespace, and how much it has asked and learned.

    Attributes:
        name: Its name.
        turns: Number of turns that it had; recorded turns may be fewer.
        lessons: How often what it has learned has changed.
        feedback: Number of its feedback that was learned from, or waits.
        notes: Number of its notes.
        frozen: Whether its learning is stopped.
    """

    name: str
    turns: int
    lessons: int
    feedback: int
    notes: int
    frozen: bool


class StoredFeedback(NamedTuple):
    """Stored feedback.

    Attributes:
        vector: Unit vector of its correction, shape ``[d]``, or None.
        added: Documents that it names and its turn did not return, as the turn would have ranked
            them.
        namespace: Name of its namespace; None while that is not known.
    """

    sequence: int
    feedback: Feedback
    status: FeedbackStatus
    note: str | None
    created: float
    vector: Vector | None = None
    added: tuple[ReturnedDocument, ...] = ()
    namespace: str | None = None


class UnreadableFeedback(NamedTuple):
    """Stored feedback that cannot be decoded, and the reason."""

    sequence: int
    id: str
    why: str


STATE_COLUMNS = (*CLOCK_COLUMNS, namespaces.c.model, namespaces.c.frozen)
"""Columns of :func:`decode_state`, from ``namespaces``."""

_STATE = CompiledSelect(sa.select(*STATE_COLUMNS).where(namespaces.c.name == sa.bindparam("name")))
_NODES = CompiledSelect(
    sa.select(
        nodes.c.id,
        nodes.c.key,
        nodes.c.owner,
        nodes.c.embedding,
        sa.func.coalesce(usage.c.wins, 0.0),
    )
    .outerjoin(
        usage,
        sa.and_(usage.c.node == nodes.c.key, usage.c.namespace == sa.bindparam("namespace")),
    )
    .where(
        nodes.c.id.in_(sa.bindparam("ids", expanding=True)),
        sa.or_(nodes.c.owner <= 0, nodes.c.owner == sa.bindparam("namespace")),
    )
)
_USAGE = CompiledSelect(
    sa.select(usage.c.node, usage.c.wins, usage.c.losses, usage.c.decay).where(
        usage.c.namespace == sa.bindparam("namespace"),
        usage.c.node.in_(sa.bindparam("keys", expanding=True)),
    )
)
_EPISODE_COLUMNS = (
    episodes.c.id,
    episodes.c.query,
    episodes.c.turns,
    episodes.c.labelled_turns,
    episodes.c.documents,
    episodes.c.embedding,
    episodes.c.clock,
    episodes.c.credit_by_user,
)
# The sum keeps the planner from the index on namespaces, which leads to all their episodes.
_IN_NAMESPACE = episodes.c.namespace + 0 == sa.bindparam("namespace")
_EPISODES = CompiledSelect(
    sa.select(*_EPISODE_COLUMNS).where(
        _IN_NAMESPACE, episodes.c.id.in_(sa.bindparam("ids", expanding=True))
    )
)
_EPISODE_VECTORS = CompiledSelect(
    sa.select(episodes.c.id, episodes.c.embedding).where(
        _IN_NAMESPACE, episodes.c.id.in_(sa.bindparam("ids", expanding=True))
    )
)
_QUEUED_EPISODES = CompiledSelect(
    sa.select(*_EPISODE_COLUMNS).where(_IN_NAMESPACE, episodes.c.indexed == 0)
)
_ALL = 2**62
_EPISODE_IDS = CompiledSelect(
    sa.select(episodes.c.id)
    .where(episodes.c.namespace == sa.bindparam("namespace"))
    .limit(sa.bindparam("limit", type_=sa.BigInteger))
    .offset(sa.bindparam("offset", type_=sa.BigInteger))
)
_UNINDEXED_COUNT = CompiledSelect(sa.select(sa.func.count()).where(episodes.c.indexed == 0))
_KEYS = CompiledSelect(
    sa.select(nodes.c.id, nodes.c.key, nodes.c.owner).where(
        nodes.c.id.in_(sa.bindparam("ids", expanding=True)),
        sa.or_(nodes.c.owner <= 0, nodes.c.owner == sa.bindparam("namespace")),
    )
)
_BY_VALUE = {kind.value: kind for kind in EdgeKind}  # a call of the class takes four times as long
_NOTHING = sa.cast(sa.null(), sa.Integer)
_KINDS = [kind.value for kind in (*OVERLAY_KINDS, *TYPED_KINDS)]


def _select_edges(table: sa.Table, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Select rows of edges that leave some nodes, in one namespace."""
    return (
        sa.select(table.c.source, table.c.target, table.c.kind, *columns)
        .join(namespaces, namespaces.c.key == table.c.namespace)
        .where(
            namespaces.c.name == sa.bindparam("name"),
            table.c.source.in_(sa.bindparam("sources", expanding=True)),
        )
    )


# The authority of the target is NULL for counts, which do not decay.
_EDGES = CompiledSelect(
    sa.union_all(
        _select_edges(
            overlay,
            overlay.c.weight,
            overlay.c.decay_at,
            namespaces.c.exponent,
            nodes.c.authority,
        )
        .join(nodes, nodes.c.key == overlay.c.target)
        .where(overlay.c.kind.in_(_KINDS)),
        _select_edges(
            pair_counts,
            pair_counts.c["count"],
            namespaces.c.exponent,
            namespaces.c.exponent,
            _NOTHING,
        ),
    )
)
_FEEDBACK_COLUMNS = (
    feedback.c.id,
    feedback.c.sequence,
    feedback.c.payload,
    feedback.c.status,
    feedback.c.note,
    feedback.c.created,
    feedback.c.embedding,
    feedback.c.namespace,
)
_FEEDBACK = CompiledSelect(
    sa.select(*_FEEDBACK_COLUMNS).where(feedback.c.sequence == sa.bindparam("sequence"))
)


class LearnedQueries(Queries):
    """Reads of learned state; but for ``episode_ids``, cost does not grow with what was learned."""

    def get_state(self, namespace: str) -> NamespaceState:
        """State of a namespace; that of an unknown one has version 0."""
        rows = self._run(_STATE, name=namespace)
        return decode_state(rows[0]) if rows else NamespaceState(Clock(0, 0, 0.0))

    def get_tuning(self, namespace: str) -> tuple[str | None, str | None]:
        """Read knobs and tuning history of a namespace, as JSON; None for what it does not have."""
        query = sa.select(namespaces.c.knobs, namespaces.c.tuning)
        rows = self._rows(query.where(namespaces.c.name == namespace))
        return (rows[0].knobs, rows[0].tuning) if rows else (None, None)

    def usage(self, namespace: int, keys: Sequence[int]) -> dict[int, UsageCounts]:
        """Read usage counts by key of the node; nodes without any are left out."""
        rows = self._run(_USAGE, namespace=namespace, keys=list(keys))
        return {key: UsageCounts(*counts) for key, *counts in rows}

    def list_namespaces(
        self, names: Iterable[str] | None, after: str, limit: int
    ) -> list[NamespaceRecord]:
        """List at most ``limit`` namespaces with names after ``after``, in order of names.

        ``names`` lists only these; None lists any.
        """
        n = namespaces.c
        counts = (feedback.c.namespace == n.name, feedback.c.status.in_(("applied", "waiting")))
        given = sa.select(sa.func.count()).where(*counts)
        query = sa.select(
            n.name, n.turn, n.version, given.scalar_subquery(), n.note_count, n.frozen
        )
        query = query.where(n.name > after).order_by(n.name).limit(limit)
        rows = self._rows(query) if names is None else self._rows_in(query, n.name, names)
        return [
            NamespaceRecord(name, turns, lessons, given, notes, bool(frozen))
            for name, turns, lessons, given, notes, frozen in rows
        ][:limit]

    def episodes(
        self, namespace: int, ids: Sequence[str], *, queued: bool = False
    ) -> list[StoredEpisode]:
        """Read the episodes with these ids; if ``queued``, also all that wait for the index."""
        rows = self._run(_EPISODES, namespace=namespace, ids=list(ids))
        if queued:
            rows = [*rows, *self._run(_QUEUED_EPISODES, namespace=namespace)]
        return _decode_episodes({row[0]: row for row in rows}.values())

    def recent_episodes_of(self, user: str, namespace: str, limit: int) -> list[StoredEpisode]:
        """Read the episodes that the last ``limit`` applied feedbacks of a user added to."""
        own = sa.and_(
            feedback.c.id == feedback_effects.c.feedback,
            feedback.c.namespace == namespaces.c.name,
        )
        query = (
            sa.select(namespaces.c.key, feedback_effects.c.record)
            .join_from(
                namespaces, feedback_effects, namespaces.c.key == feedback_effects.c.namespace
            )
            .join(feedback, own)
            .where(feedback.c.user == user, namespaces.c.name == namespace)
            .order_by(feedback.c.sequence.desc())
            .limit(limit)
        )
        rows = self._rows(query)
        ids = {episode[0] for _, record in rows for episode in json.loads(record)["episodes"]}
        return self.episodes(rows[0][0], sorted(ids)) if rows else []

    def episode_vectors(self, namespace: int, ids: Iterable[str]) -> dict[str, Vector]:
        """Unit query vectors ``[d]``, half precision, of the episodes with these ids."""
        rows = self._run(_EPISODE_VECTORS, namespace=namespace, ids=list(ids))
        return {name: decode_vector(data) for name, data in rows}

    def latest_episodes(self, namespace: int, limit: int) -> list[StoredEpisode]:
        """Read the latest ``limit`` episodes of a namespace, for an index that holds none."""
        query = (
            sa.select(*_EPISODE_COLUMNS)
            .where(episodes.c.namespace == namespace)
            .order_by(episodes.c.clock.desc())
            .limit(limit)
        )
        return _decode_episodes(self._rows(query))

    def episode_ids(self, namespace: int, limit: int = _ALL) -> list[str]:
        """Read the ids of the episodes of a namespace: all, or at most ``limit``."""
        rows = self._run(_EPISODE_IDS, namespace=namespace, limit=limit, offset=0)
        return [episode for (episode,) in rows]

    def count_unindexed_episodes(self) -> int:
        """Number of episodes that are queued for the index."""
        ((count,),) = self._run(_UNINDEXED_COUNT)
        return int(count)

    def get_unindexed_episodes(self) -> list[tuple[int, StoredEpisode]]:
        """Episodes that are queued for the index, with the key of their namespace."""
        query = sa.select(episodes.c.namespace, *_EPISODE_COLUMNS).where(episodes.c.indexed == 0)
        rows = self._rows(query)
        return decode_rows("an episode", rows, lambda row: (row[0], _decode_episode(row[1:])))

    def keys(self, ids: Sequence[str], namespace: int = 0) -> dict[str, int]:
        """Read the keys of documents, and of notes of a namespace (by key), by id."""
        rows = self._run(_KEYS, ids=list(ids), namespace=namespace)
        # A document hides a note with its id.
        return {node: key for node, key, _ in sorted(rows, key=lambda row: -row[2])}

    def nodes(self, namespace: int, ids: Iterable[str]) -> dict[str, KnownNode]:
        """The nodes with these ids, by id; unknown ids are left out."""
        rows = self._run(_NODES, namespace=namespace, ids=list(ids))
        return {
            node: KnownNode(
                node, key, decode_vector(vector) if owner in {0, namespace} else None, wins
            )
            # A document hides a note with its id.
            for node, key, owner, vector, wins in sorted(rows, key=lambda row: -row[2])
        }

    def edges(
        self, namespace: str, sources: Sequence[int]
    ) -> tuple[dict[EdgeTriple, float], dict[EdgeTriple, float]]:
        """Read learned edges that leave ``sources``: weights after decay, and counts of new ones.

        Both are by keys of the ends and kind; a count is evidence for an edge that does not exist
        yet.
        """
        weights: dict[EdgeTriple, float] = {}
        counts: dict[EdgeTriple, float] = {}
        rows = self._run(_EDGES, name=namespace, sources=list(sources))
        for source, target, kind, value, decay_at, exponent, authority in rows:
            edge = (source, target, _BY_VALUE[kind])
            if authority is None:
                counts[edge] = max(0.0, value)  # see ``registry.COUNTERS``
            else:
                stored = StoredWeight(value, decay_at, authority=authority)
                weights[edge] = stored.decay_to(exponent)
        return weights, counts

    def weights(self, namespace: str, sources: Sequence[int]) -> dict[EdgeTriple, float]:
        """Read effective weights, in [-1, 1], of the learned edges that leave ``sources``."""
        return self.edges(namespace, sources)[0]

    def get_feedback(self, feedback_id: str, namespace: str | None = None) -> StoredFeedback:
        """Read feedback by its id; ``namespace`` None takes that of any namespace.

        Errors are as for :meth:`read_feedback`.
        """
        own = [] if namespace is None else [feedback.c.namespace == namespace]
        query = sa.select(feedback.c.sequence).where(feedback.c.id == feedback_id, *own)
        return self.read_feedback(self._scalar(query.limit(1)) or 0)

    def read_feedback(self, sequence: int) -> StoredFeedback:
        """Read feedback by its number.

        Raises:
            NotFoundError: There is none.
            StoreError: The stored feedback cannot be decoded.
        """
        rows = self._run(_FEEDBACK, sequence=sequence)
        if not rows:
            msg = "this feedback is no longer kept here"
            raise NotFoundError(msg)
        kept = _decode_feedback(rows[0])
        if isinstance(kept, UnreadableFeedback):
            msg = f"feedback {kept.id!r} {kept.why}: give it again under another id"
            raise StoreError(msg)
        return kept

    def get_waiting_feedback(
        self, limit: int, after: int = 0
    ) -> list[StoredFeedback | UnreadableFeedback]:
        """List at most ``limit`` waiting feedbacks with numbers above ``after``, oldest first."""
        query = (
            sa.select(*_FEEDBACK_COLUMNS)
            .where(feedback.c.status == "waiting", feedback.c.sequence > after)
            .order_by(feedback.c.sequence)
            .limit(limit)
        )
        return [_decode_feedback(row) for row in self._rows(query)]

    def iterate_answers(self) -> Iterator[list[tuple[int, str | None]]]:
        """Yield, in blocks, the number of each feedback with an answer, and the turn it names.

        The turn is None for feedback that names none.
        """
        query = sa.select(feedback.c.sequence, feedback.c.payload)
        query = query.where(feedback.c.payload.contains('"answer": "'))
        for rows in self._iterate_blocks(query, feedback.c.sequence, 500):
            yield [(number, json.loads(payload).get("turn_id")) for number, payload in rows]

    def count_waiting_feedback(self) -> int:
        """Number of feedback records that wait."""
        return self._count(feedback, feedback.c.status == "waiting")

    def find_oldest_waiting(self) -> float | None:
        """Find when the oldest feedback that waits was given, in seconds since 1970."""
        query = sa.select(sa.func.min(feedback.c.created)).where(feedback.c.status == "waiting")
        found: float | None = self._scalar(query)
        return found

    def count_feedback(self) -> dict[str, int]:
        """Number of feedback records by status: waiting, applied, refused."""
        query = sa.select(feedback.c.status, sa.func.count()).group_by(feedback.c.status)
        found = {status: count for status, count in self._rows(query)}
        return {status: found.get(status, 0) for status in ("waiting", "applied", "refused")}


def decode_state(row: Sequence[Any]) -> NamespaceState:
    """The state of a namespace from ``STATE_COLUMNS``."""
    *clock, model, frozen = row
    return NamespaceState(Clock(*clock), model, bool(frozen))


def _decode_episodes(rows: Iterable[Sequence[Any]]) -> list[StoredEpisode]:
    return decode_rows("an episode", rows, _decode_episode)


def _decode_episode(row: Sequence[Any]) -> StoredEpisode:
    episode, query, turns, labelled, documents, embedding, clock, by_user = row
    return StoredEpisode(
        episode,
        query,
        turns,
        labelled,
        json.loads(documents),
        decode_vector(embedding),
        clock,
        json.loads(by_user) if by_user else {},
    )


def _decode_feedback(row: Sequence[Any]) -> StoredFeedback | UnreadableFeedback:
    identity, sequence, payload, status, note, created, embedding, namespace = row
    try:
        given = Feedback.from_record(payload)
        added = parse_returned(json.loads(payload).get("added", ()))
        vector = None if embedding is None else decode_vector(embedding)
    except (ValueError, TypeError, KeyError) as error:  # one damaged row must not block the others
        return UnreadableFeedback(sequence, identity, f"cannot be read ({error})")
    return StoredFeedback(sequence, given, status, note, created, vector, added, namespace)


_BLOCK = 4096
_STEP = [transitions.c[name] for name in TransitionCount._fields]
_STEPS = CompiledSelect(
    sa.select(*_STEP).where(
        transitions.c.namespace == sa.bindparam("namespace"),
        transitions.c.level.in_(sa.bindparam("levels", expanding=True)),
        transitions.c.region.in_(sa.bindparam("regions", expanding=True)),
    )
)


_NODE = sa.select(nodes.c.key, nodes.c.id, nodes.c.title, nodes.c.embedding)


class NodeVector(NamedTuple):
    """A node with its unit vector, shape ``[d]``, half precision."""

    key: int
    id: str
    title: str
    vector: Vector


class RegionQueries(Queries):
    """Reads of regions; queries use only :meth:`steps`."""

    def version(self) -> int:
        """Version of the set of hubs; 0 in a corpus without any."""
        query = sa.select(meta.c.value).where(meta.c.name == "hubs")
        return int(self._scalar(query) or 0)

    def sizes(self) -> dict[int, int]:
        """Number of hubs by level, from level 1 to the highest."""
        query = sa.select(nodes.c.level, sa.func.count()).where(nodes.c.level > 0)
        exact = {level: n for level, n in self._rows(query.group_by(nodes.c.level))}
        top = max(exact, default=0)
        return {
            level: sum(n for other, n in exact.items() if other >= level)
            for level in range(1, top + 1)
        }

    def hubs(self, level: int) -> list[NodeVector]:
        """The hubs of a level, in order of their keys."""
        query = _NODE.where(nodes.c.level >= level).order_by(nodes.c.key)
        return _decode_nodes(self._rows(query))

    def iterate_nodes(self) -> Iterator[list[NodeVector]]:
        """Yield all visible nodes except notes in blocks, in order of their keys."""
        for rows in self._iterate_blocks(_NODE.where(nodes.c.owner == 0), nodes.c.key, _BLOCK):
            yield _decode_nodes(rows)

    def get_states(self, namespace: int, most: int) -> list[NodeVector]:
        """Read the newest ``most`` states of the episodes of agents, in order of their keys."""
        query = _NODE.join(notes, notes.c.node == nodes.c.key)
        query = query.where(notes.c.namespace == namespace, notes.c.kind == "state")
        rows = self._rows(query.order_by(nodes.c.key.desc()).limit(most))
        return _decode_nodes(rows[::-1])

    def get_beginnings(self, keys: Sequence[int], length: int) -> list[tuple[Vector, str, str]]:
        """Read unit vectors ``[d]``, half precision, titles, and first characters of texts."""
        query = sa.select(
            nodes.c.embedding, nodes.c.title, sa.func.substr(contents.c.content, 1, length)
        )
        query = query.join(contents, contents.c.node == nodes.c.key)
        rows = self._rows_in(query, nodes.c.key, keys)
        return [(decode_vector(data), title, text) for data, title, text in rows]

    def get_transitions(
        self, namespace: int, places: Sequence[tuple[int, int]]
    ) -> list[TransitionCount]:
        """Read transition counts from the regions ``places`` of a namespace.

        Each place is ``(level, key of the hub)``.
        """
        levels, regions = ({place[part] for place in places} for part in (0, 1))
        rows = self._run(_STEPS, namespace=namespace, levels=list(levels), regions=list(regions))
        known = set(places)
        return _decode_counts(row for row in rows if (row[0], row[1]) in known)

    def get_all_transitions(self, namespace: str, level: int) -> list[TransitionCount]:
        """Transition counts of a namespace at one level, and those of all its regions together."""
        levels = {min(level, 0), level}
        query = (
            sa.select(*_STEP)
            .join(namespaces, namespaces.c.key == transitions.c.namespace)
            .where(namespaces.c.name == namespace, transitions.c.level.in_(levels))
        )
        return _decode_counts(self._rows(query))


def _decode_counts(rows: Iterable[Sequence[Any]]) -> list[TransitionCount]:
    """Decode counts, each at least 0, see ``registry.COUNTERS``; rows of zeros are left out."""
    found = (TransitionCount(*row[:5], *(max(0.0, count) for count in row[5:])) for row in rows)
    return [one for one in found if any(one.counts)]


def _decode_nodes(rows: Sequence[Any]) -> list[NodeVector]:
    return [NodeVector(key, name, title, decode_vector(data)) for key, name, title, data in rows]
