"""One memory for LangChain and LlamaIndex at once."""

import pytest

from crabpath_retrievers import CrabPathRetriever as LangChainRetriever
from llama_index.retrievers.crabpath import CrabPathRetriever

RIGHT = "Scott Derrickson and Ed Wood were both American."


@pytest.fixture
def chain(retriever):
    """The LangChain retriever over the same memory."""
    return LangChainRetriever(memory=retriever.memory, k=4)


def test_both_hosts_retrieve_the_same(retriever, chain, question):
    """Ids, texts and scores."""
    nodes, documents = retriever.retrieve(question), chain.invoke(question)
    assert [n.node_id for n in nodes] == [d.id for d in documents]
    assert [n.text for n in nodes] == [d.page_content for d in documents]
    assert [n.score for n in nodes] == pytest.approx([d.metadata["score"] for d in documents])


def test_what_llama_index_teaches_langchain_retrieves(retriever, chain, question):
    """A correction through the one is found through the other."""
    assert RIGHT not in [d.page_content for d in chain.invoke(question)]
    (receipt,) = retriever.record(retriever.retrieve(question), -1.0, correction=RIGHT)
    assert receipt.status == "applied"
    assert chain.invoke(question)[0].page_content == RIGHT


def test_what_langchain_teaches_llama_index_retrieves(retriever, chain, question):
    """And the other way round."""
    assert RIGHT not in [n.text for n in retriever.retrieve(question)]
    chain.record(chain.invoke(question)[0].metadata["crabpath"]["turn_id"], -1.0, correction=RIGHT)
    assert retriever.retrieve(question)[0].text == RIGHT


def test_a_store_that_langchain_filled(passages, embeddings, question, tmp_path):
    """Is opened by LlamaIndex with the same embedder; documents are nodes."""
    path = tmp_path / "memory"
    filled = LangChainRetriever.from_documents(passages[:10], embeddings, path=path)
    wanted = [document.id for document in filled.invoke(question)]
    filled.memory.close()
    opened = CrabPathRetriever.from_existing(path, embeddings)
    nodes = opened.retrieve(question)
    assert [n.node_id for n in nodes] == wanted
    assert all(n.node.ref_doc_id == n.node_id for n in nodes)
    opened.memory.close()
