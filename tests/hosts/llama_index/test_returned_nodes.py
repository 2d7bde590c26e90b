"""What hosts rely on in a returned node, and one memory for LangChain and LlamaIndex at once."""

import pytest
from host_answers import CORRECTION, block_of, ids, texts, turn_of
from llama_index.core import Document
from llama_index.core.node_parser import SentenceWindowNodeParser
from llama_index.core.postprocessor import MetadataReplacementPostProcessor
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode

from crabpath_retrievers import CrabPathRetriever as LangChainRetriever
from llama_index.retrievers.crabpath import CrabPathReranker, CrabPathRetriever


def test_equality_is_that_of_id_and_text(shared, question):
    """Whichever turn found them, and whoever made them; LlamaIndex also compares hashes."""
    first, second = ([item.node for item in shared.retrieve(question)] for _ in range(2))
    plain = [TextNode(id_=node.node_id, text=node.text) for node in first]
    assert first[0].metadata != second[0].metadata
    assert first == second == plain
    assert plain == first
    assert [node.hash for node in first] == [node.hash for node in second]
    assert len({*first, *second}) == len(first)
    assert first[0] != TextNode(id_=first[0].node_id, text="other")
    assert first[0] != TextNode(id_="other", text=first[0].text)
    assert first[0] != first[0].text


def test_metadata_of_its_own_survives(retriever):
    """As in LangChain; also through the reranker, and when the node is added again."""
    own = {"id": "mine", "score": 42}
    node = TextNode(id_="o", text="Odd.", metadata=dict(own))
    retriever.add_nodes([node])
    (odd,) = (item for item in retriever.retrieve("odd") if item.node_id == "o")
    assert (odd.metadata["id"], odd.metadata["score"]) == ("mine", 42)
    block = odd.metadata["crabpath"]
    assert (block["id"], block["score"]) == ("o", odd.score)
    assert odd.node.hash == node.hash
    assert retriever.record(block["turn_id"], 1.0)[0].status == "applied"
    reranker = CrabPathReranker(memory=retriever.memory)
    (ranked,) = reranker.postprocess_nodes([NodeWithScore(node=node)], query_str="odd")
    retriever.add_nodes([odd.node])
    (again,) = (item for item in retriever.retrieve("odd") if item.node_id == "o")
    for item in (ranked, again):
        assert {key: value for key, value in item.metadata.items() if key != "crabpath"} == own


def test_a_note_among_sentence_windows_is_read(embeddings, question, closing):
    """The window of a note is the note; other keys are empty and hidden from models."""
    parser = SentenceWindowNodeParser.from_defaults(sentence_splitter=lambda it: it.split("  "))
    text = "Ed Wood was a filmmaker.  Scott Derrickson is one.  They never met."
    nodes = parser.get_nodes_from_documents([Document(text=text, metadata={"file_name": "a.txt"})])
    retriever = closing(CrabPathRetriever.from_nodes(nodes, embeddings))
    retriever.record(turn_of(retriever.retrieve(question)), -1.0, correction=CORRECTION)
    replacing = MetadataReplacementPostProcessor(target_metadata_key="window")
    found = replacing.postprocess_nodes(retriever.retrieve(question))
    note = next(item for item in found if item.metadata.get("note"))
    assert note.metadata["file_name"] == ""
    shown = note.node.get_content(metadata_mode=MetadataMode.LLM)
    assert shown.endswith(CORRECTION)
    assert "file_name" not in shown


@pytest.mark.parametrize("teacher", ["llama_index", "langchain"])
def test_langchain_retrieves_and_teaches_the_same(retriever, question, teacher):
    """A correction has the metadata that all documents have."""
    chain = LangChainRetriever(memory=retriever.memory, k=4)
    retriever = CrabPathRetriever(retriever.memory, namespace=" ")  # the default one
    nodes, documents = retriever.retrieve(question), chain.invoke(question)
    hers = retriever.for_namespace("ann")
    assert block_of(hers.retrieve(question))["namespace"] == "ann"
    assert block_of(hers.for_namespace("").retrieve(question))["namespace"] == "default"
    assert (ids(nodes), texts(nodes)) == (ids(documents), texts(documents))
    assert [n.score for n in nodes] == pytest.approx([d.metadata["score"] for d in documents])
    assert {"Scott Derrickson", "Ed Wood"} <= {n.metadata["title"] for n in nodes}
    assert all(n.node.ref_doc_id == n.node_id for n in nodes)
    if teacher == "langchain":
        chain.record(turn_of(nodes), -1.0, correction=CORRECTION)
    else:
        retriever.record(nodes, -1.0, correction=CORRECTION)
    for found in (retriever.retrieve(question), chain.invoke(question)):
        note = found[texts(found).index(CORRECTION)]
        assert note.metadata["source"] == "crabpath:correction"
        assert note.metadata["title"] == "Correction"


async def test_the_type_of_the_task_is_in_the_record_of_the_turn(retriever, question):
    refunds = CrabPathRetriever(retriever.memory, task_type="refund")
    nodes = refunds.retrieve(question)
    cancels = refunds.for_task("cancel").for_namespace("ann")
    plain = [NodeWithScore(node=TextNode(id_=node.node_id, text=node.text)) for node in nodes]
    reranker = CrabPathReranker(memory=retriever.memory, task_type="order")
    ranked = reranker.postprocess_nodes(plain, query_str=question)
    found = nodes, await cancels.aretrieve(question), ranked
    types = [retriever.memory.explain(turn_of(each)).turn.task_type for each in found]
    assert types == ["refund", "cancel", "order"]
