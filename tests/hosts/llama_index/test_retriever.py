"""What the LlamaIndex retriever returns, and how it is made."""

import json
import uuid

import numpy as np
import pytest
from llama_index.core import Document, Settings, SimpleDirectoryReader
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import MetadataMode, NodeRelationship, QueryBundle, TextNode
from llama_models import CountingEmbedding

from crabpath_retrievers import NotFoundError
from llama_index.retrievers.crabpath import CrabPathRetriever, LlamaIndexEmbeddings
from llama_index.retrievers.crabpath.nodes import to_nodes


def ids(nodes):
    """Ids in order."""
    return [item.node.node_id for item in nodes]


def test_returns_what_the_memory_returns(shared, question):
    """The same documents in the same order, with the memory's probabilities as scores."""
    nodes = shared.retrieve(question)
    documents = shared.memory.retrieve(question, k=4).documents
    assert ids(nodes) == [document.node.id for document in documents]
    assert [item.score for item in nodes] == pytest.approx([d.score for d in documents])
    assert {"Scott Derrickson", "Ed Wood"} <= {item.metadata["title"] for item in nodes}


def test_nodes_tell_how_they_were_found(shared, question):
    """The turn stands in the metadata as JSON, and can be explained by it and by the span."""
    node = shared.retrieve(question)[0].node
    block = node.metadata["crabpath"]
    assert json.loads(json.dumps(block)) == block
    turn = shared.memory.explain(block["turn_id"]).turn
    assert turn.query == question
    assert turn.run_id.startswith("CrabPathRetriever._retrieve-")
    assert shared.memory.explain(turn.run_id).turn == turn


def test_no_model_reads_how_they_were_found(shared, question):
    """Neither the language model nor the embedding model gets the turn; both get the title."""
    node = shared.retrieve(question)[0].node
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        read = node.get_content(metadata_mode=mode)
        assert "turn_id" not in read
        assert f"title: {node.metadata['title']}" in read


def test_nodes_name_their_document(shared, documents, question):
    """ref_doc_id is the id that the document had."""
    given = {document.id_ for document in documents}
    assert {item.node.ref_doc_id for item in shared.retrieve(question)} <= given


def test_equal_nodes_are_equal_over_turns(shared, question):
    """LlamaIndex tells nodes apart by hash, and two turns find the same nodes."""
    first, second = shared.retrieve(question), shared.retrieve(question)
    assert [item.node.hash for item in first] == [item.node.hash for item in second]
    turns = {item.metadata["crabpath"]["turn_id"] for item in (first[0], second[0])}
    assert len(turns) == 2


def test_a_score_is_never_zero(shared, question):
    """LlamaIndex takes 0 for no score at all."""
    answer = shared.memory.retrieve(question, k=1)
    object.__setattr__(answer.documents[0].returned, "probability", 0.0)
    assert 0 < to_nodes(answer)[0].score < 1e-5


async def test_an_embedding_of_the_bundle_is_used(documents, embed_model, embeddings, question):
    """In place of the text, which is not embedded then; it need not have length 1."""
    made = CrabPathRetriever.from_documents(documents, embed_model, similarity_top_k=10)
    embed_model.asked.clear()
    vector = (7 * np.array(embeddings.embed_query("Adam Collis"))).tolist()
    bundle = QueryBundle(question, embedding=vector)
    for nodes in (made.retrieve(bundle), await made.aretrieve(bundle)):
        near = {n.metadata["title"]: n.metadata["crabpath"]["features"] for n in nodes}
        assert max(near, key=lambda title: near[title]["similarity"]) == "Adam Collis"
    assert embed_model.asked == []
    made.memory.close()


@pytest.mark.parametrize("given", [["Adam Collis"], ["Adam Collis", "Adam Collis is an actor"]])
async def test_other_texts_are_embedded_in_its_place(shared, question, embeddings, given):
    """custom_embedding_strs, as HyDE gives them: the mean of their vectors, sync and async."""
    bundle = QueryBundle(question, custom_embedding_strs=given)
    mean = np.mean([embeddings.embed_query(text) for text in given], axis=0).tolist()
    wanted = shared.retrieve(QueryBundle(question, embedding=mean))
    for nodes in (shared.retrieve(bundle), await shared.aretrieve(bundle)):
        assert ids(nodes) == ids(wanted)
        assert [n.score for n in nodes] == pytest.approx([n.score for n in wanted], abs=1e-3)


