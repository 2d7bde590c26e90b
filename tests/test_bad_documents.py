"""Bad documents: one clear error each, or a sensible result; nothing is lost or half-written."""

import datetime as dt

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, DuplicateIdError, InvalidInputError


class NotNumbers(DeterministicFakeEmbedding):
    """Gives NaN for texts that mention it, as half-broken servers do."""

    def embed_documents(self, texts):
        """NaN in one place."""
        found = super().embed_documents(texts)
        return [
            [float("nan"), *v[1:]] if "nan" in t else v for t, v in zip(texts, found, strict=True)
        ]


class TooFew(DeterministicFakeEmbedding):
    """Returns one vector too few for a batch."""

    def embed_documents(self, texts):
        """Lose the last."""
        found = super().embed_documents(texts)
        return found[:-1] if len(found) > 1 else found


def by_id(retriever, query="anything", **options):
    """All that is returned, by id."""
    return {document.id: document for document in retriever.invoke(query, **options)}


def test_no_documents_added(retriever, unchanged):
    """Adding nothing does nothing."""
    assert retriever.add_documents([]) == []


def test_duplicate_id_with_different_text(retriever, unchanged):
    """One id for two texts is refused; nothing of the batch is kept."""
    batch = [Document("Snow is white.", id="d"), Document("Coal is black.", id="d")]
    with pytest.raises(DuplicateIdError, match="two documents have the id 'd'"):
        retriever.add_documents(batch)


def test_duplicate_document(retriever):
    """The same document twice in a batch is stored once."""
    batch = [Document("Snow is white.", id="d")] * 2
    assert retriever.add_documents(batch) == ["d"]
    assert retriever.memory.info()["nodes"] == retriever.memory.index.count() == 4


def test_ids_that_do_not_match_the_documents(retriever, unchanged):
    """Another number of ids than documents is refused."""
    with pytest.raises(InvalidInputError, match="2 ids for 1 documents: pass one id per document"):
        retriever.add_documents([Document("Snow is white.")], ids=["d", "e"])


def test_something_else_than_a_document(retriever, unchanged):
    """A plain text in place of a document is refused."""
    with pytest.raises(InvalidInputError, match="expected a LangChain Document, got str"):
        retriever.add_documents(["Snow is white."])


def test_documents_without_titles_and_ids(retriever):
    """Documents need neither title nor id nor source; equal texts are one document."""
    ids = retriever.add_documents([Document("Snow is white."), Document("Coal is black.")])
    assert retriever.add_documents([Document("Snow is white.")]) == ids[:1]
    assert by_id(retriever, k=5)[ids[0]].page_content == "Snow is white."


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("crab 🦀 party", "crab 🦀 party"),
        ("مرحبا بالعالم", "مرحبا بالعالم"),
        ("日本語のテキスト", "日本語のテキスト"),
        ("bin\x00ary \x01\x7f\xff tail", "binary \x01\x7f\xff tail"),
        ("lone \ud83d surrogate", "lone ? surrogate"),
        ("\u202eright to left\u202c \ufeff\u200b", "\u202eright to left\u202c \ufeff\u200b"),
    ],
)
def test_text_of_odd_characters(retriever, text, kept):
    """Odd text comes back as it was, without what no database can store."""
    (node_id,) = retriever.add_documents([Document(text)])
    assert by_id(retriever, text)[node_id].page_content == kept


def test_metadata_that_chroma_rejects(retriever):
    """Metadata that the vector store cannot hold comes back with the document, as JSON has it."""
    metadata = {
        "nested": {"a": [1, {"b": None}]},
        "mixed": [1, "a"],
        "empty": [],
        "none": None,
        "day": dt.date(2026, 11, 20),
        "nan": float("nan"),
        "big": 2**70,
        "flag": True,
    }
    retriever.add_documents([Document("Snow is white.", id="d", metadata=metadata)])
    found = by_id(retriever)["d"]
    kept = {**metadata, "day": "2026-11-20", "nan": None}
    assert {name: found.metadata[name] for name in kept} == kept
    assert list(by_id(retriever, filter={"flag": True})) == ["d"]


@pytest.mark.parametrize("embeddings", [NotNumbers(size=16), TooFew(size=16)])
def test_embedder_that_fails_for_a_document(embeddings):
    """An embedder's wrong answer is refused, and nothing of the batch is left in either store."""
    with CrabPath.open(embeddings=embeddings) as memory:
        memory.add_documents([Document("The sky is blue.")])
        with pytest.raises(InvalidInputError, match=r"finite vector|returned 1 vectors for 2"):
            memory.add_documents([Document("Snow is nan."), Document("Coal is black.")])
        assert memory.info()["nodes"] == memory.index.count() == 1
        assert not memory.store.catalog.has_unfinished_ingest()
        assert [d.node.content for d in memory.retrieve("sky").documents] == ["The sky is blue."]


@pytest.mark.parametrize(
    "document", [Document("x", id="i" * 700), Document("x", metadata={"source": "s" * 9600})]
)
def test_ids_and_sources_that_no_database_indexes(retriever, unchanged, document):
    """Refused before anything is staged, with the length that is allowed."""
    with pytest.raises(InvalidInputError, match="at most 600"):
        retriever.add_documents([document])


def test_a_huge_title_is_kept_on_both_databases(location, tmp_path):
    """Three hundred words are no name and no link target, but they are the title."""
    title = " ".join(f"word{n}ü" for n in range(300))
    embeddings = DeterministicFakeEmbedding(size=16)
    with CrabPath.open(location, embeddings=embeddings, vectors=tmp_path / "v") as memory:
        memory.add_documents([Document("text", metadata={"title": title, "url": "u/" * 5000})])
        assert memory.retrieve("text", k=1).documents[0].node.title == title
