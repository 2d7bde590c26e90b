"""Data sets in their official formats, plain or gzipped, as documents, queries and qrels.

Labels stay in ``qrels``, ``facts`` and ``answers``; documents carry a title and text and nothing
else.
"""

from crabpath_retrievers.evaluation.datasets.beir import beir
from crabpath_retrievers.evaluation.datasets.dataset import Dataset, passage
from crabpath_retrievers.evaluation.datasets.hotpotqa import hotpotqa
from crabpath_retrievers.evaluation.datasets.multihoprag import multihoprag
from crabpath_retrievers.evaluation.datasets.musique import musique

__all__ = ["Dataset", "beir", "hotpotqa", "multihoprag", "musique", "passage"]
