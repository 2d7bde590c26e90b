"""Region MDP on against off: every variant on the same streams."""

import pytest

from benchmarks.learning.paired_learners import open_paired_learners
from benchmarks.learning.plan import REGION_VARIANTS, LearningPlan
from benchmarks.learning.region_ablation import (
    REGION_ABLATIONS,
    REGIONS_ON,
    run_region_ablation,
)
from benchmarks.learning_rules import RULES
from crabpath_retrievers import InvalidInputError, Settings
from crabpath_retrievers.evaluation.streams.simulated_feedback import FeedbackSimulator

pytestmark = pytest.mark.slow


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
