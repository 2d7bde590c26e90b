"""Fitting the prior: it recovers what made documents relevant, and reads training files only."""

import numpy as np
import pytest

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.evaluation.fit_prior import fit_files
from crabpath_retrievers.evaluation.prior import Ranking, cross_validated, fit, full_at
from crabpath_retrievers.rerank.features import FEATURES


def made_up(count, seed=0):
    """Rankings whose relevance follows 4 · similarity + 2 · mention, plus Gumbel noise."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        features = np.zeros((30, len(FEATURES)))
        features[:, 0] = 1.0
        for name in ("similarity", "lexical", "mention"):
            features[:, FEATURES.index(name)] = rng.random(30)
        odds = 4 * features[:, FEATURES.index("similarity")]
        odds += 2 * features[:, FEATURES.index("mention")]
        relevant = np.arange(30) == np.argmax(odds + rng.gumbel(size=30))
        found.append(Ranking(features, relevant, 1, "made up"))
    return found


def test_the_weights_that_made_the_data_come_back_in_proportion():
    """4 : 2 : 0, up to the ridge and the noise of 600 draws."""
    weights = fit(made_up(600))
    assert weights["similarity"] / weights["mention"] == pytest.approx(2.0, rel=0.35)
    assert weights["lexical"] < 0.15 * weights["similarity"]


def test_probabilities_are_calibrated():
    """The mean probability of all candidates equals the share of relevant ones, 1 in 30."""
    rankings = made_up(600)
    weights = fit(rankings)
    vector = np.array([weights.get(name, 0.0) for name in FEATURES])
    odds = np.concatenate([r.features @ vector for r in rankings])
    assert float(np.mean(1 / (1 + np.exp(-odds)))) == pytest.approx(1 / 30, rel=0.05)


def test_evidence_never_gets_a_negative_weight():
    """A feature that stands against relevance by chance is ignored, not turned around."""
    rankings = made_up(50)
    for ranking in rankings:
        ranking.features[:, FEATURES.index("link")] = 0
        ranking.features[:, FEATURES.index("mentioned_by")] = ~ranking.relevant
    assert fit(rankings)["mentioned_by"] == 0.0


def test_full_at_k_counts_gold_that_search_never_found():
    """One of two gold documents among the candidates is not full evidence."""
    features = np.zeros((3, len(FEATURES)))
    ranking = Ranking(features, np.array([True, False, False]), 2, "x")
    assert full_at([ranking], {}, k=3) == 0.0
    assert full_at([Ranking(features, np.array([True, True, False]), 2, "x")], {}, k=3) == 1.0


def test_held_out_figures_come_per_data_set():
    """Five folds over everything, reported for each set on its own."""
    assert set(cross_validated(made_up(40))) == {"made up"}


@pytest.mark.parametrize("name", ["dev_sample.json", "hotpot_test.json"])
def test_development_files_are_refused(tmp_path, name):
    """The prior may never see what it is later judged on."""
    with pytest.raises(InvalidInputError, match="training files only"):
        fit_files({"hotpotqa": tmp_path / name})
