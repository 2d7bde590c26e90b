"""Verdicts follow from the figures of the committed reports; each condition counts."""

import json
from pathlib import Path

import pytest

from benchmarks.experiments.registry import EXPERIMENTS

REPORTS = Path(__file__).parents[3] / "docs" / "experiments"
RECORDS = {name: json.loads((REPORTS / f"{name}.json").read_text()) for name in EXPERIMENTS}
# What two reports lack to be reproduced.
LACKING = {
    "cost": {"accuracy, CrabPath": 1.0},
    "prune": {f"accuracy on what was left, {when}": 0.8 for when in ("before", "after")},
}
# One figure that is out of range in all seeds, or in those that are given.
BAD = [
    ("adversarial", "wrong path, with outcomes", 0.5),
    ("compression", "documents, last ten", 4.5),
    ("compression", "enough at once, last ten", 0.9),
    ("cost", "tokens, CrabPath", 400.0),
    ("cost", "tokens, CrabPath", 170.0),
    ("cost", "accuracy, CrabPath", 0.9),
    ("damping", "reaches D, λ = 0.3", 0.5),
    ("damping", "reaches D, λ = 1.0", 0.5),
    ("domains", "share of edges that cross", 0.2),
    ("domains", "share of the bridges that stand", 0.5),
    ("domains", "share of crossing edges that are no bridge", 0.1),
    ("forgetting", "dormant edges of what was left", 0.5),
    ("forgetting", "dormant edges of what is used", 0.1),
    ("forgetting", "uses of a job until it is awake again", 11.0),
    ("forgetting", "accuracy on what was left, asleep", 0.6),
    ("gradient", "total weight, full", 12.0),
    ("gradient", "mean weight towards distractors, full", 0.7),
    ("noise", "accuracy, 30% wrong", 0.6),
    ("procedural", "queries until all are reflex", [20.0] * 8 + [51.0] * 2),
    ("procedural", "strongest edge to a distractor", [0.1] * 8 + [0.4] * 2),
    ("prune", "accuracy on what was left, after", 0.7),
    ("prune", "undo gives all back", 0.0),
    ("prune", "dormant after", 0.9),
    ("scaling", "nodes visited, largest to smallest", 1.6),
    ("static", "accuracy, gradient, second half", 0.7),
    ("twins", "third namespace unchanged", 0.0),
    ("twins", "more safety pages for the guard", 0.0),
]


def judge(name, changed=()):
    """The verdict on the figures of a report, with some of them changed."""
    record = RECORDS[name]
    figures = {figure: of["by_seed"] for figure, of in record["figures"].items()}
    for figure, value in dict(changed).items():
        assert figure in figures
        figures[figure] = value if isinstance(value, list) else [value] * record["seeds"]
    return EXPERIMENTS[name].verdict(figures)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_reports_say_what_their_figures_say(name):
    assert judge(name).word == RECORDS[name]["verdict"]
    assert judge(name, LACKING.get(name, ())).word in {"reproduced", "better"}


@pytest.mark.parametrize(("name", "figure", "value"), BAD)
def test_a_single_figure_out_of_range_is_enough(name, figure, value):
    changed = {**LACKING.get(name, {}), figure: value}
    assert judge(name, changed).word == "not reproduced"


@pytest.mark.parametrize(
    ("name", "figure", "value", "word"),
    [
        ("scaling", "time of a walk, largest to smallest", 8.0, "reproduced"),
        (
            "procedural",
            "queries until all are reflex",
            [20.0] * 2 + [51.0] + [20.0] * 7,
            "reproduced",
        ),
        ("noise", "accuracy, 30% wrong", 0.73, "better"),
    ],
)
def test_what_is_just_enough(name, figure, value, word):
    """A chain in nine of ten seeds; the third word is for what is clearly beyond the paper."""
    assert judge(name, {figure: value}).word == word


def test_reasons_tell_the_figures():
    """The sentence says what was found and why it is not enough."""
    reason = judge("prune").reason
    assert "edges 24 → 6" in reason
    assert "still counts in the ranking" in reason
