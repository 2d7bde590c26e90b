"""Random filters against four stores; each answer is compared with plain Python.

Every store is asked in a process of its own, so that one which dies ends nothing else. What a
filter means is written down here once more, without the code that it checks.
"""

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import numpy as np
import sqlalchemy as sa
from langchain_core.documents import Document
from langgraph.store.base import PutOp

from benchmarks.postgres import serve_postgres
from benchmarks.soak.figures import Budget, Row, Skipped
from benchmarks.soak.stores import Hashed, Raised, chroma, last_line, result, server_url
from crabpath_retrievers import CrabPath, CrabPathError, InvalidInputError
from langgraph_crabpath import CrabPathStore

_RECORDS = 40
_SLOW, _AGAIN = 1.0, 4  # seconds that no filter may take, at the best of five times
_PART = 500  # filters that one process is asked
_KEYS = ("n", "text", "flag", "list", "mixed", "absent", "a key", "qu\"o'te", "päö", "nul\x00")
_TEXTS = ("", "a", "b", "3", "True", "it's", 'sa"id', "back\\", "nul\x00", "ü€😀", "x" * 300)
_NUMBERS = (
    -1,
    0,
    1,
    2,
    3,
    3.0,
    2.5,
    2.7,
    -0.5,
    -2.7,
    -2,
    1e300,
    2**40,
    np.int64(2),
    np.float32(0.5),
)
_ORDERS = ("$gt", "$gte", "$lt", "$lte")
_PREFIX = ("soak", "filters")
_ITEMS = "items"  # in the place of vectors: the store of LangGraph is asked
_ILLEGAL, _LARGE = 0.05, 0.06  # shares of the filters: refused ones, and with them large ones
_LONGEST = 400  # characters of a refusal


def make_records(rng: random.Random) -> dict[str, dict[str, Any]]:
    """Metadata of documents by id; each key is missing in some."""

    def make() -> dict[str, Any]:
        found = {
            "n": rng.choice(_NUMBERS),
            "text": rng.choice(_TEXTS),
            "flag": rng.choice((True, False, np.True_)),
            "list": rng.sample((1, 2, 3), 2),
            "mixed": rng.choice((*_NUMBERS, *_TEXTS, True, False)),
            **{key: rng.choice((1, "a", False)) for key in _KEYS[6:]},
        }
        return {key: value for key, value in found.items() if rng.random() < 0.8}

    return {f"record {number}": make() for number in range(_RECORDS)}


class Filters:
    """Random filters, and whether they may be refused."""

    def __init__(self, rng: random.Random) -> None:
        """Make them with this generator."""
        self.rng = rng

    def legal(self, depth: int = 1) -> dict[str, Any]:
        """A filter that every store must answer."""
        chance = self.rng.random()
        if depth < 8 and chance < 0.35:
            many = self.rng.randrange(4)
            group = self.rng.choice(("$and", "$or"))
            made: dict[str, Any] = {group: [self.legal(depth + 1) for _ in range(many)]}
            return made if self.rng.random() < 0.8 else {**made, **self.leaf()}
        return self.leaf() if chance < 0.8 else {**self.leaf(), **self.leaf()}

    def leaf(self) -> dict[str, Any]:
        """Conditions on one key."""
        key = self.rng.choice(_KEYS)
        if self.rng.random() < 0.3:
            return {key: self.value()}
        names = self.rng.sample(("$eq", "$ne", *_ORDERS, "$in", "$nin"), self.rng.choice((1, 1, 2)))
        return {key: {name: self.operand(name) for name in names}}

    def operand(self, operator: str) -> Any:
        """A value that an operator takes."""
        if operator in _ORDERS:
            return self.rng.choice(_NUMBERS)
        if operator in ("$in", "$nin"):
            return [self.value() for _ in range(self.rng.choice((0, 1, 2, 5, 30)))]
        return self.value()

    def value(self) -> Any:
        """A text, a number or a flag."""
        return self.rng.choice((*_TEXTS, *_NUMBERS, True, False, np.False_))

    def large(self) -> dict[str, Any]:
        """A filter at one of the bounds."""
        values = (
            [self.value() for _ in range(50)] + list(range(4950)) + [f"w{n}" for n in range(5000)]
        )
        deep: dict[str, Any] = self.leaf()
        while _depth(deep) < 15:
            deep = {self.rng.choice(("$and", "$or")): [deep, {"n": self.value()}]}
        step = self.rng.choice((1, 0.5, 0.3))  # fractions are more to say to Chroma
        names = ("$eq", "$ne", *_ORDERS)
        conditions = [{"n": {self.rng.choice(names): n * step}} for n in range(256)]
        return self.rng.choice(
            (
                {"mixed": {self.rng.choice(("$in", "$nin")): values}},
                {self.rng.choice(("$and", "$or")): conditions},
                deep,
            )
        )

    def illegal(self) -> Any:
        """What must be refused, in one sentence."""
        deep: dict[str, Any] = {"n": 1}
        for _ in range(self.rng.choice((16, 100, 3000))):
            deep = {"$and": [deep, {"n": 2}]}
        many = [{"n": n} for n in range(self.rng.choice((257, 10_000)))]
        return self.rng.choice(
            (
                {"n": None},
                {"n": {"$eq": None}},
                {"n": {"$in": [1, None]}},
                {"n": {"$gt": "many"}},
                {"n": {"$gt": True}},
                {"n": {"$near": 1}},
                {"n": math.nan},
                {"n": 2**80},
                {"n": {"$in": "text"}},
                {"$not": [{"n": 1}]},
                {"$or": {"n": 1}},
                {"$or": many},
                {"n": {"$in": list(range(self.rng.choice((10_001, 100_000))))}},
                deep,
            )
        )

    def of_items(self) -> dict[str, Any]:
        """A filter of LangGraph's language."""
        keys = self.rng.sample(("n", "text", "flag", "list", "mixed", "absent", "a key"), 2)
        return {key: self._of_item() for key in keys[: self.rng.choice((1, 1, 2))]}

    def _of_item(self) -> Any:
        if self.rng.random() < 0.3:
            return self.rng.choice((self.value(), None, [1, 2], {"x": self.value()}))
        names = self.rng.sample(("$eq", "$ne", *_ORDERS), self.rng.choice((1, 1, 2)))
        return {name: self.value() for name in names}


