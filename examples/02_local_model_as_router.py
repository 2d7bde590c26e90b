"""Let a local model decide which edges to follow: any OpenAI-compatible server will do.

    pip install 'crabpath-retrievers[local]' langchain-openai
    export OPENAI_BASE_URL=http://localhost:11434/v1 OPENAI_API_KEY=x CHAT_MODEL=llama3.2
    python examples/02_local_model_as_router.py

The model is asked at most once a turn, and not at all where the graph is sure. When it fails,
answers too late, or answers nonsense, the graph decides alone.
"""

import json
import os
from pathlib import Path

from langchain_core.documents import Document
from langchain_openai import ChatOpenAI

from crabpath_retrievers import ChatModelRouter, CrabPathRetriever, RouterSettings

SAMPLE = Path(__file__).parent / "hotpotqa_sample"


def main() -> None:
    """Ask a few questions; the turn tells what the model decided and what that cost."""
    documents = [
        Document(line["text"], id=line["_id"], metadata={"title": line["title"]})
        for line in read("corpus.jsonl")[:60]
    ]
    model = ChatOpenAI(
        model=os.environ.get("CHAT_MODEL", "llama3.2"),
        max_retries=0,  # the router retries itself, within its time limit
    )
    settings = RouterSettings(timeout=5, prices=(0.15, 0.60))  # dollars per million tokens
    retriever = CrabPathRetriever.from_documents(
        documents, k=4, router=ChatModelRouter(model, settings)
    )

    for question in [line["text"] for line in read("queries.jsonl")[:2]]:
        found = retriever.invoke(question)
        tell(question, found, retriever)

    # What succeeded needs no model when it is asked again.
    turn_id = found[0].metadata["crabpath"]["turn_id"]
    retriever.record(turn_id, outcome=1.0, used=[found[0].id])
    tell(f"again: {question}", retriever.invoke(question), retriever)
    retriever.memory.close()


def read(name: str) -> list[dict[str, str]]:
    """The lines of a file of the sample."""
    lines = (SAMPLE / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def tell(question: str, found: list[Document], retriever: CrabPathRetriever) -> None:
    """The documents, and the router's part in them."""
    turn = retriever.memory.explain(found[0].metadata["crabpath"]["turn_id"]).turn
    print(question)
    print("  found:", ", ".join(document.metadata["title"] for document in found))
    print(f"  model: {turn.llm_calls} calls, {turn.llm_tokens} tokens, ${turn.cost_usd:.6f}")
    for note in turn.routing:
        print("  it says:", note)


if __name__ == "__main__":
    main()
