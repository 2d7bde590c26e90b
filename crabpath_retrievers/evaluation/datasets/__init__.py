"""Data sets in their official formats, plain or gzipped, as documents, queries and qrels.

Labels stay in ``qrels``, ``facts`` and ``answers``; documents carry a title and text and nothing
else.
"""

from crabpath_retrievers.evaluation.datasets.beir import load_beir
from crabpath_retrievers.evaluation.datasets.dataset import Dataset, make_passage
from crabpath_retrievers.evaluation.datasets.hipporag import load_hipporag
from crabpath_retrievers.evaluation.datasets.hotpotqa import load_hotpotqa, load_musique
from crabpath_retrievers.evaluation.datasets.multihoprag import load_multihoprag

__all__ = [
    "Dataset",
    "load_beir",
    "load_hipporag",
    "load_hotpotqa",
    "load_multihoprag",
    "load_musique",
    "make_passage",
]
