"""The embedder of a run, and the simulated chat model, which reads what a real one would read."""

import minilm
import numpy as np
import pytest
from langchain_openai import ChatOpenAI

from crabpath_lab import cached_embedder, load_chat_model
from crabpath_retrievers import (
    ChatModelRouter,
    EdgeKind,
    InvalidInputError,
    Node,
    RouterChoice,
    RoutingRequest,
)
from crabpath_retrievers.core.records import NodeHead, OutgoingEdge


def test_vectors_outlive_the_run_in_a_cache_directory(tmp_path, monkeypatch):
    texts = ["one text", "another text"]
    first = cached_embedder(cache=tmp_path / "made" / "cache")
    vectors, asked = first.embed_documents(texts), first.embed_query("a question")
    second = cached_embedder(cache=tmp_path / "made" / "cache")
    monkeypatch.setattr(second, "underlying_embeddings", None)
    assert second.embed_documents(texts) == vectors
    assert second.embed_query("a question") == asked


@pytest.mark.slow
def test_models_do_not_share_their_vectors(tmp_path):
    """Another name is another key, although here it is the same model."""
    cached_embedder(cache=tmp_path).embed_query("text")
    cached_embedder(str(minilm.find_folder()), cache=tmp_path).embed_query("text")
    assert len(list(tmp_path.rglob("*"))) == 2


TEXTS = {"n1": "The harbour of Lisbon is old.", "n2": "Grass.", "n3": "Lisbon harbour dates."}


@pytest.fixture
def request_to_route():
    """Three unclear pointers; two lead to texts that share words with the question."""
    heads = [NodeHead(i, f"n{i}", "", 0, np.zeros(2, dtype=np.float32)) for i in (1, 2, 3)]
    half = np.full(3, 0.25)
    pointers = tuple(OutgoingEdge(0, head, EdgeKind.LINK, 0.25, 0.25) for head in heads)
    nodes = {name: Node(name, name, "s", text) for name, text in TEXTS.items()}
    choice = RouterChoice("n0", pointers, half, half, 0.0)
    query = "How old is the harbour of Lisbon?"
    return RoutingRequest(query, (choice,), 6, read=lambda ids: {i: nodes[i] for i in ids})


def followed(model, request):
    routed = ChatModelRouter(model).route(request)
    return set(routed.decisions[0].followed), routed.usage


def test_it_follows_what_its_judge_prefers(request_to_route):
    found, usage = followed(load_chat_model("simulated"), request_to_route)
    assert found == {0, 2}
    assert (usage.calls, usage.failures) == (1, 0)
    assert usage.input_tokens > 100
    runs = [[], []]
    for run in runs:  # with errors a coin decides: the same again with the same seed
        model = load_chat_model("simulated:1.0")
        run += [frozenset(followed(model, request_to_route)[0]) for _ in range(60)]
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 8


def test_real_models_are_named_as_langchain_names_them(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    assert isinstance(load_chat_model("openai:gpt-x"), ChatOpenAI)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("simulated:much", "simulated: takes a share of random decisions from 0 to 1, not 'much'"),
        ("simulated:2", "not '2'"),
    ],
)
def test_names_that_name_no_model(name, sentence):
    with pytest.raises(InvalidInputError, match=sentence):
        load_chat_model(name)
