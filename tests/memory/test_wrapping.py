"""A vector store of somebody else and its memory: read, never written; what is gone, what is new.

Who may open such a memory, and how.
"""

import json
import logging
from contextlib import closing, suppress

import chromadb
import pytest
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from typer.testing import CliRunner

from crabpath_retrievers import CrabPath, CrabPathRetriever, examine, migrate
from crabpath_retrievers.cli import app
from crabpath_retrievers.errors import (
    ConfigurationError,
    EmbeddingMismatchError,
    InvalidInputError,
    StoreError,
)
from crabpath_retrievers.storage import GraphStore
from tests.seams import set_bounds

QUESTION = "Who owns the cluster on which the tests run?"
OWNER = "The Hydra cluster is in Frankfurt and is owned by Maria Lopez."
DOCUMENTS = [
    Document("Push to main to deploy.", id="d1"),
    Document("The office is in Berlin.", id="d2", metadata={"lang": "en"}),
    Document("Tests take nine minutes on the Hydra cluster.", id="d3"),
    Document(OWNER, id="d4", metadata={"title": "Hydra cluster"}),
    Document("Lunch is at noon.", id="d5"),
    Document("Holidays are asked for by mail.", id="d6"),
]
NEW = Document("Zeppelins need a licence.", id="d7", metadata={"title": "Zeppelins"})
NOBODY = Document("Nobody.")


class Words(Embeddings):
    """One dimension for each of a few words, and a little of all others."""

    words = ("hydra", "cluster", "tests", "owned", "owns", "zeppelins", "office", "lunch")

    def __init__(self):
        self.embedded = []

    def embed_query(self, text):
        known = text.lower().replace(".", " ").replace("?", " ").split()
        return [0.1 + known.count(word) for word in self.words]

    def embed_documents(self, texts):
        self.embedded.extend(texts)
        return [self.embed_query(text) for text in texts]


class OurChroma(Chroma):
    """A project's own subclass, which is read as its base is."""


def chroma(folder):
    client = chromadb.PersistentClient(path=str(folder / "theirs"))
    return OurChroma("theirs", Words(), client=client)


def in_memory(_folder=None):
    return InMemoryVectorStore(Words())


def faiss(_folder):
    library = pytest.importorskip("faiss")
    stores = pytest.importorskip("langchain_community.vectorstores")
    docstores = pytest.importorskip("langchain_community.docstore.in_memory")
    index = library.IndexFlatL2(len(Words.words))
    return stores.FAISS(Words(), index, docstores.InMemoryDocstore(), {})


each_store = pytest.mark.parametrize("theirs", [chroma, in_memory, faiss], indirect=True)
on_chroma = pytest.mark.parametrize("theirs", [chroma], indirect=True)


@pytest.fixture
def theirs(request, tmp_path):
    """A store with six documents, in memory unless a test names its kinds."""
    store = getattr(request, "param", in_memory)(tmp_path)
    store.add_documents(DOCUMENTS, ids=[document.id for document in DOCUMENTS])
    return store


@pytest.fixture
def wrap(tmp_path):
    """Wraps a store; its graph is at ``g``."""
    made = []

    def open_retriever(store, **given):
        found = CrabPathRetriever.from_vectorstore(store, **{"path": tmp_path / "g", **given})
        made.append(found)
        return found

    yield open_retriever
    for one in made:
        one.memory.close()


@pytest.fixture
def retriever(theirs, wrap):
    return wrap(theirs, k=6)


def ids(retriever, query=QUESTION, **options):
    return [document.id for document in retriever.invoke(query, **options)]


def texts(store):
    return {one.id: one.page_content for one in store.similarity_search("", k=9)}


def numbers(report):
    return (report.added, report.updated, report.removed, report.unchanged)


def turn_of(retriever):
    return retriever.invoke(QUESTION)[0].metadata["crabpath"]["turn_id"]


def refuse_call(*_args, **_kwargs):
    raise NotImplementedError


def forbid_writes(store, patched):
    for name in ("add_documents", "add_texts", "delete", "aadd_documents", "aadd_texts", "adelete"):
        patched.setattr(type(store), name, refuse_call)


def fail(*_args, **_kwargs):
    msg = "full"
    raise OSError(msg)


class Unlisted(VectorStore):
    """A store that cannot list its documents and does not tell its embedder, as most."""

    similarity_search = from_texts = refuse_call

    def __init__(self, inner=None):
        self.inner = inner

    def similarity_search_by_vector(self, embedding, k=4, **kwargs):
        return self.inner.similarity_search_by_vector(embedding, k, **kwargs)

    def get_by_ids(self, ids, /):
        return self.inner.get_by_ids(ids)


