"""Models get the prefixes that their makers document, once; a memory remembers them."""

import pytest
from langchain_core.documents import Document
from word_sums import WordSums

from benchmarks.embedders import RandomDirections
from crabpath_retrievers import CrabPath, CrabPathRetriever, EmbeddingMismatchError, Settings
from crabpath_retrievers.config import PrefixSettings
from crabpath_retrievers.integration import Embedder
from crabpath_retrievers.vectors import embedder

SEARCH = "Represent this sentence for searching relevant passages: "


class OllamaEmbeddings(WordSums):
    """A class that passes texts on; it notes them."""

    def __init__(self, model):
        super().__init__(16)
        self.model, self.asked, self.told = model, [], []

    def embed_documents(self, texts):
        self.told += texts
        return super().embed_documents(texts)

    def embed_query(self, text):
        self.asked.append(text)
        return super().embed_query(text)


class HuggingFaceEmbeddings(OllamaEmbeddings):
    """As LangChain's class, with what sentence-transformers is told."""

    def __init__(self, model, prompts=None, default=None, **arguments):
        super().__init__(model)
        self._client = type("Model", (), {"prompts": prompts, "default_prompt_name": default})()
        self.encode_kwargs = arguments.get("encode", {})
        self.query_encode_kwargs = arguments.get("query", {})


class WrappedEmbeddings(OllamaEmbeddings.__base__):
    """A class of one's own, which may add prefixes itself."""

    model = "intfloat/e5-base-v2"


@pytest.mark.parametrize(
    ("model", "query", "document"),
    [
        ("intfloat/multilingual-e5-small", "query: ", "passage: "),
        ("intfloat/e5-base-v2", "query: ", "passage: "),
        ("BAAI/bge-small-en-v1.5", SEARCH, ""),
        ("BAAI/bge-m3", "", ""),
        ("mxbai-embed-large:latest", SEARCH, ""),
        ("nomic-embed-text", "search_query: ", "search_document: "),
        ("snowflake-arctic-embed:335m", SEARCH, ""),
        ("snowflake-arctic-embed2", "query: ", ""),
        ("Snowflake/snowflake-arctic-embed-l-v2.0", "query: ", ""),
        ("Snowflake/snowflake-arctic-embed-m-v1.5", SEARCH, ""),
        ("thenlper/gte-base", "", ""),
        ("sentence-transformers/all-MiniLM-L6-v2", "", ""),
        ("text-embedding-3-small", "", ""),
    ],
)
def test_known_models_get_their_prefixes(model, query, document):
    embeddings = OllamaEmbeddings(model)
    found = Embedder(embeddings)
    found.query("a")
    found.documents(["b"])
    assert (embeddings.asked[0], embeddings.told) == (f"{query}a", [f"{document}b"])


def test_instructions_name_the_task_of_search():
    for model, end in (
        ("Qwen/Qwen3-Embedding-0.6B", "Query:"),
        ("intfloat/multilingual-e5-large-instruct", "Query: "),
    ):
        query, document = Embedder(OllamaEmbeddings(model)).prefixes
        assert query.startswith("Instruct: Given a web search query, retrieve")
        assert query.endswith(f"\n{end}")
        assert document == ""


@pytest.mark.parametrize(
    ("embeddings", "wanted"),
    [
        (HuggingFaceEmbeddings("e5-small", encode={"prompt": "passage: "}), ("", "")),
        (
            HuggingFaceEmbeddings("intfloat/e5-small", query={"prompt": "query: "}),
            ("", "passage: "),
        ),
        (HuggingFaceEmbeddings("intfloat/e5-small", {"query": "q: "}, "query"), ("", "")),
        (HuggingFaceEmbeddings("own", {"query": "q: ", "document": "d: "}), ("q: ", "d: ")),
        (HuggingFaceEmbeddings("intfloat/e5-small", {"query": ""}), ("query: ", "passage: ")),
        (WrappedEmbeddings(16), ("", "")),
    ],
)
def test_nothing_is_written_twice(embeddings, wanted):
    assert Embedder(embeddings).prefixes == wanted


async def test_prefixes_can_be_set_and_are_remembered(tmp_path):
    """Another prefix is another embedder; a memory that was built without goes on without."""
    plain, own = OllamaEmbeddings("own"), OllamaEmbeddings("own")
    settings = Settings(prefix=PrefixSettings(query="ask: ", document="tell: "))
    with CrabPath.open(tmp_path / "own", embeddings=own, settings=settings) as memory:
        memory.add_documents([Document("A ferry.")], progress=None)
        await memory.aio.retrieve("ferry?")
    assert "tell: A ferry." in own.told
    assert own.asked[-1] == "ask: ferry?"
    with CrabPath.open(tmp_path / "own", embeddings=plain) as memory:
        memory.retrieve("ferry?")
        assert plain.asked[-1] == "ask: ferry?"
    other = Settings(prefix=PrefixSettings(query=""))
    with (
        CrabPath.open(tmp_path / "own", embeddings=plain, settings=other) as memory,
        pytest.raises(EmbeddingMismatchError, match="the prefixes 'ask: ' of questions"),
    ):
        memory.retrieve("ferry?")
    with CrabPath.open(tmp_path / "own", embeddings=plain) as memory:
        assert memory.maintenance.change_embedder(
            OllamaEmbeddings("own"), query_prefix="", document_prefix="", progress=None
        )
        assert memory.embedder.prefixes == ("", "")


def test_a_wrapped_store_was_filled_without_prefixes(tmp_path):
    from langchain_core.vectorstores import InMemoryVectorStore

    embeddings = OllamaEmbeddings("nomic-embed-text")
    store = InMemoryVectorStore(embeddings)
    store.add_documents([Document("A ferry.", id="a")])
    given = [Document("A ferry.", id="a")]
    made = CrabPathRetriever.from_vectorstore(store, documents=given, path=tmp_path)
    with made.memory as memory:
        assert memory.embedder.prefixes == ("", "")


def test_random_vectors_leave_ranking_to_words(caplog, monkeypatch):
    """One warning; the documents are those of the words, however near noise is."""
    monkeypatch.setattr(embedder, "_LEAST_FOUND", 8)
    texts = [f"Filler text {n} about nothing in particular." for n in range(300)]
    texts[200] = "The ferry to Heligoland leaves at nine."
    with CrabPath.open(embeddings=RandomDirections()) as memory:
        memory.add_documents([Document(text) for text in texts], progress=None)
        answer = memory.retrieve("When does the Heligoland ferry leave?", k=5)
    assert answer.documents[0].node.content == texts[200]
    warned = [r for r in caplog.records if "words and names alone" in r.getMessage()]
    assert len(warned) == 1


def test_the_default_model_tells_texts_apart(embeddings, monkeypatch):
    monkeypatch.setattr(embedder, "_LEAST_FOUND", 8)
    assert Embedder(embeddings).measure_scale() == (1.0, True)
