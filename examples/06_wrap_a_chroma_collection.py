"""Wrap a Chroma collection that exists already: it is searched in place, nothing is copied.

pip install 'crabpath-retrievers[local]' langchain-chroma
python examples/06_wrap_a_chroma_collection.py
"""

import tempfile
from pathlib import Path

from langchain_chroma import Chroma
from langchain_core.documents import Document

from crabpath_retrievers import CrabPathRetriever
from crabpath_retrievers.integration import load_default_embeddings

PAGES = {
    "Marie Curie": "Marie Curie studied at the Sorbonne and discovered radium with Pierre Curie.",
    "Pierre Curie": "Pierre Curie taught physics. He died in the Rue Dauphine.",
    "Rue Dauphine": "The Rue Dauphine is a street in Saint-Germain-des-Prés.",
    "Lise Meitner": "Lise Meitner explained nuclear fission.",
    "Street names": "Streets are often named after saints.",
}
QUESTION = "Where did the man die with whom radium was discovered?"


def main() -> None:
    """The collection as it is, and with a graph read off its documents."""
    with tempfile.TemporaryDirectory() as folder:
        store = existing(Path(folder) / "chroma")
        plain = store.as_retriever(search_kwargs={"k": 3})
        show("Chroma alone", plain.invoke(QUESTION))

        retriever = CrabPathRetriever.from_vectorstore(store, path=Path(folder) / "graph", k=3)
        found = retriever.invoke(QUESTION)
        show("with a graph", found)
        reasons = retriever.memory.explain(found[0].metadata["crabpath"]["turn_id"]).documents
        for reason in reasons:
            if reason.support is not None:
                print(f"  {reason.title}: {reason.support.kind} by {reason.support.source}")
        print("documents in the collection:", len(store.get()["ids"]))
        retriever.memory.close()


def existing(folder: Path) -> Chroma:
    """What you have already."""
    documents = [
        Document(id=title, page_content=text, metadata={"title": title})
        for title, text in PAGES.items()
    ]
    return Chroma.from_documents(
        documents,
        load_default_embeddings(),
        persist_directory=str(folder),
        collection_name="people",
    )


def show(what: str, documents: list[Document]) -> None:
    """Titles in order."""
    print(f"{what}:", ", ".join(document.metadata["title"] for document in documents))


if __name__ == "__main__":
    main()
