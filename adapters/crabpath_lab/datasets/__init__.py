"""Data sets in their official formats, plain or gzipped, as documents, queries and qrels.

Labels stay in ``qrels``, ``facts`` and ``answers``; documents carry a title and text and nothing
else.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from crabpath_lab.datasets.beir import load_beir
from crabpath_lab.datasets.dataset import Dataset, make_passage
from crabpath_lab.datasets.hipporag import load_hipporag
from crabpath_lab.datasets.hotpotqa import load_hotpotqa, load_musique
from crabpath_lab.datasets.multihoprag import load_multihoprag

__all__ = [
    "DATASETS",
    "Dataset",
    "load_beir",
    "load_hipporag",
    "load_hotpotqa",
    "load_multihoprag",
    "load_musique",
    "make_passage",
]

DATASETS: Mapping[str, Callable[[Path], Dataset]] = MappingProxyType(
    {
        "hotpotqa": load_hotpotqa,
        "multihoprag": load_multihoprag,
        "2wiki": load_hotpotqa,
        "musique": load_musique,
        "hipporag": load_hipporag,
        "beir": load_beir,
    }
)
"""Loaders of data sets by their names for ``crabpath eval``."""
