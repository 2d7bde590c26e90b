"""Bad questions: one clear error each, or a sensible result; nothing is lost."""

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import (
    CrabPath,
    CrabPathRetriever,
    EmbeddingMismatchError,
    InvalidInputError,
    NotFoundError,
)


class NotNumbers(DeterministicFakeEmbedding):
    """Gives NaN for texts that mention it, as half-broken servers do."""

    def embed_query(self, text):
        """NaN in one place."""
        vector = super().embed_query(text)
        return [float("nan"), *vector[1:]] if "nan" in text else vector


@pytest.mark.parametrize("query", ["", "   ", "\n\t", "\x00"])
async def test_empty_query(retriever, unchanged, query):
    """An empty question is refused, sync and async."""
    with pytest.raises(InvalidInputError, match="the query is empty: pass a question"):
        retriever.invoke(query)
    with pytest.raises(InvalidInputError, match="the query is empty: pass a question"):
        await retriever.ainvoke(query)


@pytest.mark.parametrize("query", [None, 5, {"input": "sky"}, ["sky"]])
def test_query_that_is_no_text(retriever, unchanged, query):
    """A question that is no text is refused, and the message names its type."""
    with pytest.raises(InvalidInputError, match=f"must be a text, not {type(query).__name__}"):
        retriever.invoke(query)


@pytest.mark.parametrize("query", ["blue sky " * 11112, "x" * 100_000])
def test_query_of_100000_characters(retriever, query):
    """A question of 100,000 characters is answered."""
    assert len(retriever.invoke(query)) == 3


@pytest.mark.parametrize(
    "query", ["blue \ud83d sky", "blue\x00 sky", "🦀 blue sky مرحبا", "?!'\"*()"]
)
def test_query_of_odd_characters(retriever, query):
    """Lone surrogates, NUL, emoji, right-to-left text and operators are answered and recorded."""
    turn_id = retriever.invoke(query)[0].metadata["crabpath"]["turn_id"]
    assert retriever.memory.explain(turn_id).turn.returned


@pytest.mark.parametrize("k", [0, -1, 2.5, "3", True, 10**20])
def test_k_that_is_no_positive_whole_number(retriever, unchanged, k):
    """K below 1 or not whole is refused."""
    with pytest.raises(InvalidInputError, match=r"k must be a whole number of at least 1"):
        retriever.invoke("sky", k=k)


@pytest.mark.parametrize(
    "field",
    [
        {"max_tokens": 0},
        {"max_tokens": -5},
        {"max_tokens": "a"},
        {"seed_ids": 5},
        {"boost_tags": 5},
    ],
)
def test_unusable_option(retriever, unchanged, field):
    """A budget below 1, and what is no list of texts, is refused."""
    with pytest.raises(InvalidInputError, match="must be"):
        retriever.invoke("sky", **field)


@pytest.mark.parametrize("seed", [-1, "three", 1.5])
def test_unusable_seed_of_exploration(retriever, unchanged, seed):
    """A seed that is no whole number of at least 0 is refused."""
    with pytest.raises(InvalidInputError, match="explore must be True, False or a seed"):
        retriever.invoke("sky", explore=seed)


def test_namespace_that_is_too_long(retriever, unchanged):
    """A namespace above 512 characters is refused: databases index short names only."""
    with pytest.raises(InvalidInputError, match="namespace must have at most 512 characters"):
        retriever.invoke("sky", namespace="n" * 513)


def test_namespace_of_odd_characters(retriever):
    """What no database stores is left out of a namespace, when asking, explaining, forgetting."""
    memory, odd = retriever.memory, "ada\x00\ud83d"
    turn = memory.retrieve("sky", namespace=odd).turn
    assert turn.namespace == "ada?"
    assert memory.explain(turn.id, namespace=odd).turn == turn
    memory.forget(namespace=odd)
    assert memory.info()["namespaces"] == {}


