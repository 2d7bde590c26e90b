"""Region MDP on against off: every variant on the same streams."""

import pytest

from benchmarks.learning.paired_learners import open_paired_learners
from benchmarks.learning.plan import REGION_VARIANTS, LearningPlan
from benchmarks.learning.region_ablation import (
    FEEDBACK_USED,
    REGION_ABLATIONS,
    REGIONS_ON,
    run_region_ablation,
)
from benchmarks.learning_rules import RULES
from crabpath_retrievers import InvalidInputError, Settings
from crabpath_retrievers.evaluation.streams.simulated_feedback import FeedbackSimulator

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows(small, cached):
    with open_paired_learners("small", small.head(5), cached, (2, 5)) as pair:
        before = pair.memory.info()
        found = list(run_region_ablation(pair, 2))
        assert pair.memory.info() == before
    return found


def test_every_variant_has_a_row_of_each_kind_of_feedback(rows):
    assert [(r["feedback"], r["variant"]) for r in rows] == [
        (k, v) for k in FEEDBACK_USED for v in REGION_ABLATIONS
    ]
    for row in rows:
        assert list(row["parts"]) == ["first pass", "second half", "second pass"]
        assert all(list(part) == ["full@2", "full@5"] for part in row["parts"].values())
        difference = row["parts"]["second pass"]["full@2"]["difference"]
        assert row["variant"] != REGIONS_ON or difference == 0


def test_few_variants_can_be_chosen(small, cached):
    """The default is always measured; a plan knows the names without the machinery behind them."""
    assert (REGIONS_ON, *REGION_VARIANTS) == tuple(REGION_ABLATIONS)
    with open_paired_learners("small", small.head(2), cached, (5,)) as pair:
        found = list(run_region_ablation(pair, 1, ["used"], ["regions off"]))
    assert [(row["feedback"], row["variant"]) for row in found] == [
        ("used", REGIONS_ON),
        ("used", "regions off"),
    ]
    with pytest.raises(InvalidInputError, match="choose among regions off"):
        LearningPlan(paths={"hotpotqa": "x"}, variants=("mdp off",))


def test_each_variant_changes_one_setting():
    """Or replaces rules, so that a difference has one cause."""
    changed = {
        name: [
            field
            for field in type(of).model_fields
            if getattr(of, field) != getattr(REGION_ABLATIONS[REGIONS_ON], field)
        ]
        for name, of in REGION_ABLATIONS.items()
    }
    assert changed.pop(REGIONS_ON) == []
    assert all(len(fields) == (name not in RULES) for name, fields in changed.items())


@pytest.mark.parametrize(("variant", "counted"), [(REGIONS_ON, True), ("regions off", False)])
def test_steps_are_counted_where_regions_are_on(small, cached, variant, counted):
    with open_paired_learners("small", small.head(3), cached, (5,)) as pair:
        memory = pair.with_settings(Settings().replace(learning=REGION_ABLATIONS[variant]))
        with pair.namespace("steps") as namespace:
            pair.run_learning(namespace, FeedbackSimulator("used", 0.0, 5), pair.schedule(), memory)
            assert bool(memory.store.regions.get_all_transitions(namespace, 0)) is counted
