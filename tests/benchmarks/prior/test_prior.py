"""Fitting the prior: it recovers what made documents relevant, and reads training files only."""

from dataclasses import replace

import numpy as np
import pytest
from langchain_core.documents import Document

from benchmarks.prior.conditional_logit import (
    TrainingQuery,
    cross_validate,
    fit_contrast,
    fit_ranker,
    make_hand_ranker,
    measure_ranker,
    rank_evidence,
)
from benchmarks.prior.fit_files import draw_corpus, fit_files
from crabpath_lab import Dataset
from crabpath_retrievers import EdgeKind
from crabpath_retrievers.core.records import Candidate, NodeHead, Tier, WalkEdge
from crabpath_retrievers.core.text import QueryInformation
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.rerank import FEATURES, Evidence, compute_features


def head(key):
    return NodeHead(key, f"n{key}", "", 0, np.zeros(2, dtype=np.float32), b"")


def made_up(count, seed=0):
    """Rankings whose relevance follows 4 · similarity + 2 · link back, plus Gumbel noise.

    The walk tells of a strength for each pointer; its source is none of the candidates.
    """
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        similarity, name, back = rng.random((3, 30))
        hits = [Candidate(head(i), similarity[i], name=name[i]) for i in range(30)]
        kind = EdgeKind.MENTIONED_BY
        arrivals = [
            WalkEdge(head(99), hit.head, kind, 0.5, 0.0, Tier.HABITUAL, b, 1)
            for hit, b in zip(hits, back, strict=True)
        ]
        odds = 4 * similarity + 2 * back
        relevant = np.arange(30) == np.argmax(odds + rng.gumbel(size=30))
        evidence = Evidence.from_pool(hits, arrivals, {}, QueryInformation.from_idf({}))
        found.append(TrainingQuery(evidence, relevant, 1, "made up"))
    return found


def weights_of(ranker):
    return dict(zip(FEATURES, ranker.weights, strict=True))


def test_the_weights_that_made_the_data_come_back_in_proportion():
    """4 : 2 : 0, up to the ridge and the noise of 600 draws."""
    weights = weights_of(fit_ranker(made_up(600)))
    assert weights["similarity"] / weights["mentioned_by"] == pytest.approx(2.0, rel=0.35)
    assert weights["name"] < 0.15 * weights["similarity"]


def test_probabilities_are_calibrated():
    """The mean probability of all candidates equals the share of relevant ones, 1 in 30."""
    rankings = made_up(600)
    ranker = fit_ranker(rankings)
    chances = [ranker.probabilities(rank_evidence(ranker, r.evidence, 10)[1]) for r in rankings]
    assert float(np.mean(np.concatenate(chances))) == pytest.approx(1 / 30, rel=0.05)


def test_evidence_never_gets_a_negative_weight():
    """A feature that stands against relevance by chance is ignored, not turned around."""
    against = []
    for ranking in made_up(50):
        hits = zip(ranking.evidence.pool, ranking.relevant, strict=True)
        pool = [hit._replace(name=float(not relevant)) for hit, relevant in hits]
        against.append(replace(ranking, evidence=replace(ranking.evidence, pool=pool)))
    assert weights_of(fit_ranker(against))["name"] == 0.0


def test_the_weight_of_contrast_is_fitted_beside_all_others():
    """Relevance follows 3 · contrast; the other weights stay as they are."""
    rng, words = np.random.default_rng(0), QueryInformation.from_idf(dict.fromkeys("abcdefghij", 1))
    ranker, found = make_hand_ranker(similarity=1.0), []
    for _ in range(400):
        hits = [Candidate(head(i), similarity) for i, similarity in enumerate(rng.random(20))]
        evidence = Evidence.from_pool(hits, [], {}, words)
        matrix = compute_features(evidence, ranker.sources)
        odds = ranker.log_odds(matrix) + 3 * matrix[:, FEATURES.index("contrast")]
        relevant = np.arange(20) == np.argmax(odds + rng.gumbel(size=20))
        found.append(TrainingQuery(evidence, relevant, 1, "made up"))
    weights = weights_of(fit_contrast(ranker, found))
    assert weights["contrast"] == pytest.approx(3.0, rel=0.15)
    assert {name for name, weight in weights.items() if weight} == {"similarity", "contrast"}


def test_a_drawn_corpus_keeps_all_gold_of_its_questions():
    documents = tuple(Document(id=f"d{i}", page_content=f"text {i}") for i in range(60))
    qrels = {f"q{i}": frozenset({f"d{i}"}) for i in range(20)}
    qrels["many"] = frozenset(f"d{i}" for i in range(26))
    drawn = draw_corpus(Dataset("x", documents, dict.fromkeys(qrels, "?"), qrels), 5, 8)
    ids = {document.id for document in drawn.documents}
    assert (len(drawn.queries), len(ids)) == (5, 8)
    assert "many" not in drawn.queries
    assert frozenset().union(*drawn.qrels.values()) <= ids


def pool_of(*similarities):
    hits = [Candidate(head(i), similarity) for i, similarity in enumerate(similarities)]
    return Evidence.from_pool(hits, [], {}, QueryInformation.from_idf({}))


def test_full_at_k_counts_gold_that_search_never_found():
    """One of two gold documents among the candidates is not full evidence."""
    ranker, found = fit_ranker(made_up(20)), np.array([True, True, False])
    half = TrainingQuery(pool_of(0.5, 0.5, 0.5), found & [True, False, False], 2, "x")
    assert measure_ranker([half], ranker, k=3) == {"recall@3": 0.5, "full@3": 0.0}
    whole = replace(half, relevant=found)
    assert measure_ranker([whole], ranker, k=3) == {"recall@3": 1.0, "full@3": 1.0}


def test_weights_by_hand_rank_by_what_they_weigh():
    """Similarity alone orders by similarity: the less similar one comes second."""
    ranking = TrainingQuery(pool_of(0.2, 0.5), np.array([True, False]), 1, "x")
    for weight, full in ((1.0, 0.0), (-1.0, 1.0)):
        ranker = make_hand_ranker(similarity=weight)
        assert measure_ranker([ranking], ranker, k=1)["full@1"] == full


def test_held_out_figures_come_per_data_set():
    found = cross_validate(made_up(40))
    assert set(found) == {"made up"}
    assert 0 < found["made up"]["recall@5"] <= 1


@pytest.mark.parametrize("name", ["dev_sample.json", "hotpot_test.json"])
def test_development_files_are_refused(tmp_path, name):
    """The prior may never see what it is later judged on."""
    with pytest.raises(InvalidInputError, match="training files only"):
        fit_files({"hotpotqa": tmp_path / name})
