"""A wrapped store and its memory over time: what is gone, what is new, who may open it."""

import json
import logging
from contextlib import closing, suppress

import chromadb
import pytest
from filelock import FileLock
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from typer.testing import CliRunner

from crabpath_retrievers import CrabPath, CrabPathRetriever, Settings, migrate
from crabpath_retrievers.cli import app
from crabpath_retrievers.config.maintenance import MaintenanceSettings
from crabpath_retrievers.errors import (
    ConfigurationError,
    EmbeddingMismatchError,
    InvalidInputError,
    StoreError,
)
from crabpath_retrievers.maintenance.doctor.run import examine
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.vectors.langchain_store import VectorStoreIndex

QUESTION = "Who owns the cluster on which the tests run?"
HYDRA = Document(
    "The Hydra cluster is in Frankfurt and is owned by Maria Lopez.",
    id="d4",
    metadata={"title": "Hydra cluster"},
)
DOCUMENTS = [
    Document("Push to main to deploy.", id="d1"),
    Document("The office is in Berlin.", id="d2"),
    Document("Tests take nine minutes on the Hydra cluster.", id="d3"),
    HYDRA,
    Document("Lunch is at noon.", id="d5"),
    Document("Holidays are asked for by mail.", id="d6"),
]
NEW = Document("Zeppelins need a licence.", id="d7", metadata={"title": "Zeppelins"})


class Words(Embeddings):
    """One dimension for each of a few words, and a little of all others."""

    words = ("hydra", "cluster", "tests", "owned", "owns", "zeppelins", "office", "lunch")

    def embed_query(self, text):
        """Count words."""
        known = text.lower().replace(".", " ").replace("?", " ").split()
        return [0.1 + known.count(word) for word in self.words]

    def embed_documents(self, texts):
        """Count words."""
        return [self.embed_query(text) for text in texts]


def chroma(folder):
    """An empty Chroma store on disk."""
    return Chroma("theirs", Words(), client=chromadb.PersistentClient(path=str(folder / "theirs")))


def in_memory(_folder):
    """An empty in-memory store."""
    return InMemoryVectorStore(Words())


def faiss(_folder):
    """An empty FAISS store."""
    library = pytest.importorskip("faiss")
    stores = pytest.importorskip("langchain_community.vectorstores")
    docstores = pytest.importorskip("langchain_community.docstore.in_memory")
    index = library.IndexFlatL2(len(Words.words))
    return stores.FAISS(Words(), index, docstores.InMemoryDocstore(), {})


@pytest.fixture(params=[chroma, in_memory, faiss])
def theirs(request, tmp_path):
    """A store of each kind with six documents."""
    store = request.param(tmp_path)
    store.add_documents(DOCUMENTS, ids=[document.id for document in DOCUMENTS])
    return store


@pytest.fixture
def retriever(theirs, tmp_path):
    """A retriever over it, with its graph on disk."""
    made = CrabPathRetriever.from_vectorstore(theirs, path=tmp_path / "g", k=6)
    yield made
    made.memory.close()


def ids(retriever, query=QUESTION, **options):
    """Ids of what comes."""
    return [document.id for document in retriever.invoke(query, **options)]


def texts(store):
    """All texts of a store, by id."""
    return {one.id: one.page_content for one in VectorStoreIndex(store).documents()}


def forbid_writes(store, patched):
    """Make every way to write to a store fail."""

    def refuse(*args, **kwargs):
        pytest.fail("the wrapped store was written to")

    for name in ("add_documents", "add_texts", "delete"):
        patched.setattr(type(store), name, refuse)


class Blind(InMemoryVectorStore):
    """A store that cannot look up ids."""

    def get_by_ids(self, ids, /):
        """Not offered."""
        raise NotImplementedError


