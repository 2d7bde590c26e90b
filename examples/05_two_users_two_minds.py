"""Two users, two minds: one corpus, indexed once; what each user teaches stays theirs.

pip install 'crabpath-retrievers[local]'
python examples/05_two_users_two_minds.py
"""

from langchain_core.documents import Document

from crabpath_retrievers import CrabPathRetriever

PAGES = {
    "Python": "Python is a programming language that is easy to read.",
    "Pythons": "Pythons are large snakes that swallow their prey whole.",
    "Monty Python": "Monty Python were comedians; their circus flew on television.",
    "Java": "Java is a programming language, and an island with much coffee.",
}
QUESTION = "tell me about python"


def main() -> None:
    """Ada programs, Steve keeps snakes; both ask the same."""
    documents = [
        Document(id=title, page_content=text, metadata={"title": title})
        for title, text in PAGES.items()
    ]
    shared = CrabPathRetriever.from_documents(documents, k=3)
    ada = CrabPathRetriever(memory=shared.memory, namespace="ada", k=3)
    steve = CrabPathRetriever(memory=shared.memory, namespace="steve", k=3)
    show("before", ada, steve)

    for user, wanted in ((ada, "Python"), (steve, "Pythons")):
        found = user.invoke(QUESTION)
        user.record(found, outcome=True, used=[wanted])
    show("after", ada, steve)

    # A note is private too.
    steve.memory.teach("Monty sleeps in the hall.", query="who is in the hall?", namespace="steve")
    for user in (ada, steve):
        print(f"{user.namespace} knows:", user.invoke("who is in the hall?")[0].page_content)

    # Feedback for a turn of somebody else is refused.
    turn = ada.invoke(QUESTION)[0].metadata["crabpath"]["turn_id"]
    receipt = steve.record(turn, outcome=-1.0, namespace="steve", strict=False)
    print("steve about ada's turn:", receipt.status, "-", receipt.note)
    shared.memory.close()


def show(when: str, *users: CrabPathRetriever) -> None:
    """What each user finds."""
    for user in users:
        titles = [document.metadata["title"] for document in user.invoke(QUESTION)]
        print(f"{when}: {user.namespace} finds {', '.join(titles)}")


if __name__ == "__main__":
    main()
