"""Helpers of the feedback tests: a small memory on both databases, and what it has learned."""

import json
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import sqlalchemy as sa
import tables as s
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, Settings
from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.retrieval.namespace_model import NamespaceModel

TEXTS = {"a": "Apples are red fruit.", "b": "The sky is blue.", "c": "Grass is green."}


class Host:
    """A program that asks one memory and reads back what that memory has learned."""

    def __init__(self, memory: CrabPath) -> None:
        """Ask ``memory``."""
        self.memory = memory

    def ask(self, namespace: str = "default", **options) -> str:
        """Ask something that returns all three documents; gives the turn id."""
        answer = self.memory.retrieve("Which fruit is red?", namespace=namespace, **options)
        assert {item.node.id for item in answer.documents} == set(TEXTS)
        return answer.turn.id

    def learned(self, namespace: str = "default") -> int:
        """How often a namespace has learned."""
        return self.memory.store.walk.get_clock(namespace).learned

    def usage(self, namespace: str = "default") -> dict[str, tuple[float, float]]:
        """Wins and losses by document id, of those that have any."""
        store = self.memory.store
        keys = store.learned.keys(list(TEXTS))
        found = store.learned.usage(store.walk.get_clock(namespace).key, list(keys.values()))
        return {node: found[key][:2] for node, key in keys.items() if key in found}

    def status(self, feedback_id: str) -> str:
        """Where a feedback stands."""
        return self.memory.store.learned.get_feedback(feedback_id).status


LEARNED = (s.overlay, s.pair_counts, s.usage, s.transitions, s.episodes)
FREE = {"namespace", "indexed", "embedding", "sequence", "created", "record", "ranker"}


def held(memory: CrabPath, namespace: str) -> dict[str, dict]:
    """All that a namespace has learned: numbers by table, row and column; and what it released."""
    clock = memory.store.walk.get_clock(namespace)
    found: dict[str, dict] = {"clock": {(): [clock.exponent]}}
    with memory.store.open_reader() as connection:
        for table in (*LEARNED, s.weight_changes, s.feedback_effects):
            columns = [column for column in table.c if column.name not in FREE]
            query = sa.select(*columns).where(table.c.namespace == clock.key)
            found[table.name] = dict(_split(row) for row in connection.execute(query))
    mind = NamespaceModel.from_json(
        memory.store.learned.get_state(namespace).mind, memory._services.history.prior
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
            credit = sorted(_flat(json.loads(value)))
            names += [name for name, _ in credit]
            numbers += [amount for _, amount in credit]
        elif isinstance(value, float):
            numbers.append(value)
        else:
            names.append(value)
    return tuple(names), numbers


def _flat(credit: dict) -> Iterator[tuple[str, float]]:
    for name, amount in credit.items():
        if isinstance(amount, dict):
            yield from ((f"{name} {node}", each) for node, each in amount.items())
        else:
            yield name, amount


def same(now: dict[str, dict], before: dict[str, dict], rtol: float = 1e-6) -> None:
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
    """Tells all that a namespace of a memory has learned."""
    return held


@pytest.fixture
def assert_same() -> Callable[..., None]:
    """Compares what namespaces have learned."""
    return same


@pytest.fixture
def open_memory(location: str) -> Callable[..., CrabPath]:
    """Opens the memory of the test with learning settings, as often as wanted."""
    vectors = DeterministicFakeEmbedding(size=16)
    index = InMemoryVectorStore(vectors)

    def open_memory(**learning) -> CrabPath:
        settings = Settings(learning=LearningSettings(**learning))
        return CrabPath.open(location, embeddings=vectors, vectors=index, settings=settings)

    with open_memory() as memory:
        memory.add_documents([Document(text, id=node) for node, text in TEXTS.items()])
    return open_memory


@pytest.fixture
def memory(open_memory) -> Iterator[CrabPath]:
    """Three documents, once on each database; feedback is learned from at once."""
    with open_memory() as opened:
        yield opened


@pytest.fixture
def host(memory) -> Host:
    """Asks the memory of the test."""
    return Host(memory)


@pytest.fixture
def host_of() -> type[Host]:
    """Makes a host of another memory."""
    return Host