def _depth(condition: Any) -> int:
    if isinstance(condition, Mapping):
        return 1 + max(map(_depth, condition.values()), default=0)
    return max(map(_depth, condition), default=0) if isinstance(condition, list) else 0


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _store(value: Any) -> Any:
    """A value of metadata as it is stored."""
    plain = _plain(value)
    return plain.replace("\x00", "") if isinstance(plain, str) else plain


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _in_order(own: Any, operator: str, wanted: Any) -> bool:
    holds: dict[str, bool] = {
        "$gt": own > wanted,
        "$gte": own >= wanted,
        "$lt": own < wanted,
        "$lte": own <= wanted,
    }
    return holds[operator]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def satisfies(metadata: Mapping[str, Any], condition: Mapping[str, Any]) -> bool:
    """Whether metadata satisfies a filter."""
    own = {_store(key): _store(value) for key, value in metadata.items()}
    for key, given in condition.items():
        if key in ("$and", "$or"):
            parts = [satisfies(metadata, part) for part in given]
            holds = all(parts) if key == "$and" else any(parts)
        else:
            operators = given if isinstance(given, Mapping) else {"$eq": given}
            holds = all(_holds(own.get(_store(key)), *each) for each in operators.items())
        if not holds:
            return False
    return True


def _holds(own: Any, operator: str, given: Any) -> bool:
    if operator in _ORDERS:
        return _is_number(own) and _in_order(own, operator, _plain(given))
    wanted = map(_store, given if operator in ("$in", "$nin") else [given])
    return any(_same(own, each) for each in wanted) == (operator in ("$eq", "$in"))