class Sightless(Unlisted):
    """One that cannot search by vector either."""

    similarity_search_by_vector = VectorStore.similarity_search_by_vector


class Late(Unlisted):
    """One that is found out only when it searches."""

    similarity_search_by_vector = refuse_call


class Nameless(Unlisted):
    def similarity_search_by_vector(self, embedding, k=4, **kwargs):
        return [NOBODY]


@each_store
def test_a_store_is_searched_under_its_own_ids_and_not_written_to(
    theirs, wrap, monkeypatch, tmp_path, caplog
):
    """Wrapped twice and asked; a text that names another one's title points at it."""
    set_bounds(monkeypatch, listed=3)  # the last page of a list is full
    before = texts(theirs)
    assert sorted(before) == ["d1", "d2", "d3", "d4", "d5", "d6"]
    forbid_writes(theirs, monkeypatch)
    for _ in range(2):
        retriever = wrap(theirs, k=6)
        assert sorted(ids(retriever)) == sorted(before)
        assert ids(retriever, "office", k=1) == ["d2"]
        edges = retriever.memory.info()["edges"]
        assert (edges["mention"], edges["mentioned_by"]) == (1, 1)
        retriever.memory.close()
    assert texts(theirs) == before
    assert not (tmp_path / "g" / "vectors").exists()
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


@pytest.mark.parametrize(
    ("theirs", "where", "other"),
    [
        (chroma, {"lang": "en"}, None),
        (in_memory, lambda d: d.metadata.get("lang") == "en", {"lang": {"$near": "en"}}),
        (faiss, {"lang": {"$in": ["en"]}}, None),
    ],
    indirect=["theirs"],
)
def test_a_filter_is_in_the_language_of_the_store(theirs, wrap, retriever, where, other):
    assert ids(retriever, filter=where) == ["d2"]
    if other is not None:
        with pytest.raises(InvalidInputError, match="InMemoryVectorStore"):
            ids(retriever, filter=other)
        return
    # The k and the filter of a store's own retriever are kept unless others are given.
    only = theirs.as_retriever(search_kwargs={"k": 3, "filter": where})
    assert (wrap(only).k, ids(wrap(only))) == (3, ["d2"])
    assert len(ids(wrap(only, k=2, filter=None))) == 2


@on_chroma
def test_records_without_text_are_passed_over(theirs, wrap, tmp_path):
    vectors = [[1.0] * 8] * 2
    records = chromadb.PersistentClient(path=str(tmp_path / "theirs")).get_collection("theirs")
    records.add(ids=["bare", "blank"], embeddings=vectors, documents=["", " "])
    records.add(ids=["none"], embeddings=vectors[:1])
    retriever = wrap(theirs, k=9)
    assert sorted(ids(retriever)) == ["d1", "d2", "d3", "d4", "d5", "d6"]
    records.update(ids=["d4"], documents=[" "], embeddings=vectors[:1])
    assert retriever.refresh().removed == 1


def test_nothing_is_deleted_from_a_store_that_is_wrapped(theirs, retriever):
    held = texts(theirs)
    for ask in (
        lambda: retriever.memory.forget(ids(retriever)[0]),
        lambda: retriever.add_documents([NEW], cleanup="full"),
        lambda: retriever.add_documents([NEW], cleanup="incremental"),
    ):
        with pytest.raises(ConfigurationError, match=r"delete the documents there, then .*refresh"):
            ask()
    assert texts(theirs) == held
    assert retriever.memory.forget(["unknown"]) == 0


@each_store
def test_deleted_documents_vanish_at_once(theirs, retriever):
    """However they would be found; others fill the answer."""
    ways = [
        {},
        {"query": "Hydra cluster"},  # by name and words
        {"query": "Tests take nine minutes on the Hydra cluster."},  # by an edge from d3
        {"seed_ids": ["d4"]},
        {"one_per_document": True},
        {"explore": 7},
        {"fill": False},
    ]
    for way in ways:
        assert "d4" in ids(retriever, **way)
    retriever.record(turn_of(retriever), 1.0, used=["d4"])  # nor does an episode bring it back
    theirs.delete(["d4"])
    for way in ways:
        found = ids(retriever, k=5, **way)
        assert "d4" not in found
        assert way.get("fill") is False or len(found) == 5


