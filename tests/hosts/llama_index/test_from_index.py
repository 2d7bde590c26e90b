"""What a VectorStoreIndex holds, taken over: same ids, same vectors, nothing embedded anew."""

import chromadb
import pytest
from llama_index.core import StorageContext, SummaryIndex, VectorStoreIndex
from llama_index.core.bridge.pydantic import Field
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQueryResult

from crabpath_retrievers import ConfigurationError, EmbeddingMismatchError, InvalidInputError
from llama_index.retrievers.crabpath import CrabPathRetriever


class Listing(BasePydanticVectorStore):
    """A vector store that holds texts, and lists them if it is told to."""

    stores_text: bool = True
    lists: bool = True
    held: dict = Field(default_factory=dict)

    @property
    def client(self):
        """Nothing that anybody knows."""
        return None

    def add(self, nodes, **_kwargs):
        """Hold nodes."""
        self.held.update({node.node_id: node.model_copy() for node in nodes})
        return [node.node_id for node in nodes]

    def get_nodes(self, node_ids=None, filters=None):
        """All of them."""
        if not self.lists:
            raise NotImplementedError
        return list(self.held.values())

    def delete(self, ref_doc_id, **_kwargs):
        """Never."""

    def query(self, query, **_kwargs):
        """Never."""
        return VectorStoreQueryResult()


def ids(nodes):
    """Ids in order."""
    return [item.node.node_id for item in nodes]


def test_takes_over_ids_and_vectors(index, embed_model, documents, question):
    """Only the sentence that tells embedders apart is embedded."""
    embed_model.asked.clear()
    made = CrabPathRetriever.from_index(index, similarity_top_k=10)
    assert len(embed_model.asked) == 1
    nodes = made.retrieve(question)
    assert set(ids(nodes)) == {f"node-{document.id_}" for document in documents}
    dense = {n.node_id: n.score for n in index.as_retriever(similarity_top_k=10).retrieve(question)}
    near = {n.node_id: n.metadata["crabpath"]["features"].get("similarity", 0) for n in nodes}
    assert near == pytest.approx(dense, abs=2e-3)
    made.memory.close()


def test_taking_over_again_follows_the_index(index, embed_model, tmp_path):
    """What is there already costs nothing; a new node comes."""
    CrabPathRetriever.from_index(index, path=tmp_path / "m").memory.close()
    index.insert_nodes([TextNode(id_="new", text="Ed Wood was an American filmmaker.")])
    embed_model.asked.clear()
    made = CrabPathRetriever.from_index(index, path=tmp_path / "m", similarity_top_k=11)
    assert len(embed_model.asked) == 1
    assert "new" in ids(made.retrieve("Ed Wood"))
    assert made.memory.info()["nodes"] == 11
    made.memory.close()


def test_what_the_index_no_longer_holds_goes_if_wanted(index, tmp_path):
    """With cleanup="full"; without it stays, since a memory may hold more than an index."""
    CrabPathRetriever.from_index(index, path=tmp_path / "m").memory.close()
    index.delete_nodes(["node-h0"], delete_from_docstore=True)
    held = []
    for cleanup in ("incremental", "full"):
        made = CrabPathRetriever.from_index(index, path=tmp_path / "m", cleanup=cleanup)
        held.append(made.memory.info()["nodes"])
        made.memory.close()
    assert held == [10, 9]


@pytest.mark.parametrize("from_docstore", [True, False])
def test_what_the_index_no_longer_holds_is_not_returned(index, question, from_docstore):
    """At once, also by words; what the memory holds from elsewhere stays."""
    made = CrabPathRetriever.from_index(index, similarity_top_k=11)
    made.add_nodes([TextNode(id_="own", text="Ed Wood was an American filmmaker.")])
    assert len(ids(made.retrieve(question))) == 11
    index.delete_nodes(["node-h0"], delete_from_docstore=from_docstore)
    found = ids(made.retrieve(question))
    assert "node-h0" not in found
    assert len(found) == 10
    assert "own" in found
    assert "node-h0" not in ids(made.for_namespace("ann").retrieve(question))
    made.memory.close()


