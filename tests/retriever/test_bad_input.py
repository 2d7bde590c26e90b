"""Bad questions, documents and arguments: one clear error each, or a sensible result.

Nothing is lost or half-written.
"""

import dataclasses
from operator import attrgetter
from types import SimpleNamespace

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.tools import create_retriever_tool

from crabpath_retrievers import (
    CrabPath,
    CrabPathError,
    Feedback,
    InvalidInputError,
    NotFoundError,
)
from crabpath_retrievers.parts.langsmith import pull

NAN = float("nan")


class Mute:
    """Has no text and no truth."""

    def __str__(self):
        msg = "no text"
        raise RuntimeError(msg)

    __repr__ = __bool__ = __str__


ODD = [None, True, 5, 2**70, 10**5000, NAN, "\x00", "\ud83d", b"x", [None], {1: 0}]
ODD += [Mute(), [Mute()], np.array([1.0, 2.0]), object()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        *[({"input": query}, "the query is empty: pass a question") for query in ("", "\n\0")],
        *[({"input": q}, f"a text, not {type(q).__name__}") for q in (None, 5, {"input": "sky"})],
        *[({"k": k}, "k must be a whole number from 1") for k in (0, -1, 2.5, "3", True)],
        ({"k": 10**20}, "k must be a whole number from 1"),
        *[({"max_tokens": number}, "must be") for number in (0, -5, "a")],
        ({"seed_ids": 5}, "must be"),
        ({"boost_tags": 5}, "must be"),
        ({"candidate_ids": 3}, "candidate_ids must be a list of texts"),
        *[({"explore": e}, "explore must be a boolean or a seed") for e in (-1, "three", 1.5)],
        ({"namespace": "n" * 513}, "namespace must have at most 512 characters"),
        *[({"filter": f}, "filter") for f in ("sky", {"a": {"$nope": 1}})],
        *[({"filter": f}, "filter") for f in ([1], {"a": None}, {"a": {"$in": [None]}})],
        *[({"filter": f}, "the filter must be a condition") for f in ([], (), 0, False)],
        *[({"task_type": t}, "task_type must be a text of 1 to 200") for t in (" ", "x" * 201, 7)],
        *[({"vector": v}, "must be a finite vector") for v in ([NAN] * 16, [0.0] * 16, [[1.0]])],
    ],
)
async def test_a_question_that_is_refused(retriever, unchanged, options, sentence):
    """Sync and async alike."""
    text = options.pop("input", "sky")
    memory = retriever.memory
    with pytest.raises(InvalidInputError, match=sentence):
        memory.retrieve(text, **options)
    with pytest.raises(InvalidInputError, match=sentence):
        await memory.aio.retrieve(text, **options)
    if {"vector", "candidate_ids"}.isdisjoint(options) and text not in ("", "\n\0"):
        with pytest.raises(InvalidInputError, match=sentence):
            retriever.invoke(text, **options)


@pytest.mark.parametrize("blank", ["", " \n", "\n\0", "\u200b"])
async def test_a_blank_question_ends_no_agent(retriever, blank, caplog):
    """A tool over the retriever tells the model of no document, as it does where none is found."""
    assert (retriever.invoke(blank), await retriever.ainvoke(blank)) == ([], [])
    tool = create_retriever_tool(retriever, "search", "Searches.")
    assert (tool.invoke(blank), await tool.ainvoke(blank)) == ("", "")
    assert caplog.text.count("a blank question has no documents") == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("blue sky " * 11112, {}),
        ("blue \ud83d sky", {}),
        ("blue\x00 sky", {}),
        ("🦀 blue sky مرحبا", {}),
        ("?!'\"*()", {}),
        *[("sky", {"seed_ids": [odd], "boost_tags": [odd]}) for odd in ("\ud83d", "a\x00", "no")],
        *[("sky", {"namespace": odd}) for odd in ("müller 🦀", "user:42/agent", "n" * 512)],
    ],
)
def test_an_unusual_question_is_answered_and_recorded(retriever, query, options):
    found = retriever.invoke(query, **options)
    assert len(found) == 3
    block = found[0].metadata["crabpath"]
    assert block["namespace"] == options.get("namespace", "default")
    assert retriever.memory.explain(block["turn_id"]).turn.returned
    assert retriever.memory.info()["namespaces"] == {block["namespace"]: 1}


def test_odd_arguments_have_a_meaning(retriever):
    """What no database stores is left out of a namespace; a single id or tag is one value."""
    memory, odd = retriever.memory, "ada\x00\ud83d"
    for given, hinted in (("c", ["c"]), ("abc", [])):
        seeds = memory.retrieve("sky", seed_ids=given, boost_tags=given, record=False).turn.seeds
        assert [seed.node for seed in seeds if seed.hinted] == hinted
    turn = memory.retrieve("sky", namespace=odd).turn
    assert turn.namespace == "ada?"
    assert memory.explain(turn.id, namespace=odd).turn == turn
    memory.forget(namespace=odd)
    assert memory.info()["namespaces"] == {}


def test_forgetting_what_is_not_there(retriever, unchanged):
    """Unknown ids, sources and namespaces are forgotten without complaint, as 0 documents."""
    memory = retriever.memory
    assert memory.forget(["nope"]) == memory.forget([]) == memory.forget("\ud83d") == 0
    assert memory.forget(source="\x00") == memory.forget(source="nope") == 0
    assert memory.forget(namespace="nope") == 0
    for given in ({}, {"ids": ["a"], "source": "a"}):
        with pytest.raises(InvalidInputError, match="exactly one of ids, source and namespace"):
            memory.forget(**given)
    with pytest.raises(NotFoundError, match="no turn 'nope' is recorded here"):
        memory.explain("nope")


