"""Region MDP on against off: every variant on the same streams."""

from dataclasses import replace

import pytest

from crabpath_retrievers import InvalidInputError, Settings
from crabpath_retrievers.evaluation.learning import regions
from crabpath_retrievers.evaluation.learning.plan import REGION_VARIANTS, LearningPlan
from crabpath_retrievers.evaluation.learning.regions import ON, TOLD, VARIANTS, region_rows
from crabpath_retrievers.evaluation.learning.subject import opened
from crabpath_retrievers.evaluation.streams.signals import Judge

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows(small, cached):
    """Five questions in two orders."""
    with opened("small", small.first(5), cached, (2, 5)) as subject:
        before = subject.memory.info()
        found = list(region_rows(subject, 2))
        assert subject.memory.info() == before
    return found


def test_every_variant_has_a_row_of_each_kind_of_feedback(rows):
    """The default first, as the others are compared with it."""
    assert [(r["feedback"], r["variant"]) for r in rows] == [(k, v) for k in TOLD for v in VARIANTS]
    for row in rows:
        assert list(row["parts"]) == ["first pass", "second half", "second pass"]
        for part in row["parts"].values():
            assert list(part) == ["full@2", "full@5"]
        if row["variant"] == ON:
            assert row["parts"]["second pass"]["full@2"]["difference"] == 0


def test_few_variants_can_be_chosen(small, cached):
    """The default is always measured; a plan knows the names without the machinery behind them."""
    assert (ON, *REGION_VARIANTS) == tuple(VARIANTS)
    with opened("small", small.first(2), cached, (5,)) as subject:
        found = list(region_rows(subject, 1, ["used"], ["regions off"]))
    assert [(row["feedback"], row["variant"]) for row in found] == [
        ("used", ON),
        ("used", "regions off"),
    ]


def test_variants_that_are_none_are_refused(tmp_path):
    """With those that there are."""
    with pytest.raises(InvalidInputError, match="choose among regions off"):
        LearningPlan(paths={"hotpotqa": tmp_path}, variants=("mdp off",))


def test_each_variant_changes_one_setting():
    """So that a difference has one cause."""
    changed = {
        name: [
            field for field in of.__slots__ if getattr(of, field) != getattr(VARIANTS[ON], field)
        ]
        for name, of in VARIANTS.items()
    }
    assert changed.pop(ON) == []
    assert all(len(fields) == 1 for fields in changed.values())


def test_a_question_counts_with_its_mean_over_the_orders_that_have_it():
    """Second halves of two orders hold different questions."""
    orders = [{"m": {"a": 1.0, "b": 0.0}}, {"m": {"b": 1.0}}]
    assert regions._pooled(orders) == {"m": {"a": 1.0, "b": 0.5}}


@pytest.mark.parametrize(("variant", "counted"), [(ON, True), ("regions off", False)])
def test_steps_are_counted_where_regions_are_on(small, cached, variant, counted):
    """So there is something to compare."""
    with opened("small", small.first(3), cached, (5,)) as subject:
        memory = subject.with_settings(replace(Settings(), learning=VARIANTS[variant]))
        with subject.namespace("steps") as namespace:
            subject.learned(namespace, Judge("used", 0.0, 5), subject.course(), memory)
            assert bool(memory.store.regions.all_steps(namespace, 0)) is counted