async def test_refresh_takes_over_what_is_new_and_gone(index, question):
    """Without opening the memory again; the report counts."""
    made = CrabPathRetriever.from_index(index, similarity_top_k=11)
    made.add_nodes([TextNode(id_="own", text="Ed Wood was an American filmmaker.")])
    index.insert_nodes([TextNode(id_="new", text="Zeppelins need a licence.")])
    index.delete_nodes(["node-h0"])
    report = made.refresh()
    assert (report.added, report.removed, report.unchanged) == (1, 1, 9)
    assert "new" in ids(made.retrieve("Zeppelins"))
    assert not made.memory.store.catalog.documents(["node-h0"])
    assert made.memory.store.catalog.documents(["own"])
    again = await made.arefresh()
    assert (again.added, again.removed, again.unchanged) == (0, 0, 10)
    made.memory.close()


def test_only_retrievers_from_an_index_are_refreshed(documents, embed_model):
    """Others have none."""
    made = CrabPathRetriever.from_documents(documents, embed_model)
    with pytest.raises(ConfigurationError, match=r"call CrabPathRetriever\.from_index"):
        made.refresh()
    made.memory.close()


def test_another_index_is_refused(documents):
    """The message says how its nodes are taken over."""
    with pytest.raises(InvalidInputError, match="not SummaryIndex: pass its nodes"):
        CrabPathRetriever.from_index(SummaryIndex(documents))


def test_nodes_of_an_index_are_found_by_fusion_as_its_own(index, question):
    """They have the same hash as the index's nodes, so that LlamaIndex joins them."""
    made = CrabPathRetriever.from_index(index)
    own = {
        n.node_id: n.node.hash for n in index.as_retriever(similarity_top_k=10).retrieve(question)
    }
    nodes = made.retrieve(question)
    assert {n.node_id: n.node.hash for n in nodes}.items() <= own.items()
    made.memory.close()


def test_reads_a_vector_store_that_holds_texts(documents, embed_model, question):
    """Where there is no document store, the vector store is asked."""
    nodes = [TextNode(id_=document.id_, text=document.text) for document in documents]
    context = StorageContext.from_defaults(vector_store=Listing())
    held = VectorStoreIndex(nodes, embed_model=embed_model, storage_context=context)
    assert not held.docstore.docs
    embed_model.asked.clear()
    made = CrabPathRetriever.from_index(held)
    assert len(embed_model.asked) == 1
    assert len(ids(made.retrieve(question))) == 4
    made.memory.close()


def test_reads_chroma(documents, embed_model, question, tmp_path):
    """LlamaIndex's own Chroma store: nodes and vectors come out of the collection."""
    chroma = pytest.importorskip("llama_index.vector_stores.chroma")
    client = chromadb.PersistentClient(str(tmp_path / "theirs"))
    store = chroma.ChromaVectorStore(chroma_collection=client.create_collection("theirs"))
    nodes = [TextNode(id_=document.id_, text=document.text) for document in documents]
    context = StorageContext.from_defaults(vector_store=store)
    VectorStoreIndex(nodes, embed_model=embed_model, storage_context=context)
    embed_model.asked.clear()
    index = VectorStoreIndex.from_vector_store(store, embed_model=embed_model)
    made = CrabPathRetriever.from_index(index, similarity_top_k=10)
    assert len(embed_model.asked) == 1
    assert set(ids(made.retrieve(question))) == {document.id_ for document in documents}
    made.memory.close()


def test_an_index_that_cannot_be_listed_is_refused(embed_model):
    """The message says what to do."""
    store = Listing(lists=False)
    index = VectorStoreIndex.from_vector_store(store, embed_model=embed_model)
    with pytest.raises(ConfigurationError, match="Listing cannot list its nodes: pass them"):
        CrabPathRetriever.from_index(index)


def test_vectors_of_another_size_are_refused(documents, embed_model):
    """The model given is not the one that the index was built with."""
    store = SimpleVectorStore()
    context = StorageContext.from_defaults(vector_store=store)
    nodes = [TextNode(id_="a", text="Apples are red.", embedding=[1.0, 0.0, 0.0])]
    index = VectorStoreIndex(nodes, embed_model=embed_model, storage_context=context)
    with pytest.raises(EmbeddingMismatchError, match="has 3 dimensions, the memory 384"):
        CrabPathRetriever.from_index(index)
