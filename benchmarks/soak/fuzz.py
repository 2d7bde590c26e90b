"""Hostile input to every public method, with honest neighbours in between.

Methods and their arguments are found by looking, so a new method is fuzzed from its first day on.
Anything but a result or an exception of CrabPath is a fault; so is a turn of a neighbour that is
not kept, and a memory that cannot be opened again.
"""

import inspect
import os
import random
import shutil
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.documents import Document

from benchmarks.soak.figures import Budget, Row
from benchmarks.soak.stores import Hashed
from crabpath_retrievers import (
    CrabPath,
    CrabPathError,
    CrabPathRetriever,
    Feedback,
    MemoryGraph,
    MemoryLearning,
    MemoryMaintenance,
    MemoryNamespaces,
    MemoryRegions,
    MemoryTransfer,
)
from crabpath_retrievers.config.operation import Knobs
from crabpath_retrievers.core.query import Query
from crabpath_retrievers.parts.operation.maintenance.doctor import examine

_HONEST_EVERY = 25  # inputs
_LOOK_EVERY = 1000
_RENEW_EVERY = 10_000
_SLOW = 10.0  # seconds; no input may keep a memory of a hundred documents busy for so long
_PAGES = 60

_TEXTS = [
    "",
    " ",
    "\x00",
    "\x00 ",
    "\ud83d",
    "\udcff\udc80",
    "a\x00b",
    "\u202eabc\u202c",
    "\u200b\u200d",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\x9b2J",
    "'; DROP TABLE crabpath_nodes; --",
    '" OR 1=1 --',
    "%s%n%x",
    "{0.__class__}",
    "../../../etc/passwd",
    "..\\..\\x",
    "/etc/passwd",
    "file:///etc/passwd",
    "${jndi:ldap://127.0.0.1/a}",
    "NULL",
    "null",
    "NaN",
    "-1",
    "1e999",
    "𝕳𝖊𝖑𝖑𝖔",
    "مرحبا",
    "日本",
    "🦀" * 30,
    "a" * 5000,
    "é" * 700,
    "\n\r\t",
    "<script>",
    "[bold]x[/bold]",
    "[/]",
    "AND OR NOT NEAR(",
    '"',
    "*",
    "^",
    "title:",
    "a\"b'c`d",
    "\u2028",
    "\ufeff",
    "\U0010ffff",
    "(" * 500,
    "word3 " * 300,
]
_KNOWN = ["word3", "Title 7", "passage 4 word2", "d3", "default", "caused_success", "co_use", "x"]


class Odd:
    """An object without a text."""

    def __str__(self) -> str:
        """Refuse."""
        msg = "no text"
        raise RuntimeError(msg)

    __repr__ = object.__repr__


class Text(str):
    """A text of a class of its own."""

    __slots__ = ()


def ignore(*_args: object, **_options: object) -> None:
    """Be a callable; what one raises by itself is its own affair."""


_THINGS = [
    *(None, True, False, 0, -1, 1, 2, 3, 4.5, -0.0, 1e308, 2**31, 2**63, 2**64, 10**30, -(2**63)),
    *(float("nan"), float("inf"), -float("inf"), b"", b"\xff\xfe", (), [], {}, set(), object()),
    *(Odd(), range(3), Text("x"), 1j, Ellipsis, ignore, uuid.UUID(int=0), Path("x")),
]
_OPERATORS = (
    *("$eq", "$ne", "$gt", "$lt", "$in", "$nin", "$and", "$or", "$not", "$contains", "$regex"),
    *("$nope", "n", "t", "#document", "$where", "source", ""),
)
_LEFT_OUT = {  # what reads and writes files is for the archives; closing is not an input
    *("close", "open", "sync", "learning.replay", "maintenance.runner", "as_retriever"),
    *("transfer.copy_from", "transfer.export", "transfer.import_archive", "graph.write_graphml"),
}
_SHARES = {  # what looks at everything is called seldom, or nothing else would be
    "graph.find_influence": 0.05,
    "maintenance.run": 0.03,
    "maintenance.tune": 0.05,
    "maintenance.reindex": 0.05,
    "maintenance.health": 0.3,
    "learning.learn_waiting": 0.2,
    "regions.mdp": 0.3,
    "regions.models": 0.1,
    "retrieve": 8.0,
    "record": 5.0,
    "add_documents": 2.0,
    "forget": 2.0,
    "regions.learn_episode": 2.0,
}


