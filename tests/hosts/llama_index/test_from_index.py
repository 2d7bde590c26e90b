"""What a VectorStoreIndex holds, taken over: same ids, same vectors, nothing embedded anew."""

import chromadb
import pytest
from host_answers import ids
from llama_index.core import StorageContext, SummaryIndex, VectorStoreIndex
from llama_index.core.bridge.pydantic import Field
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.simple import SimpleVectorStore
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from crabpath_retrievers import ConfigurationError, EmbeddingMismatchError, InvalidInputError
from llama_index.retrievers.crabpath import CrabPathRetriever

OWN = TextNode(id_="own", text="Ed Wood was an American filmmaker.")


COLLECTION = chromadb.EphemeralClient().get_or_create_collection("theirs")


class ChromaStore(BasePydanticVectorStore):
    """Texts and vectors in a collection of Chroma, as LlamaIndex's own integration keeps them."""

    stores_text: bool = True
    lists: bool = True
    shown: bool = True
    held: dict = Field(default_factory=dict)

    @property
    def client(self):
        """The collection; None, as of stores that nobody knows, unless it is shown."""
        return COLLECTION if self.shown else None

    def add(self, nodes, **_kwargs):
        plain = [node.model_copy(update={"embedding": None}) for node in nodes]
        self.held.update({node.node_id: node for node in plain})
        COLLECTION.upsert([*self.held], [node.embedding for node in nodes])
        return [*self.held]

    def get_nodes(self, node_ids=None, filters=None):
        if not self.lists:
            raise NotImplementedError
        return list(self.held.values())

    def query(self, *_args, **_kwargs):
        """Never."""

    delete = query


def index_in(store, nodes, embed_model):
    context = StorageContext.from_defaults(vector_store=store)
    return VectorStoreIndex(nodes, embed_model=embed_model, storage_context=context)


def test_takes_over_ids_and_vectors(index, embed_model, question, closing):
    """Only the sentence that tells embedders apart is embedded; hashes are those of the index."""
    embed_model.asked.clear()
    made = closing(CrabPathRetriever.from_index(index, similarity_top_k=10))
    assert len(embed_model.asked) == 1
    nodes = {n.node_id: n for n in made.retrieve(question)}
    dense = {n.node_id: n for n in index.as_retriever(similarity_top_k=10).retrieve(question)}
    assert {name: node.node.hash for name, node in nodes.items()} == {
        name: node.node.hash for name, node in dense.items()
    }
    for name, node in nodes.items():
        near = node.metadata["crabpath"]["features"].get("similarity", 0)
        apart = made.memory.store.stretch * (1 - dense[name].score)
        assert near == pytest.approx(1 - apart, abs=2e-3)


def test_taking_over_again_follows_the_index(index, embed_model, question, tmp_path):
    """What is there costs nothing, a new node comes, a deleted one goes, and what else is stays.

    With cleanup="full" only what the index holds is left.
    """
    first = CrabPathRetriever.from_index(index, path=tmp_path)
    first.add_nodes([OWN])
    first.memory.close()
    index.insert_nodes([TextNode(id_="new", text="Ed Wood was an American filmmaker.")])
    index.delete_nodes(["node-h0"], delete_from_docstore=True)
    embed_model.asked.clear()
    for cleanup, count in ((None, 11), ("incremental", 11), ("full", 10)):
        made = CrabPathRetriever.from_index(
            index, path=tmp_path, cleanup=cleanup, similarity_top_k=20
        )
        assert made.memory.info()["nodes"] == count
        assert "node-h0" not in ids(made.retrieve(question))
        made.memory.close()
        embed_model.asked.remove(question)
    assert len(embed_model.asked) == 3


def test_another_index_at_the_same_path_is_refused(index, embed_model, tmp_path, closing):
    """Unless it is to replace what came from the former one."""
    CrabPathRetriever.from_index(index, path=tmp_path).memory.close()
    for nodes in ([OWN], []):
        other = VectorStoreIndex(nodes, embed_model=embed_model)
        with pytest.raises(ConfigurationError, match=r"holds none of the 10 nodes .* another path"):
            CrabPathRetriever.from_index(other, path=tmp_path)
    other = VectorStoreIndex([OWN], embed_model=embed_model)
    made = closing(CrabPathRetriever.from_index(other, path=tmp_path, cleanup="full"))
    assert made.memory.info()["nodes"] == 1


@pytest.mark.parametrize("from_docstore", [True, False])
async def test_what_the_index_no_longer_holds(index, question, from_docstore, closing):
    """It is not returned from then on; a refresh takes over what is new and gone, and counts.

    What the memory holds from elsewhere stays.
    """
    made = closing(CrabPathRetriever.from_index(index, similarity_top_k=11))
    made.add_nodes([OWN])
    assert len(made.retrieve(question)) == 11
    index.delete_nodes(["node-h0"], delete_from_docstore=from_docstore)
    found = ids(made.retrieve(question))
    assert len(found) == 10
    assert ("node-h0" in found, "own" in found) == (False, True)
    assert "node-h0" not in ids(made.for_namespace("ann").retrieve(question))
    index.insert_nodes([TextNode(id_="new", text="Zeppelins need a licence.")])
    report = made.refresh()
    assert (report.added, report.removed, report.unchanged) == (1, 1, 9)
    assert "new" in ids(made.retrieve("Zeppelins"))
    assert [document.id for document in made.memory.get_by_ids(["node-h0", "own"])] == ["own"]
    again = await made.arefresh()
    assert (again.added, again.removed, again.unchanged) == (0, 0, 10)


@pytest.mark.parametrize("shown", [True, False])
def test_reads_a_vector_store_that_holds_texts(documents, embed_model, question, closing, shown):
    """Vectors of Chroma are used as they are; those of others are made again."""
    nodes = [TextNode(id_=document.id_, text=document.text) for document in documents]
    index = index_in(ChromaStore(shown=shown), nodes, embed_model)
    assert not index.docstore.docs
    embed_model.asked.clear()
    made = closing(CrabPathRetriever.from_index(index, similarity_top_k=10))
    assert len(embed_model.asked) == (1 if shown else 11)
    assert set(ids(made.retrieve(question))) == {document.id_ for document in documents}


def test_an_empty_index_is_filled_later(embed_model, caplog, closing):
    index = VectorStoreIndex([], embed_model=embed_model)
    made = closing(CrabPathRetriever.from_index(index))
    assert caplog.messages == ["the index holds no nodes: insert some, then call refresh()"]
    index.insert_nodes([OWN])
    assert made.refresh().added == 1
    assert ids(made.retrieve("Ed Wood")) == ["own"]


def test_what_cannot_be_taken_over_is_refused(documents, embed_model, shared):
    with pytest.raises(InvalidInputError, match="not SummaryIndex: pass its nodes"):
        CrabPathRetriever.from_index(SummaryIndex(documents))
    index = VectorStoreIndex.from_vector_store(ChromaStore(lists=False), embed_model=embed_model)
    with pytest.raises(ConfigurationError, match="ChromaStore cannot list its nodes: pass them"):
        CrabPathRetriever.from_index(index)
    node = TextNode(id_="a", text="Apples are red.", embedding=[1.0, 0.0, 0.0])
    with pytest.raises(EmbeddingMismatchError, match="has 3 dimensions, the memory 384"):
        CrabPathRetriever.from_index(index_in(SimpleVectorStore(), [node], embed_model))
    with pytest.raises(ConfigurationError, match=r"call CrabPathRetriever\.from_index"):
        shared.refresh()
