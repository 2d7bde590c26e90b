"""Variants differ in what they remember, or in one setting, and in nothing else."""

import pytest

from benchmarks.learning import contamination
from benchmarks.learning.contamination import (
    CLAIMED_ORDER,
    DEFAULT,
    EPOCHS,
    FROZEN,
    VARIANTS,
    RecordingLearner,
    check_claimed_order,
    run_contamination,
)
from benchmarks.learning.paired_learners import DOCUMENTS_READ, open_paired_learners
from benchmarks.learning.plan import REGION_VARIANTS, LearningPlan
from benchmarks.learning.region_ablation import (
    REGION_ABLATIONS,
    REGIONS_ON,
    run_region_ablation,
)
from crabpath_lab.learning_rules import RULES, use_rules
from crabpath_lab.streams import FeedbackSimulator, SimulatedFeedback
from crabpath_retrievers import Feedback, InvalidInputError, Settings

pytestmark = pytest.mark.slow

ALL = "all experience, blind decay"


@pytest.fixture(scope="module")
def pair(small, cached):
    with open_paired_learners("small", small.head(6), cached, (DOCUMENTS_READ,)) as pair:
        yield pair


@pytest.fixture
def taught(pair):
    """A memory of a variant that was told about its first answer, and the turn of the next one."""
    with pair.namespace("taught"):

        def _taught(variant, outcome, followed):
            memory = pair.memory
            question = next(iter(pair.dataset.queries.values()))
            answer = memory.retrieve(question, k=DOCUMENTS_READ, namespace="taught")
            nodes = [answer.documents[place].node.id for place in followed]
            with use_rules(*VARIANTS[variant]):
                memory.record(Feedback(answer.turn.id, outcome, used=nodes))
            # Without its last word it is a similar question.
            similar = question.rsplit(" ", 1)[0]
            after = memory.retrieve(similar, k=4 * DOCUMENTS_READ, namespace="taught").turn
            return nodes, {item.node: item.features for item in after.returned}

        yield _taught


def speaks(features):
    """Whether an episode speaks for a document."""
    return features.get("episode", 0.0) > 0 or features.get("again", 0.0) > 0


@pytest.mark.parametrize(
    ("variant", "punished"),
    [
        (ALL, DOCUMENTS_READ),
        ("wins only, blind decay", DOCUMENTS_READ),
        (DEFAULT, 1),
        ("wins only, no decay", 0),
    ],
)
def test_what_a_variant_remembers_of_a_failure(pair, taught, variant, punished):
    """Who keeps wins alone brings nothing back; one that was followed alone is to blame.

    Blindly all that was returned is punished, else what was followed alone, or nothing.
    """
    (followed,), found = taught(variant, -1.0, [2])
    assert speaks(found.get(followed, {})) is (variant == ALL)
    assert variant == ALL or not any(map(speaks, found.values()))
    assert variant != ALL or not found[followed].get("passed")
    learned, namespace = pair.memory.store.learned, pair.memory.store.walk.get_clock("taught").key
    keys = learned.keys([document.id for document in pair.dataset.documents])
    usage = learned.usage(namespace, list(keys.values()))
    decayed = {key for key, use in usage.items() if use.decay}
    assert len(decayed) == punished
    assert not punished or keys[followed] in decayed


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_a_success_is_remembered_by_all(taught, variant):
    (followed,), found = taught(variant, 1.0, [2])
    assert speaks(found[followed])


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != ALL])
def test_of_a_failure_of_two_each_answers_for_its_own_question_by_default(taught, variant):
    _, found = taught(variant, -1.0, [1, 2])
    assert not any(features.get("episode", 0.0) > 0 for features in found.values())
    again = any(features.get("again", 0.0) > 0 for features in found.values())
    assert again is (variant == DEFAULT)


def test_all_variants_are_told_wrong_in_the_same_turns(pair):
    """Whatever they returned: the noise is a draw per turn."""
    wrong = {}
    for variant, rules in VARIANTS.items():
        with pair.namespace("paired") as namespace, use_rules(*rules):
            told = RecordingLearner(pair.memory, pair.dataset.split, namespace)
            simulator = FeedbackSimulator("followed", 0.4, DOCUMENTS_READ)
            done = pair.run_stream("paired", told, simulator, pair.schedule(EPOCHS, 1))
        true = [full for one in done for full in pair.score_pass(one)[f"full@{DOCUMENTS_READ}"]]
        signals = [signal.outcome > 0 for signal in told.signals]
        wrong[variant] = [bool(t) != said for t, said in zip(true, signals, strict=True)]
    assert len({tuple(flips) for flips in wrong.values()}) == 1
    assert 0 < sum(wrong[DEFAULT]) < len(wrong[DEFAULT])


def test_every_variant_has_a_row_and_leaves_nothing_behind(pair):
    before = pair.memory.info()
    rows = list(run_contamination(pair, 0.2, 2))
    assert {row["variant"] for row in rows} == {*VARIANTS, FROZEN}
    assert rows[0]["variant"] == DEFAULT
    for row in rows:
        assert (row["dataset"], row["noise"], row["orders"]) == ("small", 0.2, 2)
        assert len(row["epochs"]) == EPOCHS
        assert set(row["change"]) == set(row["late"]) == {"difference", "ci95", "p"}
        shares = [epoch["successes"] for epoch in row["epochs"]]
        assert all(s is None if row["variant"] == FROZEN else 0 <= s <= 1 for s in shares)
    assert all(epoch["difference"] == 0 for epoch in rows[0]["epochs"])
    assert pair.memory.info() == before


def test_successes_are_counted_among_what_speaks_for_documents():
    """A failure counts for who remembers it; who followed nothing says nothing."""
    said = ((1.0, "a"), (-1.0, "a"), (1.0, ""), (1.0, "b"))
    signals = [SimulatedFeedback(outcome, tuple(used)) for outcome, used in said]
    true = [[1.0, 0.0], [1.0, 0.0]]
    assert contamination.count_supporting(signals, true, failures=False) == [(1, 1), (1, 0)]
    assert contamination.count_supporting(signals, true, failures=True) == [(2, 1), (1, 0)]


@pytest.mark.parametrize(
    ("means", "claimed"),
    [((0.1, 0.2, 0.3), True), ((0.2, 0.1, 0.3), False), ((0.2, 0.2, 0.2), True)],
)
def test_the_order_of_the_three_is_judged_by_the_last_pass(means, claimed):
    """Worst first; other variants do not matter, and two of the three are not enough."""
    rows = [
        {"dataset": "d", "noise": 0.2, "variant": name, "epochs": [{"mean": 9.0}, {"mean": mean}]}
        for name, mean in zip((*CLAIMED_ORDER, FROZEN), (*means, 0.0), strict=True)
    ]
    (found,) = check_claimed_order(rows)
    assert found["claimed"] is claimed
    assert found["order"] == sorted(
        CLAIMED_ORDER, key=dict(zip(CLAIMED_ORDER, means, strict=True)).get
    )
    assert check_claimed_order(rows[1:]) == []


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
