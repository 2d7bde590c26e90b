"""Reads of maintenance, many of whole tables in blocks; queries use none of them."""

import json
from collections.abc import Iterator

import sqlalchemy as sa

from crabpath_retrievers.core.records import EdgeKind, StoredWeight, Vector
from crabpath_retrievers.parts.operation.maintenance.rules import AutoNote, LearnedWeight
from crabpath_retrievers.storage.schema import (
    TABLES,
    edges,
    episodes,
    feedback,
    feedback_effects,
    journal,
    list_orphans,
    namespaces,
    nodes,
    notes,
    overlay,
    turns,
    usage,
)
from crabpath_retrievers.storage.sql_tools import Queries, decode_vector


def find_awaited_turns(connection: sa.Connection) -> list[str]:
    """Ids of the turns that waiting feedback refers to, by turn id or by the run id of the host."""
    query = sa.select(feedback.c.payload).where(feedback.c.status == "waiting")
    referenced = (json.loads(payload).get("turn_id") for payload in connection.scalars(query))
    turn_or_run_ids = [name for name in referenced if name]
    by_run = sa.select(turns.c.id).where(turns.c.run_id.in_(turn_or_run_ids))
    return [*turn_or_run_ids, *connection.scalars(by_run)]


def find_old_episodes(
    connection: sa.Connection, namespace: int, keep: int
) -> tuple[list[str], list[int]] | None:
    """Find what was left by feedback before the last ``keep``; None without such feedback.

    Returns:
        Ids of the episodes that no later feedback added to; and the numbers of the stored effects
        of that feedback.
    """
    sequence, own = feedback_effects.c.sequence, feedback_effects.c.namespace == namespace
    newest = sa.select(sequence).where(own).order_by(sequence.desc())
    until = connection.scalar(newest.offset(keep).limit(1))
    if until is None:
        return None
    old, kept = list[int](), set[str]()
    query = sa.select(sequence, feedback_effects.c.record).where(own)
    for number, text in connection.execute(query):
        record = json.loads(text)
        if number <= until and record["episodes"] and not record["notes"]:
            old.append(number)
        else:
            kept.update(episode for episode, *_ in record["episodes"])
    of_notes = episodes.c.id.startswith("note-")
    ids = connection.scalars(
        sa.select(episodes.c.id).where(episodes.c.namespace == namespace, ~of_notes)
    )
    return [name for name in ids if name not in kept], old


def build_run_condition(run: str) -> sa.ColumnElement[bool]:
    """Condition: a row of the journal was written by the maintenance run with this id."""
    return journal.c.payload.contains(json.dumps({"run": run})[1:-1], autoescape=True)


_EDGE = ("source", "target", "kind")