def test_the_same_documents_again_change_nothing(documents, embed_model, tmp_path):
    """Also those whose id LlamaIndex made up, at another one at every load."""

    def load():
        loose = Document(text="Nothing names this text.")
        filed = Document(text="# Deploy\nPush.", metadata={"file_path": "docs/deploy.md"})
        assert uuid.UUID(loose.id_)
        made = CrabPathRetriever.from_documents(
            [*documents, loose, filed], embed_model, path=tmp_path / "memory"
        )
        held = made.memory.info()["nodes"]
        made.memory.close()
        return held

    first = load()
    embed_model.asked.clear()
    assert load() == first
    assert len(embed_model.asked) == 1  # the sentence that tells embedders apart


@pytest.mark.parametrize("cleanup", [None, "incremental"])
def test_a_changed_document_is_updated_if_that_is_asked_for(embed_model, tmp_path, cleanup):
    """By its path, though its id is another one; else both texts stay."""

    def load(text):
        document = Document(text=text, metadata={"file_path": "deploy.txt"})
        made = CrabPathRetriever.from_documents(
            [document], embed_model, path=tmp_path / "m", cleanup=cleanup
        )
        found = {item.text for item in made.retrieve("how to deploy")}
        made.memory.close()
        return found

    old, new = "Push to main.", "Use the pipeline."
    assert load(old) == {old}
    assert load(new) == ({new} if cleanup else {old, new})


def test_a_folder_is_loaded_again(embed_model, tmp_path):
    """As LlamaIndex's own reader loads it: only the file that changed is embedded."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("Apples are red.")
    (folder / "b.txt").write_text("The sky is blue.")

    def load():
        embed_model.asked.clear()
        documents = SimpleDirectoryReader(str(folder)).load_data()
        made = CrabPathRetriever.from_documents(
            documents, embed_model, path=tmp_path / "memory", cleanup="incremental"
        )
        found = {item.text for item in made.retrieve(QueryBundle("x", embedding=[1.0] * 384))}
        made.memory.close()
        return found, len(embed_model.asked) - 1  # without the sentence that tells embedders apart

    assert load() == ({"Apples are red.", "The sky is blue."}, 2)
    assert load()[1] == 0
    (folder / "b.txt").write_text("The sky is grey.")
    assert load() == ({"Apples are red.", "The sky is grey."}, 1)


def test_metadata_comes_back_as_it_was(embed_model):
    """Keys that LlamaIndex hides stay hidden, and nothing is added but the turn."""
    document = Document(
        id_="d",
        text="Push to main.",
        metadata={"file_path": "deploy.txt", "secret": "x"},
        excluded_llm_metadata_keys=["secret"],
    )
    made = CrabPathRetriever.from_documents([document], embed_model)
    node = made.retrieve("deploy")[0].node
    assert set(node.metadata) == {"file_path", "secret", "crabpath"}
    assert node.excluded_llm_metadata_keys == ["secret", "crabpath"]
    assert node.ref_doc_id == "d"
    made.memory.close()


def test_a_node_parser_says_where_texts_are_cut(documents, embed_model):
    """The chunks are the parser's; their ids follow from the text, so that updates find them."""
    parser = SentenceSplitter(chunk_size=40, chunk_overlap=0)
    bare = [Document(text=document.text) for document in documents[:2]]
    wanted = {node.text for node in parser.get_nodes_from_documents(bare)}
    made = CrabPathRetriever.from_documents(documents[:2], embed_model, node_parser=parser)
    catalog = made.memory.store.catalog
    assert {node.content for node in catalog.documents(catalog.all_ids()).values()} == wanted
    assert len(wanted) > 2
    made.memory.close()


def test_nodes_keep_ids_relations_and_places(embed_model):
    """from_nodes: each node is a chunk under its own id, and comes back whole."""
    document = Document(id_="d", text="Apples are red. " * 30, metadata={"title": "Apples"})
    nodes = SentenceSplitter(chunk_size=40, chunk_overlap=0).get_nodes_from_documents([document])
    made = CrabPathRetriever.from_nodes(nodes, embed_model, similarity_top_k=len(nodes))
    found = {item.node_id: item.node for item in made.retrieve("apples")}
    assert set(found) == {node.node_id for node in nodes}
    for node in nodes:
        back = found[node.node_id]
        assert back.text == node.text
        assert back.ref_doc_id == "d"
        assert (back.start_char_idx, back.end_char_idx) == (node.start_char_idx, node.end_char_idx)
        assert back.relationships.keys() == node.relationships.keys()
    second = found[nodes[1].node_id]
    assert second.relationships[NodeRelationship.PREVIOUS].node_id == nodes[0].node_id
    made.memory.close()


