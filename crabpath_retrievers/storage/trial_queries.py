"""Reads of A/B trials: where they stand, their turns, and what was said of these."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from pydantic_core import from_json

from crabpath_retrievers.storage.batching import parts
from crabpath_retrievers.storage.reading import Readable
from crabpath_retrievers.storage.schema import (
    contents,
    feedback,
    meta,
    namespaces,
    nodes,
    turns,
    weight_changes,
)
from crabpath_retrievers.storage.trial_names import PREFIX, meta_name

T = TypeVar("T")
_AT_ONCE = 200  # records of turns that are held at once


class Said(NamedTuple):
    """Feedback as it was given.

    Attributes:
        namespace: Of its turn, or as given; None where neither is known.
        payload: Its fields.
    """

    created: float
    namespace: str | None
    payload: dict[str, Any]


class Moved(NamedTuple):
    """By how much one feedback moved one weight; ``edge`` is any name of it."""

    namespace: str
    edge: tuple[int, int, int, int]
    delta: float


class TrialQueries:
    """Reads for trials; none of them is on the way of a query."""

    def __init__(self, store: Readable) -> None:
        """Read from ``store``."""
        self._store = store

    def names(self) -> list[str]:
        """The trials of this store, running or ended, by name."""
        query = sa.select(meta.c.name).where(meta.c.name.startswith(PREFIX)).order_by(meta.c.name)
        with self._store.reading() as connection:
            return [name.removeprefix(PREFIX) for name in connection.scalars(query)]

    def state(self, name: str) -> str | None:
        """The state of a trial as JSON; None when there is none of that name."""
        query = sa.select(meta.c.value).where(meta.c.name == meta_name(name))
        with self._store.reading() as connection:
            return connection.scalar(query)

    def turns(
        self,
        name: str,
        suffixes: Sequence[str],
        told: Callable[[dict[str, Any]], T],
        *,
        since: float,
        until: float,
    ) -> list[T]:
        """What is told by the turns of a trial, created in ``(since, until]``, oldest first.

        Args:
            name: Of the trial; turns that carry one of its arms are found in any namespace.
            suffixes: How the namespaces end whose turns belong to it without that.
            told: What of a record is wanted; few records are held at once.
            since: Seconds since the epoch.
            until: Seconds since the epoch.
        """
        labelled = turns.c.record.contains(f'"arm":"{name}:', autoescape=True)
        own = [namespaces.c.name.endswith(suffix, autoescape=True) for suffix in suffixes]
        query = (
            sa.select(turns.c.id)
            .join(namespaces, namespaces.c.key == turns.c.namespace)
            .where(turns.c.created > since, turns.c.created <= until, sa.or_(labelled, *own))
            .order_by(turns.c.created, turns.c.namespace, turns.c.clock)
        )
        self._store.settle()
        found: list[T] = []
        with self._store.reading() as connection:
            for part in parts(connection.scalars(query).all(), _AT_ONCE):
                record = sa.select(turns.c.id, turns.c.record).where(turns.c.id.in_(part))
                records = {turn: text for turn, text in connection.execute(record)}
                found += [told(from_json(records[turn])) for turn in part if turn in records]
        return found

    def said(self, since: float) -> list[Said]:
        """Feedback given since then, but what was undone, in the order in which it came."""
        query = (
            sa.select(feedback.c.created, feedback.c.namespace, feedback.c.payload)
            .where(feedback.c.created > since, feedback.c.status != "undone")
            .order_by(feedback.c.sequence)
        )
        with self._store.reading() as connection:
            rows = connection.execute(query).all()
        return [Said(created, whose, from_json(payload)) for created, whose, payload in rows]

    def characters(self, ids: Iterable[str]) -> dict[str, int]:
        """Characters of the texts of nodes; what is gone is left out."""
        query = sa.select(nodes.c.id, sa.func.length(contents.c.content)).join(
            contents, contents.c.node == nodes.c.key
        )
        with self._store.reading() as connection:
            return {
                node: length
                for part in parts(sorted(ids))
                for node, length in connection.execute(query.where(nodes.c.id.in_(part)))
            }

    def moves(self, names: Iterable[str], *, since: float) -> list[Moved]:
        """What moved the weights of these namespaces, in the order in which it came."""
        edge = (
            weight_changes.c.namespace,
            weight_changes.c.source,
            weight_changes.c.target,
            weight_changes.c.kind,
        )
        query = (
            sa.select(namespaces.c.name, *edge, weight_changes.c.delta)
            .join(namespaces, namespaces.c.key == weight_changes.c.namespace)
            .where(weight_changes.c.created > since)
            .order_by(weight_changes.c.sequence)
        )
        with self._store.reading() as connection:
            rows = [
                row
                for part in parts(sorted(names))
                for row in connection.execute(query.where(namespaces.c.name.in_(part)))
            ]
        return [Moved(name, (a, b, c, d), delta) for name, a, b, c, d, delta in rows]