class Inputs:
    """Random arguments, plausible ones and others."""

    def __init__(self, rng: random.Random) -> None:
        """Draw from this."""
        self.rng, self.turns = rng, ["no-turn"]
        self._plausible: dict[str, Callable[[], Any]] = {
            **dict.fromkeys(("namespace", "title", "query", "text", "answer"), self.text),
            **dict.fromkeys(("correction", "task_type", "session", "arm", "run_id"), self.text),
            **dict.fromkeys(
                ("name", "snapshot", "episode_id", "edge_id", "feedback_id"), self.text
            ),
            **dict.fromkeys(("user", "source", "id"), self.text),
            **dict.fromkeys(("ids", "wrong", "related", "seed_ids", "candidate_ids"), self.names),
            **dict.fromkeys(("used", "unused", "boost_tags", "texts", "actions"), self.names),
            **dict.fromkeys(("node_id", "target", "start"), self.name),
            **dict.fromkeys(("k", "limit", "max_hops", "temporal_context", "window"), self.small),
            **dict.fromkeys(("lags", "level", "explore", "max_tokens"), self.small),
            **dict.fromkeys(("outcome", "reward", "weight", "min_weight"), self.number),
            "turn_id": lambda: rng.choice(self.turns),
            "states": lambda: rng.choice([self.names(), [[0.5] * 32, [1.0] * 32]]),
            "vector": lambda: [rng.choice([0.0, 1.0, 1e38, -2.5]) for _ in range(32)],
            "filter": self.filter,
            "edge_boost": lambda: {rng.choice(_KNOWN): self.number()},
            "weights": lambda: [self.number() for _ in range(5)],
            "edge_type": lambda: rng.choice(["caused_success", "temporal", "co_use"]),
            "edge_types": lambda: ["caused_success", "temporal"],
            "direction": lambda: rng.choice(["in", "out"]),
            "authority": lambda: rng.choice(["overlay", "canonical", "constitutional"]),
            "documents": self.documents,
            "vectors": lambda: {self.name(): [1.0] * 32},
            "cleanup": lambda: rng.choice([None, "incremental"]),
            "split": lambda: rng.random() < 0.5,
            "progress": lambda: None,
            "splitter": lambda: None,
            "steps": lambda: [rng.choice(["fade", "prune", "health", "compact"])],
            "feedback": self.feedback,
        }

    def text(self) -> str:
        """A text, most often one that nobody expects."""
        rng = self.rng
        chance = rng.random()
        if chance < 0.45:
            return rng.choice(_TEXTS)
        if chance < 0.6:
            kinds = (32, 128, 0x3000, 0x110000)
            return "".join(
                chr(rng.randrange(rng.choice(kinds))) for _ in range(rng.randrange(1, 40))
            )
        if chance < 0.8:
            return " ".join(rng.choices(_TEXTS + _KNOWN, k=rng.randrange(1, 5)))
        return rng.choice(_KNOWN)

    def thing(self, depth: int = 2) -> Any:
        """Anything at all."""
        rng = self.rng
        chance = rng.random()
        if chance < 0.35:
            return self.text()
        if chance < 0.75 or depth == 0:
            return rng.choice(_THINGS)
        if chance < 0.88:
            return [self.thing(depth - 1) for _ in range(rng.randrange(4))]
        names = [self.text() if rng.random() < 0.8 else rng.choice([1, None, (1,)])]
        return {name: self.thing(depth - 1) for name in names * rng.randrange(3)}

    def name(self) -> str:
        """An id, often of a document."""
        return f"d{self.rng.randrange(_PAGES + 10)}" if self.rng.random() < 0.6 else self.text()

    def names(self) -> list[str]:
        """Some ids."""
        return [self.name() for _ in range(self.rng.randrange(3))]

    def small(self) -> int:
        """A small number."""
        return self.rng.randrange(1, 9)

    def number(self) -> float:
        """A number in [-1, 1]."""
        return self.rng.choice([1.0, -1.0, 0.5, 0.0, -0.3])

    def filter(self, depth: int = 2) -> dict[str, Any]:
        """A condition on metadata, most often a senseless one."""
        rng = self.rng

        def value() -> Any:
            chance = rng.random()
            if depth and chance < 0.4:
                return self.filter(depth - 1)
            return [self.filter(depth - 1)] if depth and chance < 0.6 else self.thing(1)

        return {rng.choice(_OPERATORS): value() for _ in range(rng.randrange(1, 3))}

    def documents(self) -> list[Document]:
        """One or two documents with odd texts, ids and metadata."""
        rng, made = self.rng, []
        for _ in range(rng.randrange(1, 3)):
            about = {(self.text() or "x"): self.thing() for _ in range(rng.randrange(3))}
            for name in ("title", "aliases", "source", "task_type", "url", "score", "crabpath"):
                if rng.random() < 0.25:
                    about[name] = self.text() if rng.random() < 0.6 else self.thing()
            made.append(Document(self.text(), metadata=about, id=rng.choice([None, self.text()])))
        return made

    def feedback(self) -> Feedback:
        """Feedback; its own checks are fuzzed on the way."""
        names = [one.name for one in fields(Feedback)]
        if self.rng.random() < 0.1:
            return Feedback.from_dict({name: self.thing() for name in self.rng.sample(names, 3)})
        given = {name: self.argument(name, 0.7) for name in names if self.rng.random() < 0.3}
        given.setdefault("turn_id", self.rng.choice(self.turns))
        given.setdefault("outcome", self.number())
        return Feedback(**given)

    def argument(self, name: str, plausible: float = 0.65) -> Any:
        """A value for an argument of this name."""
        if name in self._plausible and self.rng.random() < plausible:
            return self._plausible[name]()
        return self.thing()


