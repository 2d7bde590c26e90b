"""Turn records and the change journal."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.errors import NotFoundError
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.storage.hot import HotSelect
from crabpath_retrievers.storage.packing import unpack
from crabpath_retrievers.storage.reading import Readable, readable
from crabpath_retrievers.storage.renaming import with_nodes
from crabpath_retrievers.storage.replaced import standing_ids
from crabpath_retrievers.storage.schema import consumed_turns, journal, namespaces, turns
from crabpath_retrievers.trajectory import Turn


class Logged(NamedTuple):
    """A turn as feedback meets it.

    Attributes:
        turn: Its record.
        vector: Unit query vector, shape ``[d]``; None when it is not kept.
        consumed: Id of the feedback that consumed it; None while none did.
        frozen: Whether its namespace may learn no more.
    """

    turn: Turn
    vector: Vector | None
    consumed: str | None
    frozen: bool


_ONE, _NONE = (sa.literal_column(number, sa.Integer) for number in "10")


def _logged_of(namespace: sa.ColumnElement[int]) -> sa.Select[Any]:
    """Turns that are joined to their namespace by this expression."""
    joined = turns.join(namespaces, namespaces.c.key == namespace)
    columns = (turns.c.record, turns.c.embedding, consumed_turns.c.feedback, namespaces.c.frozen)
    return (
        sa.select(*columns)
        .select_from(joined.outerjoin(consumed_turns, consumed_turns.c.turn == turns.c.id))
        .order_by(turns.c.clock.desc())
    )


_NAMED = namespaces.c.name == sa.bindparam("namespace")
_ASKED = (
    # As a sum, lest the index of namespaces be used, which leads to all of their turns.
    _logged_of(turns.c.namespace + _NONE)
    .where(sa.or_(turns.c.id == sa.bindparam("asked"), turns.c.run_id == sa.bindparam("asked")))
    .limit(_ONE)
    .offset(_NONE)
)
_FIND, _FIND_IN = HotSelect(_ASKED), HotSelect(_ASKED.where(_NAMED))


def _window() -> HotSelect:
    until: sa.BindParameter[float] = sa.bindparam("until")
    since: sa.BindParameter[float] = sa.bindparam("since")
    whose, past = namespaces.alias(), turns.alias()
    last = (
        sa.select(past.c.clock)
        .join(whose, whose.c.key == past.c.namespace)
        .where(whose.c.name == sa.bindparam("namespace"), past.c.created <= until)
        .order_by(past.c.clock.desc())
        .limit(_ONE)
        .offset(_NONE)
        .scalar_subquery()
    )
    within = turns.c.created.between(since, until)
    # As a range of the clock, which is indexed.
    near = turns.c.clock > last - sa.bindparam("turns", type_=sa.BigInteger)
    return HotSelect(_logged_of(turns.c.namespace).where(_NAMED, near, within))


_WINDOW = _window()


class TurnLog:
    """Reads of what happened."""

    def __init__(self, store: Readable) -> None:
        """Read from ``store``."""
        self._store = store

    def get(self, turn_id: str, *, namespace: str | None = None) -> Turn:
        """The record of a turn, by its id or by the run id of the host that asked.

        Args:
            turn_id: Turn id, or LangChain run id.
            namespace: Only turns of this namespace are found; None looks in all.

        Raises:
            NotFoundError: There is no such turn in that namespace.
        """
        found = self.find(turn_id, namespace=namespace)
        if found is None:
            msg = f"no turn {turn_id!r} is recorded here: check the id and the namespace"
            raise NotFoundError(msg)
        return found.turn

    def find(self, turn_id: str, *, namespace: str | None = None) -> Logged | None:
        """A turn with all that feedback needs to know of it; None when there is none.

        Args:
            turn_id: Turn id, or the host's run id: then the last turn of that run.
            namespace: Only turns of this namespace are found; None looks in all.
        """
        self._store.settle()
        select, asked = _FIND, {"asked": turn_id}
        if namespace is not None:
            select, asked = _FIND_IN, {"asked": turn_id, "namespace": namespace}
        with self._store.reading() as connection:
            found = _logged(select.rows(connection, asked), connection)
        return found[0] if found else None

    def window(self, namespace: str, *, until: float, turns: int, seconds: float) -> list[Logged]:
        """The last turns of a namespace as of a moment, newest first, consumed or not.

        Args:
            namespace: Whose turns.
            until: The moment, in seconds since the epoch.
            turns: How many turns back, the latest one counting as the first.
            seconds: How long back.
        """
        self._store.settle()
        bounds = {"until": until, "since": until - seconds, "turns": turns}
        with self._store.reading() as connection:
            rows = _WINDOW.rows(connection, {"namespace": namespace, **bounds})
            return _logged(rows, connection)

    def latest(self, namespace: str) -> str | None:
        """Id of the namespace's last turn."""
        self._store.settle()
        with self._store.reading() as connection:
            return connection.scalar(
                sa.select(turns.c.id)
                .join(namespaces, namespaces.c.key == turns.c.namespace)
                .where(namespaces.c.name == namespace)
                .order_by(turns.c.clock.desc())
                .limit(1)
            )

    def journal(self, limit: int = 100) -> list[dict[str, Any]]:
        """The last changes, newest first, each with its inverse where it has one."""
        self._store.settle()
        with self._store.reading() as connection:
            rows = connection.execute(
                sa.select(journal).order_by(journal.c.sequence.desc()).limit(limit)
            ).mappings()
            return [
                {
                    **row,
                    "payload": json.loads(row["payload"]),
                    "inverse": None if row["inverse"] is None else json.loads(row["inverse"]),
                }
                for row in rows
            ]


def _logged(rows: Sequence[Sequence[Any]], connection: sa.Connection) -> list[Logged]:
    """Turns with the nodes that stand for theirs by now."""
    read = list(readable("a turn", rows, _with_nodes))
    to = standing_ids(connection, sorted(set().union(*(nodes for nodes, *_ in read))))

    def logged(row: Sequence[Any]) -> Logged:
        _, record, embedding, by, frozen = row
        turn = Turn.from_dict(_standing(record, to) if to else record)
        return Logged(turn, None if embedding is None else unpack(embedding), by, bool(frozen))

    return list(readable("a turn", read, logged))


def _with_nodes(row: Sequence[Any]) -> tuple[Any, ...]:
    """A row with its record read, behind the ids of the nodes in it."""
    record = json.loads(row[0])
    return set(_nodes(record)), record, *row[1:]


def _nodes(record: dict[str, Any]) -> Iterator[str]:
    """Ids of the nodes that a turn came by or weighed."""
    yield from record["visited"]
    yield from (item["node"] for item in record["returned"])
    yield from (one["target"] for step in record["steps"] for one in step["candidates"])


def _standing(record: dict[str, Any], to: Mapping[str, str]) -> dict[str, Any]:
    """A record that speaks of those that stand for its nodes; what was returned, once each."""
    new: dict[str, Any] = with_nodes(record, to)
    once = {item["node"]: item for item in reversed(new["returned"])}
    return {**new, "returned": list(reversed(once.values()))}
