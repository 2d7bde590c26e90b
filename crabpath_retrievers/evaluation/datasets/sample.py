"""The HotpotQA sample that ships with the package (CC BY-SA 4.0)."""

from importlib.resources import files
from pathlib import Path

from crabpath_retrievers.evaluation.datasets.beir import load_beir
from crabpath_retrievers.evaluation.datasets.dataset import Dataset


def load_sample() -> Dataset:
    """Sixty HotpotQA questions over six hundred paragraphs."""
    package = Path(str(files("crabpath_retrievers")))
    packaged, checkout = package / "demo_data", package.parent / "examples" / "hotpotqa_sample"
    return load_beir(packaged if packaged.exists() else checkout, "HotpotQA sample")
