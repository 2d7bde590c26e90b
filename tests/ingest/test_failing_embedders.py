"""Embedders that answer wrongly: the document is named, the others are in, and words still find."""

import logging
import threading

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, CrabPathRetriever, Feedback, errors
from crabpath_retrievers.config import IngestSettings, Settings
from tests.seams import set_bounds

NAN, ZERO = float("nan"), 0.0
PAGES = [
    Document(f"On topic{n} and nothing else", metadata={"source": f"page{n}.md"}) for n in range(12)
]
BAD = "page7.md"


class Spoiled(Embeddings):
    """Spoils the vectors of one text; ``fixed`` when it is mended."""

    def __init__(self, inner, spoil):
        self.inner, self.spoil, self.fixed = inner, spoil, False

    def embed_query(self, text):
        return self.embed_documents([text])[0]

    def embed_documents(self, texts):
        vectors = self.inner.embed_documents(texts)
        spoiled = ["topic7 " in text and not self.fixed for text in texts]
        return [self.spoil(v) if bad else v for v, bad in zip(vectors, spoiled, strict=True)]


@pytest.fixture(params=[NAN, ZERO, float("inf")])
def spoiled(request, embedder):
    return Spoiled(embedder, lambda vector: [request.param] * len(vector))


def add(memory, folder):
    return memory.add_documents(PAGES).left_out


def ingest(memory, folder):
    return memory.ingest(folder).chunks.left_out


def sync(memory, folder):
    return list(memory.sync(folder).left_out)


@pytest.mark.parametrize("way", [add, ingest, sync])
def test_one_document_without_a_vector_is_left_out(tmp_path, spoiled, way, caplog):
    """It is named with source and id, and is taken up by the same call when it has a vector."""
    caplog.set_level("WARNING")
    folder = tmp_path / "docs"
    folder.mkdir()
    for page in PAGES:
        (folder / page.metadata["source"]).write_text(page.page_content)
    with CrabPath.open(tmp_path / "memory", embeddings=spoiled) as memory:
        (label,) = way(memory, folder)
        assert BAD in label
        assert "chunk 1 (id " in label
        (said,) = {r.getMessage() for r in caplog.records}
        assert label in said
        assert memory.info()["nodes"] == 11
        assert not memory.store.catalog.has_unfinished_ingest()
        spoiled.fixed = True
        assert way(memory, folder) == []
        assert memory.info()["nodes"] == 12
        assert memory.documents(words="topic7")


def test_the_report_counts_what_is_in(spoiled, tmp_path):
    """Also where a document was known before: then it stays as it was."""
    with CrabPath.open(tmp_path / "memory", embeddings=spoiled) as memory:
        ids = [str(n) for n in range(12)]
        spoiled.fixed = True
        memory.add_documents(PAGES, ids=ids)
        spoiled.fixed = False
        changed = [Document(f"{page.page_content} now", metadata=page.metadata) for page in PAGES]
        report = memory.add_documents([*changed, Document("New")], ids=[*ids, "new"])
        assert (report.added, report.updated, len(report.left_out)) == (1, 11, 1)
        assert report.ids == [*(name for name in ids if name != "7"), "new"]
        assert "1 without a vector left out" in str(report)
        assert memory.get_by_ids(["7"])[0].page_content == PAGES[7].page_content


def test_constructors_say_what_no_report_says(spoiled, tmp_path):
    """All others are in then; with the setting the constructor goes on without the one."""
    for number, make in enumerate(
        (
            lambda **fields: CrabPathRetriever.from_documents(PAGES, spoiled, **fields),
            lambda **fields: CrabPathRetriever.from_texts(
                [p.page_content for p in PAGES], spoiled, [p.metadata for p in PAGES], **fields
            ),
        )
    ):
        place = tmp_path / str(number)
        with pytest.raises(errors.InvalidInputError, match=BAD):
            make(path=place)
        with CrabPath.open(place, embeddings=spoiled) as memory:
            assert memory.info()["nodes"] == 11
        skip = Settings(ingest=IngestSettings(unusable_vectors="skip"))
        with make(path=place, settings=skip) as made:
            assert made.memory.info()["nodes"] == 11


def test_by_a_setting_it_is_refused(spoiled, tmp_path):
    settings = Settings(ingest=IngestSettings(unusable_vectors="raise"))
    with CrabPath.open(embeddings=spoiled, settings=settings) as memory:
        with pytest.raises(errors.InvalidInputError, match=BAD):
            memory.add_documents(PAGES)
        with pytest.raises(errors.InvalidInputError, match=BAD):
            memory.sync(PAGES)
        assert not memory.documents(words="topic7")
    with pytest.raises(errors.InvalidInputError, match="unusable_vectors must be"):
        IngestSettings(unusable_vectors="ignore")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda vector: None, "returned None instead of a vector of 64 numbers"),
        (lambda vector: vector[:9], "returned 9 numbers instead of a vector of 64 numbers"),
        (lambda vector: [*vector, 1.0], "returned 65 numbers"),
        (lambda vector: "0.1, 0.2", "returned '0.1, 0.2' instead"),
        (lambda vector: [vector], "instead of a vector of 64 numbers"),
    ],
)
@pytest.mark.parametrize("documents", [PAGES, PAGES[7:8]])
def test_a_wrong_answer_names_the_document(embedder, spoil, said, documents):
    with CrabPath.open(embeddings=Spoiled(embedder, spoil)) as memory:
        for call in (memory.add_documents, memory.sync):
            with pytest.raises(errors.InvalidInputError, match=said) as error:
                call(documents)
            assert BAD in str(error.value)