class Unlisted(VectorStore):
    """A store that cannot list its documents and does not tell its embedder, as most."""

    def __init__(self, inner):
        """Search ``inner``."""
        self.inner = inner

    def similarity_search_by_vector(self, embedding, k=4, **kwargs):
        """As the inner store."""
        return self.inner.similarity_search_by_vector(embedding, k, **kwargs)

    def get_by_ids(self, ids, /):
        """As the inner store."""
        return self.inner.get_by_ids(ids)

    def similarity_search(self, query, k=4, **kwargs):
        """Not offered."""
        raise NotImplementedError

    @classmethod
    def from_texts(cls, texts, embedding, metadatas=None, **kwargs):
        """Not offered."""
        raise NotImplementedError


class Sightless(Unlisted):
    """One that cannot search by vector either."""

    similarity_search_by_vector = VectorStore.similarity_search_by_vector


class TestGone:
    """What the store no longer holds is never returned."""

    @pytest.mark.parametrize(
        "asked",
        [
            {},
            {"query": "Hydra cluster"},  # by name and words
            {"query": "Tests take nine minutes on the Hydra cluster."},  # by an edge from d3
            {"seed_ids": ["d4"]},
            {"one_per_document": True},
            {"explore": 7},
            {"fill": False},
        ],
    )
    def test_deleted_documents_vanish_at_once(self, theirs, retriever, asked):
        """However they would be found; others fill the answer."""
        assert "d4" in ids(retriever, **asked)
        before = len(ids(retriever, k=5, **asked))
        theirs.delete(["d4"])
        found = ids(retriever, k=5, **asked)
        assert "d4" not in found
        assert asked.get("fill") is False or len(found) == before == 5

    def test_also_what_alone_is_asked_for(self, theirs, retriever):
        """With ``among``."""
        theirs.delete(["d4"])
        answer = retriever.memory.retrieve(QUESTION, candidate_ids=["d3", "d4"])
        assert [item.node.id for item in answer.documents] == ["d3"]

    def test_also_what_was_learned(self, theirs, retriever):
        """An episode that remembers the document does not bring it back."""
        turn = retriever.invoke(QUESTION)[0].metadata["crabpath"]["turn_id"]
        retriever.record(turn, 1.0, used=["d4"])
        theirs.delete(["d4"])
        assert "d4" not in ids(retriever)

    async def test_async(self, theirs, retriever):
        """As well."""
        theirs.delete(["d4"])
        assert "d4" not in [d.id for d in await retriever.ainvoke(QUESTION)]

    def test_other_searches(self, theirs, retriever):
        """Searches along typed edges, too."""
        memory = retriever.memory
        memory.graph.add_edge("d3", "d4", "caused_success", 1.0)
        boost = {"caused_success": 0.5}
        assert "d4" in [hit.node.id for hit in memory.graph.search("Tests", 6, boost)]
        theirs.delete(["d4"])
        for found in (
            memory.graph.search("Tests", 6, boost),
            memory.graph.bayesian_search("Hydra", 6),
            memory.graph.causal_search("Hydra", 6),
        ):
            assert found
            assert "d4" not in [hit.node.id for hit in found]

    def test_notes_stay(self, theirs, retriever):
        """They never stood in the store."""
        retriever.memory.teach("The Hydra cluster is owned by Petra Schmidt.", id="petra")
        theirs.delete(["d4"])
        found = ids(retriever)
        assert "petra" in found
        assert "d4" not in found

    def test_one_look_up_where_nothing_is_gone(self, theirs, retriever, monkeypatch):
        """Of the k documents of the answer, whatever the store holds."""
        asked = []
        held = type(retriever.memory.index).find_existing
        monkeypatch.setattr(
            type(retriever.memory.index),
            "find_existing",
            lambda index, ids: asked.append(len(ids)) or held(index, ids),
        )
        assert len(ids(retriever, k=3)) == 3
        assert asked == [3]

    def test_documents_without_metadata_are_looked_up(self, tmp_path):
        """langchain-chroma's own look-up fails on them."""
        store = chroma(tmp_path)
        bare = [Document(document.page_content, id=document.id) for document in DOCUMENTS]
        store.add_documents(bare)
        retriever = CrabPathRetriever.from_vectorstore(store, k=6)
        with closing(retriever.memory):
            store.delete(["d4"])
            assert sorted(ids(retriever)) == ["d1", "d2", "d3", "d5", "d6"]

    def test_a_store_that_cannot_look_up_says_so(self, caplog):
        """When it is wrapped, once; there refresh() takes away what is gone."""
        store = Blind(Words())
        store.add_documents(DOCUMENTS)
        retriever = CrabPathRetriever.from_vectorstore(store, k=6)
        with closing(retriever.memory):
            (told,) = [r.message for r in caplog.records if "cannot look up" in r.message]
            assert "what is deleted from it is still returned until you call refresh()" in told
            store.delete(["d4"])
            assert "d4" in ids(retriever)
            assert retriever.refresh().removed == 1
            assert "d4" not in ids(retriever)

    def test_an_empty_store_is_never_a_silent_empty_answer(self, tmp_path, caplog):
        """Such as an in-memory store in another process; ``reindex`` fills it."""
        place = tmp_path / "m"
        with CrabPath.open(place, embeddings=Words(), vectors=in_memory(None)) as memory:
            memory.add_documents(DOCUMENTS, progress=None)
        with CrabPath.open(place, embeddings=Words(), vectors=in_memory(None)) as memory:
            assert not memory.retrieve("Hydra cluster").documents
            assert "refresh() to follow it, or reindex() to fill it" in caplog.messages[-1]
            memory.maintenance.reindex()
            assert len(memory.retrieve("Hydra cluster", k=6).documents) == 6

    def test_a_store_that_fails_is_an_error(self, retriever, monkeypatch):
        """A look-up that fails never lets a deleted document through."""
        index = retriever.memory.index

        def fail(_ids):
            msg = "gone away"
            raise OSError(msg)

        monkeypatch.setattr(index, "_look_up", fail)
        with pytest.raises(StoreError, match="failed: gone away"):
            retriever.invoke(QUESTION)


