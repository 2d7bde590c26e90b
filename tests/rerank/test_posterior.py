"""What a namespace learns of ranking: towards what was used, slowly, and as it was stored."""

import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crabpath_retrievers.rerank import (
    CORPUS_FEATURES,
    FEATURES,
    Posterior,
    encode_gain,
    remove_gain,
)

SIMILARITY, BRIDGE = FEATURES.index("similarity"), FEATURES.index("bridge")


@pytest.fixture
def prior():
    """A prior that knows similarity and nothing else."""
    weights = np.zeros(len(FEATURES))
    weights[SIMILARITY] = 2.0
    return Posterior.of(weights, strength=1.0)


def make_matrix(**columns):
    """Features of shown documents, by column."""
    size = len(next(iter(columns.values())))
    matrix = np.zeros((size, len(FEATURES)))
    for name, values in columns.items():
        matrix[:, FEATURES.index(name)] = values
    return matrix


@pytest.mark.parametrize("sign", [1, -1])
def test_what_was_used_gains_and_what_was_not_loses(prior, sign):
    used = np.array([1.0, 0.0])[::sign]
    steps = [
        prior.update(make_matrix(bridge=[1.0, 0.0]), used, weight).mean - prior.mean
        for weight in (1.0, 0.5)
    ]
    assert sign * steps[0][BRIDGE] > sign * steps[1][BRIDGE] > 0  # less weight, smaller step
    assert steps[0][SIMILARITY] == pytest.approx(0.0)


def test_what_texts_say_of_themselves_keeps_its_worth(prior):
    after = prior.update(
        make_matrix(**{name: [1.0, 0.0] for name in FEATURES if name != "similarity"}),
        np.array([1.0, 0.0]),
    )
    moved = dict(zip(FEATURES, np.abs(after.mean - prior.mean), strict=True))
    assert {name for name in FEATURES if moved[name] > 0.01} == CORPUS_FEATURES < set(FEATURES)
    assert all(moved[name] == 0.0 for name in set(FEATURES) - CORPUS_FEATURES)


def test_it_is_the_gradient_of_what_was_told(prior):
    matrix, used = make_matrix(bridge=[0.3, 0.8], name=[0.5, 0.0]), np.array([1.0, 0.0])

    def likelihood(bridge):
        weights = prior.mean.copy()
        weights[BRIDGE] = bridge
        called = 0.1 + 0.8 / (1.0 + np.exp(-matrix @ weights))
        return float(np.log(called[0]) + np.log(1.0 - called[1]))

    after = prior.update(matrix, used)
    gradient = after.precision @ (after.mean - prior.mean)
    assert gradient[BRIDGE] == pytest.approx(
        (likelihood(1e-5) - likelihood(-1e-5)) / 2e-5, rel=1e-4
    )


def test_many_steps_approach_the_frequency_with_which_a_feature_is_right(prior):
    posterior = prior
    for turn in range(2000):
        posterior = posterior.update(make_matrix(bridge=[1.0]), np.array([float(turn % 5 != 0)]))
    assert posterior.mean[BRIDGE] == pytest.approx(np.log(7), rel=0.05)


def test_it_is_stored_and_features_of_another_release_keep_their_prior(prior):
    taught = prior.update(make_matrix(bridge=[1.0, 0.0]), np.array([1.0, 0.0]))
    data = taught.to_dict()
    again = Posterior.from_dict(data, prior)
    np.testing.assert_array_equal(again.mean, taught.mean)
    np.testing.assert_array_equal(again.precision, taught.precision)
    place = data["features"].index("name")
    data["features"][place] = "of another release"
    again = Posterior.from_dict(data, prior)
    assert again.mean[BRIDGE] == taught.mean[BRIDGE]
    assert again.mean[FEATURES.index("name")] == prior.mean[FEATURES.index("name")]
    np.linalg.cholesky(again.precision)


@given(st.permutations(range(4)))
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lessons_are_taken_back_in_any_order(prior, order):
    taught, gains = prior, []
    for lesson in range(4):
        matrix = make_matrix(bridge=[0.2 * lesson, 0.5], name=[0.5, 0.1 * lesson])
        former, taught = taught, taught.update(matrix, np.array([1.0, 0.0]))
        gains.append(encode_gain(former, taught))
    for lesson in order:
        taught = remove_gain(taught, gains[lesson])
        np.linalg.cholesky(taught.precision)
    np.testing.assert_allclose(taught.mean, prior.mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(taught.precision, prior.precision, rtol=1e-6, atol=1e-7)


def test_gains_of_another_release_stay(prior):
    after = prior.update(make_matrix(bridge=[1.0, 0.0]), np.array([1.0, 0.0]))
    gain = zlib.compress(b"else" + zlib.decompress(encode_gain(prior, after))[4:])
    assert remove_gain(after, gain) is after


def test_draws_spread_as_the_precision_says(prior):
    rng = np.random.default_rng(0)
    drawn = prior.sample(rng, 2000)
    assert drawn[:, SIMILARITY].mean() == pytest.approx(2.0, abs=0.01)
    assert drawn[:, SIMILARITY].std() == pytest.approx(0.001, rel=0.1)
    assert drawn[:, BRIDGE].std() == pytest.approx(1.0, rel=0.1)
