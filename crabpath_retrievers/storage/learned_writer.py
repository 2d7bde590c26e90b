"""How changes that come from feedback are carried out."""

import json
import time
from collections.abc import Callable, Sequence
from functools import cache, singledispatchmethod
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers import changes as c
from crabpath_retrievers.errors import ConflictError
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.packing import pack

_MOST_DOCUMENTS = 16  # of one episode, the best credited
_ASKED = sa.bindparam("asked", type_=sa.Text())
# So that forgetting a namespace finds what was said about its turns, applied or not.
_WHOSE = sa.func.coalesce(
    sa.bindparam("given", type_=sa.Text()),
    sa.select(s.namespaces.c.name)
    .join(s.turns, s.turns.c.namespace == s.namespaces.c.key)
    .where(sa.or_(s.turns.c.id == _ASKED, s.turns.c.run_id == _ASKED))
    .limit(1)
    .scalar_subquery(),
)


class LearnedWriter:
    """Applies what was learned on one open transaction."""

    def __init__(
        self,
        connection: sa.Connection,
        insert: Callable[..., Any],
        namespace: Callable[[str], int],
    ) -> None:
        """Write on ``connection``.

        Args:
            connection: An open transaction.
            insert: The dialect's insert, which knows conflicts.
            namespace: Key of a namespace, which is created if it is new.
        """
        self._connection, self._insert = connection, insert
        self._namespace = cache(namespace)

    @singledispatchmethod
    def apply(self, change: object) -> None:
        """Carry out one change."""
        msg = f"unknown change {type(change).__name__}"
        raise TypeError(msg)

    @apply.register
    def _(self, change: c.KeepFeedback) -> None:
        feedback = change.feedback
        late = DEFAULT_NAMESPACE if feedback.turn_id is None else None
        row = {
            "id": feedback.feedback_id,
            "created": time.time(),
            "payload": json.dumps(feedback.to_dict(), ensure_ascii=False),
            "status": "waiting",
            "given": feedback.namespace or late,
            "asked": feedback.turn_id,
            "embedding": None if change.vector is None else pack(change.vector),
        }
        insert = self._insert(s.feedback).values(namespace=_WHOSE)
        self._connection.execute(insert.on_conflict_do_nothing(), row)

    @apply.register
    def _(self, change: c.ConsumeFeedback) -> None:
        key = self._namespace(change.namespace)
        learned = self._connection.execute(
            s.namespaces.update()
            .where(s.namespaces.c.key == key, s.namespaces.c.learned == change.version)
            .values(
                learned=s.namespaces.c.learned + 1,
                exponent=s.namespaces.c.exponent + change.exponent,
                mind=change.mind,
            )
        )
        self._require(learned.rowcount == 1, change)
        applied = self._connection.execute(
            s.feedback.update()
            .where(s.feedback.c.id == change.feedback_id, s.feedback.c.status == "waiting")
            .values(status="applied", namespace=change.namespace)
        )
        self._require(applied.rowcount == 1, change)
        for turn in change.turns:
            insert = self._insert(s.consumed).values(turn=turn, feedback=change.feedback_id)
            consumed = self._connection.execute(
                insert.on_conflict_do_nothing(),
                # PostgreSQL tells how many rows an insert made only when it is asked.
                execution_options={"preserve_rowcount": True},
            )
            self._require(consumed.rowcount == 1, change)

    def _require(self, held: bool, change: c.ConsumeFeedback) -> None:  # noqa: FBT001
        if not held:
            msg = f"feedback {change.feedback_id!r} met another one: read again and repeat it"
            raise ConflictError(msg)

    @apply.register
    def _(self, change: c.RefuseFeedback) -> None:
        self._connection.execute(
            s.feedback.update()
            .where(s.feedback.c.id == change.feedback_id, s.feedback.c.status == "waiting")
            .values(status="refused", note=change.note)
        )

    @apply.register
    def _(self, change: c.NoteFeedback) -> None:
        self._connection.execute(
            s.feedback.update()
            .where(s.feedback.c.id == change.feedback_id)
            .values(note=change.note)
        )

    @apply.register
    def _(self, change: c.CountUse) -> None:
        key = self._namespace(change.namespace)
        rows = [
            {"namespace": key, "node": node, "wins": wins, "losses": losses}
            for node, wins, losses in change.counts
        ]
        self._add(s.usage, ("wins", "losses"), rows)

    @apply.register
    def _(self, change: c.CountTogether) -> None:
        key = self._namespace(change.namespace)
        rows = [
            {"namespace": key, "source": a, "target": b, "kind": kind.value, "count": count}
            for a, b, kind, count in change.pairs
        ]
        self._add(s.counts, ("count",), rows)

    def _add(self, table: sa.Table, sums: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
        """Add to the sums of rows, which begin at 0 and never fall below."""
        if not rows:
            return
        more = {name: sa.bindparam(f"more_{name}", type_=sa.Float()) for name in sums}
        insert = self._insert(table).on_conflict_do_update(
            index_elements=list(table.primary_key.columns),
            set_={name: _at_least_zero(table.c[name] + more[name]) for name in sums},
        )
        self._connection.execute(insert, [_begun(row, sums) for row in rows])

    @apply.register
    def _(self, change: c.KeepEpisode) -> None:
        key = self._namespace(change.namespace)
        found = self._connection.execute(
            sa.select(s.episodes.c.wins, s.episodes.c.documents).where(s.episodes.c.id == change.id)
        ).one_or_none()
        clock = sa.select(s.namespaces.c.turn).where(s.namespaces.c.key == key).scalar_subquery()
        documents = _added(json.loads(found.documents) if found else {}, change.documents)
        wins = (found.wins if found else 0.0) + change.wins
        values: dict[str, Any] = {"wins": wins, "documents": json.dumps(documents), "clock": clock}
        if wins <= 0 or not documents:
            # Its vector stays in the index until the next look finds no episode for it.
            self._connection.execute(s.episodes.delete().where(s.episodes.c.id == change.id))
        elif found:
            update = s.episodes.update().where(s.episodes.c.id == change.id)
            self._connection.execute(update.values(**values))
        else:
            row = {"id": change.id, "namespace": key, "query": change.query, "indexed": 0}
            embedding = pack(change.vector)
            self._connection.execute(
                s.episodes.insert().values(embedding=embedding, **row, **values)
            )

    @apply.register
    def _(self, change: c.EpisodesIndexed) -> None:
        self._connection.execute(
            s.episodes.update().where(s.episodes.c.id.in_(change.ids)).values(indexed=1)
        )

    @apply.register
    def _(self, change: c.Freeze) -> None:
        key = self._namespace(change.namespace)
        self._connection.execute(
            s.namespaces.update().where(s.namespaces.c.key == key).values(frozen=int(change.frozen))
        )


def _begun(row: dict[str, Any], sums: Sequence[str]) -> dict[str, Any]:
    """A row as it begins, and what is added to one that stands."""
    begins = {name: max(0.0, row[name]) for name in sums}
    return {**row, **begins, **{f"more_{name}": row[name] for name in sums}}


def _at_least_zero(value: Any) -> Any:
    return sa.case((value < 0, 0.0), else_=value)


def _added(known: dict[str, float], more: Any) -> dict[str, float]:
    total = dict(known)
    for node, credit in more.items():
        total[node] = total.get(node, 0.0) + credit
    best = sorted(total.items(), key=lambda item: -item[1])[:_MOST_DOCUMENTS]
    return {node: credit for node, credit in best if credit > 0}
