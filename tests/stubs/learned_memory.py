"""Memories that have learned, and all that they hold."""

from collections.abc import Iterator

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, Feedback
from crabpath_retrievers.parts.operation.transfer.export import open_dump
from crabpath_retrievers.storage import GraphStore

EMBEDDINGS = DeterministicFakeEmbedding(size=16)
PAGES = 40
QUESTIONS = [f"What does Page {number} tell?" for number in range(PAGES)]


def corpus(count: int = PAGES) -> list[Document]:
    """Pages; each mentions the next one."""
    return [
        Document(f"Text {n} tells of Page {n + 1}.", id=f"d{n}", metadata={"title": f"Page {n}"})
        for n in range(count)
    ]


def teach(
    memory: CrabPath, namespace: str = "default", *, name: str = "n", turns: int = 20
) -> None:
    """Let a namespace ask, learn from wins and losses, and be told something."""
    for number in range(turns):
        answer = memory.retrieve(QUESTIONS[number * 7 % PAGES], namespace=namespace)
        used = [document.node.id for document in answer.documents[:2]]
        outcome = -1.0 if number % 4 == 0 else 1.0
        said = Feedback(answer.turn.id, outcome, used=used, feedback_id=f"{name}{number}")
        assert memory.record(said).status == "applied"
    memory.teach(
        "Refunds take three days.", query="How long?", related=["d3"], namespace=namespace, id=name
    )
    memory.retrieve("How long?", namespace=namespace)


def answered(memory: CrabPath, namespace: str = "default") -> list[list[tuple[str, float]]]:
    """What a memory answers to some of the questions, with scores."""
    answers = (
        memory.retrieve(question, k=6, namespace=namespace, record=False)
        for question in (*QUESTIONS[::3], "How long?")
    )
    return [[(item.node.id, item.score) for item in answer.documents] for answer in answers]


def rows(store: GraphStore) -> dict[str, list]:
    """All that a store holds, but what it says of itself and which vectors wait."""
    with open_dump(store) as dump:
        found = {name: list(_sorted(read)) for name, read in _tables(dump)}
    del found["journal"]
    return found


def _tables(dump) -> Iterator[tuple[str, list]]:
    for name, where in dump.select_all().items():
        yield name, [row for part in dump.rows(name, where) for row in part]


def _sorted(read: list) -> list:
    plain = [{**row, "indexed": 0} if "indexed" in row else row for row in read]
    return sorted(plain, key=lambda row: str(sorted(row.items(), key=lambda item: item[0])))