class TestRefresh:
    """What changed in the store is taken over."""

    def test_new_changed_and_gone(self, theirs, retriever):
        """The report counts them; a second call finds nothing."""
        theirs.delete(["d4", "d5"])
        changed = Document("Lunch is at one.", id="d5")
        theirs.add_documents([NEW, changed], ids=["d7", "d5"])
        report = retriever.refresh()
        numbers = (report.added, report.updated, report.removed, report.unchanged)
        assert numbers == (1, 1, 1, 4)
        assert ids(retriever, "Zeppelins", k=1) == ["d7"]
        (lunch,) = retriever.memory.store.catalog.documents(["d5"]).values()
        assert lunch.content == "Lunch is at one."
        assert not retriever.memory.store.catalog.documents(["d4"])
        again = retriever.refresh()
        assert (again.added, again.updated, again.removed, again.unchanged) == (0, 0, 0, 6)

    async def test_async(self, theirs, retriever):
        """Off the event loop, on retriever and memory."""
        theirs.add_documents([NEW], ids=["d7"])
        assert (await retriever.arefresh()).added == 1
        assert (await retriever.memory.aio.refresh()).unchanged == 7

    def test_what_was_learned_stays(self, theirs, retriever):
        """Of documents that are still there."""
        turn = retriever.invoke(QUESTION)[0].metadata["crabpath"]["turn_id"]
        retriever.record(turn, 1.0, used=["d4"])
        learned = retriever.memory.info()["learned_weights"]
        theirs.add_documents([NEW], ids=["d7"])
        retriever.refresh()
        assert learned
        assert retriever.memory.info()["learned_weights"] == learned

    def test_new_documents_are_pointed_out_once(self, theirs, retriever, caplog):
        """Until the memory knows them; then the next ones are."""
        theirs.add_documents([NEW], ids=["d7"])
        for _ in range(3):
            found = ids(retriever, "Zeppelins", k=6)
            assert "d7" not in found

        def told():
            return [r.message for r in caplog.records if "does not know" in r.message]

        assert len(told()) == 1
        assert "such as 'd7': call refresh()" in told()[0]
        retriever.refresh()
        assert ids(retriever, "Zeppelins", k=1) == ["d7"]
        assert len(told()) == 1
        theirs.add_documents([Document("Hydra cluster two.", id="d8")], ids=["d8"])
        ids(retriever)
        assert len(told()) == 2

    def test_with_documents(self, theirs, retriever):
        """Those that are given are taken over; the others stay as long as the store holds them."""
        theirs.add_documents([NEW], ids=["d7"])
        theirs.delete(["d5"])
        report = retriever.refresh(documents=[NEW])
        assert (report.added, report.updated, report.removed) == (1, 0, 1)
        assert retriever.memory.info()["nodes"] == 6

    def test_documents_without_ids_are_refused(self, retriever):
        """Nothing is changed."""
        with pytest.raises(ConfigurationError, match=r"set Document\.id"):
            retriever.refresh([Document("Nobody.")])
        assert retriever.memory.info()["nodes"] == 6

    def test_a_text_that_became_blank_goes(self, tmp_path):
        """The store holds the record, but nothing can be read off it any more."""
        store = chroma(tmp_path)
        store.add_documents(DOCUMENTS)
        retriever = CrabPathRetriever.from_vectorstore(store)
        with closing(retriever.memory):
            store._collection.update(ids=["d4"], documents=[" "], embeddings=[[1.0] * 8])
            assert retriever.refresh().removed == 1

    def test_parts_of_a_split_document_go_with_it(self, tmp_path):
        """Maintenance has put them into the store: they are no documents of its owner."""
        store = in_memory(None)
        manual = (
            "# Hydra\n\n"
            + "Hydra is a cluster. " * 40
            + "\n\n# Lunch\n\n"
            + "Lunch is at noon. " * 40
        )
        store.add_documents([*DOCUMENTS, Document(manual, id="manual")])
        rules = MaintenanceSettings(split_above_chars=600, split_part_chars=400)
        settings = Settings().replace(maintenance=rules)
        retriever = CrabPathRetriever.from_vectorstore(store, settings=settings, k=9)
        with closing(retriever.memory) as memory:
            memory.maintenance.run(["split"])
            assert len(store.store) > 7
            report = retriever.refresh()
            assert (report.added, report.removed, report.unchanged) == (0, 0, 7)
            store.delete(["manual"])
            assert retriever.refresh().removed == 1
            assert sorted(store.store) == ["d1", "d2", "d3", "d4", "d5", "d6"]
            assert sorted(ids(retriever)) == ["d1", "d2", "d3", "d4", "d5", "d6"]

    def test_a_kill_leaves_nothing_to_write_into_the_store(self, theirs, tmp_path, monkeypatch):
        """Wherever it strikes while documents are taken over; the next wrapping goes on."""
        apply, left = GraphStore.apply, 0

        def die(store, changes):
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            apply(store, changes)

        before = texts(theirs)
        for stop in range(8):
            left = stop
            with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
                patched.setattr(GraphStore, "apply", die)
                forbid_writes(theirs, patched)
                CrabPathRetriever.from_vectorstore(theirs, path=tmp_path / "k").memory.close()
        with monkeypatch.context() as patched:
            forbid_writes(theirs, patched)
            retriever = CrabPathRetriever.from_vectorstore(theirs, path=tmp_path / "k", k=9)
        with closing(retriever.memory):
            assert sorted(ids(retriever)) == ["d1", "d2", "d3", "d4", "d5", "d6"]
        assert texts(theirs) == before

    def test_only_wrapped_memories_are_refreshed(self, tmp_path):
        """Others have nothing to be refreshed from."""
        with (
            CrabPath.open(tmp_path / "own", embeddings=Words()) as memory,
            pytest.raises(ConfigurationError, match="wraps no vector store"),
        ):
            memory.refresh()

    def test_a_store_that_cannot_list_asks_for_documents(self, tmp_path):
        """The message names the call."""
        store = in_memory(tmp_path)
        store.add_documents(DOCUMENTS)
        retriever = CrabPathRetriever.from_vectorstore(
            Unlisted(store), documents=DOCUMENTS, embeddings=Words()
        )
        with closing(retriever.memory):
            with pytest.raises(ConfigurationError, match=r"refresh\(documents=\.\.\.\)"):
                retriever.refresh()
            store.delete(["d4"])
            assert retriever.refresh(documents=[]).removed == 1


