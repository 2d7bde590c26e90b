"""Verdicts on made-up figures."""

import pytest

from benchmarks.experiments.registry import EXPERIMENTS

GOOD = {
    "compression": {
        "documents, first ten": [5.0, 4.0],
        "documents, last ten": [2.0, 2.4],
        "enough at once, last ten": [1.0, 1.0],
        "accuracy of 6 documents without learning, last ten": [1.0, 0.9],
        "documents that the last ten need": [1.9, 2.2],
        "nodes visited, last ten": [9.0, 9.0],
    },
    "cost": {
        "tokens, everything": [900.0, 900.0],
        "accuracy, everything": [1.0, 1.0],
        "tokens, search, 6 documents": [160.0, 150.0],
        "accuracy, search, 6 documents": [0.9, 1.0],
        "tokens, CrabPath": [70.0, 60.0],
        "accuracy, CrabPath": [1.0, 1.0],
        "tokens, CrabPath, other questions": [30.0, 20.0],
        "accuracy, CrabPath, other questions": [0.1, 0.1],
    },
    "damping": {
        "reaches D, λ = 0.3": [1.0, 1.0],
        "hops to D, λ = 0.3": [4.0, 4.0],
        "reaches D, λ = 1.0": [0.0, 0.0],
        "reaches D, usual settings": [1.0, 1.0],
    },
    "domains": {
        "share of edges that cross": [0.1, 0.15],
        "share of the bridges that stand": [1.0, 1.0],
        "share of crossing edges that are no bridge": [0.0, 0.0],
        "share of edges that cross, outcomes only": [0.2, 0.1],
    },
    "forgetting": {
        "dormant edges": [0.7, 0.8],
        "dormant edges of what was left": [0.9, 0.95],
        "dormant edges of what is used": [0.0, 0.0],
        "uses of a job until it is awake again": [2.0, 10.0],
        "accuracy on what was left, asleep": [0.8, 0.8],
        "accuracy on what was left, static": [0.8, 0.7],
        "accuracy over all questions": [0.9, 0.9],
        "accuracy over all questions, static": [0.7, 0.7],
    },
    "gradient": {
        "total weight, full": [10.0, 10.2],
        "total weight, heuristic": [11.0, 11.5],
        "mean weight towards distractors, full": [0.4, 0.5],
        "mean weight towards distractors, heuristic": [0.6, 0.6],
        "accuracy, second half, full": [0.8, 0.8],
        "accuracy, second half, heuristic": [0.8, 0.8],
    },
    "prune": {
        "edges before": [27.0, 25.0],
        "edges after": [6.0, 5.0],
        "dormant before": [0.8, 0.7],
        "dormant after": [0.0, 0.2],
        "accuracy on what was left, before": [0.8, 0.9],
        "accuracy on what was left, after": [0.8, 0.9],
        "accuracy on what was left, static": [0.7, 0.7],
        "undo gives all back": [1.0, 1.0],
    },
    "scaling": {
        "nodes visited, largest to smallest": [1.0, 1.1],
        "time of a walk, largest to smallest": [6.0, 8.0],
    },
    "static": {
        f"accuracy, {way}, {half} half": [0.8, 0.8]
        for way in ("static", "heuristic", "gradient")
        for half in ("first", "second")
    },
    "twins": {
        "edges that differ": [30.0, 28.0],
        "more coding pages for the coder": [2.0, 1.0],
        "more safety pages for the guard": [2.0, 1.0],
        "third namespace unchanged": [1.0, 1.0],
    },
}

BAD = [
    ("compression", "documents, last ten", [2.8, 2.8]),
    ("compression", "enough at once, last ten", [0.9, 0.9]),
    ("cost", "tokens, CrabPath", [400.0, 400.0]),
    ("cost", "tokens, CrabPath", [170.0, 170.0]),
    ("cost", "accuracy, CrabPath", [0.9, 0.9]),
    ("damping", "reaches D, λ = 0.3", [1.0, 0.0]),
    ("damping", "reaches D, λ = 1.0", [1.0, 0.0]),
    ("domains", "share of edges that cross", [0.1, 0.16]),
    ("domains", "share of the bridges that stand", [1.0, 0.5]),
    ("domains", "share of crossing edges that are no bridge", [0.0, 0.1]),
    ("forgetting", "dormant edges of what was left", [0.8, 0.95]),
    ("forgetting", "dormant edges of what is used", [0.1, 0.0]),
    ("forgetting", "uses of a job until it is awake again", [2.0, 11.0]),
    ("forgetting", "accuracy on what was left, asleep", [0.8, 0.6]),
    ("gradient", "total weight, full", [10.0, 12.0]),
    ("gradient", "mean weight towards distractors, full", [0.6, 0.5]),
    ("prune", "accuracy on what was left, after", [0.8, 0.8]),
    ("prune", "undo gives all back", [1.0, 0.0]),
    ("prune", "dormant after", [0.3, 0.4]),
    ("scaling", "nodes visited, largest to smallest", [1.0, 1.6]),
    ("static", "accuracy, gradient, second half", [0.8, 0.7]),
    ("twins", "third namespace unchanged", [1.0, 0.0]),
    ("twins", "more safety pages for the guard", [2.0, 0.0]),
]


@pytest.mark.parametrize("name", GOOD)
def test_figures_such_as_the_papers_are_reproduced(name):
    """Figures that hold what is asked, and no more."""
    assert EXPERIMENTS[name].verdict(GOOD[name]).word == "reproduced"


@pytest.mark.parametrize(("name", "figure", "values"), BAD)
def test_a_single_figure_out_of_range_is_not(name, figure, values):
    """Each condition of a verdict counts by itself."""
    assert figure in GOOD[name]
    assert EXPERIMENTS[name].verdict({**GOOD[name], figure: values}).word == "not reproduced"


@pytest.mark.parametrize(
    ("name", "figure", "values"),
    [
        ("scaling", "time of a walk, largest to smallest", [0.9, 1.2]),
        ("static", "accuracy, gradient, second half", [0.9, 0.9]),
    ],
)
def test_what_the_papers_do_not_reach_is_better(name, figure, values):
    """The third word is for what is clearly beyond the paper."""
    assert EXPERIMENTS[name].verdict({**GOOD[name], figure: values}).word == "better"


def test_reasons_tell_the_figures():
    """The sentence says what was found and why it is not enough."""
    reason = (
        EXPERIMENTS["prune"]
        .verdict({**GOOD["prune"], "accuracy on what was left, after": [0.7, 0.7]})
        .reason
    )
    assert "edges 26 → 6" in reason
    assert "0.850 → 0.700" in reason
    assert "still counts in the ranking" in reason
