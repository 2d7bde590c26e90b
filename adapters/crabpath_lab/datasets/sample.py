"""The HotpotQA sample that ships with the package (CC BY-SA 4.0)."""

from dataclasses import replace

from crabpath_lab.datasets.beir import load_beir
from crabpath_lab.datasets.dataset import Dataset
from crabpath_retrievers.parts.demo import find_sample

_QUESTIONS, _PARAGRAPHS = 20, 200


def load_sample() -> Dataset:
    """Load sixty HotpotQA questions over six hundred paragraphs."""
    return load_beir(find_sample(), "HotpotQA sample")


def load_small_sample() -> Dataset:
    """Load twenty of these questions over two hundred paragraphs, for a smoke run."""
    found = load_sample().head(_QUESTIONS)
    gold = {document for relevant in found.qrels.values() for document in relevant}
    others = [document for document in found.documents if document.id not in gold]
    kept = {document.id for document in others[: _PARAGRAPHS - len(gold)]} | gold
    return replace(found, documents=tuple(d for d in found.documents if d.id in kept))