def methods() -> dict[str, inspect.Signature]:
    """Every public method of a memory and of its components, which stand before a dot."""
    places = {"": CrabPath, "graph.": MemoryGraph, "learning.": MemoryLearning}
    places |= {"maintenance.": MemoryMaintenance, "namespaces.": MemoryNamespaces}
    places |= {"regions.": MemoryRegions, "transfer.": MemoryTransfer}
    return {
        f"{place}{name}": inspect.signature(method)
        for place, of in places.items()
        for name, method in inspect.getmembers(of, inspect.isfunction)
        if not name.startswith("_") and f"{place}{name}" not in _LEFT_OUT
    }


_OPTIONS = {  # what ``**options`` stand for
    "retrieve": [f.name for f in fields(Query)[1:]],
    "learning.evidence": [f.name for f in fields(Query)[1:]],
    "maintenance.set_knobs": list(Knobs.model_fields),
    "correct": ["title", "related", "id"],
    "teach": ["title", "related", "id"],
}


class _Fuzzing:
    """A memory under attack, and its honest neighbour."""

    def __init__(self, row: Row, rng: random.Random, place: Path) -> None:
        self.row, self.rng, self.place = row, rng, place
        self.inputs, self.methods = Inputs(rng), methods()
        self.weights = [_SHARES.get(name, 1.0) for name in self.methods]
        self.slow, self.honest = Counter[str](), list[str]()
        self.kept = 0
        self.begin()

    def begin(self) -> None:
        """A new memory."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.memory = self.open()
        self.fill()
        self.inputs.turns = [self.memory.retrieve(f"word{n}").turn.id for n in range(10)]

    def open(self) -> CrabPath:
        """Open the memory."""
        return CrabPath.open(self.place, embeddings=Hashed())

    def fill(self) -> None:
        """Documents of the neighbour under ids that nobody guesses, and others to be attacked."""
        pages = [
            Document(
                f"Passage {n} mentions Title {n // 3} word{n % 20}",
                id=f"{owner}{n}",
                metadata={"title": f"Title {n}", "n": n, "t": "x"},
            )
            for owner in ("honest-", "d")
            for n in range(_PAGES)
        ]
        self.memory.add_documents(pages[:_PAGES], progress=None)
        with suppress(CrabPathError):  # one of the ids may be that of a note by now
            self.memory.add_documents(pages[_PAGES:], progress=None)

    def attack(self) -> None:
        """One hostile input."""
        chance = self.rng.random()
        if chance < 0.06:
            name, call, given = "invoke", *self._invoked()
        elif chance < 0.062:
            name, call, given = "open", *self._opened()
        else:
            (name,) = self.rng.choices(list(self.methods), self.weights)
            call, given = attrgetter(name)(self.memory), None
        self._call(name, call, given)

    def _invoked(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        retriever = CrabPathRetriever(memory=self.memory, k=3)
        names = ("k", "filter", "namespace", "max_tokens", "fill", "one_per_document", "seed_ids")
        given = {n: self.inputs.argument(n) for n in names if self.rng.random() < 0.2}
        return retriever.invoke, {"input": self.inputs.argument("text", 0.9), **given}

    def _opened(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        names = ("path", "vectors", "settings", "router", "linkers")
        given = {n: self.inputs.thing(0) for n in names if self.rng.random() < 0.3}
        for option in ("path", "vectors"):  # any text is a place, and is made
            if isinstance(given.get(option), (str, Path, bytes)):
                given[option] = "odd"

        def opened(**given: Any) -> None:
            CrabPath.open(embeddings=Hashed(), **given).close()

        return opened, given

    def _call(self, name: str, call: Callable[..., Any], given: dict[str, Any] | None) -> None:
        self.row.runs += 1
        started = time.perf_counter()
        try:
            if given is None:
                given = self._arguments(name)
            positional = given.pop("*", ())
            call(*positional, **given)
        except CrabPathError:
            pass
        except Exception as error:
            self._judge(name, error, given)
        taken = time.perf_counter() - started
        if taken > _SLOW:
            self.row.blame("other", f"{name} took {taken:.0f} s: {_shown(given)}")

    def _arguments(self, name: str) -> dict[str, Any]:
        """Arguments of a method by its signature; ``*`` holds those that are not named."""
        given: dict[str, Any] = {}
        for parameter in list(self.methods[name].parameters.values())[1:]:
            if parameter.kind is parameter.VAR_KEYWORD:
                for option in _OPTIONS.get(name, []):
                    if self.rng.random() < 0.12:
                        given[option] = self.inputs.argument(option)
            elif parameter.default is parameter.empty or self.rng.random() < 0.3:
                given[parameter.name] = self.inputs.argument(parameter.name)
        if name == "add_documents":
            given["progress"] = None
            given.setdefault("cleanup", None)
            if given["cleanup"] == "full":
                given["cleanup"] = None
        if name == "namespaces.restore" and self.rng.random() < 0.5:
            given["snapshot"] = "x"
        return given

    def _judge(self, name: str, error: Exception, given: Any) -> None:
        if isinstance(error, RuntimeError) and str(error) == "no text":
            return  # what an argument itself raises is handed on
        if isinstance(error, TypeError) and "unexpected keyword argument" in str(error):
            return
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if "crabpath_retrievers" in frame.filename
        ]
        at = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "?"
        text = f"{name} → {type(error).__name__} at {at}: {str(error)[:100]} ← {_shown(given)}"
        self.row.blame("foreign", text, kind=f"{name} {type(error).__name__} {at}")

    def ask_honestly(self) -> None:
        """A neighbour asks; its turn must be kept."""
        try:
            number = self.rng.randrange(20)
            answer = self.memory.retrieve(f"word{number}", namespace="honest", k=3)
            self.honest.append(answer.turn.id)
            self.row.acknowledged += 1
        except Exception as error:
            self.row.blame("other", f"an honest question: {error!r}")

    def look(self) -> None:
        """The turns of the neighbour are kept, and it learns from one of them."""
        try:
            self.memory.store.flush()
            for turn in self.honest:
                if self.memory.store.turns.find(turn) is None:
                    self.row.blame("lost", "an honest turn is not kept")
            self.fill()
            answer = self.memory.retrieve("word3 Passage", namespace="honest", k=3)
            if len(answer.documents) != 3:
                self.row.blame("other", f"an honest question found {len(answer.documents)} of 3")
            receipt = self.memory.record(Feedback(answer.turn.id, 1.0))
            if receipt.status not in ("applied", "waiting"):
                self.row.blame("other", f"honest feedback is {receipt.status}: {receipt.note}")
        except Exception as error:
            self.row.blame("other", f"the memory no longer serves: {error!r}")
        self.honest.clear()

    def renew(self) -> None:
        """Close, open again, run doctor, begin anew: hostile documents slow everything down."""
        try:
            self.memory.close()
            self.open().close()
        except Exception as error:
            self.row.blame("unopenable", f"{error!r}")
        else:
            for found in examine(self.place, embeddings=Hashed()).findings:
                if found.severity != "info":
                    self.row.blame("other", f"doctor: {found.message}")
        self.begin()


def _shown(given: Any) -> str:
    try:
        return repr(given)[:250]
    except Exception:
        return "what cannot be shown"


def check_fuzz(budget: Budget, seed: int) -> Row:
    """Hostile arguments to all public methods; honest turns in between are kept."""
    row, here = Row("hostile arguments to the public API"), Path.cwd()
    with TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as base:
        os.chdir(base)  # whatever should write to a path of its own choosing writes here
        try:
            fuzzing = _Fuzzing(row, random.Random(seed), Path(base, "memory"))
            for run in budget:
                fuzzing.attack()
                if run % _HONEST_EVERY == 0:
                    fuzzing.ask_honestly()
                if run % _LOOK_EVERY == _LOOK_EVERY - 1:
                    fuzzing.look()
                if run % _RENEW_EVERY == _RENEW_EVERY - 1:
                    fuzzing.renew()
            fuzzing.look()
            fuzzing.renew()
            fuzzing.memory.close()
            beside = sorted({path.name for path in Path(base).iterdir()} - {"memory", "odd"})
            if beside:
                row.blame("leaks", f"files outside of the memory: {beside[:5]}", len(beside))
        finally:
            os.chdir(here)
    return row
