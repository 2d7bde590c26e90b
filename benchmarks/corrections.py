"""Corrections at their reach: they come to paraphrases of their question, and to no other question.

Ten facts of a company's handbook are corrected once each, in the words of one question, among 42
documents; five paraphrases of each question are then asked, and 23 questions about its neighbours:
about the documents beside it, what else it names, and what no document tells. The rule was chosen
on these. Held out are ten facts of a museum, a product's help and a clinic, each on a page of two
sentences, with 14 such questions, most of them about that very page.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from crabpath_lab.scratch import open_scratch
from crabpath_retrievers import CrabPath, Feedback
from crabpath_retrievers.retrieval.pipeline import Answer

_DATA = Path(__file__).with_suffix(".json")
_HELD_OUT = _DATA.with_stem("corrections_held_out")


class CorrectionCounts(NamedTuple):
    """Counts over all paraphrases, and over all other questions.

    Attributes:
        paraphrases: How many were asked.
        corrected_returned: Answers with the corrected document.
        note_first: Answers in which the note stands before the corrected document, or without it.
        note_kept: Answers with ``fill=False`` that hold the note, or not the document either.
        places_kept: Answers with k documents beside the notes.
        foreign: Answers to paraphrases with the note of another fact.
        others: How many other questions were asked that return a corrected document.
        others_with_note: Answers to them with a note.
        others_led: Those of them in which a note stands before a document.
    """

    paraphrases: int
    corrected_returned: int
    note_first: int
    note_kept: int
    places_kept: int
    foreign: int
    others: int
    others_with_note: int
    others_led: int


def measure_corrections(
    embeddings: Embeddings | None = None, k: int = 4, *, held_out: bool = False
) -> CorrectionCounts:
    """Correct each fact once, and ask all paraphrases.

    Args:
        embeddings: The embedder; None for the library's default model.
        k: Documents per answer.
        held_out: Whether to ask about the pages on which nothing was chosen.
    """
    data = json.loads((_HELD_OUT if held_out else _DATA).read_text(encoding="utf-8"))
    facts: list[dict[str, Any]] = data["facts"]
    texts = {fact["id"]: fact["document"] for fact in facts}
    texts |= {f"other {number}": text for number, text in enumerate(data["others"])}
    counts = CorrectionCounts(*[0] * len(CorrectionCounts._fields))
    with open_scratch(embeddings=embeddings) as memory:
        memory.add_documents([Document(text, id=name) for name, text in texts.items()])
        cold = {
            question: _list_ids(memory.retrieve(question, k=k, record=False))
            for fact in facts
            for question in fact["neighbours"]
        }
        notes = {fact["id"]: _correct_fact(memory, fact, k) for fact in facts}
        names = {*notes.values()}
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
                    bool(names.difference({note}).intersection(full)),
                )
                counts = _add(counts, *found)
        for question, before in cold.items():
            if notes.keys() & {*before}:
                full = _list_ids(memory.retrieve(question, k=k, record=False))
                led = bool(names.intersection(full[:-1]))
                counts = _add(counts, *[0] * 6, 1, bool(names.intersection(full)), led)
    return counts


def _add(counts: CorrectionCounts, *found: int) -> CorrectionCounts:
    padded = [*found, *[0] * (len(counts) - len(found))]
    return CorrectionCounts(*map(sum, zip(counts, padded, strict=True)))


def _correct_fact(memory: CrabPath, fact: dict[str, Any], k: int) -> str:
    """Ask the question, say what would have been right, and return the id of the note."""
    answer = memory.retrieve(fact["question"], k=k)
    memory.record(Feedback(answer.turn.id, -1.0, used=[fact["id"]], correction=fact["correction"]))
    return memory.notes(limit=1)[0].id


def _list_ids(answer: Answer) -> list[str]:
    return [item.node.id for item in answer.documents]
