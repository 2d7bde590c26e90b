"""Phenomena of the papers, each played once by a real memory; and how figures are judged."""

import numpy as np
import pytest

from benchmarks.experiments import adversarial, brain_death, negation, noise, procedural
from crabpath_retrievers.evaluation.embedding import cached_embedder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def embeddings():
    """The real model; every text is embedded once."""
    return cached_embedder()


def played(module, embeddings, seed=0):
    """Figures of one seed; every curve and figure is a number."""
    trial = module.EXPERIMENT.run(embeddings, seed)
    assert all(np.isfinite(value) for value in trial.figures.values())
    assert all(np.isfinite(curve).all() for curve in trial.curves.values())
    return trial.figures


def test_a_procedure_becomes_a_chain_from_outcomes_alone(embeddings):
    """All three edges are reflex within fifty queries, no distractor is above .3."""
    figures = played(procedural, embeddings, 1)
    assert figures["queries until all are reflex"] <= procedural.TURNS
    assert figures["strongest edge to a distractor"] <= 0.3
    late = figures["accuracy, second half"]
    assert late >= figures["accuracy without learning, second half"]
    assert figures["accuracy of unrelated questions"] >= 0.9


def test_what_misled_is_advised_against_and_not_lost(embeddings):
    """Below -.3 within 20 corrections; nothing against the good page."""
    figures = played(negation, embeddings)
    assert figures["corrections until below -0.3"] <= 20
    assert figures["good page, strongest edge against it"] == 0
    assert figures["questions that lost one of both pages"] == 0
    assert figures["deprecated page, strongest edge against it"] < -0.3


def test_outcomes_keep_from_wrong_paths(embeddings):
    """Compared with Hebbian learning of whatever is read together."""
    figures = played(adversarial, embeddings)
    assert figures["wrong path, with outcomes"] < figures["wrong path, Hebbian only"]


def test_wrong_outcomes_do_no_harm(embeddings, monkeypatch):
    """With three in ten of them wrong still not below static."""
    monkeypatch.setattr(noise, "TURNS", 60)
    monkeypatch.setattr(noise, "NOISE", (0.0, 0.3))
    figures = played(noise, embeddings)
    static = figures["accuracy without learning"]
    assert figures["accuracy, 0% wrong"] > static
    assert figures["accuracy, 30% wrong"] >= static


def test_a_dying_memory_is_seen_and_a_dead_one_comes_back(embeddings, monkeypatch):
    """Within 25 and 60 questions; it dies without the autotuner."""
    monkeypatch.setattr(brain_death, "TURNS_AFTER", 60)
    figures = played(brain_death, embeddings)
    assert figures["queries until the autotuner acts"] <= 25
    assert figures["dormant share with it, most"] <= 0.95
    assert figures["dormant share without it, most"] > 0.95
    assert figures["queries until a dead memory is in range again"] <= 60
    assert figures["worst 25 queries against plain similarity"] >= 0


def test_nine_of_ten_seeds_are_enough_for_a_chain():
    """Eight are not; a distractor counts as a failure too."""
    good, bad = [20.0] * 9 + [51.0], [20.0] * 8 + [51.0] * 2
    names = ("queries until all are reflex", "strongest edge to a distractor")
    verdict = procedural.EXPERIMENT.verdict
    assert verdict(dict(zip(names, (good, [0.1] * 10), strict=True))).word == "reproduced"
    assert verdict(dict(zip(names, (bad, [0.1] * 10), strict=True))).word == "not reproduced"
    late = [0.1] * 9 + [0.4]
    assert verdict(dict(zip(names, (good, late), strict=True))).word == "reproduced"
    assert verdict(dict(zip(names, ([51.0, *good[:9]], late), strict=True))).word == (
        "not reproduced"
    )


def test_wrong_paths_must_be_halved():
    """On average over the seeds."""
    alone, both = "wrong path, Hebbian only", "wrong path, with outcomes"
    verdict = adversarial.EXPERIMENT.verdict
    assert verdict({alone: [0.6, 0.8], both: [0.3, 0.4]}).word == "better"
    assert verdict({alone: [0.6, 0.8], both: [0.3, 0.41]}).word == "not reproduced"


def test_noise_must_not_fall_below_static():
    """At 30 %."""
    names = ("accuracy without learning", "accuracy, 0% wrong", "accuracy, 30% wrong")
    verdict = noise.EXPERIMENT.verdict
    assert verdict(dict(zip(names, ([0.7], [0.9], [0.7]), strict=True))).word == "better"
    assert verdict(dict(zip(names, ([0.7], [0.9], [0.69]), strict=True))).word == "not reproduced"
