"""Lists of what a memory holds, page by page: chunks, sources, notes, turns and feedback."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import dropwhile
from typing import Any, NamedTuple

import sqlalchemy as sa
from langchain_core.documents import Document
from pydantic_core import from_json

from crabpath_retrievers.core.feedback import (
    DEFAULT_NAMESPACE,
    DOCUMENT_FIELDS,
    FeedbackStatus,
    RewardSource,
)
from crabpath_retrievers.core.metadata import require_bounded
from crabpath_retrievers.core.query import parse_namespace, parse_text, require_count
from crabpath_retrievers.core.records import Node
from crabpath_retrievers.core.text import format_value, list_query_words
from crabpath_retrievers.errors import InvalidInputError, NotFoundError
from crabpath_retrievers.ingest.chunking import to_json_safe
from crabpath_retrievers.memory.documents import make_document
from crabpath_retrievers.memory.services import Services
from crabpath_retrievers.retrieval.search import compute_idf, search_lexical, select_query_words
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.catalog import Catalog, begins_with
from crabpath_retrievers.storage.read.history import FeedbackFilter, HistoryQueries
from crabpath_retrievers.storage.read.notes import IS_SEARCHED
from crabpath_retrievers.storage.read.turns import CONSUMER
from crabpath_retrievers.storage.schema import (
    consumed_turns,
    contents,
    feedback,
    namespaces,
    nodes,
    notes,
    turns,
)
from crabpath_retrievers.storage.sql_tools import Queries, decode_rows

MetadataTest = Callable[[Mapping[str, Any]], bool]
"""Whether metadata are those that are looked for."""

_AT_ONCE = 5000  # chunks whose metadata are read together
_MOST_WITH_WORDS = 1000  # chunks that are found by words
_NOTES = notes.join(nodes, nodes.c.key == notes.c.node)
_PLACE = re.compile(r"place:(\d{1,18}):(\d{1,18}):(.*)", re.DOTALL)
_LEARNED_FROM = (
    sa.select(turns.c.id)
    .join(consumed_turns, consumed_turns.c.turn == turns.c.id)
    .join(namespaces, namespaces.c.key == turns.c.namespace)
    .where(consumed_turns.c.feedback == feedback.c.id, namespaces.c.name == feedback.c.namespace)
    .order_by(turns.c.clock.desc())
    .limit(1)
    .scalar_subquery()
    .label("turn")
)


class ListPlace(NamedTuple):
    """A place in a list: its values of the order by which the list is sorted.

    The list goes on from there although the item that stood there is deleted.
    """

    first: int
    second: int = 0
    source: str = ""

    def __str__(self) -> str:
        """Format as the text that :meth:`parse` reads."""
        return f"place:{self.first}:{self.second}:{self.source}"

    @classmethod
    def parse(cls, text: str, what: str) -> "ListPlace":
        """Read the text of a place, given where no item has this id."""
        found = _PLACE.fullmatch(text)
        if found is None:
            msg = f"there is no {what} {text!r:.250} to go on after: list from the beginning"
            raise NotFoundError(msg)
        return cls(int(found[1]), int(found[2]), found[3])


class NoteRecord(NamedTuple):
    """A stored note.

    Attributes:
        id: Id of the note; ``CrabPath.forget`` takes it.
        kind: ``teaching``, ``directive``, ``correction``, or ``auto`` for one made from an answer.
        title: Its title; empty without one.
        text: What it says.
        query: The question that it answers; None if unknown.
        turn_id: Id of the turn that it was made from; None without one.
        feedback_id: Id of the feedback that it was made from; None without one.
        uses: Number of successful turns that used it.
        token: Id of the token of the server that gave it; None without one.
    """

    id: str
    kind: str
    title: str
    text: str
    query: str | None
    turn_id: str | None
    feedback_id: str | None
    uses: int
    token: str | None = None


class TurnRecord(NamedTuple):
    """Usual facts about a recorded turn; ``CrabPath.explain`` knows the rest.

    Attributes:
        id: Id of the turn.
        created: Seconds since the epoch.
        query: The question.
        documents: Ids of the returned documents and notes, best first.
        run_id: Id of the host's run that asked; None without one.
        feedback_id: Id of feedback that was learned from it; None while there is none.
        latency_ms: Milliseconds of each stage.
    """

    id: str
    created: float
    query: str
    documents: tuple[str, ...]
    run_id: str | None
    feedback_id: str | None
    latency_ms: dict[str, float] = {}  # noqa: RUF012 - nobody writes to it


class FeedbackRecord(NamedTuple):
    """Stored feedback and its state.

    Attributes:
        feedback_id: Id of the feedback.
        turn_id: Id of the turn, as given; where none was, of the last one that it was learned from,
            None without one.
        outcome: z in [-1, 1].
        status: ``waiting``, ``applied``, ``refused`` or ``undone``.
        note: Why it was refused or undone, or which parts of it were ignored.
        user: Id of the user who gave it; None if unknown.
        source: Kind of source, such as ``human`` or ``self``.
        namespace: Namespace of the turn; None if unknown.
        created: Seconds since the epoch.
        correction: The correct answer, as given.
        used, unused, relevant, irrelevant: Documents as they were named; None where none were.
        token: Id of the token of the server that gave it; None without one.
    """

    feedback_id: str
    turn_id: str | None
    outcome: float
    status: FeedbackStatus
    note: str | None
    user: str | None
    source: RewardSource
    namespace: str | None
    created: float
    correction: str | None
    used: tuple[str, ...] | None = None
    unused: tuple[str, ...] | None = None
    relevant: tuple[str, ...] | None = None
    irrelevant: tuple[str, ...] | None = None
    token: str | None = None


class ListQueries(Queries):
    """Reads of lists."""

    def list_nodes(
        self,
        limit: int,
        *,
        source: str | None = None,
        under: str | None = None,
        matches: MetadataTest | None = None,
        owner: int = 0,
        after: str | None = None,
    ) -> list[Node]:
        """List chunks, without vectors, the oldest first.

        Args:
            limit: Most chunks.
            source: Only chunks of this source, in the order of its texts if the
                list has them all; None for any.
            under: Only chunks whose source begins with this text, by source; None for any.
            matches: Only chunks whose metadata satisfy this test; the corpus is read until enough
                are found. None for any.
            owner: 0 for visible chunks, ``RETIRED`` for retired ones.
            after: Only chunks that come after the one with this id, or after this place, in the
                list; None for all.

        Raises:
            NotFoundError: There is no chunk ``after``.
        """
        query = (
            sa.select(contents.c.source, contents.c.node, nodes.c.id, contents.c.metadata)
            .join(nodes, nodes.c.key == contents.c.node)
            .where(nodes.c.owner == owner)
        )
        place = ListPlace(0) if after is None else self.find_chunk(after, owner=owner)
        if source is not None:
            query = query.where(contents.c.source == source)
        if under is None:
            query = query.order_by(contents.c.node)
        else:
            query = query.where(begins_with(under)).order_by(contents.c.source, contents.c.node)
        query = query.limit(min(limit, _AT_ONCE))
        ids: list[str] = []
        while len(ids) < limit:
            rows = self._rows(query.where(*_stand_after(place, under)))
            if not rows:
                break
            passed = (row for row in rows if matches is None or _passes(matches, row.metadata))
            ids += [row.id for row in passed]
            place = ListPlace(rows[-1].node, source=rows[-1].source)
        read = Catalog(self._store).documents(ids[:limit], namespace=owner)
        found = [read[node] for node in ids[:limit] if node in read]
        if source is None or after is not None or len(ids) >= limit:
            return found
        return sorted(found, key=lambda node: (node.document, node.position))

    def find_chunk(self, name: str, *, owner: int = 0) -> ListPlace:
        """Find the place of the chunk with this id, or read the text of a place.

        Raises:
            NotFoundError: There is no such chunk.
        """
        query = sa.select(nodes.c.key, contents.c.source)
        query = query.join(contents, contents.c.node == nodes.c.key)
        known = self._rows(query.where(nodes.c.owner == owner, nodes.c.id == name))
        if not known:
            return ListPlace.parse(name, "chunk")
        return ListPlace(known[0].key, source=known[0].source)

    def count_by_source(
        self, limit: int, *, under: str | None = None, after: str | None = None
    ) -> dict[str, int]:
        """Count the visible chunks of at most ``limit`` sources, in the order of their names.

        Only sources whose name begins with ``under`` and comes after ``after``; None for any.
        """
        query = (
            sa.select(contents.c.source, sa.func.count())
            .join(nodes, nodes.c.key == contents.c.node)
            .where(nodes.c.owner == 0)
            .group_by(contents.c.source)
            .order_by(contents.c.source)
        )
        if under is not None:
            query = query.where(begins_with(under))
        if after is not None:
            query = query.where(contents.c.source > after)
        return {source: count for source, count in self._rows(query.limit(limit))}

    def list_notes(
        self, namespace: int, limit: int, *, before: str | None = None
    ) -> list[NoteRecord]:
        """List the newest ``limit`` notes of a namespace, also those whose probation is over.

        States of agents are left out. ``before`` is the id of a note, or a place: only older
        notes are listed.

        Raises:
            NotFoundError: The namespace has no note ``before``.
        """
        n, given = notes.c, feedback.c
        of_feedback = (
            sa.select(given.token)
            .join(namespaces, namespaces.c.name == given.namespace)
            .where(given.id == n.feedback, namespaces.c.key == n.namespace)
            .correlate(notes)
        )
        query = (
            sa.select(nodes.c.id, n.kind, nodes.c.title, contents.c.content)
            .add_columns(n.query, n.turn, n.feedback, n.uses)
            .add_columns(sa.func.coalesce(n.token, of_feedback.scalar_subquery()))
            .select_from(_NOTES)
            .join(contents, contents.c.node == n.node)
            .where(n.namespace == namespace, IS_SEARCHED)
            .order_by(n.created_turn.desc(), n.node.desc())
            .limit(limit)
        )
        if before is not None:
            turn, node, _ = self.find_note(namespace, before)
            same = (n.created_turn == turn) & (n.node < node)
            query = query.where((n.created_turn < turn) | same)
        return [NoteRecord(*row) for row in self._rows(query)]

    def find_note(self, namespace: int, name: str) -> ListPlace:
        """Find the place of the note with this id, or read the text of a place.

        Raises:
            NotFoundError: The namespace has no such note.
        """
        n = notes.c
        place = sa.select(n.created_turn, n.node).select_from(_NOTES)
        found = self._rows(place.where(n.namespace == namespace, nodes.c.id == name))
        return ListPlace(*found[0]) if found else ListPlace.parse(name, "note")

    def list_turns(
        self, namespace: int, limit: int, *, until: int | None = None
    ) -> list[TurnRecord]:
        """List the last ``limit`` turns of a namespace, newest first.

        ``until`` is the number of the turn before which they must be; None for the end.
        """
        query = (
            sa.select(turns.c.record, CONSUMER)
            .where(turns.c.namespace == namespace)
            .order_by(turns.c.clock.desc())
            .limit(limit)
        )
        if until is not None:
            query = query.where(turns.c.clock < until)
        return decode_rows("a turn", self._rows(query), _decode_turn_record)

    def list_feedback(
        self,
        giver: FeedbackFilter,
        limit: int,
        *,
        turn: str | None = None,
        before: str | None = None,
    ) -> list[FeedbackRecord]:
        """List feedback that matches a filter, newest first, at most ``limit``.

        ``turn`` is the id of a turn, or the host's id of its run: only feedback is listed that
        names it or was learned from it, and all feedback of the filter is read. None lists any.
        ``before`` is the id of feedback, or a place: only older feedback is listed. None lists all.

        Raises:
            NotFoundError: There is no feedback ``before``.
        """
        query = sa.select(feedback, _LEARNED_FROM).where(*giver.where())
        query = query.order_by(feedback.c.sequence.desc())
        if before is not None:
            query = query.where(
                feedback.c.sequence < self.find_feedback(before, giver.namespace).first
            )
        if turn is None:
            return [_decode_record(row) for row in self._rows(query.limit(limit))]
        asked = sa.or_(turns.c.id == turn, turns.c.run_id == turn)
        rows = self._rows(sa.select(turns.c.id, turns.c.run_id).where(asked))
        names = sorted({turn, *(name for row in rows for name in row if name)})
        consumed = (
            sa.select(consumed_turns.c.feedback, namespaces.c.name)
            .join(turns, turns.c.id == consumed_turns.c.turn)
            .join(namespaces, namespaces.c.key == turns.c.namespace)
            .where(consumed_turns.c.turn.in_(names))
        )
        consumers = {tuple(row) for row in self._rows(consumed)}
        # The texts of ids as JSON holds them: rows with another one are not decoded.
        quoted = (json.dumps(name, ensure_ascii=False) for name in names)
        named = [feedback.c.payload.contains(text, autoescape=True) for text in quoted]
        of_consumers = feedback.c.id.in_({name for name, _ in consumers})
        rows = self._rows(query.where(sa.or_(of_consumers, *named)))
        about = [
            r
            for r in map(_decode_record, rows)
            if r.turn_id in names or (r.feedback_id, r.namespace) in consumers
        ]
        return about[:limit]

    def find_feedback(self, name: str, namespace: str | None) -> ListPlace:
        """Find the place of the feedback with this id, or read the text of a place.

        Raises:
            NotFoundError: There is no such feedback, and the text is no place.
        """
        state = HistoryQueries(self._store).get_feedback_state(name, namespace)
        return ListPlace.parse(name, "feedback") if state is None else ListPlace(state.sequence)


def _stand_after(place: ListPlace, under: str | None) -> list[sa.ColumnElement[bool]]:
    """Make the conditions for chunks that come after the one at ``place`` in a list.

    The list is by source if ``under`` is given, else by key.
    """
    source, key = place.source, place.first
    if under is None:
        # Both bounds: PostgreSQL would read the other table from its first row.
        return [contents.c.node > key, nodes.c.key > key]
    rest = sa.and_(contents.c.source == source, contents.c.node > key)
    return [contents.c.source >= source, (contents.c.source > source) | rest]


def _passes(matches: MetadataTest, text: str) -> bool:
    """Whether metadata, stored as the JSON ``text``, satisfy a test; damaged ones do not."""
    with suppress(ValueError, RecursionError):
        return matches(json.loads(text))
    return False


def _decode_turn_record(row: Sequence[Any]) -> TurnRecord:
    record, consumed = row
    turn = from_json(record)
    documents = tuple(item["node"] for item in turn["returned"])
    return TurnRecord(
        turn["id"],
        turn["created"],
        turn["query"],
        documents,
        turn["run_id"],
        consumed,
        turn.get("latency_ms", {}),
    )


def _decode_record(row: sa.Row[Any]) -> FeedbackRecord:
    payload = json.loads(row.payload)
    return FeedbackRecord(
        feedback_id=row.id,
        turn_id=payload["turn_id"] or row.turn,
        outcome=payload["outcome"],
        status=row.status,
        note=row.note,
        user=row.user,
        source=payload["source"],
        namespace=row.namespace,
        created=row.created,
        correction=payload.get("correction"),
        **{name: tuple(payload[name]) for name in DOCUMENT_FIELDS if payload.get(name) is not None},
        token=row.token,
    )


def list_documents(
    services: Services,
    source: str | None,
    under: str | None,
    wanted: Mapping[str, object] | None,
    words: str | None,
    limit: int,
    after: str | None,
) -> list[Document]:
    """List the chunks of a memory; arguments and result as ``CrabPath.documents``."""
    limit = require_count("limit", limit)
    name, matches = None if source is None else parse_text("source", source), _make_test(wanted)
    start = None if under is None else parse_text("under", under)
    place = None if after is None else parse_text("after", after)
    if words is None:
        nodes = ListQueries(services.store).list_nodes(
            limit, source=name, under=start, matches=matches, after=place
        )
        return [make_document(node) for node in nodes]
    found = [
        node
        for node in _find_by_words(services, parse_text("words", words))
        if (name is None or node.source == name)
        and (start is None or node.source.startswith(start))
        and (matches is None or matches(node.metadata))
    ]
    if place is not None:
        rest = dropwhile(lambda node: node.id != place, found)
        if next(rest, None) is None:
            msg = f"no chunk {place!r} has these words any more: list from the beginning"
            raise NotFoundError(msg)
        found = [*rest]
    return [make_document(node) for node in found[:limit]]


def _find_by_words(services: Services, words: str) -> list[Node]:
    """Find chunks with any of the rarest words of the text ``words``, best first.

    At most a fixed number of them are found.
    """
    store, settings = services.store, services.settings.seeds
    wide = settings.model_copy(update={"hits_per_engine": _MOST_WITH_WORDS})
    with store.open_reader() as read:
        asked = select_query_words(list_query_words(words, read.language), settings)
        facts = read.walk.read_facts(DEFAULT_NAMESPACE, asked)
        scores = search_lexical(read, facts, compute_idf(facts), wide)
        heads = {head.key: head.id for head in read.walk.get_nodes((), [*scores])}
        best = [heads[key] for key in scores if key in heads]
        nodes = read.catalog.documents(best)
    return [nodes[name] for name in best if name in nodes]


def _make_test(wanted: Mapping[str, object] | None) -> MetadataTest | None:
    """Make the test whether metadata have all the wanted values; None if none are wanted."""
    if wanted is None:
        return None
    require_bounded(wanted)
    plain = isinstance(wanted, Mapping) and all(
        isinstance(key, str) and not key.startswith("$") and not isinstance(value, Mapping)
        for key, value in wanted.items()
    )
    values = to_json_safe(wanted) if plain else {}
    if not plain or None in values.values():
        msg = (
            "filter must map keys of the metadata to the values that they must have, such as "
            f"{{'team': 'people'}}, and None is none, not {format_value(wanted)}"
        )
        raise InvalidInputError(msg)
    return lambda metadata: all(
        (own := metadata.get(key)) == value and isinstance(own, bool) == isinstance(value, bool)
        for key, value in values.items()
    )


def list_notes(
    store: GraphStore, namespace: str, limit: int, *, before: str | None = None
) -> list[NoteRecord]:
    """List the newest notes of a namespace; as ``CrabPath.notes``."""
    limit = require_count("limit", limit)
    place = None if before is None else parse_text("before", before)
    owner = store.walk.get_clock(parse_namespace(namespace)).key
    return ListQueries(store).list_notes(owner, limit, before=place)


def find_note_place(store: GraphStore, name: str, namespace: str) -> ListPlace:
    """Find the place of a note in the list of a namespace.

    Raises:
        NotFoundError: There is no such note.
    """
    return ListQueries(store).find_note(store.walk.get_clock(namespace).key, name)


def list_turns(
    store: GraphStore, namespace: str, limit: int, *, before: str | None = None
) -> list[TurnRecord]:
    """List the last turns of a namespace; as ``CrabPath.turns``."""
    limit = require_count("limit", limit)
    store.flush()  # the first turn of a namespace creates it
    until = None if before is None else find_turn_place(store, before, namespace).first
    owner = store.walk.get_clock(parse_namespace(namespace)).key
    return ListQueries(store).list_turns(owner, limit, until=until)


def find_turn_place(store: GraphStore, turn_id: str, namespace: str) -> ListPlace:
    """Find the place of a turn in the list, or read the text of a place.

    Raises:
        NotFoundError: There is no such turn.
    """
    name = parse_text("before", turn_id)
    logged = store.turns.find(name, namespace=parse_namespace(namespace))
    return ListPlace.parse(name, "turn") if logged is None else ListPlace(logged.turn.clock)