def test_single_texts_are_one_value(retriever):
    """One id or tag may be given as plain text; it is not taken for a list of characters."""
    turn = retriever.memory.retrieve("sky", seed_ids="c", boost_tags="c").turn
    assert [seed.node for seed in turn.seeds if seed.hinted] == ["c"]
    assert retriever.memory.retrieve("sky", seed_ids="abc").turn.seeds
    assert not any(
        seed.hinted for seed in retriever.memory.retrieve("sky", seed_ids="abc").turn.seeds
    )


@pytest.mark.parametrize("hint", ["\ud83d", "a\x00", "unknown"])
def test_hints_of_odd_characters(retriever, hint):
    """Ids and tags that no database could hold are looked up like any other."""
    assert len(retriever.invoke("sky", seed_ids=[hint], boost_tags=[hint])) == 3


@pytest.mark.parametrize("namespace", ["müller 🦀", "user:42/agent", "n" * 512])
def test_unusual_namespace(retriever, namespace):
    """Any text serves as namespace."""
    found = retriever.invoke("sky", namespace=namespace)
    assert found[0].metadata["crabpath"]["namespace"] == namespace
    assert retriever.memory.info()["namespaces"] == {namespace: 1}


@pytest.mark.parametrize(
    "where", ["sky", [1], {"a": 1, "b": 2}, {"a": {"$nope": 1}}, {"a": None}, {"a": {"$in": []}}]
)
def test_wrong_filter(retriever, unchanged, where):
    """A filter that the vector store does not understand is refused with its own words."""
    with pytest.raises(InvalidInputError, match="filter"):
        retriever.invoke("sky", filter=where)


def test_filter_on_an_unknown_key(retriever):
    """A filter on a key that no document has gives nothing."""
    assert retriever.invoke("sky", filter={"colour": "blue"}) == []


@pytest.mark.parametrize("vector", [[float("nan")] * 16, [0.0] * 16, [], [[1.0] * 16]])
def test_unusable_query_vector(retriever, unchanged, vector):
    """A query vector that is no finite direction is refused."""
    with pytest.raises(InvalidInputError, match="must be a finite vector"):
        retriever.memory.retrieve("sky", vector=vector)


def test_query_vector_of_wrong_dimension(retriever, unchanged):
    """A query vector of another dimension is refused and both dimensions are told."""
    with pytest.raises(EmbeddingMismatchError, match="has 3 dimensions, the memory 16"):
        retriever.memory.retrieve("sky", vector=[1.0, 2.0, 3.0])


def test_query_embedded_as_nan(retriever, unchanged):
    """An embedder that returns NaN for a question is told so, and nothing is recorded."""
    with CrabPath.open(embeddings=NotNumbers(size=16)) as memory:
        memory.add_documents([Document("The sky is blue.")])
        with pytest.raises(InvalidInputError, match="must be a finite vector"):
            memory.retrieve("nan")
        assert memory.info()["turns"] == 0


async def test_empty_corpus():
    """A memory without documents answers with nothing."""
    empty = CrabPathRetriever.from_documents([], DeterministicFakeEmbedding(size=16))
    assert empty.invoke("sky") == []
    assert await empty.ainvoke("sky", fill=False, filter={"a": 1}, max_tokens=5) == []
    empty.memory.close()


def test_forgetting_what_is_not_there(retriever, unchanged):
    """Unknown ids, sources and namespaces are forgotten without complaint, as 0 documents."""
    memory = retriever.memory
    assert memory.forget(["nope"]) == memory.forget([]) == memory.forget("nope") == 0
    assert memory.forget("\ud83d") == memory.forget(source="\x00") == 0
    assert memory.forget(source="nope") == memory.forget(namespace="nope") == 0


@pytest.mark.parametrize("given", [{}, {"ids": ["a"], "source": "a"}])
def test_forgetting_without_saying_what(retriever, unchanged, given):
    """Forget wants exactly one of its arguments."""
    with pytest.raises(InvalidInputError, match="give exactly one of ids, source and namespace"):
        retriever.memory.forget(**given)


def test_unknown_turn(retriever):
    """A turn that is not recorded is told as such."""
    with pytest.raises(NotFoundError, match="no turn 'nope' is recorded here"):
        retriever.memory.explain("nope")
