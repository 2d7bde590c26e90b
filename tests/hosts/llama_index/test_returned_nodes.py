"""What hosts rely on in a returned node: equality, its own metadata, notes like any document."""

from llama_index.core import Document
from llama_index.core.node_parser import SentenceWindowNodeParser
from llama_index.core.postprocessor import MetadataReplacementPostProcessor
from llama_index.core.schema import MetadataMode, TextNode

from llama_index.retrievers.crabpath import CrabPathReranker, CrabPathRetriever

RIGHT = "Scott Derrickson and Ed Wood were both American directors."


def test_equality_is_that_of_id_and_text(shared, question):
    """Whichever turn found them, and whoever made them."""
    first, second = ([item.node for item in shared.retrieve(question)] for _ in range(2))
    plain = [TextNode(id_=node.node_id, text=node.text) for node in first]
    assert first[0].metadata != second[0].metadata
    assert first == second == plain
    assert plain == first
    assert len({*first, *second}) == len(first)
    assert first[0] != TextNode(id_=first[0].node_id, text="other")
    assert first[0] != TextNode(id_="other", text=first[0].text)
    assert first[0] != first[0].text


def test_metadata_of_its_own_survives(embeddings, documents):
    """As in LangChain; also through the reranker, and when the node is added again."""
    own = {"id": "mine", "score": 42, "crabpath": "also mine"}
    nodes = [
        TextNode(id_="o", text="Odd.", metadata=dict(own)),
        *[TextNode(id_=item.id_, text=item.text) for item in documents],
    ]
    retriever = CrabPathRetriever.from_nodes(nodes, embeddings, similarity_top_k=20)
    found = {item.node_id: item for item in retriever.retrieve("odd")}
    odd = found["o"]
    assert (odd.metadata["id"], odd.metadata["score"]) == ("mine", 42)
    block = odd.metadata["crabpath"]
    assert (block["original"], block["id"], block["score"]) == ("also mine", "o", odd.score)
    assert odd.node.hash == nodes[0].hash
    assert retriever.record(odd.node.metadata["crabpath"]["turn_id"], 1.0)[0].status == "applied"

    ranked = CrabPathReranker(memory=retriever.memory).postprocess_nodes(
        [type(odd)(node=nodes[0])], query_str="odd"
    )
    assert ranked[0].metadata["crabpath"]["original"] == "also mine"
    assert ranked[0].metadata["score"] == 42

    retriever.add_nodes([odd.node])
    again = {item.node_id: item for item in retriever.retrieve("odd")}["o"]
    assert again.metadata["crabpath"]["original"] == "also mine"
    retriever.memory.close()


def test_a_correction_has_what_all_documents_have(retriever, question):
    """So that code which reads their metadata can read its own; models see no empty lines."""
    turn = retriever.retrieve(question)[0].metadata["crabpath"]["turn_id"]
    retriever.record(turn, -1.0, correction=RIGHT)
    told = next(item for item in retriever.retrieve(question) if item.text == RIGHT)
    assert told.metadata["source"] == "crabpath:correction"
    assert told.metadata["title"] == "Correction"


def test_a_note_among_sentence_windows_is_read(embeddings, question):
    """The window of a note is the note; other keys are empty and hidden from models."""
    parser = SentenceWindowNodeParser.from_defaults()
    text = "Ed Wood was a filmmaker. Scott Derrickson is one. They never met."
    nodes = parser.get_nodes_from_documents([Document(text=text, metadata={"file_name": "a.txt"})])
    retriever = CrabPathRetriever.from_nodes(nodes, embeddings)
    turn = retriever.retrieve(question)[0].metadata["crabpath"]["turn_id"]
    retriever.record(turn, -1.0, correction=RIGHT)
    replacing = MetadataReplacementPostProcessor(target_metadata_key="window")
    found = replacing.postprocess_nodes(retriever.retrieve(question))
    told = next(item for item in found if item.metadata.get("note"))
    assert told.metadata["file_name"] == ""
    shown = told.node.get_content(metadata_mode=MetadataMode.LLM)
    assert shown.endswith(RIGHT)
    assert "file_name" not in shown
    retriever.memory.close()


def test_a_blank_namespace_is_the_default_one(shared, question):
    """A host that does not know who asks gives one."""
    for made in (
        CrabPathRetriever(shared.memory, namespace=" "),
        CrabPathRetriever(shared.memory, namespace="ann").for_namespace(""),
    ):
        assert made.retrieve(question)[0].metadata["crabpath"]["namespace"] == "default"
    reranker = CrabPathReranker(memory=shared.memory, namespace="")
    nodes = [TextNode(id_=item.node_id, text=item.text) for item in shared.retrieve(question)]
    ranked = reranker.postprocess_nodes(
        [type(shared.retrieve(question)[0])(node=node) for node in nodes], query_str=question
    )
    assert ranked[0].metadata["crabpath"]["namespace"] == "default"