class MaintenanceQueries(Queries):
    """Reads of maintenance."""

    def namespaces(self) -> list[str]:
        """Names of all namespaces, sorted."""
        return self._scalars(sa.select(namespaces.c.name).order_by(namespaces.c.name))

    def iterate_weights(self, namespace: int, size: int) -> Iterator[list[LearnedWeight]]:
        """Yield the learned weights of a namespace in blocks of ``size`` rows.

        An edge by which a correction goes with a document is left out: it is no weight that fades.
        """
        o, same = overlay.c, sa.and_(*(overlay.c[n] == edges.c[n] for n in _EDGE))
        authority = sa.func.coalesce(nodes.c.authority, 0)
        joined = overlay.outerjoin(edges, same).outerjoin(nodes, nodes.c.key == o.target)
        # Weights of STOP get a floor, so that pruning skips them.
        floor = sa.case((o.kind == 0, 0.0), else_=edges.c.floor)
        is_note = notes.c.node == o.source
        query = (
            sa.select(o.source, o.target, o.kind, o.weight, o.decay_at, floor, authority)
            .select_from(joined)
            .where(o.namespace == namespace)
            .where(sa.not_(sa.and_(o.kind == EdgeKind.INHIBITS.value, sa.exists().where(is_note))))
            .order_by(o.source, o.target, o.kind)
            .limit(size)
        )
        last = (-1, -1, -1)
        edge = sa.tuple_(o.source, o.target, o.kind)
        while rows := self._rows(query.where(edge > sa.tuple_(*map(sa.literal, last)))):
            yield [
                LearnedWeight(
                    source,
                    target,
                    kind,
                    StoredWeight(weight, decay_at, floor or 0.0, authority),
                    floor is not None,
                )
                for source, target, kind, weight, decay_at, floor, authority in rows
            ]
            last = tuple(rows[-1][:3])

    def get_auto_notes(self, namespace: int) -> list[AutoNote]:
        """The ``auto`` notes of a namespace."""
        near = sa.or_(overlay.c.source == notes.c.node, overlay.c.target == notes.c.node)
        in_namespace = sa.and_(overlay.c.namespace == namespace, near)
        degree, strongest = (
            sa.select(of).where(in_namespace).correlate(notes).scalar_subquery()
            for of in (
                sa.func.count(),
                sa.func.coalesce(sa.func.max(sa.func.abs(overlay.c.weight)), 0.0),
            )
        )
        used = sa.and_(usage.c.node == notes.c.node, usage.c.namespace == namespace)
        passes = sa.func.coalesce(usage.c.losses, 0.0)
        columns = (nodes.c.id, notes.c.last_turn, notes.c.uses, passes, nodes.c.authority)
        query = (
            sa.select(*columns, degree, strongest)
            .select_from(notes.join(nodes, nodes.c.key == notes.c.node).outerjoin(usage, used))
            .where(notes.c.namespace == namespace, notes.c.kind == "auto")
            .order_by(notes.c.node)
        )
        return [AutoNote(*row) for row in self._rows(query)]

    def iterate_isolated(self, size: int) -> Iterator[list[tuple[int, Vector]]]:
        """Yield keys and unit vectors of visible nodes without structural edges, in blocks."""
        none = ~sa.or_(
            sa.exists().where(edges.c.source == nodes.c.key),
            sa.exists().where(edges.c.target == nodes.c.key),
        )
        query = sa.select(nodes.c.key, nodes.c.embedding).where(nodes.c.owner == 0, none)
        for rows in self._iterate_blocks(query, nodes.c.key, size):
            yield [(key, decode_vector(vector)) for key, vector in rows]

    def count_old_turns(self, namespace: int, keep: int) -> tuple[int, int | None]:
        """Count the deletable records before the last ``keep`` turns.

        Records that waiting feedback refers to are not deletable.

        Returns:
            The number; and the number of the newest of these turns, None if there are none.
        """
        in_namespace = turns.c.namespace == namespace
        newest = sa.select(turns.c.clock).where(in_namespace).order_by(turns.c.clock.desc())
        with self._store.connect() as connection:
            until = connection.scalar(newest.offset(keep).limit(1))
            if until is None:
                return 0, None
            deletable = sa.and_(
                in_namespace,
                turns.c.clock <= until,
                turns.c.id.not_in(find_awaited_turns(connection)),
            )
            return connection.scalar(sa.select(sa.func.count()).where(deletable)) or 0, until

    def count_turns(self, namespace: int) -> int:
        """Number of turn records of a namespace."""
        return self._count(turns, turns.c.namespace == namespace)

    def count_old_episodes(self, namespace: int, keep: int) -> int:
        """Number of episodes that none of the last ``keep`` feedback added to."""
        with self._store.connect() as connection:
            old = find_old_episodes(connection, namespace, keep)
        return 0 if old is None else len(old[0])

    def has_run(self, run: str) -> bool:
        """Whether the journal has rows of the maintenance run with this id."""
        query = sa.select(journal.c.sequence).where(build_run_condition(run))
        return self._scalar(query.limit(1)) is not None

    def count_orphans(self) -> int:
        """Number of rows whose namespace, node, turn or feedback is gone."""
        return sum(self._count(TABLES[name], lost) for name, lost in list_orphans().items())

    def count_journal_rows(self) -> int:
        """Number of rows of the journal."""
        return self._count(journal)
