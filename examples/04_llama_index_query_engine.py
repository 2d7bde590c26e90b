"""A LlamaIndex query engine whose retriever learns from a correction. It runs offline.

    pip install 'crabpath-retrievers[llama-index,local]'
    python examples/04_llama_index_query_engine.py

The memory is kept in ./crabpath_llama_index, or in a directory given as argument: a second run
starts with what the first one learned.
"""

import sys

from llama_index.core import Document
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.instrumentation.dispatcher import instrument_tags
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine

from crabpath_retrievers import CrabPathRetriever as LangChainRetriever
from llama_index.retrievers.crabpath import CrabPathEventHandler, CrabPathRetriever

DOCUMENTS = [
    Document(text="# Deploy\nPush to main to deploy. See [tests](tests.md).", id_="deploy.md"),
    Document(text="# Tests\nTests run on every push and take nine minutes.", id_="tests.md"),
    Document(text="# Oncall\nWhoever is on call answers the pager in a quarter of an hour."),
]
QUESTION = "How do I deploy on a Friday?"
CORRECTION = "Nobody deploys on a Friday: ask whoever is on call."


def shown(response: RESPONSE_TYPE) -> None:
    """The sources of a response, one line each."""
    for item in response.source_nodes:
        route = item.metadata["crabpath"]["origin"]
        print(f"  {item.score:.3f} {route:5} {item.node.get_content().splitlines()[-1]}")


def main() -> None:
    """Ask, correct, ask again; then ask through LangChain."""
    path = sys.argv[1] if len(sys.argv) > 1 else "crabpath_llama_index"
    retriever = CrabPathRetriever.from_documents(DOCUMENTS, path=path, similarity_top_k=2)
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())  # put your own model here

    with CrabPathEventHandler(retriever.memory) as handler:
        with instrument_tags({"query_id": "ticket-17"}):
            response = engine.query(QUESTION)
        print("before the correction:")
        shown(response)

        (receipt,) = handler.record("ticket-17", -1.0, correction=CORRECTION)
        print(f"correction: {receipt.status}")

        print("after it:")
        shown(engine.query(QUESTION))

    chain = LangChainRetriever(memory=retriever.memory, k=1)
    print("LangChain finds:", chain.invoke(QUESTION)[0].page_content.splitlines()[-1])
    retriever.memory.close()


if __name__ == "__main__":
    main()