@pytest.mark.parametrize(
    "text",
    [
        "crab 🦀 مرحبا بالعالم 日本語のテキスト",
        "binary \x01\x7f\xff \u202eright to left\u202c \ufeff\u200b",
    ],
)
def test_text_of_odd_characters_comes_back(retriever, text):
    (node_id,) = retriever.add_documents([Document(text)])
    found = {document.id: document.page_content for document in retriever.invoke(text)}
    assert found[node_id] == text


@pytest.mark.parametrize(
    "document", [Document("x", id="i" * 700), Document("x", metadata={"source": "s" * 9600})]
)
def test_ids_and_sources_that_no_database_indexes(retriever, unchanged, document):
    """Refused before anything is staged, with the length that is allowed."""
    with pytest.raises(InvalidInputError, match="at most 600"):
        retriever.add_documents([document])
    assert retriever.add_documents([]) == []


def test_a_huge_title_is_kept_on_both_databases(location, tmp_path):
    """Three hundred words are no name and no link target, but they are the title."""
    title = " ".join(f"word{n}ü" for n in range(300))
    embeddings = DeterministicFakeEmbedding(size=16)
    with CrabPath.open(location, embeddings=embeddings, vectors=tmp_path / "v") as memory:
        memory.add_documents([Document("text", metadata={"title": title, "url": "u/" * 5000})])
        assert memory.retrieve("text", k=1).documents[0].node.title == title


NEW = [Document("new", id="new")]
QUERY = "text k namespace filter seed_ids boost_tags fill one_per_document max_tokens vector record"
QUERY += " candidate_ids task_type session arm run_id on_hop confined"
CALLS = {
    "retrieve": ({"text": "sky"}, QUERY),
    "add_documents": ({"documents": NEW}, "documents ids split splitter vectors progress"),
    "forget": ({}, "ids source namespace"),
    "teach": ({"text": "note"}, "text kind title query related namespace authority id"),
    "explain": ({}, "turn_id"),
    "undo": ({}, "feedback_id turn_id namespace"),
    "record": ({"about": "t", "outcome": 1.0}, "about outcome strict used namespace"),
    "get_by_ids": ({"ids": ["a"]}, "ids namespace"),
    "documents": ({}, "source under filter limit"),
    "sources": ({}, "under after limit"),
    "notes": ({}, "namespace limit"),
    "turns": ({}, "namespace limit"),
    "learning.anchor": ({}, "ids"),
    "graph.add_edge": (
        {"source": "a", "target": "b", "edge_type": "temporal", "weight": 0.5},
        "source target edge_type weight",
    ),
    "graph.neighbors": ({}, "node_id"),
    "graph.edges": (
        {"node_id": "a"},
        "node_id edge_type tier min_weight direction limit offset namespace",
    ),
    "graph.changes": (
        {"source": "a"},
        "source target edge_type feedback_id limit namespace",
    ),
    "namespaces.records": ({}, "names after limit"),
    "learning.usage": ({}, "namespace least limit"),
    "learning.lift": ({}, "namespace by"),
    "learning.feedback": ({}, "user source namespace turn_id limit"),
    "graph.to_networkx": ({"around": "a"}, "edge_type around max_hops limit namespace"),
    "graph.write_graphml": ({"around": "a"}, "path"),
    "graph.search": ({"query": "sky"}, "query k edge_boost namespace"),
    "namespaces.restore": ({}, "snapshot"),
    "maintenance.health_history": ({}, "namespace limit"),
    "transfer.export": ({}, "archive"),
    "transfer.import_archive": ({}, "archive"),
    "learning.replay": ({}, "sessions"),
    "sync": ({"sources": NEW, "dry_run": True}, "sources dry_run"),
}


def call_with_odd_values(call):
    """Odd values work, or are refused by an error of the library's own that can be read."""
    for value in ODD:
        try:
            call(value)
        except CrabPathError as error:
            assert str(error)  # noqa: PT017  any of the tree, or none


@pytest.mark.slow
@pytest.mark.parametrize("method", CALLS)
def test_every_argument_of_a_method(retriever, method, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    memory, (given, names) = retriever.memory, CALLS[method]
    for name in names.split():
        call_with_odd_values(lambda v, name=name: attrgetter(method)(memory)(**{**given, name: v}))
    assert memory.retrieve("sky", seed_ids=None, boost_tags=None).documents


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(Feedback)])
def test_every_field_of_feedback(field):
    """And of the mapping that it is made of."""
    call_with_odd_values(lambda v: Feedback(**{"turn_id": "t", "outcome": 1.0, field: v}))
    call_with_odd_values(lambda v: Feedback.from_dict({field: v}))
    call_with_odd_values(Feedback.from_dict)


def test_an_odd_run_loses_no_turn(retriever):
    """What cannot be recorded is refused before it is asked."""
    memory = retriever.memory
    call_with_odd_values(lambda value: memory.retrieve("sky", run_id=value))
    assert memory.explain(memory.retrieve("sky").turn.id)


OPTIONS = ["path", "embeddings", "settings", "router", "linkers", "create", "vectors"]


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_opening(tmp_path, monkeypatch, retriever, name):
    """Nothing but errors of the library comes out."""
    monkeypatch.chdir(tmp_path)
    for value in (5, Mute(), b"x", "\x00"):
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
    assert pull(client, retriever.memory, "p").learned >= 1
    assert retriever.memory.store.turns.find(turn.id).consumed is not None
