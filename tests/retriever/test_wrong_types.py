"""Arguments of a wrong type: each is refused by an error of the library's own, nothing changes."""

import dataclasses
import uuid
from contextlib import suppress
from operator import attrgetter
from types import SimpleNamespace

import numpy as np
import pytest
from langchain_core.documents import Document

from crabpath_retrievers import CrabPath, CrabPathError, Feedback
from crabpath_retrievers.callbacks.langsmith.pull import pull


class Mute:
    """Has no text and no truth."""

    def __str__(self):
        """Raise."""
        msg = "no text"
        raise RuntimeError(msg)

    __repr__ = __bool__ = __str__


ODD = [None, True, 5, 2**70, 10**5000, float("nan"), "\x00", "\ud83d", b"x", [None], {1: 0}]
ODD += [Mute(), [Mute()], np.array([1.0, 2.0]), object()]
CALLS = {
    "retrieve": {"text": "sky"},
    "add_documents": {"documents": [Document("new", id="new")]},
    "forget": {},
    "teach": {"text": "note"},
    "explain": {"turn_id": "t"},
    "undo": {},
    "record": {"feedback": None},
    "get": {"ids": ["a"]},
    "learning.anchor": {"ids": ["a"]},
    "graph.add_edge": {"source": "a", "target": "b", "edge_type": "temporal", "weight": 0.5},
    "graph.neighbors": {"node_id": "a"},
    "graph.search": {"query": "sky"},
    "namespaces.restore": {"snapshot": "s"},
    "maintenance.health_history": {},
    "transfer.export": {"archive": "/"},
    "transfer.import_archive": {"archive": "/"},
    "learning.replay": {"sessions": "/"},
    "sync": {"sources": [Document("new", id="new")], "dry_run": True},
}
QUERY = (
    "k",
    "namespace",
    "filter",
    "seed_ids",
    "boost_tags",
    "fill",
    "one_per_document",
    "max_tokens",
)
QUERY += ("candidate_ids", "vector", "record", "task_type", "session", "arm", "run_id", "on_hop")
ARGUMENTS = {
    "retrieve": ("text", *QUERY),
    "add_documents": ("documents", "ids", "split", "splitter", "vectors", "progress"),
    "forget": ("ids", "source", "namespace"),
    "get": ("ids", "namespace"),
    "teach": ("text", "kind", "title", "query", "related", "namespace", "authority", "id"),
    "graph.search": ("query", "k", "edge_boost", "namespace"),
    "maintenance.health_history": ("namespace", "limit"),
    "undo": ("feedback_id", "turn_id", "namespace"),
}


@pytest.mark.parametrize("method", CALLS)
def test_every_argument_of_a_method(retriever, method, tmp_path, monkeypatch):
    """Odd values work or are refused by a CrabPathError."""
    monkeypatch.chdir(tmp_path)
    memory = retriever.memory
    for name in ARGUMENTS.get(method, tuple(CALLS[method])):
        for value in ODD:
            try:
                attrgetter(method)(memory)(**{**CALLS[method], name: value})
            except CrabPathError as error:
                assert str(error)  # noqa: PT017  any of the tree, or none
    assert memory.retrieve("sky").documents


def test_absent_lists_are_no_lists(retriever):
    """None is what was not given."""
    assert retriever.memory.retrieve("sky", seed_ids=None, boost_tags=None).documents


def test_a_run_may_be_given_as_uuid(retriever):
    """As hosts have it."""
    run = uuid.uuid4()
    turn = retriever.memory.retrieve("sky", run_id=run).turn
    assert retriever.memory.explain(str(run)).turn.id == turn.id


def test_an_odd_run_loses_no_turn(retriever):
    """What cannot be recorded is refused before it is asked."""
    for value in ODD:
        with suppress(CrabPathError):
            retriever.memory.retrieve("sky", run_id=value)
        turn = retriever.memory.retrieve("sky").turn.id
        assert retriever.memory.explain(turn)


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(Feedback)])
def test_every_field_of_feedback(field):
    """And of the mapping that it is made of."""
    for value in ODD:
        for made in (
            lambda v: Feedback(**{"turn_id": "t", "outcome": 1.0, field: v}),
            lambda v: Feedback.from_dict({field: v}),
            Feedback.from_dict,
        ):
            try:
                made(value)
            except CrabPathError as error:
                assert str(error)  # noqa: PT017


@pytest.mark.parametrize("name", ["path", "embeddings", "settings", "linkers", "create", "vectors"])
@pytest.mark.parametrize("value", [5, Mute(), b"x", "\x00"], ids=range(4))
def test_opening(tmp_path, monkeypatch, retriever, name, value):
    """Nothing but errors of the library comes out."""
    monkeypatch.chdir(tmp_path)
    given = {"path": "m", "embeddings": retriever.memory.embedder.embeddings, name: value}
    with pytest.raises(CrabPathError):
        CrabPath.open(**given)


@pytest.mark.parametrize(
    "odd",
    [
        {"feedback_source": SimpleNamespace(type={"a": 1}, metadata=[])},
        {"run_id": "x\ud83d\x00"},
        {"trace_id": "\ud83d", "run_id": None},
        {"key": []},
        {"run_id": Mute()},
    ],
)
def test_odd_feedback_of_langsmith_does_not_end_the_pull(retriever, odd):
    """What cannot be used is left out, the rest is learned."""
    turn = retriever.memory.retrieve("sky", run_id="run").turn

    def given(name, **fields):
        usual = dict.fromkeys(("value", "correction", "comment", "trace_id", "created_at"))
        source = SimpleNamespace(type="app", metadata={})
        usual |= {"id": name, "key": "user_score", "score": 1.0, "run_id": "run"}
        return SimpleNamespace(**{**usual, "feedback_source": source, **fields})

    page = SimpleNamespace(json=dict)
    client = SimpleNamespace(
        read_project=lambda **_: SimpleNamespace(id="p"),
        list_feedback=lambda **_: [given("odd", **odd), given("sound")],
        request_with_retries=lambda *_, **__: page,
    )
    pulled = pull(client, retriever.memory, "p")
    assert pulled.learned >= 1
    assert retriever.memory.store.turns.find(turn.id).consumed is not None