def test_embeddings_that_nodes_carry_are_used(embed_model):
    """And the others are made."""
    carried = TextNode(
        id_="a", text="Apples are red.", embedding=embed_model._get_text_embedding("x")
    )
    embed_model.asked.clear()
    made = CrabPathRetriever.from_nodes([carried, TextNode(id_="b", text="Sky.")], embed_model)
    assert "Apples are red." not in embed_model.asked
    assert "Sky." in embed_model.asked
    found = {item.node_id: item.metadata["crabpath"] for item in made.retrieve("x")}
    assert found["a"]["features"]["similarity"] == pytest.approx(1.0, abs=1e-3)
    made.memory.close()


def test_the_model_of_the_settings_is_used(documents, embed_model):
    """Where the program has set one; OpenAI is never called unasked."""
    assert Settings._embed_model is None
    Settings.embed_model = embed_model
    try:
        made = CrabPathRetriever.from_documents(documents[:2])
    finally:
        Settings._embed_model = None
    assert made.memory.embedder.embeddings.embed_model is embed_model
    assert embed_model.asked
    made.memory.close()


def test_without_a_model_the_local_one_is_used(documents):
    """The one that LangChain users get, too."""
    made = CrabPathRetriever.from_documents(documents[:2])
    assert made.memory.info()["embedder"] == "sentence-transformers/all-MiniLM-L6-v2"
    made.memory.close()


def test_an_existing_memory_is_opened(documents, embed_model, tmp_path, question):
    """With any embedder that gives the same vectors; where there is none, nothing is created."""
    path = tmp_path / "memory"
    with pytest.raises(NotFoundError, match="there is no memory"):
        CrabPathRetriever.from_existing(path, embed_model)
    assert not path.exists()
    made = CrabPathRetriever.from_documents(documents, embed_model, path=path)
    wanted = ids(made.retrieve(question))
    made.memory.close()
    again = CrabPathRetriever.from_existing(path, embed_model, similarity_top_k=2)
    assert ids(again.retrieve(question)) == wanted[:2]
    again.memory.close()


async def test_the_model_is_used_natively(embed_model):
    """Queries by its query method, sync and async; its name is the memory's."""
    embed_model.model_name = "mini"
    made = CrabPathRetriever.from_documents([Document(text="Apples are red.")], embed_model)
    made.retrieve("the first query makes sure of the model")
    embed_model.asked.clear()
    made.retrieve("one")
    await made.aretrieve("two")
    assert embed_model.asked == ["one", "async two"]
    assert made.memory.info()["embedder"] == "mini"
    made.memory.close()


async def test_the_adapted_model_embeds_asynchronously(embed_model):
    """All four methods of LangChain's interface give the same vectors."""
    adapted = LlamaIndexEmbeddings(embed_model)
    one = adapted.embed_documents(["a", "b"])
    assert await adapted.aembed_documents(["a", "b"]) == one
    assert adapted.embed_query("a") == await adapted.aembed_query("a") == one[0]
    assert adapted.model_name == CountingEmbedding.class_name()


def test_namespaces_share_documents_and_nothing_else(retriever, question):
    """What one tells, the other does not see."""
    ann, bob = retriever.for_namespace("ann"), retriever.for_namespace("bob")
    ann.record(ann.retrieve(question), -1.0, correction="Both were born in America.")
    assert "Both were born in America." in [item.text for item in ann.retrieve(question)]
    assert "Both were born in America." not in [item.text for item in bob.retrieve(question)]
    assert ann.retrieve(question)[0].metadata["crabpath"]["namespace"] == "ann"
    assert retriever.namespace == "default"


def test_nodes_that_were_found_once_are_nodes_again(shared, embed_model, question):
    """Their old turn is no part of them."""
    found = [item.node for item in shared.retrieve(question)]
    made = CrabPathRetriever.from_nodes(found, embed_model)
    held = made.memory.store.catalog.documents(ids(shared.retrieve(question)))
    assert len(held) == len(found)
    assert not any("crabpath" in node.metadata for node in held.values())
    made.memory.close()


def test_documents_and_nodes_are_added_later(embed_model):
    """To the same memory, as they would have been at first."""
    made = CrabPathRetriever.from_documents(
        [Document(id_="a", text="Apples are red.")], embed_model
    )
    assert made.add_documents([Document(id_="b", text="The sky is blue.")]) == ["b"]
    sky = Document(text="The sky is blue.", metadata={"source": "s"})
    (old,) = made.add_documents([sky])
    assert old not in made.add_documents([Document(text="It is grey.", metadata=sky.metadata)])
    assert made.add_documents([sky], cleanup="incremental") == [old]
    assert made.memory.forget(old) == made.memory.info()["nodes"] - 1 == 1
    assert made.add_nodes([TextNode(id_="c", text="Grass is green.")]) == ["c"]
    assert set(ids(made.retrieve("colours"))) == {"a", "b", "c"}
    made.similarity_top_k = 1
    assert ids(made.retrieve("What is blue?")) == ["b"]
    made.memory.close()
