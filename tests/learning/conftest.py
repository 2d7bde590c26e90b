"""A small memory on both databases, what it has learned, and turns written by hand."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import sqlalchemy as sa
import tables as s
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import (
    ConsideredEdge,
    CrabPath,
    PathEdge,
    ReturnedDocument,
    SeedRecord,
    Settings,
    Turn,
    WalkStep,
)
from crabpath_retrievers.config import LearningSettings, NoteSettings, SeedSettings
from crabpath_retrievers.retrieval.namespace_model import NamespaceModel
from tests.seams import get_services

TEXTS = {"a": "Apples are red fruit.", "b": "The sky is blue.", "c": "Grass is green."}
QUESTION = "Which fruit is red?"
VECTORS = DeterministicFakeEmbedding(size=16)


class Host:
    """A program that asks one memory and reads back what that memory has learned."""

    def __init__(self, memory: CrabPath) -> None:
        self.memory = memory

    def ask(self, namespace: str = "default", **options) -> str:
        """Ask something that returns all three documents; gives the turn id."""
        answer = self.memory.retrieve(QUESTION, namespace=namespace, **options)
        assert {item.node.id for item in answer.documents} == set(TEXTS)
        return answer.turn.id

    def answer(self, text: str = QUESTION, namespace: str = "default", k: int = 10, **options):
        """The answer to a question, deep enough to hold all that there is."""
        return self.memory.retrieve(text, namespace=namespace, k=k, **options)

    def found(self, text: str = QUESTION, namespace: str = "default", **options) -> list[str]:
        """Ids of all that a question returns, best first."""
        return [item.node.id for item in self.answer(text, namespace, **options).documents]

    def learned(self, namespace: str = "default") -> int:
        """How often a namespace has learned."""
        return self.memory.store.walk.get_clock(namespace).learned

    def usage(self, namespace: str = "default") -> dict[str, tuple[float, float]]:
        """Wins and losses by document id, of those that have any."""
        store = self.memory.store
        keys = store.learned.keys(list(TEXTS))
        found = store.learned.usage(store.walk.get_clock(namespace).key, list(keys.values()))
        return {node: found[key][:2] for node, key in keys.items() if key in found}

    def weights(self, namespace: str = "default") -> dict[tuple[str, str, str], float]:
        """Weights of all learned edges between documents and new notes, by ids and kind."""
        store = self.memory.store
        notes = [note.id for note in store.notes.get_unindexed()]
        known = store.learned.keys([*TEXTS, *notes], store.walk.get_clock(namespace).key)
        ids = {key: node for node, key in known.items()}
        return {
            (ids[source], ids[target], kind.label): weight
            for (source, target, kind), weight in store.learned.weights(namespace, [*ids]).items()
        }

    def facts(self, node: str):
        """What the store knows of one note; None when it is none."""
        return next(iter(self.memory.store.notes.get_facts([node])), None)

    def status(self, feedback_id: str) -> str:
        """Where a feedback stands."""
        return self.memory.store.learned.get_feedback(feedback_id).status

    def consumers(self, turns) -> dict[str, str]:
        """Id of the latest feedback about each turn that was learned from."""
        verdicts = self.memory.store.turns.get_verdicts(list(turns))
        return {turn: given.feedback_id for turn, given in verdicts}


LEARNED = (s.overlay, s.pair_counts, s.usage, s.transitions, s.episodes)
FREE = {"namespace", "indexed", "embedding", "sequence", "created", "record", "ranker"}


def read_learned(memory: CrabPath, namespace: str) -> dict[str, dict]:
    """All that a namespace has learned: numbers by table, row and column; and what it released."""
    clock = memory.store.walk.get_clock(namespace)
    found: dict[str, dict] = {"clock": {(): [clock.exponent]}}
    with memory.store.connect() as connection:
        for table in (*LEARNED, s.weight_changes, s.feedback_effects):
            columns = [column for column in table.c if column.name not in FREE]
            query = sa.select(*columns).where(table.c.namespace == clock.key)
            found[table.name] = dict(_split(row) for row in connection.execute(query))
    mind = NamespaceModel.from_json(
        memory.store.learned.get_state(namespace).model, get_services(memory).history.prior
    )
    found["mean"] = {(): mind.posterior.mean.tolist()}
    found["precision"] = {(): mind.posterior.precision.ravel().tolist()}
    found["baseline"] = {(): [mind.baseline.mean, mind.baseline.count]}
    return found


def _split(row) -> tuple[tuple, list[float]]:
    """A row as what names it and its numbers; credit by document, or by user too, is numbers."""
    names, numbers = [], []
    for value in row:
        if isinstance(value, str) and value.startswith("{"):
            credit = sorted(_flatten(json.loads(value)))
            names += [name for name, _ in credit]
            numbers += [amount for _, amount in credit]
        elif isinstance(value, float):
            numbers.append(value)
        else:
            names.append(value)
    return tuple(names), numbers


def _flatten(credit: dict) -> Iterator[tuple[str, float]]:
    for name, amount in credit.items():
        if isinstance(amount, dict):
            yield from ((f"{name} {node}", each) for node, each in amount.items())
        else:
            yield name, amount


def check_same(now: dict[str, dict], before: dict[str, dict], rtol: float = 1e-6) -> None:
    """The same rows with the same numbers, but for rounding."""
    for table, rows in before.items():
        assert now[table].keys() == rows.keys(), table
        for name, numbers in rows.items():
            # Evidence is kept in single precision, beside precisions of 50 and more.
            least = 1e-6 if table == "precision" else 1e-8
            np.testing.assert_allclose(
                now[table][name], numbers, rtol=rtol, atol=least, err_msg=f"{table} {name}"
            )


@pytest.fixture
def state_of() -> Callable[..., dict[str, dict]]:
    """Reads all that a namespace of a memory has learned."""
    return read_learned


@pytest.fixture
def assert_same() -> Callable[..., None]:
    """Compares what namespaces have learned."""
    return check_same


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Where vectors are moved into side collections, also with Chroma, which has some."""
    if "index_vectors" in metafunc.fixturenames:
        metafunc.parametrize("in_chroma", [False, True], ids=["plain", "chroma"])


