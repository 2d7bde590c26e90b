"""What a namespace learns of ranking: towards what was used, slowly, and as it was stored."""

import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crabpath_retrievers.rerank.features import FEATURES, LEARNED_FEATURES
from crabpath_retrievers.rerank.posterior import Posterior, gained, without

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


def test_what_earlier_releases_stored_is_read(prior):
    """They wrote the numbers out."""
    after = prior.updated(shown(episode=[1.0, 0.0]), np.array([1.0, 0.0]))
    written = {"mean": after.mean.tolist(), "precision": after.precision.tolist()}
    again = Posterior.from_dict({**after.to_dict(), **written}, prior)
    np.testing.assert_array_equal(again.mean, after.mean)
    np.testing.assert_array_equal(again.precision, after.precision)


def test_features_of_another_release_keep_their_prior(prior):
    """What was learned of known ones stays, an unknown one is passed over."""
    taught = prior.updated(shown(episode=[1.0, 0.0]), np.array([1.0, 0.0]))
    data = taught.to_dict()
    place = data["features"].index("usage")
    data["features"][place] = "of another release"
    again = Posterior.from_dict(data, prior)
    assert again.mean[EPISODE] == taught.mean[EPISODE]
    assert again.mean[FEATURES.index("usage")] == prior.mean[FEATURES.index("usage")]
    np.linalg.cholesky(again.precision)


def test_the_last_lesson_is_taken_back_exactly(prior):
    """What is left is the posterior before it."""
    before = prior.updated(shown(episode=[1.0, 0.0]), np.array([1.0, 0.0]))
    after = before.updated(shown(episode=[0.3, 0.9], usage=[0.1, 0.2]), np.array([0.0, 1.0]))
    again = without(after, gained(before, after))
    np.testing.assert_allclose(again.mean, before.mean, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(again.precision, before.precision, rtol=1e-7, atol=1e-9)


@given(st.permutations(range(4)))
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lessons_are_taken_back_in_any_order(prior, order):
    """Without all of them the prior is left; the evidence of the others stays in between."""
    taught, gains = prior, []
    for lesson in range(4):
        matrix = shown(episode=[0.2 * lesson, 0.5], usage=[0.5, 0.1 * lesson])
        former, taught = taught, taught.updated(matrix, np.array([1.0, 0.0]))
        gains.append(gained(former, taught))
    for lesson in order:
        taught = without(taught, gains[lesson])
        np.linalg.cholesky(taught.precision)
    np.testing.assert_allclose(taught.mean, prior.mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(taught.precision, prior.precision, rtol=1e-6, atol=1e-7)


def test_gains_of_another_release_stay(prior):
    """Of other features it is not known which they were."""
    after = prior.updated(shown(episode=[1.0, 0.0]), np.array([1.0, 0.0]))
    gain = zlib.compress(b"else" + zlib.decompress(gained(prior, after))[4:])
    assert without(after, gain) is after


def test_draws_spread_as_the_precision_says(prior):
    """A well-known weight is drawn near its mean, others far from it."""
    rng = np.random.default_rng(0)
    drawn = prior.sampled(rng, 2000)
    assert drawn[:, SIMILARITY].mean() == pytest.approx(2.0, abs=0.01)
    assert drawn[:, SIMILARITY].std() == pytest.approx(0.1, rel=0.1)
    assert drawn[:, EPISODE].std() == pytest.approx(1.0, rel=0.1)


def test_learned_features_are_features():
    """Their names are columns."""
    assert set(FEATURES) >= LEARNED_FEATURES
