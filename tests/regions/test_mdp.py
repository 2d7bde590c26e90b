"""``RegionMDP`` on a planted world: find, take, put succeeds; find, throw fails."""

import pytest

from crabpath_retrievers import InvalidInputError, NotFoundError, RegionMDP
from crabpath_retrievers.core.changes import ForgetNamespace
from crabpath_retrievers.regions.success import log_odds, shift_log_odds

HALL, DESK, BIN = 0, 1, 2


@pytest.fixture
def world(planted):
    """Five successes, four failures; "take" and "throw" are done at the desk."""
    planted.live([HALL, DESK, HALL], ["find", "take", "put"], 1.0, times=5)
    planted.live([HALL, DESK, BIN], ["find", "throw"], -1.0, times=4)
    return planted


def test_transitions_are_counted_and_every_action_is_credited(world):
    """The last one too, with the outcome of its episode; ways from a step sum to one."""
    model, (hall, desk, bin_, *_) = world.model(), world.hubs
    assert isinstance(model, RegionMDP)
    ways = {
        (hall, "find"): {desk: 1.0},
        (hall, "put"): {None: 1.0},
        (desk, "take"): {hall: 1.0},
        (desk, "throw"): {None: 1.0},
        (desk, "find"): {},
    }
    for (region, action), expected in ways.items():
        for way in (hall, desk, bin_, None):
            chance = model.transition_probability(region, action, way)
            assert chance == expected.get(way, 0.0)
    trials = {(r, s.action): s.trials for r in model.visited_regions for s in model.best_action(r)}
    assert {key: n for key, n in trials.items() if n} == {
        (hall, "find"): 9.0,
        (desk, "take"): 5.0,
        (hall, "put"): 5.0,
        (desk, "throw"): 4.0,
    }
    assert model.success_probability(hall, "put") > 0.7
    assert model.success_probability(desk, "throw") < 0.3
    world.live([DESK], ["take"], -1.0)
    assert model.transition_probability(desk, "take", hall) == pytest.approx(5 / 6)
    assert model.transition_probability(desk, "take", None) == pytest.approx(1 / 6)


def test_the_best_action_is_to_take_and_a_region_that_nobody_saw_backs_off(world):
    model = world.model()
    first, *others = model.best_action(world.hubs[DESK])
    assert (first.action, first.trials, first.success > 0.7) == ("take", 5.0, True)
    order = [score.success * score.share for score in (first, *others)]
    assert order == sorted(order, reverse=True)
    assert sum(score.share for score in (first, *others)) == pytest.approx(1.0)
    assert {score.action for score in others} == {"find", "put", "throw"}
    elsewhere, desk = world.hubs[9], world.hubs[DESK]
    assert elsewhere not in model.visited_regions
    assert model.success_probability(elsewhere, "take") > 0.5
    assert model.success_probability(elsewhere, "throw") < 0.5
    assert model.best_action(elsewhere)[0].action == "find"
    assert 0.5 < model.region_quality(elsewhere) < model.region_quality(world.hubs[HALL])
    assert model.success_probability(desk, "take") > model.success_probability(elsewhere, "take")
    assert model.strategy_for(elsewhere) == []
    # The chance of an episode is the mean of its steps, in log-odds.
    good, bad = (model.episode_success([(desk, action)]) for action in ("take", "throw"))
    assert 0 < bad < good < 1
    opinions = [model.success_probability(desk, "take"), model.region_quality(desk)]
    assert good == pytest.approx(shift_log_odds(0.5, sum(map(log_odds, opinions)) / 2))
    with pytest.raises(InvalidInputError, match="at least one step"):
        model.episode_success([])


def test_the_strategy_is_the_way_of_the_successes(world):
    """Find, take, put; with the probability of each next region."""
    hall, desk, *_ = world.hubs
    stages = world.model().strategy_for(desk)
    assert [(s.region, s.action) for s in stages] == [(desk, "take"), (hall, "put")]
    assert [(s.next_region, s.probability) for s in stages] == [(hall, 1.0), (None, 1.0)]
    assert all(0 < stage.success < 1 for stage in stages)
    assert len(world.model().strategy_for(desk, most=1)) == 1
    values = world.model().value_iteration()
    assert values.actions[desk] == "take"
    assert set(values.values) == set(values.actions) == {hall, desk}
    assert all(0 < value < 1 for value in values.values.values())
    assert values.values != world.model().value_iteration(discount=0.2).values


