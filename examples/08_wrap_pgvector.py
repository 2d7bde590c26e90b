"""Wrap a pgvector table that exists already; what is learned is in the same PostgreSQL.

    pip install 'crabpath-retrievers[postgres]' langchain-postgres langchain-openai
    export DATABASE_URL=postgresql+psycopg://user:password@localhost/app OPENAI_API_KEY=...
    python examples/08_wrap_pgvector.py

OPENAI_BASE_URL names another server that embeds as OpenAI does; EMBEDDING_MODEL its model.
"""

import os

from langchain_core.documents import Document
from langchain_openai import OpenAIEmbeddings
from langchain_postgres import PGVector

from crabpath_retrievers import CrabPathRetriever

URL = os.environ.get("DATABASE_URL", "postgresql+psycopg://postgres@localhost/postgres")
PAGES = {
    "Deploying": "A release goes out with `ship it`. Read the Release checklist first.",
    "Release checklist": "Two reviews, green tests, and a note in the Change log.",
    "Change log": "Every entry names its author and the ticket.",
    "Rolling back": "Run `ship back`; it restores the last release within a minute.",
}
QUESTION = "Who must I name when a release goes out?"


def main() -> None:
    """Ask pgvector alone, then with a graph; say what helped, and ask again."""
    model = os.environ.get("EMBEDDING_MODEL", "text-embedding-3-small")
    embeddings = OpenAIEmbeddings(model=model, check_embedding_ctx_length=False)
    documents = [
        Document(text, id=title, metadata={"title": title}) for title, text in PAGES.items()
    ]
    store = PGVector(embeddings, connection=URL, collection_name="handbook")
    store.add_documents(documents, ids=list(PAGES))  # what you have done long ago
    show("pgvector alone", store.similarity_search(QUESTION, k=3))

    # The documents of the collection are read; its vectors are searched where they are.
    retriever = CrabPathRetriever.from_vectorstore(store, path=URL, k=3)
    found = retriever.invoke(QUESTION)
    show("with a graph", found)

    turn_id = found[0].metadata["crabpath"]["turn_id"]
    receipt = retriever.record(turn_id, outcome=1.0, used=["Change log"])
    print("feedback:", receipt.status)
    show("afterwards", retriever.invoke(QUESTION))
    retriever.memory.close()


def show(what: str, documents: list[Document]) -> None:
    """Titles in order."""
    print(f"{what}:", ", ".join(document.metadata["title"] for document in documents))


if __name__ == "__main__":
    main()