async def test_deleted_documents_vanish_from_every_search(theirs, retriever):
    memory = retriever.memory
    memory.graph.add_edge("d3", "d4", "caused_success", 1.0)
    memory.teach("The Hydra cluster is owned by Petra Schmidt.", id="petra")
    searches = [
        lambda: memory.graph.search("Tests", 6, {"caused_success": 0.5}),
        lambda: memory.graph.bayesian_search("Hydra", 6),
        lambda: memory.graph.causal_search("Hydra", 6),
    ]
    assert "d4" in [hit.node.id for hit in searches[0]()]
    theirs.delete(["d4"])
    for search in searches:
        assert "d4" not in [hit.node.id for hit in search()] != []
    answer = memory.retrieve(QUESTION, candidate_ids=["d3", "d4"])
    assert [item.node.id for item in answer.documents] == ["d3"]
    found = [d.id for d in await retriever.ainvoke(QUESTION)]
    assert "d4" not in found
    assert "petra" in found  # a note never stood in the store


def test_a_query_looks_up_once_and_a_look_up_that_fails_is_an_error(theirs, retriever, monkeypatch):
    asked, look_up = [], theirs.get_by_ids
    monkeypatch.setattr(theirs, "get_by_ids", lambda ids: asked.append(len(ids)) or look_up(ids))
    assert len(ids(retriever, k=3)) == 3
    assert asked == [3]
    monkeypatch.setattr(theirs, "get_by_ids", fail)
    with pytest.raises(StoreError, match="failed: full"):
        retriever.invoke(QUESTION)


def test_a_store_that_cannot_look_up_says_so(wrap, caplog, monkeypatch):
    """When it is wrapped, once; there refresh() takes away what is gone."""
    store = in_memory()
    store.add_documents(DOCUMENTS)
    monkeypatch.setattr(store, "get_by_ids", refuse_call)
    retriever = wrap(store, k=6)
    (said,) = [r.message for r in caplog.records if "cannot look up" in r.message]
    assert "what is deleted from it is still returned until you call refresh()" in said
    store.delete(["d4"])
    assert "d4" in ids(retriever)
    assert retriever.refresh().removed == 1
    assert "d4" not in ids(retriever)


def test_an_empty_store_is_never_a_silent_empty_answer(tmp_path, caplog):
    """Such as an in-memory store in another process; ``reindex`` fills it."""
    with CrabPath.open(tmp_path / "m", embeddings=Words(), vectors=in_memory()) as memory:
        memory.add_documents(DOCUMENTS)
    with CrabPath.open(tmp_path / "m", embeddings=Words(), vectors=in_memory()) as memory:
        assert not memory.retrieve("Hydra cluster").documents
        assert "refresh() to follow it, or reindex() to fill it" in caplog.messages[-1]
        memory.maintenance.reindex()
        assert len(memory.retrieve("Hydra cluster", k=6).documents) == 6


def test_wrapping_an_empty_store_is_said(wrap, caplog):
    """Such as a collection by a wrong name, which Chroma makes."""
    assert not ids(wrap(in_memory()))
    assert "InMemoryVectorStore holds no documents: check its collection" in caplog.text


@each_store
async def test_what_changed_in_the_store_is_taken_over(theirs, retriever, wrap, tmp_path):
    """The report counts it, nothing else is embedded, and what was learned stays."""
    for _ in range(3):
        turn = turn_of(retriever)
        retriever.record(turn, 1.0, used=["d3", "d4"])
    learned = retriever.memory.info()["learned_weights"]
    theirs.delete(["d2", "d5"])
    changed = Document("Lunch is at one.", id="d5")
    theirs.add_documents([NEW, changed], ids=["d7", "d5"])
    theirs.embeddings.embedded.clear()
    assert numbers(retriever.refresh()) == (1, 1, 1, 4)
    assert sorted(theirs.embeddings.embedded) == [changed.page_content, NEW.page_content]
    assert ids(retriever, "Zeppelins", k=1) == ["d7"]
    (lunch,) = retriever.memory.store.catalog.documents(["d5", "d2"]).values()
    assert lunch.content == "Lunch is at one."
    assert retriever.memory.info()["learned_weights"] == learned > 0
    assert numbers(await retriever.arefresh()) == (0, 0, 0, 6)
    retriever.memory.close()
    theirs.delete(["d3"])
    again = wrap(theirs, k=9)
    # Wrapping again embeds only the sentence that tells whether the embedder is still the same.
    assert len(theirs.embeddings.embedded) == 3
    assert sorted(ids(again)) == ["d1", "d4", "d5", "d6", "d7"]
    assert again.memory.explain(turn).turn.id == turn
    again.memory.close()
    by_vectors = CrabPathRetriever.from_existing(tmp_path / "g", Words(), vectors=theirs)
    with closing(by_vectors.memory):
        assert by_vectors.refresh().unchanged == 5