@pytest.fixture
def in_chroma() -> bool:
    """Whether Chroma holds the vectors of the test."""
    return False


@pytest.fixture(scope="session")
def filled(tmp_path_factory):
    """A closed SQLite memory of three documents, and its vectors: tests begin with a copy."""
    place, index = tmp_path_factory.mktemp("filled"), InMemoryVectorStore(VECTORS)
    _fill(place, index)
    return place, index.store


def _fill(place, index) -> None:
    with CrabPath.open(place, embeddings=VECTORS, vectors=index) as memory:
        memory.add_documents([Document(text, id=node) for node, text in TEXTS.items()])


@pytest.fixture
def open_memory(location: str, in_chroma, filled, tmp_path) -> Callable[..., CrabPath]:
    """Opens the memory of the test with settings of learning and notes, as often as wanted."""
    place, vectors = filled
    index = tmp_path / "vectors" if in_chroma else InMemoryVectorStore(VECTORS)
    if "://" in location or in_chroma:
        _fill(location, index)
    else:
        shutil.copytree(place, location)
        index.store = dict(vectors)

    def open_memory(*, note: NoteSettings | None = None, **learning) -> CrabPath:
        settings = Settings(learning=LearningSettings(**learning), note=note or NoteSettings())
        return CrabPath.open(location, embeddings=VECTORS, vectors=index, settings=settings)

    return open_memory


@pytest.fixture
def memory(open_memory) -> Iterator[CrabPath]:
    """Three documents; feedback is learned from at once."""
    with open_memory() as opened:
        yield opened


# Titles that mention each other, so that there are edges; and the tasks that a page is for.
PAGES = {
    "a": ("Apple", "An Apple is red fruit, unlike Grass or the Blue Sky.", ["exchange", "cancel"]),
    "b": ("Blue Sky", "The Blue Sky stands above the Grass.", "refund"),
    "c": ("Grass", "Grass is green, an Apple is not.", None),
}


@pytest.fixture
def open_pages(location: str) -> Callable[..., CrabPath]:
    """Opens a memory of three pages, in which a walk enters at one of them."""

    def open_pages(**learning) -> CrabPath:
        settings = Settings(
            seeds=SeedSettings(max_entries=1), learning=LearningSettings(**learning)
        )
        index = InMemoryVectorStore(VECTORS)
        memory = CrabPath.open(location, embeddings=VECTORS, vectors=index, settings=settings)
        memory.add_documents(
            [
                Document(text, id=node, metadata={"title": title, "task_type": task})
                for node, (title, text, task) in PAGES.items()
            ]
        )
        return memory

    return open_pages


@pytest.fixture
def host(memory) -> Host:
    """Asks the memory of the test."""
    return Host(memory)


@pytest.fixture
def host_of() -> type[Host]:
    """Makes a host of another memory."""
    return Host


@pytest.fixture
def index_vectors() -> Callable[[CrabPath], None]:
    """Moves vectors of notes and episodes into their side collections, where there are any."""

    def move(memory: CrabPath) -> None:
        get_services(memory).notes.catch_up()
        get_services(memory).episodes.catch_up()

    return move


def make_step(node, weights, chosen=(), *, hop=0, relevance=None, tier="habitual", **fields):
    """A decision between pointers of these weights, by target; STOP scores 0 by default."""
    near = relevance or {}
    offered = tuple(
        ConsideredEdge(target, "link", weight, near.get(target, 0.0), 0.5, tier)
        for target, weight in weights.items()
    )
    plain = {
        "reflexes": (),
        "stopped": False,
        "stop_weight": 0.0,
        "stop_probability": 0.1,
        "temperature": 1.0,
        "decided_by": "policy",
    }
    return WalkStep(
        node=node, hop=hop, candidates=offered, chosen=tuple(chosen), **{**plain, **fields}
    )


def make_route(*nodes):
    """The pointers from one node to the next."""
    return tuple(
        PathEdge(source, target, "link", 0.5, "habitual", 0.5) for source, target in pairwise(nodes)
    )


def make_turn(steps=(), returned=(), seeds=(("s", 0.9),)):
    """A turn; what it returned is given as the nodes of each route, from the seed on."""
    return Turn(
        id="turn",
        namespace="default",
        clock=1,
        created=0.0,
        query="q",
        seeds=tuple(SeedRecord(node, score, score, 0.0, 0.0) for node, score in seeds),
        steps=tuple(steps),
        visited=(),
        returned=tuple(
            ReturnedDocument(
                route[-1], 0.5, "seed" if len(route) == 1 else "walk", make_route(*route), {}
            )
            for route in returned
        ),
        guardrails=(),
        novelty={},
    )


@pytest.fixture(scope="session")
def step_of():
    """Writes down a decision."""
    return make_step


@pytest.fixture(scope="session")
def turn_of():
    """Writes down a turn."""
    return make_turn


@pytest.fixture(scope="session")
def returned():
    """A turn that returned documents with these probabilities of relevance."""

    def make_returned(**probabilities):
        items = (ReturnedDocument(node, p, "seed", (), {}) for node, p in probabilities.items())
        return replace(make_turn(), returned=tuple(items))

    return make_returned
