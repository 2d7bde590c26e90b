"""Twenty namespaces with canaries: nothing that one was told is seen by another.

Every text that a namespace is told, asks or is corrected with holds ``CANARY-<namespace>-``; no
answer to another namespace may hold it. Documents are shared, and hold none.
"""

import random
import re
import zipfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.documents import Document

from benchmarks.soak.figures import Budget, Row
from benchmarks.soak.stores import Words, chroma, schema, server_url
from crabpath_retrievers import CrabPath, CrabPathError, CrabPathRetriever, Feedback

_WORDS = ("apple", "boat", "crab", "delta", "eagle", "fox", "goat", "hat", "ice", "jam")
_NAMESPACES = [f"ns{number:02d}" for number in range(20)]
_CANARY = re.compile(r"CANARY-(ns\d\d)-")
_PAGES = 300


class Isolation:
    """Operations of random namespaces on one memory."""

    def __init__(self, row: Row, rng: random.Random, memory: CrabPath, base: Path) -> None:
        """Begin with documents alone."""
        self.row, self.rng, self.memory, self.base = row, rng, memory, base
        self.retriever = CrabPathRetriever(memory=memory, k=6)
        self.turns: dict[str, list[str]] = defaultdict(list)
        self.given: dict[str, list[str]] = defaultdict(list)
        self.notes: dict[str, list[str]] = defaultdict(list)
        self.snapshots: dict[str, list[str]] = defaultdict(list)
        self.archives: list[tuple[str, Path]] = []
        self.own = 0
        pages = [
            Document(
                f"{rng.choice(_WORDS)} {rng.choice(_WORDS)} Title{n} mentions Title{n * 7 % 300}",
                id=f"d{n}",
                metadata={"title": f"Title{n}", "n": n},
            )
            for n in range(_PAGES)
        ]
        memory.add_documents(pages, progress=None)
        kinds: list[tuple[Callable[[str, str], None], float]] = [
            (self.ask, 16),
            (self.record, 8),
            (self.record_for_other, 0.7),
            (self.tell, 4),
            (self.explain, 2),
            (self.search, 2),
            (self.keep_snapshot, 0.4),
            (self.restore, 0.4),
            (self.undo, 2),
            (self.travel, 0.1),
            (self.forget_all, 0.05),
            (self.look, 0.3),
            (self.plan, 0.5),
            (self.live, 2),
            (self.neighbours, 2),
            (self.anchor, 2),
            (self.forget_note, 0.4),
            (self.invoke, 2),
            (self.maintain, 0.02),
        ]
        self._kinds, self._weights = [k for k, _ in kinds], [w for _, w in kinds]

    def step(self) -> None:
        """One operation of a random namespace, with another one's ids at hand."""
        (kind,) = self.rng.choices(self._kinds, self._weights)
        name, other = self.rng.sample(_NAMESPACES, 2)
        try:
            kind(name, other)
        except CrabPathError as error:
            self.see(name, "an error", str(error))
        except Exception as error:
            self.row.blame("foreign", f"{kind.__name__}: {error!r}")

    def see(self, name: str, what: str, thing: Any) -> None:
        """A namespace sees something; canaries of others in it are leaks."""
        text = thing if isinstance(thing, str) else repr(thing)
        found = set(_CANARY.findall(text))
        self.own += name in found
        if foreign := found - {name}:
            at = text.index(f"CANARY-{min(foreign)}")
            around = text[max(0, at - 100) : at + 60]
            self.row.blame("leaks", f"{what} of {name} shows {sorted(foreign)}: {around}")

    def canary(self, name: str) -> str:
        """What only this namespace may see."""
        return f"CANARY-{name}-{self.rng.randrange(10**6)}"

    def word(self) -> str:
        """One of a few words: texts of all namespaces are near each other."""
        return self.rng.choice(_WORDS)

    def leaked(self, what: str) -> None:
        """Something of another namespace could be changed."""
        self.row.blame("leaks", what)

    def ask(self, name: str, other: str) -> None:
        """A question, sometimes with ids and tags of another namespace."""
        rng = self.rng
        said = self.canary(name) if rng.random() < 0.5 else ""
        theirs = [rng.choice(self.notes[other] or ["d1"])]
        possible: list[tuple[float, str, Any]] = [
            (0.2, "seed_ids", theirs),
            (0.1, "candidate_ids", theirs),
            (0.1, "boost_tags", [self.canary(other)]),
            (0.1, "filter", {"n": {"$lt": 50}}),
            (0.1, "max_tokens", 200),
            (0.1, "one_per_document", True),
            (0.2, "explore", rng.randrange(99)),
            (0.3, "task_type", self.canary(name)[:60]),
        ]
        options = {option: value for chance, option, value in possible if rng.random() < chance}
        question, k = f"{self.word()} {self.word()} {said}", rng.choice([3, 3, 6, 6, 6, 40])
        answer = self.memory.retrieve(question, k=k, namespace=name, **options)
        nodes = [found.node for found in answer.documents]
        self.see(name, "an answer", [(n.content, n.title, n.metadata) for n in nodes])
        if not {"seed_ids", "candidate_ids", "boost_tags"} & set(options):  # those it named itself
            self.see(name, "a turn", answer.turn)
        self.turns[name] = [*self.turns[name][-4:], answer.turn.id]
        if options.get("candidate_ids") and {n.id for n in nodes} & set(self.notes[other]):
            self.leaked("a note of another namespace was returned")

    def record(self, name: str, _: str) -> None:
        """Feedback about an own turn."""
        if not self.turns[name]:
            return
        rng, more = self.rng, dict[str, Any]()
        if rng.random() < 0.3:
            more["correction"] = f"{self.word()} is {self.canary(name)}"
        if rng.random() < 0.3:
            more["answer"] = f"{self.word()} {self.canary(name)}"
        if rng.random() < 0.6:
            more["used"] = [f"d{rng.randrange(_PAGES)}"]
        given = f"{name}-{rng.randrange(10**9)}"
        outcome = rng.choice([1.0, 1.0, -1.0, 0.3])
        turn = rng.choice(self.turns[name])
        receipt = self.memory.record(Feedback(turn, outcome, feedback_id=given, **more))
        self.see(name, "a receipt", receipt)
        self.given[name] = [*self.given[name][-9:], given]
        self.row.acknowledged += 1

    def record_for_other(self, name: str, other: str) -> None:
        """Feedback about another namespace's turn is refused."""
        if not self.turns[other]:
            return
        turn, said = self.rng.choice(self.turns[other]), self.canary(name)
        given = Feedback(turn, 1.0, namespace=name, correction=said)
        receipt = self.memory.record(given)
        if receipt.status == "applied":
            self.leaked("feedback for another namespace's turn was applied")
        self.see(name, "a receipt", receipt)

    def tell(self, name: str, other: str) -> None:
        """A note; sometimes under, or about, the id of another namespace's note."""
        rng = self.rng
        how: Any = rng.choice(["teaching", "directive", "correct"])
        about = [f"d{rng.randrange(_PAGES)}"]
        if rng.random() < 0.2 and self.notes[other]:
            about = [rng.choice(self.notes[other])]
        more: dict[str, Any] = {"wrong" if how == "correct" else "related": about}
        if rng.random() < 0.1 and self.notes[other]:
            more["id"] = rng.choice(self.notes[other])
        more["title"] = self.canary(name) if rng.random() < 0.5 else ""
        more["query"] = f"{self.word()}? {self.canary(name)}"
        said = f"{self.word()} {self.canary(name)}"
        if how == "correct":
            note = self.memory.correct(said, namespace=name, **more)
        else:
            note = self.memory.teach(said, kind=how, namespace=name, **more)
        # An id that a restore or an import had set free is ours now, and was refused otherwise.
        for former in _NAMESPACES:
            self.notes[former] = [kept for kept in self.notes[former] if kept != note]
        self.notes[name] = [*self.notes[name][-19:], note]

    def explain(self, name: str, other: str) -> None:
        """Why an own turn answered so; another's turn is not found."""
        if self.turns[name]:
            turn = self.rng.choice(self.turns[name])
            self.see(name, "explain", self.memory.explain(turn, namespace=name).to_dict())
        if self.turns[other]:
            turn = self.rng.choice(self.turns[other])
            try:
                self.memory.explain(turn, namespace=name)
            except CrabPathError as error:
                self.see(name, "an error", str(error))
            else:
                self.leaked("another namespace's turn was explained")

    def search(self, name: str, _: str) -> None:
        """Searches that record no turn."""
        how = self.rng.choice(["search", "bayesian_search", "causal_search"])
        self.see(name, how, getattr(self.memory.graph, how)(self.word(), 10, namespace=name))

    def keep_snapshot(self, name: str, _: str) -> None:
        """A snapshot, and the list of them."""
        if self.turns[name]:
            kept = self.memory.namespaces.snapshot(name, self.canary(name))
            self.snapshots[name] = [*self.snapshots[name][-4:], kept]
        self.see(name, "snapshots", self.memory.namespaces.snapshots(name))

    def restore(self, name: str, other: str) -> None:
        """An own snapshot is restored; another's is not found."""
        if self.snapshots[name]:
            self.memory.namespaces.restore(self.rng.choice(self.snapshots[name]), namespace=name)
        if self.snapshots[other]:
            self._refused(
                "a snapshot of another namespace was restored",
                lambda: self.memory.namespaces.restore(self.snapshots[other][-1], namespace=name),
            )

    def undo(self, name: str, other: str) -> None:
        """Own feedback is undone; another's is not found."""
        if self.given[name] and self.rng.random() < 0.5:
            given = self.given[name].pop(self.rng.randrange(len(self.given[name])))
            self.see(name, "a receipt", self.memory.undo(given, namespace=name))
        if self.given[other]:
            self._refused(
                "feedback of another namespace was undone",
                lambda: self.memory.undo(self.given[other][-1], namespace=name),
            )

    def travel(self, name: str, _: str) -> None:
        """What a namespace has learned is archived, and sometimes read in again."""
        path = self.base / f"{name}.crabpath"
        if self.turns[name]:
            self.memory.transfer.export(path, namespace=name)
            with zipfile.ZipFile(path) as file:
                texts = [file.read(one).decode("utf-8", "replace") for one in file.namelist()]
            self.see(name, "an archive", "\n".join(texts))
            self.archives.append((name, path))
        if self.archives:
            owner, path = self.rng.choice(self.archives)
            self.memory.transfer.import_archive(path, rename=owner, replace=True)
            for kept in (self.given, self.snapshots):
                kept[owner].clear()

    def forget_all(self, name: str, _: str) -> None:
        """A namespace is forgotten."""
        self.memory.forget(namespace=name)
        for kept in (self.turns, self.given, self.notes, self.snapshots):
            kept[name].clear()

    def look(self, name: str, _: str) -> None:
        """Reports about a namespace, and about all."""
        self.see(name, "health", self.memory.maintenance.health(name))
        about = {k: v for k, v in self.memory.info().items() if k != "namespaces"}
        self.see("", "info", about)
        self.see(name, "evidence", self.memory.learning.evidence(self.word(), namespace=name))

    def plan(self, name: str, _: str) -> None:
        """What is learned of regions."""
        model = self.memory.regions.mdp(namespace=name)
        region = self.memory.regions.assign(self.word())
        seen = [model.best_action(region, None), model.strategy_for(region, None)]
        self.see(name, "a plan", [*seen, repr(vars(model))[:100_000]])

    def live(self, name: str, _: str) -> None:
        """An episode that happened elsewhere."""
        texts, actions = [f"{self.word()} {self.canary(name)}", "x"], [self.canary(name)] * 2
        more: dict[str, Any] = {"task_type": self.canary(name), "namespace": name}
        reward = self.rng.choice([1.0, -1.0])
        self.memory.regions.learn_episode(texts=texts, actions=actions, reward=reward, **more)

    def neighbours(self, name: str, other: str) -> None:
        """Typed edges of documents, and of another namespace's note."""
        for kind in ("caused_success", "correction", "co_use", "inhibitory"):
            node = f"d{self.rng.randrange(_PAGES)}"
            found = self.memory.graph.neighbors(node, kind, namespace=name)
            self.see(name, "neighbours", found)
        if self.notes[other]:
            note = self.rng.choice(self.notes[other])
            found = self.memory.graph.neighbors(note, "caused_success", namespace=name)
            self.see(name, "neighbours of another's note", found)

    def anchor(self, name: str, other: str) -> None:
        """Another namespace's note is not anchored."""
        if self.notes[other]:
            note = self.rng.choice(self.notes[other])
            self._refused(
                "a note of another namespace was anchored",
                lambda: self.memory.learning.anchor([note], namespace=name),
            )

    def forget_note(self, name: str, _: str) -> None:
        """An own note is forgotten."""
        if self.notes[name]:
            self.memory.forget(ids=[self.notes[name].pop()])

    def invoke(self, name: str, _: str) -> None:
        """LangChain's way to ask."""
        for found in self.retriever.invoke(f"{self.word()} {self.word()}", namespace=name, k=10):
            self.see(name, "a retriever's answer", found)

    def maintain(self, _: str, __: str) -> None:
        """Maintenance of all."""
        self.see("", "maintenance", self.memory.maintenance.run())

    def everything(self) -> None:
        """At the end: all that each namespace can find."""
        for name in _NAMESPACES:
            for word in _WORDS[:3]:
                found = self.memory.retrieve(f"{word} CANARY", k=200, namespace=name).documents
                texts = [(one.node.content, one.node.title) for one in found]
                self.see(name, "all answers", texts)

    def _refused(self, what: str, call: Callable[[], Any]) -> None:
        try:
            found = call()
        except CrabPathError:
            return
        if getattr(found, "status", "") not in ("refused", "waiting"):
            self.leaked(what)


