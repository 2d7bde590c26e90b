"""Bad input gets one clear sentence, and nothing is left behind."""

import pytest
from llama_index.core import Document
from llama_index.core.schema import QueryBundle, TextNode

from crabpath_retrievers import EmbeddingMismatchError, InvalidInputError, StoreUnavailableError
from llama_index.retrievers.crabpath import CrabPathRetriever


@pytest.mark.parametrize(
    ("bundle", "error", "message"),
    [
        ("", InvalidInputError, "query is empty"),
        (" \n", InvalidInputError, "query is empty"),
        (QueryBundle("x", embedding=[1.0, 2.0]), EmbeddingMismatchError, "2 dimensions"),
        (QueryBundle("x", embedding=[float("nan")] * 384), InvalidInputError, "finite vector"),
        (QueryBundle("x", embedding=[0.0] * 384), InvalidInputError, "not all zero"),
        (QueryBundle("x", embedding=["a"] * 384), InvalidInputError, "finite vector"),
    ],
)
async def test_queries(shared, bundle, error, message):
    """Sync and async."""
    with pytest.raises(error, match=message):
        shared.retrieve(bundle)
    with pytest.raises(error, match=message):
        await shared.aretrieve(bundle)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"similarity_top_k": 0}, "k must be a whole number"),
        ({"similarity_top_k": 2.5}, "k must be a whole number"),
        ({"namespace": 7}, "namespace must be a non-empty text"),
        ({"max_tokens": -1}, "max_tokens must be a whole number"),
        ({"explore": -1}, "explore must be"),
        ({"filters": {"$nonsense": 1}}, "not a Chroma condition"),
    ],
)
def test_arguments_of_the_retriever(shared, options, message):
    """Are refused at the latest when it is asked."""
    made = CrabPathRetriever(shared.memory, **options)
    with pytest.raises(InvalidInputError, match=message):
        made.retrieve("Ed Wood")


def test_no_memory(shared):
    """A retriever is no memory, and an unknown argument none at all."""
    with pytest.raises(InvalidInputError, match="memory must be a CrabPath, not"):
        CrabPathRetriever(shared)
    with pytest.raises(TypeError, match="top_k"):
        CrabPathRetriever(shared.memory, top_k=3)


@pytest.mark.parametrize(
    ("make", "given", "message"),
    [
        ("from_documents", ["text"], "expected a LlamaIndex Document, got str"),
        ("from_documents", [TextNode(text="x")], "expected a LlamaIndex Document, got TextNode"),
        ("from_nodes", ["text"], "expected a LlamaIndex BaseNode, got str"),
        ("from_nodes", [TextNode(text="x", embedding=[float("nan")] * 384)], "finite vector"),
        (
            "from_nodes",
            [TextNode(id_="a", text="x"), TextNode(id_="a", text="y")],
            "two documents have the id 'a'",
        ),
    ],
)
def test_documents(embed_model, make, given, message, tmp_path):
    """Nothing of a call that fails is kept, and its directory is free again."""
    path = tmp_path / "memory"
    with pytest.raises(InvalidInputError, match=message):
        getattr(CrabPathRetriever, make)(given, embed_model, path=path)
    made = CrabPathRetriever.from_documents([Document(text="Fine.")], embed_model, path=path)
    assert made.memory.info()["nodes"] == 1
    made.memory.close()


def test_blank_pages_are_left_out(embed_model, caplog):
    """As its readers give them: the other pages come in, and one warning names the blank ones."""
    pages = [
        Document(text=text, metadata={"file_path": "b.pdf", "page_label": str(n)})
        for n, text in enumerate(["Fine.", " ", ""], 1)
    ]
    made = CrabPathRetriever.from_documents(pages, embed_model)
    assert made.add_nodes([TextNode(text="", id_="a")]) == []
    assert made.memory.info()["nodes"] == 1
    assert [record.getMessage() for record in caplog.records] == [
        "2 of 3 documents have no text, left out: 'b.pdf' page 2, 'b.pdf' page 3",
        "1 of 1 documents have no text, left out: 'a'",
    ]
    made.memory.close()


def test_embeddings_of_another_size(embed_model):
    """Are refused."""
    node = TextNode(id_="a", text="x", embedding=[1.0, 2.0])
    with pytest.raises(EmbeddingMismatchError, match="has 2 dimensions, the memory 384"):
        CrabPathRetriever.from_nodes([node], embed_model)


def test_a_model_that_is_none(documents):
    """The message says what to pass."""
    with pytest.raises(InvalidInputError, match="embed_model cannot be a int"):
        CrabPathRetriever.from_documents(documents, 3)


def test_another_model_than_the_memory_was_built_with(documents, embed_model, tmp_path):
    """Is refused, though it has the same dimension."""

    class Other(type(embed_model)):
        def _get_text_embedding(self, text):
            return super()._get_text_embedding(text)[::-1]

    path = tmp_path / "memory"
    CrabPathRetriever.from_documents(documents[:2], embed_model, path=path).memory.close()
    other = CrabPathRetriever.from_existing(path, Other(embed_model._embeddings))
    with pytest.raises(EmbeddingMismatchError, match="built with model"):
        other.retrieve("Ed Wood")
    other.memory.close()


def test_a_closed_memory(documents, embed_model):
    """Says how it is opened again."""
    made = CrabPathRetriever.from_documents(documents[:2], embed_model)
    made.memory.close()
    with pytest.raises(StoreUnavailableError, match="this memory was closed"):
        made.retrieve("Ed Wood")
