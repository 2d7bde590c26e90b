"""What a namespace learns of ranking: towards what was used, slowly, and as it was stored."""

import numpy as np
import pytest

from crabpath_retrievers.rerank.features import FEATURES, LEARNED_FEATURES
from crabpath_retrievers.rerank.posterior import Posterior

SIMILARITY, EPISODE = FEATURES.index("similarity"), FEATURES.index("episode")


@pytest.fixture
def prior():
    """A prior that knows similarity and nothing else."""
    weights = np.zeros(len(FEATURES))
    weights[SIMILARITY] = 2.0
    return Posterior.of(weights, strength=100.0, learned_strength=1.0)


def shown(**columns):
    """Features of shown documents, by column."""
    size = len(next(iter(columns.values())))
    matrix = np.zeros((size, len(FEATURES)))
    for name, values in columns.items():
        matrix[:, FEATURES.index(name)] = values
    return matrix


def test_a_feature_of_what_was_used_gains(prior):
    """One of two was used, and only it had an episode."""
    after = prior.updated(shown(episode=[1.0, 0.0]), np.array([1.0, 0.0]))
    assert after.mean[EPISODE] > 0
    assert after.mean[SIMILARITY] == pytest.approx(2.0)


def test_it_loses_when_what_was_not_used_had_it(prior):
    """The same the other way round."""
    after = prior.updated(shown(episode=[1.0, 0.0]), np.array([0.0, 1.0]))
    assert after.mean[EPISODE] < 0


def test_shipped_weights_move_less_than_those_of_what_was_learned(prior):
    """A hundred times the precision, about a hundredth of the step."""
    after = prior.updated(shown(episode=[1, 0], similarity=[1, 0]), np.array([1.0, 0.0]))
    moved = after.mean - prior.mean
    assert 0 < moved[SIMILARITY] < moved[EPISODE] / 50


@pytest.mark.parametrize("used", [[0.0, 0.0], [1.0, 1.0]])
def test_nothing_is_learned_where_all_are_alike(prior, used):
    """Neither none nor all of the documents says which of them is better."""
    assert prior.updated(shown(episode=[1.0, 0.0]), np.array(used)) is prior


def test_less_weight_is_a_smaller_step(prior):
    """Feedback that counts half moves less."""
    full, half = (
        prior.updated(shown(episode=[1.0, 0.0]), np.array([1.0, 0.0]), weight).mean[EPISODE]
        for weight in (1.0, 0.5)
    )
    assert 0 < half < full


def test_many_steps_approach_the_frequency_with_which_a_feature_is_right(prior):
    """A feature that is right four times in five gets about its log-odds, ln 4."""
    posterior = prior
    for turn in range(2000):
        right = turn % 5 != 0
        used = np.array([1.0, 0.0]) if right else np.array([0.0, 1.0])
        posterior = posterior.updated(shown(episode=[1.0, 0.0]), used)
    assert posterior.mean[EPISODE] == pytest.approx(np.log(4), rel=0.1)


def test_it_comes_back_as_it_was_stored(prior):
    """Through plain data."""
    after = prior.updated(shown(episode=[1.0, 0.0]), np.array([1.0, 0.0]))
    again = Posterior.from_dict(after.to_dict(), prior)
    np.testing.assert_array_equal(again.mean, after.mean)
    np.testing.assert_array_equal(again.precision, after.precision)


def test_features_of_another_release_keep_their_prior(prior):
    """What was learned of known ones stays, an unknown one is passed over."""
    data = prior.updated(shown(episode=[1.0, 0.0]), np.array([1.0, 0.0])).to_dict()
    place = data["features"].index("usage")
    data["features"][place] = "of another release"
    again = Posterior.from_dict(data, prior)
    assert again.mean[EPISODE] == data["mean"][EPISODE]
    assert again.mean[FEATURES.index("usage")] == prior.mean[FEATURES.index("usage")]
    np.linalg.cholesky(again.precision)


def test_draws_spread_as_the_precision_says(prior):
    """A well-known weight is drawn near its mean, others far from it."""
    rng = np.random.default_rng(0)
    drawn = np.array([prior.sampled(rng) for _ in range(2000)])
    assert drawn[:, SIMILARITY].mean() == pytest.approx(2.0, abs=0.01)
    assert drawn[:, SIMILARITY].std() == pytest.approx(0.1, rel=0.1)
    assert drawn[:, EPISODE].std() == pytest.approx(1.0, rel=0.1)


def test_learned_features_are_features():
    """Their names are columns."""
    assert set(FEATURES) >= LEARNED_FEATURES
