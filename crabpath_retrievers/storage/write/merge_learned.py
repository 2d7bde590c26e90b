"""Merge what was learned about a node into the nodes that replace it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.core.graph import DECAY_RATES, LEARNED_KINDS, effective_weight
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.registry import COUNTERS, TABLES, list_node_columns
from crabpath_retrievers.storage.write.journal import Row, RowChange, get_primary_key, read_rows
from crabpath_retrievers.storage.write.transaction import Transaction

_LEARNED = [kind.value for kind in LEARNED_KINDS]
_EDGE = ("source", "target", "kind")
_EDGE_OF_NAMESPACE = ("namespace", *_EDGE)


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


def compute_merge(
    tx: Transaction, old: int, heir: int, *, textual: bool = False
) -> list[RowChange]:
    """Compute the row changes that move everything learned about a node; nothing is written.

    Args:
        tx: The transaction.
        old: Key of the node.
        heir: Key of the node that takes it over.
        textual: Whether structural edges move, too.
    """
    edges = _read_rows_of(tx, "edges", old)
    removed = [row for row in edges if textual or row["kind"] in _LEARNED]
    regrouped = _group_by_new_key("edges", removed, old, heir)
    existing = read_rows(tx, "edges", regrouped)
    found: list[RowChange] = [("edges", row, None) for row in removed]
    found += [
        ("edges", None, rows[0]) for key, (rows, _) in regrouped.items() if key not in existing
    ]
    floors = {get_primary_key("edges", row): row["floor"] for row in edges}
    floors |= {key: rows[0]["floor"] for key, (rows, _) in regrouped.items()}
    floors |= {key: row["floor"] for key, row in existing.items()}
    for table in ("pair_counts", "usage"):
        found += _merge_counters(tx, table, old, heir)
    return found + _merge_weights(tx, old, heir, floors)


def _read_rows_of(tx: Transaction, table: str, key: int) -> list[Row]:
    """Rows that refer to a node, in order of their keys."""
    found: dict[tuple[Any, ...], Row] = {}
    for column in list_node_columns(table):  # one index each
        rows = tx.dicts(sa.select(TABLES[table]).where(column == key))
        found |= {get_primary_key(table, row): row for row in rows}
    return [found[key] for key in sorted(found)]


def _merge_counters(tx: Transaction, table: str, old: int, heir: int) -> list[RowChange]:
    rows = _read_rows_of(tx, table, old)
    regrouped = _group_by_new_key(table, rows, old, heir)
    existing = read_rows(tx, table, regrouped)
    found: list[RowChange] = []
    for key, (incoming, former) in regrouped.items():
        both = [existing[key], *incoming] if key in existing else incoming
        total = {name: sum(float(row[name]) for row in both) for name in COUNTERS[table]}
        found += [(table, row, None) for row in former]
        found.append((table, existing.get(key), {**both[0], **total}))
    # Edges that would connect a node with itself.
    gone = [row for row in rows if (table, row, None) not in found]
    return found + [(table, row, None) for row in gone]


def _merge_weights(
    tx: Transaction, old: int, heir: int, floors: Mapping[tuple[Any, ...], float]
) -> list[RowChange]:
    rows, moves = (_read_rows_of(tx, table, old) for table in ("overlay", "weight_changes"))
    regrouped = _group_by_new_key("overlay", rows, old, heir)
    existing = read_rows(tx, "overlay", regrouped)
    new = [row for found, _ in regrouped.values() for row in found]
    decay = _DecayState.of(tx, [*rows, *existing.values(), *new, *moves], floors)
    found: list[RowChange] = [("overlay", row, None) for row in rows]
    kept: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    overwritten: list[tuple[Any, ...]] = []
    for key, (incoming, former) in regrouped.items():
        present = [existing[key]] if key in existing else []
        candidates = [WeightRow(row, decay.get_effective(row)) for row in present]
        candidates += [
            WeightRow(decay.at(row, was), decay.get_effective(was), get_primary_key("overlay", was))
            for row, was in zip(incoming, former, strict=True)
        ]
        best = choose_weight(candidates)
        if best.was is None:
            continue
        kept[best.was] = key
        overwritten += [key] if key in existing else []
        found.append(("overlay", existing.get(key), best.row))
    # The history of kept weights moves with them; that of the other weights is deleted.
    for row in moves:
        place = kept.get(tuple(row[name] for name in _EDGE_OF_NAMESPACE))
        moved = None if place is None else {**row, **_key_columns(place)}
        after = None if moved is None else decay.at(moved, row, "delta")
        found.append(("weight_changes", row, after))
    for key in overwritten:
        own = [s.weight_changes.c[name] == value for name, value in _key_columns(key).items()]
        query = sa.select(s.weight_changes).where(*own).order_by(s.weight_changes.c.sequence)
        found += [("weight_changes", row, None) for row in tx.dicts(query)]
    return found


class _DecayState(NamedTuple):
    """What the decay of learned weights depends on, by namespace, node and edge."""

    exponents: Mapping[int, float]
    ranks: Mapping[int, int]
    floors: Mapping[tuple[Any, ...], float]

    @classmethod
    def of(
        cls, tx: Transaction, rows: Sequence[Row], floors: Mapping[tuple[Any, ...], float]
    ) -> "_DecayState":
        spaces = sa.select(s.namespaces.c.key, s.namespaces.c.exponent)
        nodes = sa.select(s.nodes.c.key, s.nodes.c.authority)
        exponents = tx.select_in(spaces, s.namespaces.c.key, {row["namespace"] for row in rows})
        ranks = tx.select_in(nodes, s.nodes.c.key, {row["target"] for row in rows})
        return cls({key: n for key, n in exponents}, {key: n for key, n in ranks}, floors)

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
    table: str, rows: Sequence[Row], old: int, heir: int
) -> dict[tuple[Any, ...], tuple[list[Row], list[Row]]]:
    """Rows with their new keys, and before, by new key; edges of a node to itself are dropped."""
    found: dict[tuple[Any, ...], tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for row in rows:
        new = dict(row)
        if "node" in row:
            new["node"] = heir
        else:
            new |= {end: heir for end in ("source", "target") if row[end] == old}
        if "node" in row or new["source"] != new["target"]:
            incoming, former = found[get_primary_key(table, new)]
            incoming.append(new)
            former.append(row)
    return found


def _key_columns(key: tuple[Any, ...]) -> dict[str, int]:
    return dict(zip(_EDGE_OF_NAMESPACE, key, strict=True))