class TestOpening:
    """A memory that wraps a store is opened with it."""

    @pytest.mark.parametrize("opened", [CrabPath.open, CrabPathRetriever.from_existing])
    def test_by_path_alone_is_refused(self, retriever, tmp_path, opened):
        """One sentence names the call; nothing is made beside the graph."""
        retriever.memory.close()
        name = retriever.memory.index.description
        with pytest.raises(ConfigurationError) as refused:
            opened(tmp_path / "g", embeddings=Words())
        place = str(tmp_path / "g")
        assert str(refused.value) == (
            f"{place} wraps a {name}: "
            f"open it with CrabPathRetriever.from_vectorstore(store, path={place!r})"
        )
        assert not (tmp_path / "g" / "vectors").exists()

    def test_with_the_store_it_opens(self, theirs, retriever, tmp_path):
        """By the call that is named, and by ``vectors=``; what was learned is there."""
        turn = retriever.invoke(QUESTION)[0].metadata["crabpath"]["turn_id"]
        retriever.memory.close()
        again = CrabPathRetriever.from_vectorstore(theirs, path=tmp_path / "g", k=6)
        with closing(again.memory):
            assert again.memory.explain(turn).turn.id == turn
            assert "d4" in ids(again)
        by_vectors = CrabPathRetriever.from_existing(tmp_path / "g", Words(), vectors=theirs)
        with closing(by_vectors.memory):
            assert len(ids(by_vectors)) == 4
            assert by_vectors.refresh().unchanged == 6

    def test_a_store_given_as_vectors_counts(self, tmp_path):
        """Its memory is refused by path alone, too."""
        store = in_memory(tmp_path)
        with CrabPath.open(tmp_path / "g", embeddings=Words(), vectors=store) as memory:
            memory.add_documents(DOCUMENTS, progress=None)
        with pytest.raises(ConfigurationError, match="wraps a LangChain InMemoryVectorStore"):
            CrabPath.open(tmp_path / "g", embeddings=Words())

    def test_on_postgresql(self, postgres_url, tmp_path):
        """The message hides the password."""
        store = in_memory(tmp_path)
        store.add_documents(DOCUMENTS)
        CrabPathRetriever.from_vectorstore(store, path=postgres_url).memory.close()
        with pytest.raises(ConfigurationError, match="wraps a LangChain InMemoryVectorStore"):
            CrabPath.open(postgres_url, embeddings=Words())

    def test_a_memory_of_its_own_is_not_wrapped_over(self, theirs, tmp_path):
        """Its documents stay."""
        with CrabPath.open(tmp_path / "own", embeddings=Words()) as memory:
            memory.add_documents([NEW], progress=None)
        with pytest.raises(ConfigurationError, match="with documents and vectors of its own"):
            CrabPathRetriever.from_vectorstore(theirs, path=tmp_path / "own")
        with CrabPath.open(tmp_path / "own", embeddings=Words()) as memory:
            assert [d.node.id for d in memory.retrieve("Zeppelins", k=9).documents] == ["d7"]

    def test_a_store_with_nothing_of_the_memory_is_refused(self, retriever, tmp_path):
        """Such as a collection by a wrong name, which Chroma makes; all that was read stays."""
        retriever.memory.close()
        with pytest.raises(ConfigurationError, match="holds none of the 6 documents"):
            CrabPathRetriever.from_vectorstore(in_memory(None), path=tmp_path / "g")
        with closing(GraphStore(tmp_path / "g")) as store:
            assert store.catalog.statistics()["nodes"] == 6

    def test_vectors_can_be_moved_out_of_it(self, theirs, retriever, tmp_path):
        """After that the memory opens by its path; the store is left alone."""
        retriever.memory.close()
        with CrabPath.open(
            tmp_path / "g", embeddings=Words(), vectors=tmp_path / "g" / "vectors"
        ) as memory:
            assert memory.maintenance.reindex() == 6
        own = CrabPathRetriever.from_existing(tmp_path / "g", Words(), k=6)
        with closing(own.memory):
            theirs.delete(["d4"])
            assert "d4" in ids(own)

    def test_a_copy_has_vectors_of_its_own(self, retriever, tmp_path):
        """An archive and a migration do not carry over whose the vectors were."""
        retriever.memory.transfer.export(tmp_path / "all.crabpath")
        retriever.memory.close()
        with CrabPath.open(tmp_path / "copy", embeddings=Words()) as copy:
            copy.transfer.import_archive(tmp_path / "all.crabpath")
        migrate(tmp_path / "g", tmp_path / "other")
        for place in ("copy", "other"):
            own = CrabPathRetriever.from_existing(tmp_path / place, Words(), k=6)
            with closing(own.memory):
                assert "d4" in ids(own)


