"""Swap CrabPath into an existing RAG chain: one line changes, then it learns from outcomes.

    pip install 'crabpath-retrievers[local]' langchain-openai
    export OPENAI_BASE_URL=http://localhost:11434/v1 OPENAI_API_KEY=x CHAT_MODEL=llama3.2
    python examples/01_swap_into_chain.py

Any OpenAI-compatible server will do.
"""

import os

from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_openai import ChatOpenAI

from crabpath_retrievers import CrabPathRetriever

PAGES = {
    "Deploying": "A release goes out with `ship it`. Read the Release checklist first.",
    "Release checklist": "Two reviews, green tests, and a note in the Change log.",
    "Change log": "Every entry names its author and the ticket.",
    "Rolling back": "Run `ship back`; it restores the last release within a minute.",
    "On call": "Whoever is on call carries the pager from Monday to Monday.",
    "Holidays": "Ask in the team channel two weeks ahead.",
}
PROMPT = ChatPromptTemplate.from_template(
    "Answer from these pages only.\n\n{context}\n\nQuestion: {question}"
)


def main() -> None:
    """Ask, answer, tell the retriever how it went, and ask again."""
    documents = [
        Document(page_content=text, metadata={"title": title}) for title, text in PAGES.items()
    ]
    # Here stood a vector store and its as_retriever(); the chain below is as it was.
    retriever = CrabPathRetriever.from_documents(documents, k=3)

    model = ChatOpenAI(model=os.environ.get("CHAT_MODEL", "llama3.2"))
    chain = (
        {"context": retriever | as_text, "question": RunnablePassthrough()}
        | PROMPT
        | model
        | StrOutputParser()
    )

    question = "What must be done before a release goes out?"
    print("answer:", chain.invoke(question))

    found = retriever.invoke(question)
    show("found", found)

    # Somebody was content, and used the checklist. Now, or a week later:
    used = [d.id for d in found if d.metadata["title"] == "Release checklist"]
    receipt = retriever.record(found[0].metadata["crabpath"]["turn_id"], outcome=1.0, used=used)
    print("feedback:", receipt.status)

    show("found again", retriever.invoke("Before a release goes out, what must be done?"))
    retriever.memory.close()


def as_text(documents: list[Document]) -> str:
    """What the prompt shows."""
    return "\n\n".join(f"{d.metadata['title']}: {d.page_content}" for d in documents)


def show(what: str, documents: list[Document]) -> None:
    """Titles with the probability of relevance."""
    print(
        f"{what}:", ", ".join(f"{d.metadata['title']} {d.metadata['score']:.2f}" for d in documents)
    )


if __name__ == "__main__":
    main()