def test_new_documents_are_pointed_out_once(theirs, retriever, caplog):
    """Until the memory knows them; then the next ones are."""

    def list_warnings():
        return [r.message for r in caplog.records if "does not know" in r.message]

    theirs.add_documents([NEW])
    for _ in range(3):
        assert "d7" not in ids(retriever, "Zeppelins", k=6)
    (said,) = list_warnings()
    assert "such as 'd7': call refresh()" in said
    retriever.refresh()
    assert ids(retriever, "Zeppelins", k=1) == ["d7"]
    theirs.add_documents([Document("Hydra cluster two.", id="d8")])
    for count in (2, 2):
        ids(retriever)
        assert len(list_warnings()) == count


def test_a_kill_leaves_nothing_to_write_into_the_store(theirs, wrap, monkeypatch):
    """Wherever it strikes while documents are taken over; the next wrapping goes on."""
    apply, before = GraphStore.apply, texts(theirs)
    forbid_writes(theirs, monkeypatch)
    for steps in range(8):
        left = iter(range(steps))

        def die(store, changes, left=left):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return apply(store, changes)

        with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
            patched.setattr(GraphStore, "apply", die)
            wrap(theirs).memory.close()
    assert sorted(ids(wrap(theirs, k=9))) == sorted(before)
    assert texts(theirs) == before


def test_documents_may_be_given(theirs, wrap):
    """Where the store cannot list them it is said; those without ids are refused."""
    retriever = wrap(Unlisted(theirs), documents=DOCUMENTS, embeddings=Words(), k=1)
    assert ids(retriever, "office") == ["d2"]
    with pytest.raises(ConfigurationError, match=r"refresh\(documents=\.\.\.\)"):
        retriever.refresh()
    with pytest.raises(ConfigurationError, match=r"set Document\.id"):
        retriever.refresh([NOBODY])
    assert retriever.memory.info()["nodes"] == 6
    theirs.delete(["d4"])
    assert numbers(retriever.refresh(documents=[]))[2] == 1
    theirs.add_documents([NEW])
    assert numbers(retriever.refresh(documents=[NEW])) == (1, 0, 0, 0)


@pytest.mark.both_databases
def test_without_its_store_a_memory_is_not_opened(theirs, wrap, location, tmp_path):
    """However it was given; one sentence names the call, and nothing is made beside the graph."""
    wrap(theirs, path=location).memory.close()
    with CrabPath.open(tmp_path / "2", embeddings=Words(), vectors=theirs) as memory:
        memory.refresh()
    for place in (location, str(tmp_path / "2")):
        for opened in (CrabPath.open, CrabPathRetriever.from_existing):
            with pytest.raises(ConfigurationError) as refused:
                opened(place, embeddings=Words())
            said = "open it with CrabPathRetriever.from_vectorstore(store, path="
            assert f" wraps a LangChain InMemoryVectorStore: {said}" in str(refused.value)
    assert not list(tmp_path.glob("*/vectors"))


def test_memories_and_stores_that_do_not_belong_together(theirs, wrap, tmp_path):
    """A memory of its own, and a wrong collection, which Chroma makes; what was read stays."""
    with CrabPath.open(tmp_path / "own", embeddings=Words()) as memory:
        memory.add_documents([NEW])
        with pytest.raises(ConfigurationError, match="wraps no vector store"):
            memory.refresh()
    with pytest.raises(ConfigurationError, match="with documents and vectors of its own"):
        wrap(theirs, path=tmp_path / "own")
    wrap(theirs).memory.close()
    with pytest.raises(
        ConfigurationError, match=r"holds none of the 6 documents .* one graph per schema"
    ):
        wrap(in_memory())
    for place, count in (("own", 1), ("g", 6)):
        with closing(GraphStore(tmp_path / place)) as store:
            assert store.catalog.statistics()["nodes"] == count


def test_copies_have_vectors_of_their_own(theirs, retriever, tmp_path):
    """An archive, a migration, and a memory whose vectors were moved out of the store."""
    places = [tmp_path / name for name in ("copy", "other", "g")]
    retriever.memory.transfer.export(tmp_path / "all.crabpath")
    retriever.memory.close()
    with CrabPath.open(places[0], embeddings=Words()) as copy:
        copy.transfer.import_archive(tmp_path / "all.crabpath")
    migrate(places[2], places[1])
    with CrabPath.open(places[2], embeddings=Words(), vectors=places[2] / "vectors") as memory:
        assert memory.maintenance.reindex() == 6
    theirs.delete(["d4"])
    for place in places:
        with CrabPathRetriever.from_existing(place, Words()).memory as memory:
            assert "d4" in [d.node.id for d in memory.retrieve(QUESTION, k=6).documents]