class TestWrapping:
    """What keeps a store from being wrapped is said before anything is made."""

    def test_all_needs_in_one_message(self, tmp_path):
        """Embedder, listing and search; no directory is left."""
        with pytest.raises(ConfigurationError) as refused:
            CrabPathRetriever.from_vectorstore(Sightless(None), path=tmp_path / "g")
        assert str(refused.value) == (
            "LangChain Sightless cannot be wrapped like this: it does not tell its embedder (pass "
            "embeddings=); it cannot list its documents (pass them with their ids as documents=); "
            "it cannot search by vector (similarity_search_by_vector is not implemented)"
        )
        assert not (tmp_path / "g").exists()

    def test_a_search_is_tried(self, tmp_path):
        """A method that is there but does nothing is found, and so are hits without ids."""

        class Late(Unlisted):
            def similarity_search_by_vector(self, embedding, k=4, **kwargs):
                raise NotImplementedError

        class Nameless(Unlisted):
            def similarity_search_by_vector(self, embedding, k=4, **kwargs):
                return [Document("Nobody.")]

        given = {"documents": [Document("Nobody.")], "embeddings": Words()}
        with pytest.raises(ConfigurationError, match=r"need their ids.*cannot search by vector"):
            CrabPathRetriever.from_vectorstore(Late(None), **given)
        with pytest.raises(ConfigurationError, match="returns documents without ids"):
            CrabPathRetriever.from_vectorstore(Nameless(None), **given)

    def test_another_embedder_is_found_at_once(self, theirs, tmp_path):
        """The dimension of the store is not that of the embedder."""
        other = DeterministicFakeEmbedding(size=3)
        with pytest.raises(EmbeddingMismatchError, match="pass the embedder"):
            CrabPathRetriever.from_vectorstore(theirs, embeddings=other, path=tmp_path / "g")
        assert not (tmp_path / "g").exists()

    def test_the_retriever_of_a_store_will_do(self, tmp_path):
        """Its k and filter are kept unless others are given."""
        store = chroma(tmp_path)
        store.add_documents([*DOCUMENTS, Document("Hydra.", id="h", metadata={"team": "a"})])
        theirs = store.as_retriever(search_kwargs={"k": 3, "filter": {"team": "a"}})
        retriever = CrabPathRetriever.from_vectorstore(theirs)
        with closing(retriever.memory):
            assert retriever.k == 3
            assert ids(retriever) == ["h"]
        other = CrabPathRetriever.from_vectorstore(theirs, k=2, filter=None)
        with closing(other.memory):
            assert len(ids(other)) == 2

    @pytest.mark.parametrize("given", [None, "chroma", object(), InMemoryVectorStore])
    def test_what_is_no_store_is_refused(self, given):
        """One sentence says what is needed."""
        with pytest.raises(InvalidInputError, match="wraps a LangChain VectorStore, not a"):
            CrabPathRetriever.from_vectorstore(given)

    def test_wrapping_warns_of_nothing_where_all_is_well(self, retriever, caplog):
        """Neither does asking."""
        ids(retriever)
        assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


