"""One chunk for every document: the best one, with what its document holds."""

import numpy as np

from crabpath_retrievers.core.graph import Candidate, NodeHead
from crabpath_retrievers.core.text import QueryInformation, encode_terms
from crabpath_retrievers.rerank.features import FEATURES, Evidence
from crabpath_retrievers.rerank.ranker import select_best_chunks


def test_the_best_chunk_of_each_document_stands_for_it():
    """Chunks 2 and 0 are of one document and hold 30 and 15 nats: 4.5 units together."""
    texts = ["path", "sea", "crab"]
    vector = np.zeros(2, dtype=np.float32)
    heads = [NodeHead(i, f"n{i}", "", 0, vector, encode_terms([t])) for i, t in enumerate(texts)]
    asked = QueryInformation.from_idf({"crab": 30.0, "path": 15.0, "sea": 5.0})
    evidence = Evidence.from_pool([Candidate(head, 0.5) for head in heads], [], {}, asked)
    matrix = np.zeros((3, len(FEATURES)))
    assert select_best_chunks(["a", "b", "a"], [2, 1, 0], evidence, matrix) == [2, 1]
    assert matrix[:, FEATURES.index("document")].tolist() == [0.0, 0.5, 4.5]


def test_nothing_to_choose_from():
    """An empty store has no documents."""
    evidence = Evidence.from_pool([], [], {}, QueryInformation.from_idf({}))
    assert select_best_chunks([], [], evidence, np.zeros((0, len(FEATURES)))) == []