def test_a_strategy_that_goes_round_ends(planted):
    """No region twice; for a task new to the region it is that of all."""
    planted.live([HALL, DESK, HALL, DESK, HALL], ["on"] * 5, 1.0, times=3)
    planted.live([BIN], ["find"], 1.0, task="keep")
    for task in (None, "keep"):
        stages = planted.model().strategy_for(planted.hubs[HALL], task)
        assert [stage.region for stage in stages] == [planted.hubs[HALL], planted.hubs[DESK]]


def test_two_types_of_tasks_want_opposite_actions(planted):
    for task, good, bad in (("keep", "take", "throw"), ("clean", "throw", "take")):
        planted.live([DESK], [good], 1.0, times=6, task=task)
        planted.live([DESK], [bad], -1.0, times=6, task=task)
    model, desk = planted.model(), planted.hubs[DESK]
    for task, good in (("keep", "take"), ("clean", "throw")):
        best, worst = model.best_action(desk, task)
        assert best.action == good
        assert (best.success > 0.7, worst.success < 0.3) == (True, True)
        assert [stage.action for stage in model.strategy_for(desk, task)] == [good]
        assert model.value_iteration(task).actions == {desk: good}
    assert {s.success for s in model.best_action(desk, "new")} == {
        s.success for s in model.best_action(desk)
    }
    assert model.value_iteration("new").values == {}


def test_a_model_follows_what_is_learned(world):
    """One action that succeeded once does not go first; undone and forgotten, it is as before."""
    model, desk = world.model(), world.hubs[DESK]
    before, learn = model.success_probability(desk, "throw"), world.memory.regions.learn_episode
    receipt = learn([desk], ["throw"], 1.0, namespace=world.namespace)
    assert model.success_probability(desk, "throw") > before
    world.memory.undo(receipt.feedback_id)
    assert model.success_probability(desk, "throw") == pytest.approx(before)
    learn([desk], ["jump"], 1.0, namespace=world.namespace)
    assert model.best_action(desk)[0].action == "take"
    other = world.memory.regions.mdp(namespace="nobody else")
    assert (other.visited_regions, other.actions, other.best_action(desk)) == ((), (), [])
    assert (other.region_quality(desk), other.value_iteration().values) == (0.5, {})
    world.memory.store.apply([ForgetNamespace(world.namespace)])
    learn([desk], ["throw"], 1.0, namespace=world.namespace)
    assert model.actions == ("throw",)


def test_unknown_regions_actions_and_discounts(world):
    """One sentence that tells where names come from."""
    model, hub = world.model(), world.hubs[DESK]
    for call, words in (
        (lambda: model.best_action("no such"), "there is no region 'no such' on level 1"),
        (lambda: model.strategy_for("x" * 999), "there is no region 'xxx"),
        (lambda: model.success_probability(hub, "fly"), "no step 'fly' was ever taken"),
        (lambda: model.success_probability(hub, ""), "actions are: find, put, take, throw"),
        (lambda: model.transition_probability(hub, "find", "no"), "there is no region 'no'"),
    ):
        with pytest.raises(NotFoundError, match=words):
            call()
    for discount in (0, 1, float("nan"), "0.5", True):
        with pytest.raises(InvalidInputError, match="discount must be between 0 and 1"):
            model.value_iteration(discount=discount)


def test_a_model_is_made_of_a_memory_and_learns(planted):
    """As CVX RFC-013 D writes it: made of a memory and a level, asked, taught, asked again."""
    mdp = RegionMDP(planted.memory.regions, 1, namespace=planted.namespace)
    hub = planted.hubs[0]
    vector = planted.memory.store.catalog.vectors([hub])[hub].astype("f4")
    here = mdp.assign(vector)
    assert here == hub
    receipt = mdp.learn_episode([vector], ["look"], 1.0)
    assert receipt.status == "applied"
    assert [score.action for score in mdp.best_action(here)] == ["look"]
    assert mdp.visited_regions == (here,)
