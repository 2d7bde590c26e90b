"""Bad input gets one clear sentence, and nothing is left behind."""

import pytest
from langchain_core.documents import Document as Passage
from llama_index.core import Document, MockEmbedding, SimpleDirectoryReader
from llama_index.core.schema import QueryBundle, TextNode

from crabpath_retrievers import EmbeddingMismatchError, InvalidInputError, StoreUnavailableError
from llama_index.retrievers.crabpath import CrabPathRetriever


@pytest.mark.parametrize(
    ("bundle", "options", "error", "message"),
    [
        (" \n", {}, InvalidInputError, "query is empty"),
        (QueryBundle("x", embedding=[1.0, 2.0]), {}, EmbeddingMismatchError, "2 dimensions"),
        (QueryBundle("x", embedding=["a"] * 384), {}, InvalidInputError, "finite vector"),
        ("x", {"similarity_top_k": 0}, InvalidInputError, "k must be a whole number"),
        ("x", {"namespace": 7}, InvalidInputError, "namespace must be a non-empty text"),
        ("x", {"filters": {"$nonsense": 1}}, InvalidInputError, "Chroma cannot filter with"),
    ],
)
async def test_queries_and_options(shared, bundle, options, error, message):
    with pytest.raises(error, match=message):
        CrabPathRetriever(shared.memory, **options).retrieve(bundle)
    with pytest.raises(error, match=message):
        await CrabPathRetriever(shared.memory, **options).aretrieve(bundle)


NODE, TWICE = TextNode(text="x"), [TextNode(id_="a", text="x"), TextNode(id_="a", text="y")]
SHORT = TextNode(text="x", embedding=[1.0, 2.0])


@pytest.mark.parametrize(
    ("make", "given", "error", "message"),
    [
        ("from_documents", ["text"], InvalidInputError, "a LlamaIndex Document, got a str"),
        (
            "from_documents",
            [NODE],
            InvalidInputError,
            "LlamaIndex Document, got a llama_index.*TextNode",
        ),
        ("from_documents", [Passage("x")], InvalidInputError, "pass it to crabpath_retrievers"),
        (
            "from_nodes",
            ["text"],
            InvalidInputError,
            "expected a LlamaIndex BaseNode, got a str",
        ),
        ("from_nodes", [SHORT], EmbeddingMismatchError, "has 2 dimensions, the memory 384"),
        ("from_nodes", TWICE, InvalidInputError, "two documents have the id 'a'"),
    ],
)
def test_documents(embed_model, make, given, error, message, tmp_path):
    """Nothing of a call that fails is kept, and its directory is free again."""
    with pytest.raises(error, match=message):
        getattr(CrabPathRetriever, make)(given, embed_model, path=tmp_path)
    made = CrabPathRetriever.from_documents([Document(text="Fine.")], embed_model, path=tmp_path)
    assert made.memory.info()["nodes"] == 1
    made.memory.close()


@pytest.mark.parametrize(
    "option", [{"storage_context": 1}, {"top_k": 3}, {"similarity_top_k": 0}, {"min_score": 2}]
)
def test_a_wrong_option_costs_nothing(embed_model, option, tmp_path):
    """It is refused before anything is opened or embedded."""
    with pytest.raises(InvalidInputError):
        CrabPathRetriever.from_documents(
            [Document(text="Fine.")], embed_model, path=tmp_path / "memory", **option
        )
    assert not (tmp_path / "memory").exists()


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


def test_other_models_and_memories(shared, documents, embed_model, embeddings, place):
    """What is none; a model that the memory was not built with, though of the same dimension."""
    with pytest.raises(InvalidInputError, match="memory must be a CrabPath, not"):
        CrabPathRetriever(shared)
    with pytest.raises(InvalidInputError, match="top_k: use"):
        CrabPathRetriever(shared.memory, top_k=3)
    with pytest.raises(InvalidInputError, match="embed_model cannot be a int"):
        CrabPathRetriever.from_documents(documents, 3)

    class Other(type(embed_model)):
        def _get_text_embedding(self, text):
            return super()._get_text_embedding(text)[::-1]

    other = CrabPathRetriever.from_existing(place, Other(embeddings))
    with pytest.raises(EmbeddingMismatchError, match="built with model"):
        other.retrieve("Ed Wood")
    other.memory.close()
    with pytest.raises(StoreUnavailableError, match="this memory was closed"):
        other.retrieve("Ed Wood")


def test_html_that_no_reader_cleaned_is_told_once(tmp_path, caplog):
    for name in ("a.html", "b.htm", "c.md"):
        text = (
            "Deploy. <p>Then wait." if name == "c.md" else "<!-- 1 -->\n<html><p>Deploy.</p></html>"
        )
        (tmp_path / name).write_text(text)
    documents = SimpleDirectoryReader(tmp_path).load_data()
    CrabPathRetriever.from_documents(documents, MockEmbedding(8)).memory.close()
    told = [one.getMessage() for one in caplog.records if "HTML" in one.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("2 of 3 texts are HTML, such as ")
    assert "a.html" in told[0]


def test_the_class_of_the_other_host_names_this_one(shared):
    with pytest.raises(InvalidInputError, match=r"got a llama_index\..*of llama_index\.retrievers"):
        shared.memory.add_documents([Document(text="x")])
