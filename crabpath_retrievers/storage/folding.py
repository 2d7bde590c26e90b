"""What was learned about a node goes to those that stand for it; where they know too, both join."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.graph import DECAY_RATES, LEARNED, effective_weight
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.batching import parts
from crabpath_retrievers.storage.images import SUMS, TABLES, Image, Row, key_of, rows_at

Heir = Callable[[int], int]
"""Who inherits an edge, by the key of its other end; of 0, what is no edge."""

_LEARNED = [kind.value for kind in LEARNED]
_EDGE = ("source", "target", "kind")


class Pull(NamedTuple):
    """A learned weight as it stands.

    Attributes:
        row: As it is stored, at its new place.
        now: What is left of it, in [-1, 1].
        was: Key of its former place; None where it stands already.
    """

    row: Row
    now: float
    was: tuple[Any, ...] | None = None


def stronger(pulls: Sequence[Pull]) -> Pull:
    """Which of several weights of one edge stays: what inhibits, most of all, else the strongest.

    Of equals the first one.
    """
    if any(pull.now < 0 for pull in pulls):
        return min(pulls, key=lambda pull: pull.now)
    return max(pulls, key=lambda pull: pull.now)


class Folding:
    """Finds what changes when a node hands over all that was learned about it."""

    def __init__(self, connection: sa.Connection) -> None:
        """Read on an open transaction."""
        self._connection = connection

    def images(self, old: int, heir: Heir, *, textual: bool) -> list[Image]:
        """Rows before and after; nothing is written.

        Args:
            old: Key of the node that hands over.
            heir: To whom.
            textual: Whether edges that were read off its text go with it.
        """
        edges = self._touching("edges", old)
        going = [row for row in edges if textual or row["kind"] in _LEARNED]
        moved = _grouped("edges", going, old, heir)
        standing = rows_at(self._connection, "edges", moved)
        found: list[Image] = [("edges", row, None) for row in going]
        found += [
            ("edges", None, rows[0]) for key, (rows, _) in moved.items() if key not in standing
        ]
        new = {key: rows[0]["floor"] for key, (rows, _) in moved.items()}
        new |= {key: row["floor"] for key, row in standing.items()}
        floors = {key_of("edges", row): row["floor"] for row in edges} | new
        for table in SUMS:
            found += self._sums(table, old, heir)
        return found + self._weights(old, heir, floors)

    def _touching(self, table: str, key: int) -> list[Row]:
        """Rows that speak of a node."""
        columns = TABLES[table].c
        ends = [columns[name] for name in ("node", "source", "target") if name in columns]
        found: dict[tuple[Any, ...], Row] = {}
        for end in ends:  # one index each
            for row in self._connection.execute(
                sa.select(TABLES[table]).where(end == key)
            ).mappings():
                found[key_of(table, row)] = dict(row)
        return [found[key] for key in sorted(found)]

    def _sums(self, table: str, old: int, heir: Heir) -> list[Image]:
        rows = self._touching(table, old)
        moved = _grouped(table, rows, old, heir)
        standing = rows_at(self._connection, table, moved)
        found: list[Image] = []
        for key, (coming, former) in moved.items():
            both = [standing[key], *coming] if key in standing else coming
            total = {name: sum(float(row[name]) for row in both) for name in SUMS[table]}
            found += [(table, row, None) for row in former]
            found.append((table, standing.get(key), {**both[0], **total}))
        gone = [row for row in rows if (table, row, None) not in found]  # edges to itself
        return found + [(table, row, None) for row in gone]

    def _weights(
        self, old: int, heir: Heir, floors: Mapping[tuple[Any, ...], float]
    ) -> list[Image]:
        rows, moves = self._touching("overlay", old), self._touching("weight_changes", old)
        moved = _grouped("overlay", rows, old, heir)
        standing = rows_at(self._connection, "overlay", moved)
        every = [*rows, *standing.values(), *(row for found, _ in moved.values() for row in found)]
        stand = _Standing.of(self._connection, [*every, *moves], floors)
        found: list[Image] = [("overlay", row, None) for row in rows]
        won: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        beaten: list[tuple[Any, ...]] = []
        for key, (coming, former) in moved.items():
            pulls = [Pull(standing[key], stand.left(standing[key]))] if key in standing else []
            pulls += [
                Pull(stand.at(row, was), stand.left(was), key_of("overlay", was))
                for row, was in zip(coming, former, strict=True)
            ]
            best = stronger(pulls)
            if best.was is None:
                continue
            won[best.was] = key
            beaten += [key] if key in standing else []
            found.append(("overlay", standing.get(key), best.row))
        return found + self._moves(moves, won, beaten, stand)

    def _moves(
        self,
        moves: Sequence[Row],
        won: Mapping[tuple[Any, ...], tuple[Any, ...]],
        beaten: Iterable[tuple[Any, ...]],
        stand: "_Standing",
    ) -> list[Image]:
        """What moved the weights that stay goes with them; of the others it is forgotten."""
        found: list[Image] = []
        for row in moves:
            place = won.get(_edge_of(row))
            new = None if place is None else stand.at({**row, **_named(place)}, row, "delta")
            found.append(("weight_changes", row, new))
        for key in beaten:
            own = [s.weight_changes.c[name] == value for name, value in _named(key).items()]
            query = sa.select(s.weight_changes).where(*own).order_by(s.weight_changes.c.sequence)
            rows = self._connection.execute(query).mappings()
            found += [("weight_changes", dict(row), None) for row in rows]
        return found


class _Standing(NamedTuple):
    """How learned weights fade, by namespace, node and edge."""

    exponents: Mapping[int, float]
    ranks: Mapping[int, int]
    floors: Mapping[tuple[Any, ...], float]

    @classmethod
    def of(
        cls,
        connection: sa.Connection,
        rows: Sequence[Row],
        floors: Mapping[tuple[Any, ...], float],
    ) -> "_Standing":
        spaces = sa.select(s.namespaces.c.key, s.namespaces.c.exponent)
        nodes = sa.select(s.nodes.c.key, s.nodes.c.authority)
        exponents: dict[int, float] = {}
        for part in parts({row["namespace"] for row in rows}):
            found = connection.execute(spaces.where(s.namespaces.c.key.in_(part)))
            exponents |= {key: exponent for key, exponent in found}
        ranks: dict[int, int] = {}
        for part in parts({row["target"] for row in rows}):
            found = connection.execute(nodes.where(s.nodes.c.key.in_(part)))
            ranks |= {key: rank for key, rank in found}
        return cls(exponents, ranks, floors)

    def left(self, row: Row, amount: str = "weight") -> float:
        """What is left of a weight, or of a move."""
        floor, rate = self._fading(row)
        exponent = self.exponents.get(row["namespace"], 0.0)
        base = floor if amount == "weight" else 0.0
        return effective_weight(row[amount], base, row["decay_at"], exponent, rate)

    def at(self, row: Row, was: Row, amount: str = "weight") -> Row:
        """A row at its new place; where that fades otherwise, it stands there as it is now."""
        if self._fading(row) == self._fading(was):
            return row
        decay_at = max(was["decay_at"], self.exponents.get(was["namespace"], 0.0))
        return {**row, amount: self.left(was, amount), "decay_at": decay_at}

    def _fading(self, row: Row) -> tuple[float, float]:
        floor = self.floors.get(tuple(row[name] for name in _EDGE), 0.0)
        return floor, DECAY_RATES[self.ranks.get(row["target"], 0)]


def _grouped(
    table: str, rows: Sequence[Row], old: int, heir: Heir
) -> dict[tuple[Any, ...], tuple[list[Row], list[Row]]]:
    """Rows at their new places with what they were, by key; an edge to itself goes."""
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
            coming, former = found[key_of(table, new)]
            coming.append(new)
            former.append(row)
    return found


def _edge_of(row: Row) -> tuple[Any, ...]:
    return row["namespace"], *(row[name] for name in _EDGE)


def _named(key: tuple[Any, ...]) -> dict[str, int]:
    return dict(zip(("namespace", *_EDGE), key, strict=True))
