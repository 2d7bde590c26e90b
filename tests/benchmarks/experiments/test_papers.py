"""Phenomena of the papers, each played once by a real memory."""

import numpy as np
import pytest

from benchmarks.experiments import adversarial, brain_death, negation, noise, procedural

pytestmark = pytest.mark.slow


def played(module, cached, seed=0):
    """Figures of one seed; every curve and figure is a number."""
    trial = module.EXPERIMENT.run(cached, seed)
    assert all(np.isfinite(value) for value in trial.figures.values())
    assert all(np.isfinite(curve).all() for curve in trial.curves.values())
    return trial.figures


def test_a_procedure_becomes_a_chain_from_outcomes_alone(cached):
    figures = played(procedural, cached, 1)
    assert figures["queries until all are reflex"] <= procedural.TURNS
    assert figures["strongest edge to a distractor"] <= 0.3
    late = figures["accuracy, second half"]
    assert late >= figures["accuracy without learning, second half"]
    assert figures["accuracy of unrelated questions"] >= 0.9


def test_what_misled_is_advised_against_and_not_lost(cached):
    figures = played(negation, cached)
    assert figures["corrections until below -0.3"] <= 20
    assert figures["good page, strongest edge against it"] == 0
    assert figures["questions that lost one of both pages"] == 0
    assert figures["deprecated page, strongest edge against it"] < -0.3


def test_outcomes_keep_from_wrong_paths(cached):
    """Compared with Hebbian learning of whatever is read together."""
    figures = played(adversarial, cached)
    assert figures["wrong path, with outcomes"] < figures["wrong path, Hebbian only"]


def test_wrong_outcomes_do_no_harm(cached, monkeypatch):
    """With three in ten of them wrong still not below static."""
    monkeypatch.setattr(noise, "TURNS", 60)
    monkeypatch.setattr(noise, "NOISE", (0.0, 0.3))
    figures = played(noise, cached)
    static = figures["accuracy without learning"]
    assert figures["accuracy, 0% wrong"] > static
    assert figures["accuracy, 30% wrong"] >= static


def test_a_dying_memory_is_seen_and_a_dead_one_comes_back(cached, monkeypatch):
    """Within 25 and 60 questions; it dies without the autotuner."""
    monkeypatch.setattr(brain_death, "TURNS_AFTER", 60)
    figures = played(brain_death, cached)
    assert figures["queries until the autotuner acts"] <= 25
    assert figures["dormant share with it, most"] <= 0.95
    assert figures["dormant share without it, most"] > 0.95
    assert figures["queries until a dead memory is in range again"] <= 60
    assert figures["worst 25 queries against plain similarity"] >= 0
