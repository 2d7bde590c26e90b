"""Reads of A/B trials: their state, turns and feedback."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from pydantic_core import from_json

from crabpath_retrievers.storage.batching import split_batches
from crabpath_retrievers.storage.reading import ReadableStore
from crabpath_retrievers.storage.schema import (
    contents,
    feedback,
    meta,
    namespaces,
    nodes,
    turns,
    weight_changes,
)
from crabpath_retrievers.storage.trial_names import TRIAL_PREFIX, build_trial_key

T = TypeVar("T")
_AT_ONCE = 200  # turn records in memory


class TrialFeedback(NamedTuple):
    """Stored feedback.

    Attributes:
        created: Seconds since the epoch.
        namespace: Name of its namespace; None if unknown.
        payload: Its fields.
    """

    created: float
    namespace: str | None
    payload: dict[str, Any]


class TrialWeightChange(NamedTuple):
    """A change of a learned weight; ``edge`` identifies namespace, source, target and kind."""

    namespace: str
    edge: tuple[int, int, int, int]
    delta: float


class TrialQueries:
    """Reads of trials; queries use none of them."""

    def __init__(self, store: ReadableStore) -> None:
        """Read from ``store``."""
        self._store = store

    def names(self) -> list[str]:
        """Names of the trials of this store, running or ended."""
        query = (
            sa.select(meta.c.name).where(meta.c.name.startswith(TRIAL_PREFIX)).order_by(meta.c.name)
        )
        with self._store.open_reader() as connection:
            return [name.removeprefix(TRIAL_PREFIX) for name in connection.scalars(query)]

    def state(self, name: str) -> str | None:
        """The state of a trial as JSON; None for an unknown trial."""
        query = sa.select(meta.c.value).where(meta.c.name == build_trial_key(name))
        with self._store.open_reader() as connection:
            return connection.scalar(query)

    def turns(
        self,
        name: str,
        suffixes: Sequence[str],
        decode: Callable[[dict[str, Any]], T],
        *,
        since: float,
        until: float,
    ) -> list[T]:
        """Decoded records of the turns of a trial, created in ``(since, until]``, oldest first.

        Args:
            name: Name of the trial; turns with one of its arms are found in any namespace.
            suffixes: Endings of the names of namespaces of which all turns belong to it.
            decode: Extracts what is needed of a record; few records are in memory at once.
            since: Seconds since the epoch.
            until: Seconds since the epoch.
        """
        labelled = turns.c.record.contains(f'"arm":"{name}:', autoescape=True)
        in_namespaces = [namespaces.c.name.endswith(suffix, autoescape=True) for suffix in suffixes]
        query = (
            sa.select(turns.c.id)
            .join(namespaces, namespaces.c.key == turns.c.namespace)
            .where(
                turns.c.created > since, turns.c.created <= until, sa.or_(labelled, *in_namespaces)
            )
            .order_by(turns.c.created, turns.c.namespace, turns.c.clock)
        )
        self._store.flush()
        found: list[T] = []
        with self._store.open_reader() as connection:
            for part in split_batches(connection.scalars(query).all(), _AT_ONCE):
                record = sa.select(turns.c.id, turns.c.record).where(turns.c.id.in_(part))
                records = {turn: text for turn, text in connection.execute(record)}
                found += [decode(from_json(records[turn])) for turn in part if turn in records]
        return found

    def get_feedback(self, since: float) -> list[TrialFeedback]:
        """Feedback since a time, in epoch seconds, oldest first, without undone feedback."""
        query = (
            sa.select(feedback.c.created, feedback.c.namespace, feedback.c.payload)
            .where(feedback.c.created > since, feedback.c.status != "undone")
            .order_by(feedback.c.sequence)
        )
        with self._store.open_reader() as connection:
            rows = connection.execute(query).all()
        return [
            TrialFeedback(created, namespace, from_json(payload))
            for created, namespace, payload in rows
        ]

    def characters(self, ids: Iterable[str]) -> dict[str, int]:
        """Length of the contents of nodes in characters; deleted nodes are left out."""
        query = sa.select(nodes.c.id, sa.func.length(contents.c.content)).join(
            contents, contents.c.node == nodes.c.key
        )
        with self._store.open_reader() as connection:
            return {
                node: length
                for part in split_batches(sorted(ids))
                for node, length in connection.execute(query.where(nodes.c.id.in_(part)))
            }

    def get_weight_changes(self, names: Iterable[str], *, since: float) -> list[TrialWeightChange]:
        """Weight changes of these namespaces since a time, in epoch seconds, oldest first."""
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
        with self._store.open_reader() as connection:
            rows = [
                row
                for part in split_batches(sorted(names))
                for row in connection.execute(query.where(namespaces.c.name.in_(part)))
            ]
        return [TrialWeightChange(name, (a, b, c, d), delta) for name, a, b, c, d, delta in rows]
