"""How much code there is to read: lines of the package, and what a call goes through."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

import crabpath_retrievers
from crabpath_retrievers import CrabPathRetriever

_PACKAGE = Path(crabpath_retrievers.__file__).parent
_TEXTS = {
    "Deploy": "To deploy, run Check CI and then Inspect Manifest.",
    "Check CI": "All checks must be green before a release.",
    "Inspect Manifest": "Compare the manifest with the last release.",
    "Rollback": "If a deploy fails, roll back.",
    "Pasta": "Boil pasta for nine minutes.",
}


class Journey(NamedTuple):
    """Files and functions of the package that one call goes through, in this thread."""

    files: int
    functions: int


def count_lines() -> int:
    """Lines of the package without ``evaluation``."""
    files = (path for path in _PACKAGE.rglob("*.py") if "evaluation" not in path.parts)
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def follow_journeys(folder: Path) -> dict[str, Journey]:
    """The journeys of a cold and a learned query, a feedback and a document, by name."""
    found: dict[str, Journey] = {}
    retriever = CrabPathRetriever.from_documents(
        [_make_document(title, text) for title, text in _TEXTS.items()],
        DeterministicFakeEmbedding(size=32),
        path=folder,
        k=3,
    )

    def record(documents: list[Document]) -> None:
        turn = documents[0].metadata["crabpath"]["turn_id"]
        retriever.record(turn, outcome=1.0, used=[str(documents[0].id)])

    retriever.invoke("warm up")
    documents, found["cold query"] = _follow(lambda: retriever.invoke("how do I deploy?"))
    _, found["feedback"] = _follow(lambda: record(documents))
    for _ in range(3):
        record(retriever.invoke("how do I deploy the service?"))
    _, found["learned query"] = _follow(lambda: retriever.invoke("how do I deploy it?"))
    extra = [_make_document("Mondays", "Deploy on Mondays only.")]
    _, found["added document"] = _follow(lambda: retriever.add_documents(extra))
    retriever.memory.close()
    return found


def _make_document(title: str, text: str) -> Document:
    return Document(page_content=text, metadata={"title": title, "source": f"{title}.md"})


def _follow(action: Callable[[], Any]) -> tuple[Any, Journey]:
    called: set[tuple[str, str]] = set()

    def note_call(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(_PACKAGE)):
            name = getattr(code, "co_qualname", code.co_name)
            if not code.co_name.startswith("<"):
                called.add((code.co_filename, name))

    sys.setprofile(note_call)
    try:
        result = action()
    finally:
        sys.setprofile(None)
    return result, Journey(len({file for file, _ in called}), len(called))
