"""Corrections reach paraphrases: whether a note stands before the text that it corrects.

Ten facts of a company's handbook are corrected once each, in the words of one question, among 42
documents; five paraphrases of each question are then asked.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from crabpath_retrievers import CrabPath, Feedback
from crabpath_retrievers.evaluation.scratch import open_scratch
from crabpath_retrievers.retrieval.pipeline import Answer

_DATA = Path(__file__).with_suffix(".json")


class CorrectionCounts(NamedTuple):
    """Counts over all paraphrases.

    Attributes:
        paraphrases: How many were asked.
        corrected_returned: Answers with the corrected document.
        note_first: Answers in which the note stands before the corrected document, or without it.
        note_kept: Answers with ``fill=False`` that hold the note, or not the document either.
        places_kept: Answers with k documents beside the notes.
    """

    paraphrases: int
    corrected_returned: int
    note_first: int
    note_kept: int
    places_kept: int


def measure_corrections(embeddings: Embeddings | None = None, k: int = 4) -> CorrectionCounts:
    """Correct each fact once, and ask all paraphrases.

    Args:
        embeddings: The embedder; None for the library's default model.
        k: Documents per answer.
    """
    data = json.loads(_DATA.read_text(encoding="utf-8"))
    facts: list[dict[str, Any]] = data["facts"]
    texts = {fact["id"]: fact["document"] for fact in facts}
    texts |= {f"other {number}": text for number, text in enumerate(data["others"])}
    counts = CorrectionCounts(0, 0, 0, 0, 0)
    with open_scratch(embeddings=embeddings) as memory:
        memory.add_documents([Document(text, id=name) for name, text in texts.items()])
        notes = {fact["id"]: _correct_fact(memory, fact, k) for fact in facts}
        for fact in facts:
            for question in fact["paraphrases"]:
                full = _list_ids(memory.retrieve(question, k=k, record=False))
                sure = _list_ids(memory.retrieve(question, k=k, fill=False, record=False))
                document, note = fact["id"], notes[fact["id"]]
                found = (
                    1,
                    document in full,
                    note in full and document not in full[: full.index(note)],
                    note in sure or document not in sure,
                    len([node for node in full if node in texts]) == k,
                )
                counts = CorrectionCounts(*map(sum, zip(counts, found, strict=True)))
    return counts


def _correct_fact(memory: CrabPath, fact: dict[str, Any], k: int) -> str:
    """Ask the question, say what would have been right, and return the id of the note."""
    answer = memory.retrieve(fact["question"], k=k)
    memory.record(Feedback(answer.turn.id, -1.0, used=[fact["id"]], correction=fact["correction"]))
    return memory.notes(limit=1)[0].id


def _list_ids(answer: Answer) -> list[str]:
    return [item.node.id for item in answer.documents]
