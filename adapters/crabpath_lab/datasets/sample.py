"""The HotpotQA sample that ships with the package (CC BY-SA 4.0)."""

from crabpath_lab.datasets.beir import load_beir
from crabpath_lab.datasets.dataset import Dataset
from crabpath_retrievers.cli.queries import find_sample


def load_sample() -> Dataset:
    """Sixty HotpotQA questions over six hundred paragraphs."""
    return load_beir(find_sample(), "HotpotQA sample")
