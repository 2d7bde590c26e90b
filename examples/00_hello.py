"""Index four pages, ask, say which one helped, and ask again. It runs offline.

pip install 'crabpath-retrievers[local]'
python examples/00_hello.py
"""

from langchain_core.documents import Document

from crabpath_retrievers import CrabPathRetriever

PAGES = {
    "Deploying": "A release goes out with `ship it`. Read the Release checklist first.",
    "Release checklist": "Two reviews, green tests, and a note in the Change log.",
    "Change log": "Every entry names its author and the ticket.",
    "Rolling back": "Run `ship back`; it restores the last release within a minute.",
}
documents = [Document(text, metadata={"title": title}) for title, text in PAGES.items()]
retriever = CrabPathRetriever.from_documents(documents, k=3)

question = "Who must I name when a release goes out?"
found = retriever.invoke(question)
print("found:", *(document.metadata["title"] for document in found), sep="\n  ")

helped = [document.id for document in found if document.metadata["title"] == "Change log"]
retriever.record(found[0].metadata["crabpath"]["turn_id"], outcome=1.0, used=helped)

found = retriever.invoke(question)
print("found after feedback:", *(document.metadata["title"] for document in found), sep="\n  ")
retriever.memory.close()