def item_passes(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether an item passes a filter of LangGraph's language."""
    return all(_item_holds(_plain(value.get(key)), given) for key, given in wanted.items())


def _item_holds(own: Any, given: Any) -> bool:
    if not isinstance(given, Mapping):
        return _same(own, _plain(given))
    if "x" in given:
        return isinstance(own, dict) and item_passes(own, given)
    for operator, wanted in ((name, _plain(each)) for name, each in given.items()):
        if operator not in _ORDERS:
            holds = _same(own, wanted) == (operator == "$eq")
        else:
            alike = (_is_number(own) and _is_number(wanted)) or {type(own), type(wanted)} == {str}
            holds = alike and _in_order(own, operator, wanted)
        if not holds:
            return False
    return True


Ask: TypeAlias = Callable[[Any], set[str]]


def _ask_memory(place: str, vectors: str | None, records: Mapping[str, Any]) -> Ask:
    """What finds the ids of the records that satisfy a filter."""
    memory = CrabPath.open(place, vectors=vectors, embeddings=Hashed())
    pages = [
        Document(f"{name} tells of {number * 7919}", metadata=metadata)
        for number, (name, metadata) in enumerate(records.items())
    ]
    memory.add_documents(pages, ids=list(records), progress=None)
    vector = Hashed().embed_query("any")

    def ask(condition: Any) -> set[str]:
        answer = memory.retrieve("any", vector=vector, filter=condition, k=_RECORDS, record=False)
        return {item.node.id for item in answer.documents}

    return ask


def _ask_items(place: str, records: Mapping[str, Any]) -> Ask:
    store = CrabPathStore(CrabPath.open(place, embeddings=Hashed()), options={"record": False})
    store.batch(
        PutOp(_PREFIX, name, {**value, "about": f"{name} tells of {number * 7919}"}, ["about"])
        for number, (name, value) in enumerate(records.items())
    )

    def ask(condition: Any) -> set[str]:
        found = store.search(_PREFIX, query="any", filter=condition, limit=_RECORDS)
        return {item.key for item in found}

    return ask


def _work(
    say: Callable[[Any], None], place: str, vectors: str | None, seed: int, number: int
) -> None:
    """Ask a store so many filters; say what was wrong with the answers."""
    rng, faults = random.Random(seed), list[str]()
    filters, records, items = Filters(rng), make_records(rng), vectors == _ITEMS
    ask = _ask_items(place, records) if items else _ask_memory(place, vectors, records)
    for _ in range(number):
        chance, refused = rng.random(), False
        if items:
            wanted = filters.of_items()
            expected = {name for name in records if item_passes(records[name], wanted)}
        else:
            refused = chance < _ILLEGAL
            made = filters.illegal if refused else filters.large if chance < _LARGE else None
            wanted = (made or filters.legal)()
            found = [] if refused else [n for n in records if satisfies(records[n], wanted)]
            expected = set(found)
        if fault := _try(ask, wanted, None if refused else expected):
            faults.append(f"{fault} ← {str(wanted)[:300]}")
    say(faults)


def _try(ask: Ask, wanted: Any, expected: set[str] | None) -> str:
    """What is wrong with an answer; empty where nothing is. None expects a refusal."""
    started = time.perf_counter()
    try:
        found: set[str] | None = ask(wanted)
    except InvalidInputError as error:
        found, said = None, str(error)
        if len(said) > _LONGEST or "\n" in said:
            return f"is refused at length: {said}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if found != expected:
        return f"finds {found and len(found)} and not {expected and len(expected)} records"
    taken = time.perf_counter() - started
    for _ in range(_AGAIN if taken > _SLOW else 0):  # others may have had the processor
        started = time.perf_counter()
        with suppress(CrabPathError):
            ask(wanted)
        taken = min(taken, time.perf_counter() - started)
    return f"takes {taken:.1f} s" if taken > _SLOW else ""


def check_filters(budget: Budget, seed: int) -> Row:
    """Random filters, as many as there are runs: four stores answer as plain Python does."""
    row, counts = Row("random filters, four stores"), Counter[str]()
    with ExitStack() as opened:
        base = opened.enter_context(TemporaryDirectory(prefix="soak-"))
        server = server_url(opened.enter_context(chroma(Path(base, "served"))))
        places = {"Chroma": None, "a Chroma server": server, "CrabPathStore": _ITEMS}
        with suppress(Skipped):
            postgres = sa.make_url(opened.enter_context(serve_postgres()))
            places["pgvector"] = "pgvector"
        part = _PART if budget.runs is None else min(_PART, -(-budget.runs // len(places)))
        while not row.runs or not (budget.over or row.runs >= (budget.runs or math.inf)):
            for name, vectors in places.items():
                label, place = f"part{row.runs}", f"{base}/{row.runs}"
                if vectors == "pgvector":
                    place = _create_database(postgres, label)
                at = f"{server}/{label}" if vectors == server else vectors
                said = result(_work, place, at, seed + row.runs, part, seconds=part * _SLOW + 60)
                row.runs += part
                counts[name] += part
                faults = [last_line(said)] if isinstance(said, Raised) else said
                for fault in faults:
                    row.blame("other", f"{name}: {fault}")
    row.remark = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    return row


def _create_database(server: sa.URL, name: str) -> str:
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return server.set(database=name).render_as_string(hide_password=False)