SIGHTLESS = (
    r"^LangChain Sightless cannot be wrapped like this: it does not tell its embedder \(pass "
    r"embeddings=\); it cannot list its documents \(pass them with their ids as documents=\); "
    r"it cannot search by vector \(similarity_search_by_vector is not implemented\)$"
)
UNNAMED = {"documents": [*DOCUMENTS, Document("Nobody.", id="")]}
GIVEN = {"documents": [NOBODY], "embeddings": Words()}
NO_STORE = "wraps a LangChain VectorStore, not a"


@pytest.mark.parametrize(
    ("store", "given", "error", "sentence"),
    [
        (Sightless(), {}, ConfigurationError, SIGHTLESS),
        (Unlisted(in_memory()), {}, ConfigurationError, r"embeddings=.*list.*documents=[^;]*$"),
        (Late(), GIVEN, ConfigurationError, "ids.*cannot search by vector"),
        (Nameless(), GIVEN, ConfigurationError, "returns documents without ids"),
        (in_memory(), UNNAMED, ConfigurationError, r"set Document\.id on each"),
        *((odd, {}, InvalidInputError, NO_STORE) for odd in (None, "chroma", InMemoryVectorStore)),
    ],
)
def test_what_cannot_be_wrapped(wrap, tmp_path, theirs, store, given, error, sentence):
    """It is said in one sentence before anything is made, and the path can be used."""
    with pytest.raises(error, match=sentence):
        wrap(store, **given)
    assert not (tmp_path / "g").exists()
    assert len(ids(wrap(theirs, k=9))) == 6


@each_store
def test_another_embedder_is_refused(theirs, wrap, tmp_path):
    """At once where the dimension of the store is not its own, and later by the graph."""
    other = DeterministicFakeEmbedding(size=3)
    with pytest.raises(EmbeddingMismatchError, match="pass the embedder"):
        wrap(theirs, embeddings=other)
    assert not (tmp_path / "g").exists()
    wrap(theirs).memory.close()
    with pytest.raises(EmbeddingMismatchError, match="it was filled with as embeddings="):
        wrap(theirs, embeddings=other)


def test_commands_need_the_graph_store_alone(retriever, tmp_path):
    """They run beside the process that has the memory, and make nothing."""
    place, turn = tmp_path / "g", turn_of(retriever)
    before = {path.name for path in place.iterdir()}

    def run(*arguments):
        return CliRunner().invoke(app, [*arguments, "-s", str(place)])

    assert json.loads(run("explain", turn, "--json").stdout)["turn"]["query"] == QUESTION
    info = json.loads(run("info", "--json").stdout)
    where = f"{retriever.memory.index.description}, wrapped"
    assert (info["nodes"], info["vectors"]) == (6, where)
    for command in (("health",), ("feedback", turn, "--outcome", "1"), ("doctor",)):
        assert run(*command).exit_code == 0
    (vectors,) = [one for one in examine(place).findings if one.check == "vectors"]
    assert (vectors.severity, "were not checked" in vectors.message) == ("info", True)
    query = run("query", "Hydra")
    assert query.exit_code == 1
    assert "from_vectorstore(store,path=" in "".join(query.stderr.split())
    assert {path.name for path in place.iterdir()} <= before


@pytest.mark.parametrize(
    ("kind", "call", "error", "message"),
    [
        (Late, lambda m: m.retrieve("x"), ConfigurationError, "Late cannot search by"),
        (Nameless, lambda m: m.retrieve("x"), ConfigurationError, "documents without ids"),
        (Late, lambda m: m.forget("d1"), ConfigurationError, "Late cannot delete"),
        (Late, lambda m: m.add_documents([NEW]), StoreError, "Late failed: full"),
    ],
)
def test_what_a_store_cannot_do_is_said(kind, call, error, message):
    store = kind(in_memory())
    store.add_documents = store.inner.add_documents
    with CrabPath.open(embeddings=Words(), vectors=store) as memory:
        memory.add_documents(DOCUMENTS)
        store.add_documents, store.delete, store.get_by_ids = fail, refuse_call, refuse_call
        with pytest.raises(error, match=message):
            call(memory)