class Lazy(Embeddings):
    """Answers as it is told."""

    def __init__(self, inner, answer):
        self.inner, self.answer = inner, answer

    def embed_query(self, text):
        return self.inner.embed_query(text)

    def embed_documents(self, texts):
        return self.answer(self.inner.embed_documents(texts))


@pytest.mark.parametrize("answer", [iter, np.array, tuple, lambda v: map(np.array, v)])
def test_lazy_answers_are_taken(embedder, answer):
    with CrabPath.open(embeddings=Lazy(embedder, answer)) as memory:
        assert memory.add_documents(PAGES).added == 12


@pytest.mark.parametrize("answer", [lambda v: None, lambda v: 7, lambda v: v[1:], lambda v: {}])
def test_answers_that_are_no_list_are_refused(embedder, answer):
    with CrabPath.open(embeddings=Lazy(embedder, answer)) as memory:
        with pytest.raises(errors.InvalidInputError, match="the embedder returned"):
            memory.add_documents(PAGES)
        assert memory.info()["nodes"] == 0


class NoQuestions(Spoiled):
    """Spoils the vectors of questions alone, and raises what it is given."""

    def embed_query(self, text):
        if isinstance(self.spoil, Exception):
            raise self.spoil
        vector = self.inner.embed_query(text)
        return vector if self.fixed else self.spoil(vector)

    def embed_documents(self, texts):
        return self.inner.embed_documents(texts)


@pytest.fixture
def deaf(embedder, tmp_path):
    """A memory whose embedder gives no vector for questions."""
    with CrabPath.open(tmp_path, embeddings=NoQuestions(embedder, lambda v: [0.0] * 64)) as memory:
        memory.add_documents(PAGES)
        yield memory


@pytest.mark.parametrize("spoil", [lambda v: [NAN] * 64, lambda v: [0.0] * 64, lambda v: None])
async def test_a_question_without_a_vector_is_answered_by_words(deaf, spoil, caplog):
    """With one warning, blocking or awaited; feedback on it is learned from, and found again."""
    caplog.set_level("WARNING")
    deaf.embedder.embeddings.spoil = spoil
    answer = deaf.retrieve("Where is topic7?", k=3)
    best = answer.documents[0].node.id
    assert "topic7" in answer.documents[0].node.content
    awaited = await deaf.aio.retrieve("Where is topic7?", k=3)
    assert [d.node.id for d in awaited.documents] == [d.node.id for d in answer.documents]
    said = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(said) == 2
    assert all("answered by its words" in line for line in said)
    receipt = deaf.record(Feedback(answer.turn.id, outcome=1.0, used=[best], correction="Say it."))
    assert receipt.status == "applied"
    again = deaf.retrieve("Where is topic7?", k=3)
    (found,) = [d for d in again.documents if d.node.id == best]
    assert found.returned.features["again"] > 0
    assert deaf.undo(turn_id=answer.turn.id)


def test_a_question_without_vector_and_words_is_answered_by_nothing(deaf):
    """What is hinted is still there, and feedback on it does no harm."""
    assert deaf.retrieve("zzz ???").documents == ()
    hinted = deaf.documents(limit=1)[0].id
    answer = deaf.retrieve("zzz ???", seed_ids=[hinted])
    assert hinted in {d.node.id for d in answer.documents}
    assert deaf.record(Feedback(answer.turn.id, outcome=-1.0, used=[hinted])).status == "applied"
    assert deaf.retrieve("zzz ???", k=2).documents == ()
    with CrabPath.open(
        embeddings=NoQuestions(deaf.embedder.embeddings.inner, lambda v: None)
    ) as new:
        assert new.retrieve("topic7").documents == ()


def test_what_fails_otherwise_is_an_error(deaf):
    """An exception of the embedder may pass; vectors of another size are those of another one."""
    deaf.embedder.embeddings.spoil = lambda vector: vector[:9]
    with pytest.raises(errors.EmbeddingMismatchError, match="9 dimensions, the memory 64"):
        deaf.retrieve("topic7")
    deaf.embedder.embeddings.spoil = TimeoutError("the service is busy")
    with pytest.raises(TimeoutError, match="busy"):
        deaf.retrieve("topic7")
    with pytest.raises(errors.InvalidInputError, match="finite vector"):
        deaf.retrieve("topic7", vector=[0.0] * 64)


