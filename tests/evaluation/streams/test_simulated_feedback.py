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
    """One report about three documents."""
    simulator = FeedbackSimulator(kind, noise, needed)
    return simulator.simulate(SHOWN, frozenset(gold), ANSWER, np.random.default_rng(seed))


def test_used_names_the_chunks_of_relevant_documents():
    """Only returned ones; gold that was not returned is not named."""
    assert signal("used", "bz") == (1.0, ("b-chunk",), None)


def test_nothing_relevant_is_a_failure():
    """No document was used."""
    assert signal("used", "z") == (-1.0, (), None)


@pytest.mark.parametrize(("gold", "outcome"), [("ab", 1.0), ("ac", -1.0), ("az", -1.0)])
def test_outcome_needs_all_evidence_among_what_is_read(gold, outcome):
    """Two documents are read; what stands third does not help."""
    assert signal("outcome", gold) == (outcome, None, None)


def test_an_answer_comes_only_from_a_chain_that_had_all_evidence():
    """A failed chain says nothing that could be attributed."""
    assert signal("answer", "ab") == (1.0, None, ANSWER)
    assert signal("answer", "az") == (-1.0, None, None)


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