class TestCommands:
    """The shell needs the graph store alone."""

    @pytest.fixture
    def cli(self, retriever, tmp_path):
        """Runs a command on the memory, beside the process that has it; nothing is made."""
        retriever.invoke(QUESTION)

        def run(*arguments):
            before = {path.name for path in (tmp_path / "g").iterdir()}
            found = CliRunner().invoke(app, [*arguments, "-s", str(tmp_path / "g")])
            assert {path.name for path in (tmp_path / "g").iterdir()} <= before
            return found

        return run

    def test_info(self, cli, retriever):
        """Says where the vectors are."""
        found = json.loads(cli("info", "--json").stdout)
        assert found["nodes"] == 6
        assert found["vectors"] == f"{retriever.memory.index.description}, wrapped"

    def test_explain_health_and_feedback(self, cli, retriever):
        """Work as on any memory."""
        turn = retriever.invoke(QUESTION)[0].metadata["crabpath"]["turn_id"]
        told = json.loads(cli("explain", turn, "--json").stdout)
        assert told["turn"]["query"] == QUESTION
        assert cli("health").exit_code == 0
        assert cli("feedback", turn, "--outcome", "1").exit_code == 0

    def test_query_says_how_it_is_opened(self, cli):
        """It cannot search the store."""
        found = cli("query", "Hydra")
        assert found.exit_code == 1
        assert "from_vectorstore(store,path=" in "".join(found.stderr.split())

    def test_doctor(self, cli, tmp_path):
        """It is not broken; the vectors were not checked."""
        found = cli("doctor", "--json")
        assert found.exit_code == 0
        (vectors,) = [
            one for one in json.loads(found.stdout)["findings"] if one["check"] == "vectors"
        ]
        assert vectors["severity"] == "info"
        assert "were not checked" in vectors["message"]
        assert not examine(tmp_path / "g", embeddings=Words()).broken


def test_info_and_explain_beside_the_process_that_has_the_vectors(tmp_path):
    """Of an embedded memory, which no other process may open."""
    with CrabPath.open(tmp_path / "own", embeddings=Words()) as memory:
        memory.add_documents(DOCUMENTS, progress=None)
        turn = memory.retrieve(QUESTION).turn.id
    place, vectors = str(tmp_path / "own"), tmp_path / "own" / "vectors"
    with FileLock(vectors / "crabpath.lock", is_singleton=False):
        query = CliRunner().invoke(app, ["query", "Hydra", "-s", place])
        assert "in use by another process" in query.stderr.replace("\n", " ")
        explained = CliRunner().invoke(app, ["explain", turn, "--json", "-s", place])
        assert json.loads(explained.stdout)["turn"]["id"] == turn
        told = json.loads(CliRunner().invoke(app, ["info", "--json", "-s", place]).stdout)
    assert told["nodes"] == 6
    assert told["vectors"] == f"Chroma in {vectors.resolve()}"