@pytest.mark.parametrize("filled", [True, False])
def test_a_question_of_another_size_teaches_nothing(embedder, filled):
    """Whichever call asks it, and what is said afterwards is learned from as ever."""
    cut = NoQuestions(embedder, lambda vector: vector[:9])
    with CrabPath.open(embeddings=cut) as memory:
        if filled:
            memory.add_documents(PAGES)
        calls = {
            "teach": lambda: memory.teach("Ask Ann.", query="Who knows topic7?"),
            "search": lambda: memory.graph.search("topic7"),
            "similarity": lambda: memory.similarity_search("topic7"),
            "retrieve": lambda: memory.retrieve("topic7"),
        }
        for name, call in calls.items():
            with pytest.raises(errors.EmbeddingMismatchError, match="9 dimensions, the memory 64"):
                call()
            assert memory.notes() == [], name
        cut.fixed = True
        memory.add_documents(PAGES)
        memory.teach("Ask Ann.", query="Who knows topic7?")
        for _ in range(2):
            answer = memory.retrieve("Who knows topic7?", k=3)
            assert memory.record(answer, outcome=True).status == "applied"
        assert "Ask Ann." in [one.node.content for one in answer.documents]


def test_one_wrong_answer_does_not_condemn_an_embedder(tmp_path, embedder):
    """Also where it is the first one that a process gets."""
    with CrabPath.open(tmp_path, embeddings=embedder) as memory:
        memory.add_documents(PAGES)
    late = Lazy(embedder, lambda vectors: [vector[:9] for vector in vectors])
    with CrabPath.open(tmp_path, embeddings=late) as memory:
        with pytest.raises(errors.EmbeddingMismatchError, match="64 dimensions, not 9"):
            memory.retrieve("topic7")
        late.answer = list
        assert memory.retrieve("topic7", k=2).documents
        assert memory.add_documents([Document("On topic99")]).added == 1


def test_what_a_wrapped_store_has_and_the_graph_leaves_out_is_no_news(spoiled, caplog):
    """Blank documents and those without a vector, also where the store is wrapped again."""
    store = InMemoryVectorStore(spoiled.inner)
    blanks = [Document(text, id=f"blank{n}") for n, text in enumerate(["", "  ", "\u200b"])]
    store.add_documents(
        [*(p.model_copy(update={"id": p.metadata["source"]}) for p in PAGES), *blanks]
    )
    with CrabPathRetriever.from_vectorstore(store, embeddings=spoiled, k=15) as retriever:
        caplog.set_level("WARNING")
        for _ in range(2):
            caplog.clear()
            assert len(retriever.invoke("On topic3 and nothing else")) == 11
            assert "refresh()" not in caplog.text
            assert len(retriever.refresh().left_out) == 1
        store.add_documents([Document("On topic99 and nothing else", id="new")])
        retriever.invoke("On topic99 and nothing else")
        assert "such as 'new': call refresh()" in caplog.text
        spoiled.fixed = True
        report = retriever.refresh()
        assert (report.added, report.left_out) == (2, [])


class Bound(Embeddings):
    """Works in the thread that made it alone, as a cache in SQLite does."""

    def __init__(self):
        self.thread, self.is_gone = threading.get_ident(), False

    def embed_query(self, text):
        return self.embed_documents([text])[0]

    def embed_documents(self, texts):
        assert threading.get_ident() == self.thread
        return [[1.0 + len(text), 2.0, 3.0 + sum(map(ord, text)) % 7] for text in texts]


class Remote(Bound):
    """Has an asynchronous method, so that others call it from threads of theirs."""

    def embed_documents(self, texts):
        if self.is_gone and any("topic9 " in text for text in texts):
            raise ConnectionError
        self.thread = threading.get_ident()
        return super().embed_documents(texts)

    async def aembed_query(self, text):
        return self.embed_query(text)


SMALL_BATCHES = Settings(ingest=IngestSettings(batch_size=4))


def test_an_embedder_is_called_by_the_thread_that_adds(tmp_path, monkeypatch):
    set_bounds(monkeypatch, first_batch=4)
    with CrabPath.open(tmp_path, embeddings=Bound(), settings=SMALL_BATCHES) as memory:
        assert memory.add_documents(PAGES, progress=None).added == 12


def test_a_remote_embedder_that_fails_leaves_whole_batches(tmp_path, monkeypatch):
    """Others embed the next batch in a thread while one is published."""
    set_bounds(monkeypatch, first_batch=4)
    remote = Remote()
    remote.is_gone = True
    with CrabPath.open(tmp_path, embeddings=remote, settings=SMALL_BATCHES) as memory:
        with pytest.raises(ConnectionError):
            memory.add_documents(PAGES, progress=None)
        kept = memory.info()["nodes"]
        assert kept
        assert kept % 4 == 0
        remote.is_gone = False
        assert memory.add_documents(PAGES, progress=None).added == 12 - kept
        assert memory.info()["nodes"] == memory.index.count() == 12
