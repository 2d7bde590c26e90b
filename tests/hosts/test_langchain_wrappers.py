"""CrabPath inside the constructions of LangChain that take a retriever."""

from langchain_classic.chains import create_history_aware_retriever, create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_classic.retrievers import (
    ContextualCompressionRetriever,
    EnsembleRetriever,
    MultiQueryRetriever,
)
from langchain_classic.retrievers.document_compressors import DocumentCompressorPipeline
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import create_retriever_tool
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_text_splitters import RecursiveCharacterTextSplitter

QUESTION = "Were Scott Derrickson and Ed Wood of the same nationality?"
OTHER = "What government position was held by the woman who portrayed Corliss Archer?"


def ids(documents):
    """Ids in order."""
    return [document.id for document in documents]


def test_answers_a_retrieval_chain(retriever):
    """create_retrieval_chain gets the documents as context and their text reaches the model."""
    prompt = ChatPromptTemplate.from_template("{context}\n\n{input}")
    combine = create_stuff_documents_chain(FakeListChatModel(responses=["yes"]), prompt)
    result = create_retrieval_chain(retriever, combine).invoke({"input": QUESTION})
    assert result["answer"] == "yes"
    assert ids(result["context"]) == ids(retriever.invoke(QUESTION))
    assert {"Scott Derrickson", "Ed Wood"} <= {d.metadata["title"] for d in result["context"]}


def test_follows_a_history(retriever):
    """create_history_aware_retriever asks the question that the model made of the history."""
    prompt = ChatPromptTemplate.from_messages(
        [("placeholder", "{chat_history}"), ("user", "{input}")]
    )
    chain = create_history_aware_retriever(
        FakeListChatModel(responses=[QUESTION]), retriever, prompt
    )
    history = [HumanMessage("Who is Ed Wood?"), AIMessage("A filmmaker.")]
    found = chain.invoke({"input": "and the other one?", "chat_history": history})
    assert ids(found) == ids(retriever.invoke(QUESTION))


def test_joins_an_ensemble_by_text(retriever, embeddings, passages):
    """EnsembleRetriever merges CrabPath with another retriever and returns each text once."""
    dense = InMemoryVectorStore.from_documents(passages, embeddings).as_retriever()
    merged = EnsembleRetriever(retrievers=[retriever, dense], weights=[0.5, 0.5]).invoke(QUESTION)
    texts = [document.page_content for document in merged]
    both = retriever.invoke(QUESTION) + dense.invoke(QUESTION)
    assert len(texts) == len(set(texts))
    assert set(texts) == {document.page_content for document in both}


def test_joins_an_ensemble_by_id(retriever):
    """EnsembleRetriever finds the id in the metadata: two equal rankings merge into that one."""
    both = EnsembleRetriever(retrievers=[retriever, retriever], weights=[0.5, 0.5], id_key="id")
    assert ids(both.invoke(QUESTION)) == ids(retriever.invoke(QUESTION))


async def test_joins_an_ensemble_asynchronously(retriever):
    """The ensemble's async path gives what its sync path gives."""
    both = EnsembleRetriever(retrievers=[retriever, retriever], weights=[0.5, 0.5], id_key="id")
    assert ids(await both.ainvoke(QUESTION)) == ids(both.invoke(QUESTION))


def test_is_compressed(retriever):
    """ContextualCompressionRetriever cuts the documents; the pieces keep their metadata."""
    cut = RecursiveCharacterTextSplitter(chunk_size=100, chunk_overlap=0)
    compressed = ContextualCompressionRetriever(
        base_compressor=DocumentCompressorPipeline(transformers=[cut]), base_retriever=retriever
    )
    pieces = compressed.invoke(QUESTION)
    assert all(len(piece.page_content) <= 100 for piece in pieces)
    assert list(dict.fromkeys(p.metadata["id"] for p in pieces)) == ids(retriever.invoke(QUESTION))


def test_is_asked_several_questions(retriever):
    """MultiQueryRetriever returns the union of what its questions find, each document once."""
    model = FakeListChatModel(responses=[f"{QUESTION}\n{OTHER}"])
    found = MultiQueryRetriever.from_llm(retriever=retriever, llm=model).invoke("anything")
    texts = [document.page_content for document in found]
    wanted = retriever.invoke(QUESTION) + retriever.invoke(OTHER)
    assert set(texts) == {document.page_content for document in wanted}
    assert len(texts) == len(set(texts))


def test_is_a_tool(retriever):
    """create_retriever_tool gives the model the texts of the documents."""
    tool = create_retriever_tool(retriever, "search", "Searches passages.")
    text = tool.invoke({"query": QUESTION})
    assert text == "\n\n".join(d.page_content for d in retriever.invoke(QUESTION))


async def test_is_a_tool_with_artifact(retriever):
    """With content_and_artifact the tool message carries the documents themselves."""
    tool = create_retriever_tool(
        retriever, "search", "Searches passages.", response_format="content_and_artifact"
    )
    call = {"type": "tool_call", "name": "search", "id": "1", "args": {"query": QUESTION}}
    message = await tool.ainvoke(call)
    assert ids(message.artifact) == ids(retriever.invoke(QUESTION))
    assert all("turn_id" in document.metadata["crabpath"] for document in message.artifact)