def check_isolation(budget: Budget, seed: int) -> Row:
    """Operations of 20 namespaces; SQLite."""
    row = Row("isolation of 20 namespaces, SQLite")
    with (
        TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as base,
        CrabPath.open(Path(base, "memory"), embeddings=Words()) as memory,
    ):
        _check(row, budget, random.Random(seed), memory, Path(base))
    return row


def check_isolation_servers(budget: Budget, seed: int) -> Row:
    """Operations of 20 namespaces; PostgreSQL, Chroma server."""
    row = Row("isolation of 20 namespaces, PostgreSQL + Chroma server")
    with (
        TemporaryDirectory(prefix="soak-") as base,
        schema() as url,
        chroma(Path(base, "vectors")) as server,
        CrabPath.open(url, embeddings=Words(), vectors=server_url(server)) as memory,
    ):
        _check(row, budget, random.Random(seed), memory, Path(base))
    return row


def _check(row: Row, budget: Budget, rng: random.Random, memory: CrabPath, base: Path) -> None:
    at_work = Isolation(row, rng, memory, base)
    for _ in budget:
        row.runs += 1
        at_work.step()
    at_work.everything()
    row.remark = f"own canaries were seen {at_work.own:,} times"
    if not at_work.own:
        row.blame("other", "nobody saw even its own canary: the check is blind")
