"""What hosts report: as their kind says, and flipped as often as asked."""

import numpy as np
import pytest

from crabpath_retrievers.evaluation.streams.simulated_feedback import (
    FeedbackSimulator,
    ReturnedChunk,
)

SHOWN = [ReturnedChunk(f"{d}-chunk", d) for d in "abc"]
ANSWER = "42"


def signal(kind, gold, noise=0.0, needed=2, seed=0):
    simulator = FeedbackSimulator(kind, noise, needed)
    return simulator.simulate(SHOWN, frozenset(gold), ANSWER, np.random.default_rng(seed))


@pytest.mark.parametrize("kind", ["used", "outcome"])
def test_noise_flips_its_share(kind):
    """A fifth of 2,000 reports, or of their documents, is wrong."""
    clean = signal(kind, "ab")
    noisy = [signal(kind, "ab", noise=0.2, seed=seed) for seed in range(2000)]
    if kind == "outcome":
        wrong = np.mean([found.outcome != clean.outcome for found in noisy])
    else:
        wrong = np.mean(["a-chunk" not in found.used for found in noisy])
    assert wrong == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize(
    ("kind", "gold", "expected"),
    [
        # Of the relevant documents those that were returned are named, if there are any.
        ("used", "bz", (1.0, ("b-chunk",), None)),
        ("used", "z", (-1.0, (), None)),
        # Two documents are read; what stands third does not help.
        ("outcome", "ab", (1.0, None, None)),
        ("outcome", "ac", (-1.0, None, None)),
        ("outcome", "az", (-1.0, None, None)),
        # An answer comes only from a chain that had all evidence.
        ("answer", "ab", (1.0, None, ANSWER)),
        ("answer", "az", (-1.0, None, None)),
    ],
)
def test_each_kind_by_hand(kind, gold, expected):
    assert signal(kind, gold) == expected


@pytest.mark.parametrize(
    ("gold", "outcome", "used"),
    [
        ("ab", 1.0, "ab"),
        ("b", 1.0, "b"),
        ("bz", -1.0, "ab"),
        ("yz", -1.0, "ab"),
        ("bc", -1.0, "ab"),
        ("xyz", -1.0, "ab"),
    ],
)
def test_a_chain_follows_as_many_documents_as_it_needs(gold, outcome, used):
    """What is relevant among those it reads; for each that is missing, the best other one."""
    assert signal("followed", gold) == (outcome, tuple(f"{d}-chunk" for d in used), None)


def test_a_wrong_outcome_changes_nothing_of_what_was_followed():
    """So a failure blames relevant documents, and a success praises others."""
    for gold in ("ab", "az"):
        clean = signal("followed", gold)
        noisy = [signal("followed", gold, noise=0.2, seed=seed) for seed in range(2000)]
        assert {found.used for found in noisy} == {clean.used}
        wrong = np.mean([found.outcome != clean.outcome for found in noisy])
        assert wrong == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize("shown", [[], SHOWN[:1], SHOWN])
def test_the_same_turns_are_wrong_whatever_was_returned(shown):
    """One draw per turn, so that learners that return different documents stay paired."""
    simulator, rng = FeedbackSimulator("followed", 0.2, 2), np.random.default_rng(7)
    for _ in range(20):
        simulator.simulate(shown, frozenset("a"), None, rng)
    other = np.random.default_rng(7)
    other.random(20)
    assert rng.random() == other.random()
