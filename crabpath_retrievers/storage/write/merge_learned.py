"""Merge what was learned about a node into the nodes that replace it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.core.graph import DECAY_RATES, LEARNED_KINDS, effective_weight
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.sql_tools import split_batches
from crabpath_retrievers.storage.write.journal import (
    COUNTER_COLUMNS,
    NODE_TABLES,
    Row,
    RowChange,
    get_primary_key,
    read_rows,
)

TargetOf = Callable[[int], int]
"""Key of the node that takes over an edge, by the key of its other end; 0 for node counters."""

_LEARNED = [kind.value for kind in LEARNED_KINDS]
_EDGE = ("source", "target", "kind")


class WeightRow(NamedTuple):
    """A learned weight that competes for an edge.

    Attributes:
        row: Its row, with the new key.
        now: Effective weight in [-1, 1].
        was: Its former primary key; None for the weight that the edge has already.
    """

    row: Row
    now: float
    was: tuple[Any, ...] | None = None


def choose_weight(candidates: Sequence[WeightRow]) -> WeightRow:
    """Choose the weight to keep of one edge: the lowest if any is negative, else the highest.

    The first of equals wins.
    """
    if any(candidate.now < 0 for candidate in candidates):
        return min(candidates, key=lambda candidate: candidate.now)
    return max(candidates, key=lambda candidate: candidate.now)


class LearnedMerge:
    """Computes the row changes that move everything learned about a node to other nodes."""

    def __init__(self, connection: sa.Connection) -> None:
        """Read on an open transaction."""
        self._connection = connection

    def images(self, old: int, heir: TargetOf, *, textual: bool) -> list[RowChange]:
        """Compute the row changes; nothing is written.

        Args:
            old: Key of the node.
            heir: Gives the key of the node that takes over each edge.
            textual: Whether structural edges move, too.
        """
        edges = self._rows_of_node("edges", old)
        removed = [row for row in edges if textual or row["kind"] in _LEARNED]
        regrouped = _group_by_new_key("edges", removed, old, heir)
        existing = read_rows(self._connection, "edges", regrouped)
        found: list[RowChange] = [("edges", row, None) for row in removed]
        found += [
            ("edges", None, rows[0]) for key, (rows, _) in regrouped.items() if key not in existing
        ]
        new = {key: rows[0]["floor"] for key, (rows, _) in regrouped.items()}
        new |= {key: row["floor"] for key, row in existing.items()}
        floors = {get_primary_key("edges", row): row["floor"] for row in edges} | new
        for table in COUNTER_COLUMNS:
            found += self._merge_counters(table, old, heir)
        return found + self._merge_weights(old, heir, floors)

    def _rows_of_node(self, table: str, key: int) -> list[Row]:
        """Rows that refer to a node, in order of their keys."""
        columns = NODE_TABLES[table].c
        ends = [columns[name] for name in ("node", "source", "target") if name in columns]
        found: dict[tuple[Any, ...], Row] = {}
        for end in ends:  # one index each
            for row in self._connection.execute(
                sa.select(NODE_TABLES[table]).where(end == key)
            ).mappings():
                found[get_primary_key(table, row)] = dict(row)
        return [found[key] for key in sorted(found)]

    def _merge_counters(self, table: str, old: int, heir: TargetOf) -> list[RowChange]:
        rows = self._rows_of_node(table, old)
        regrouped = _group_by_new_key(table, rows, old, heir)
        existing = read_rows(self._connection, table, regrouped)
        found: list[RowChange] = []
        for key, (incoming, former) in regrouped.items():
            both = [existing[key], *incoming] if key in existing else incoming
            total = {name: sum(float(row[name]) for row in both) for name in COUNTER_COLUMNS[table]}
            found += [(table, row, None) for row in former]
            found.append((table, existing.get(key), {**both[0], **total}))
        # Edges that would connect a node with itself.
        gone = [row for row in rows if (table, row, None) not in found]
        return found + [(table, row, None) for row in gone]

    def _merge_weights(
        self, old: int, heir: TargetOf, floors: Mapping[tuple[Any, ...], float]
    ) -> list[RowChange]:
        rows, moves = self._rows_of_node("overlay", old), self._rows_of_node("weight_changes", old)
        regrouped = _group_by_new_key("overlay", rows, old, heir)
        existing = read_rows(self._connection, "overlay", regrouped)
        every = [
            *rows,
            *existing.values(),
            *(row for found, _ in regrouped.values() for row in found),
        ]
        decay = _DecayState.of(self._connection, [*every, *moves], floors)
        found: list[RowChange] = [("overlay", row, None) for row in rows]
        kept: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        overwritten: list[tuple[Any, ...]] = []
        for key, (incoming, former) in regrouped.items():
            candidates = (
                [WeightRow(existing[key], decay.get_effective(existing[key]))]
                if key in existing
                else []
            )
            candidates += [
                WeightRow(
                    decay.at(row, was), decay.get_effective(was), get_primary_key("overlay", was)
                )
                for row, was in zip(incoming, former, strict=True)
            ]
            best = choose_weight(candidates)
            if best.was is None:
                continue
            kept[best.was] = key
            overwritten += [key] if key in existing else []
            found.append(("overlay", existing.get(key), best.row))
        return found + self._move_history(moves, kept, overwritten, decay)

    def _move_history(
        self,
        moves: Sequence[Row],
        kept: Mapping[tuple[Any, ...], tuple[Any, ...]],
        overwritten: Iterable[tuple[Any, ...]],
        decay: "_DecayState",
    ) -> list[RowChange]:
        """The history of kept weights moves with them; that of the other weights is deleted."""
        found: list[RowChange] = []
        for row in moves:
            place = kept.get(_edge_key(row))
            new = None if place is None else decay.at({**row, **_key_columns(place)}, row, "delta")
            found.append(("weight_changes", row, new))
        for key in overwritten:
            own = [s.weight_changes.c[name] == value for name, value in _key_columns(key).items()]
            query = sa.select(s.weight_changes).where(*own).order_by(s.weight_changes.c.sequence)
            rows = self._connection.execute(query).mappings()
            found += [("weight_changes", dict(row), None) for row in rows]
        return found


class _DecayState(NamedTuple):
    """What the decay of learned weights depends on, by namespace, node and edge."""

    exponents: Mapping[int, float]
    ranks: Mapping[int, int]
    floors: Mapping[tuple[Any, ...], float]

    @classmethod
    def of(
        cls,
        connection: sa.Connection,
        rows: Sequence[Row],
        floors: Mapping[tuple[Any, ...], float],
    ) -> "_DecayState":
        spaces = sa.select(s.namespaces.c.key, s.namespaces.c.exponent)
        nodes = sa.select(s.nodes.c.key, s.nodes.c.authority)
        exponents: dict[int, float] = {}
        for part in split_batches({row["namespace"] for row in rows}):
            found = connection.execute(spaces.where(s.namespaces.c.key.in_(part)))
            exponents |= {key: exponent for key, exponent in found}
        ranks: dict[int, int] = {}
        for part in split_batches({row["target"] for row in rows}):
            found = connection.execute(nodes.where(s.nodes.c.key.in_(part)))
            ranks |= {key: rank for key, rank in found}
        return cls(exponents, ranks, floors)

    def get_effective(self, row: Row, amount: str = "weight") -> float:
        """Effective value of a weight, or of one weight change."""
        floor, rate = self._decay_parameters(row)
        exponent = self.exponents.get(row["namespace"], 0.0)
        base = floor if amount == "weight" else 0.0
        return effective_weight(row[amount], base, row["decay_at"], exponent, rate)

    def at(self, row: Row, was: Row, amount: str = "weight") -> Row:
        """A row under its new key; where decay differs there, with its effective value now."""
        if self._decay_parameters(row) == self._decay_parameters(was):
            return row
        decay_at = max(was["decay_at"], self.exponents.get(was["namespace"], 0.0))
        return {**row, amount: self.get_effective(was, amount), "decay_at": decay_at}

    def _decay_parameters(self, row: Row) -> tuple[float, float]:
        floor = self.floors.get(tuple(row[name] for name in _EDGE), 0.0)
        return floor, DECAY_RATES[self.ranks.get(row["target"], 0)]


def _group_by_new_key(
    table: str, rows: Sequence[Row], old: int, heir: TargetOf
) -> dict[tuple[Any, ...], tuple[list[Row], list[Row]]]:
    """Rows with their new keys, and before, by new key; edges of a node to itself are dropped."""
    found: dict[tuple[Any, ...], tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for row in rows:
        new = dict(row)
        if "node" in row:
            new["node"] = heir(0)
        else:
            for end, other in (("source", "target"), ("target", "source")):
                if row[end] == old:
                    new[end] = heir(row[other])
        if "node" in row or new["source"] != new["target"]:
            incoming, former = found[get_primary_key(table, new)]
            incoming.append(new)
            former.append(row)
    return found


def _edge_key(row: Row) -> tuple[Any, ...]:
    return row["namespace"], *(row[name] for name in _EDGE)


def _key_columns(key: tuple[Any, ...]) -> dict[str, int]:
    return dict(zip(("namespace", *_EDGE), key, strict=True))
