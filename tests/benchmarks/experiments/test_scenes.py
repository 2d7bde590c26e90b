"""Each scene played once, shorter than it is meant to be."""

import math
from typing import get_args

import pytest

from benchmarks.experiments import (
    compression,
    cost,
    damping,
    domains,
    forgetting,
    gradient,
    prune,
    scaling,
    static,
    twins,
)
from benchmarks.experiments.experiment import VerdictWord
from benchmarks.experiments.registry import EXPERIMENTS
from crabpath_retrievers.config import WalkSettings

pytestmark = pytest.mark.slow

SCENES = {
    "compression": (compression, {"turns": 24}),
    "cost": (cost, {"turns": 24}),
    "damping": (damping, {}),
    "domains": (domains, {"turns": 15}),
    "forgetting": (forgetting, {"turns": (15, 20)}),
    "gradient": (gradient, {"turns": 12}),
    "prune": (prune, {"turns": (12, 65)}),
    "scaling": (scaling, {"sizes": (30, 80)}),
    "static": (static, {"turns": 10}),
    "twins": (twins, {"turns": 12}),
}
SHARES = ("accuracy", "share", "dormant", "reaches", "enough")


@pytest.fixture(scope="module")
def played(cached):
    trials = {}

    def _played(name):
        if name not in trials:
            module, options = SCENES[name]
            trials[name] = module._run(cached, 0, **options)
        return trials[name]

    return _played


@pytest.mark.parametrize("name", SCENES)
def test_figures_are_numbers_in_their_ranges_and_can_be_judged(played, name):
    trial = played(name)
    assert all(math.isfinite(value) for value in trial.figures.values())
    shares = {of: v for of, v in trial.figures.items() if of.startswith(SHARES)}
    assert shares or name in {"scaling", "twins"}
    assert all(0.0 <= value <= 1.0 for value in shares.values()), shares
    assert len({len(curve) for curve in trial.curves.values()}) <= 1
    verdict = EXPERIMENTS[name].verdict({of: [v] for of, v in trial.figures.items()})
    assert verdict.word in get_args(VerdictWord)
    assert verdict.reason
    assert not verdict.reason.endswith(".")


def test_what_two_namespaces_learn_reaches_no_third_one(played):
    figures = played("twins").figures
    assert figures["third namespace unchanged"] == 1.0
    assert figures["edges that differ"] > played("twins").curves["edges that differ"][0] == 0.0


def test_pruning_takes_edges_and_undo_gives_them_back(played):
    figures = played("prune").figures
    assert figures["edges after"] < figures["edges before"]
    assert figures["dormant after"] < figures["dormant before"]
    assert figures["undo gives all back"] == 1.0


def test_only_the_damped_walk_leaves_the_cycle(played):
    figures = played("damping").figures
    assert figures["goes round the cycle first, λ = 0.3"] == 1.0
    assert (figures["reaches D, λ = 0.3"], figures["hops to D, λ = 0.3"]) == (1.0, 4.0)
    assert figures["reaches D, λ = 1.0"] == 0.0
    assert figures["edges followed again, usual settings"] == 0.0


def test_what_is_left_falls_asleep_and_what_is_used_does_not(played):
    figures, left = played("forgetting").figures, "dormant edges of what was left"
    assert figures[f"{left}, before"] <= figures[left]
    assert figures["dormant edges of what is used"] == 0.0
    assert figures["uses of a job until it is awake again"] <= forgetting._MAX_USES


def test_told_what_was_used_no_edge_joins_pages_that_no_job_needs(played):
    figures = played("domains").figures
    assert figures["share of edges that no job needs"] == 0.0
    assert figures["share of crossing edges that are no bridge"] == 0.0


def test_everything_costs_most_and_is_always_enough(played):
    figures = played("cost").figures
    contexts = ("everything", "search, 6 documents", "CrabPath")
    most, search, least = (figures[f"tokens, {context}"] for context in contexts)
    assert most > search > least
    assert figures["accuracy, everything"] == 1.0
    assert figures["accuracy, CrabPath"] >= figures["accuracy, CrabPath, never taught"]


def test_the_confident_documents_are_enough_more_often_in_the_end(played):
    figures = played("compression").figures
    assert figures["enough at once, last ten"] > figures["enough at once, first ten"]
    assert figures["documents, last ten"] >= figures["documents that the last ten need"]


def test_walks_decide_between_pointers_under_both_rules(played):
    for rule in ("full", "heuristic"):
        share = f"share of questions whose walk follows a pointer, {rule}"
        assert played("gradient").figures[share] > 0.0
        assert len(set(played("gradient").curves[f"total weight, {rule}"])) > 1


def test_a_walk_visits_no_more_nodes_than_its_budget_in_any_memory(played):
    sizes = SCENES["scaling"][1]["sizes"]
    visited = [played("scaling").figures[f"nodes visited, {size} pages"] for size in sizes]
    assert 1 <= min(visited) <= max(visited) <= WalkSettings().max_nodes


def test_all_ways_answer_as_many_questions(played):
    curves = played("static").curves
    assert {way: len(curve) for way, curve in curves.items()} == dict.fromkeys(
        ("static", "heuristic", "gradient"), SCENES["static"][1]["turns"]
    )
