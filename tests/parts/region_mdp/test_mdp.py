"""Regions as a decision process: estimates and values by hand, and on a planted world."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crabpath_retrievers import InvalidInputError, NotFoundError, RegionMDP
from crabpath_retrievers.parts.region_mdp.mdp import ValueFunction, run_value_iteration
from crabpath_retrievers.regions import SuccessModel, log_odds, shift_log_odds
from tests.seams import make_change

ALL, REGION = (0, 0), (1, 9)
CHAIN = (ALL, (2, 7), REGION)
LAST = {place: depth for depth, place in enumerate(CHAIN)}
S = 8.0  # strength


def count_step(place, action, trials, wins, task="", *ends):
    """A count of one place."""
    return make_change("TransitionCount", *place, task, action, 0, trials, wins, *ends)


def learn(*steps, places=(ALL, REGION), strength=S):
    """What is known after these counts."""
    return SuccessModel(places, steps, strength)


def compute_mean(wins, trials, prior):
    """Of a Beta posterior with S trials before."""
    return (wins + S * prior) / (trials + S)


EVERY = compute_mean(6, 8, 0.5)
GENERAL = compute_mean(5, 10, 0.5)
HERE = compute_mean(0, 20, compute_mean(60, 80, 0.5))
FIND = compute_mean(40, 40, compute_mean(60, 80, 0.5))
ODDS = FIND / (1 - FIND) * HERE / (1 - HERE) * 24 / 64


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        # 6 of 8 steps succeed: of "find" 6 of 6, of "throw" 0 of 2; the region has no counts.
        pytest.param(
            [count_step(ALL, "find", 6, 6), count_step(ALL, "throw", 2, 0)],
            {
                ("",): EVERY,
                ("find",): compute_mean(6, 6, EVERY),
                ("throw",): compute_mean(0, 2, EVERY),
                ("new",): EVERY,
            },
            id="one place",
        ),
        # "find" succeeds everywhere, everything else fails in the region.
        pytest.param(
            [
                count_step(ALL, "find", 40, 40),
                count_step(ALL, "throw", 40, 20),
                count_step(REGION, "throw", 20, 0),
            ],
            # Of 80 steps everywhere 60 succeed: with eight trials before, odds of 64 to 24.
            {("find",): ODDS / (1 + ODDS), ("new",): HERE},
            id="an action new to a region gets what the region does to all",
        ),
        pytest.param(
            [count_step(ALL, "find", 10, 5), count_step(ALL, "find", 4, 4, "refund")],
            {
                ("find",): GENERAL,
                ("find", "cancel"): GENERAL,
                ("find", "refund"): compute_mean(4, 4, GENERAL),
            },
            id="a task refines what holds for all",
        ),
    ],
)
def test_success_by_hand(steps, expected):
    known = learn(*steps)
    assert {asked: known.success(*asked) for asked in expected} == pytest.approx(expected)


def test_quality_is_of_what_came_by():
    """Not of single steps."""
    known = learn(
        count_step(ALL, "", 10, 5),
        count_step(REGION, "", 2, 2),
        count_step(REGION, "find", 50, 0),
    )
    assert known.quality() == pytest.approx(compute_mean(2, 2, compute_mean(5, 10, 0.5)))
    assert (known.trials("find"), known.trials("find", depth=0)) == (50, 0)
    # Shares: 3 finds and 1 take everywhere, then 2 takes in the region (Dirichlet).
    finds, takes = count_step(ALL, "find", 3, 0), count_step(ALL, "take", 1, 0)
    known = learn(finds, takes, count_step(REGION, "take", 2, 0))
    everywhere = (1 + S * 0.5) / (4 + S)
    assert known.share("take") == pytest.approx((2 + S * everywhere) / (2 + S))
    # Nothing known is even; counts of other regions are passed over.
    for known in (learn(), learn(places=()), learn(count_step((1, 10), "find", 9, 0))):
        assert known.success("find") == known.success("", "refund") == known.quality() == 0.5
        assert known.actions == ()
    # Undo may leave more wins than trials, by rounding.
    known = learn(count_step(REGION, "", 1, 1.1))
    assert known.quality() == pytest.approx(compute_mean(1, 1, 0.5))


COUNT = st.tuples(
    st.sampled_from(CHAIN),
    st.sampled_from(["find", "take", "put"]),
    st.sampled_from(["", "refund"]),
    st.integers(1, 60),
    st.floats(0, 1),
)
COUNTS = st.lists(COUNT, max_size=12, unique_by=lambda one: one[:3])


@settings(max_examples=40)
@given(COUNTS, COUNT, st.integers(1, 5), st.floats(0.5, 50))
def test_estimates_are_chances_that_wins_raise_and_evidence_settles(counts, one, more, strength):
    """Strictly between 0 and 1; 10,000 steps in the region itself outweigh every belief."""
    place, action, task, trials, share = one
    steps = [count_step(where, a, n, n * rate, t) for where, a, t, n, rate in counts]
    others = [other for other in steps if other[:4] != (*place, task, action)]
    few = make_change("TransitionCount", *place, task, action, 0, trials + more, trials * share)
    known = learn(*others, few, places=CHAIN, strength=strength)
    before, after = (
        learn(*others, count, places=CHAIN) for count in (few, few._replace(wins=few.wins + more))
    )
    for depth in range(3):
        assert all(0 < known.success(a, task, depth) < 1 for a in ("find", "new", ""))
        if depth == LAST[place]:
            gain = after.success(action, task, depth) - before.success(action, task, depth)
            assert gain >= -1e-12
    assert sum(known.share(a, task) for a in known.actions) == pytest.approx(1.0)
    rate = 0.05 + 0.9 * share
    elsewhere = [other for other in steps if other.region != REGION[1]]
    known = learn(*elsewhere, count_step(REGION, "find", 10_000, 10_000 * rate), places=CHAIN)
    assert known.success("find") == pytest.approx(rate, abs=0.01)


A, B = 1, 2


def count_move(region, action, led=0, trials=1.0, ends=None):
    """Steps that led to one region, or ended."""
    last = (0.0 if led else trials) if ends is None else ends
    return make_change("TransitionCount", 1, region, "", action, led, trials, 0.0, last)


def test_a_loop_without_way_out_converges():
    """What came by without action, and what was taken back, is no step."""
    steps = [count_move(A, "on", B), count_move(B, "on", A)]
    plan = run_value_iteration(steps, {(A, "on"): 0.6, (B, "on"): 0.6}, 0.99)
    assert plan.values == pytest.approx({A: 0.6, B: 0.6}, abs=1e-3)
    assert plan.rounds < 2000
    steps = [make_change("TransitionCount", 1, A, "", "", 0, 5.0, 2.0), count_move(A, "go", 0, 0.0)]
    assert run_value_iteration(steps, {}, 0.9) == ValueFunction({}, {}, 0)


MOVES = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.sampled_from(["a", "b"]),
        st.integers(0, 5),
        st.floats(0.1, 20),
        st.floats(0, 1),
    ),
    min_size=1,
    max_size=15,
)


@settings(max_examples=40)
@given(MOVES, st.floats(0, 1), st.floats(0.05, 0.97))
def test_values_are_chances_and_solve_the_equation(moves, chance, discount):
    """In [0, 1], the fixed point of Bellman's equation, and one action for every region."""
    steps = [count_move(r, a, led, n, n * share) for r, a, led, n, share in moves]
    success = {(s.region, s.action): (chance + s.region / 10) % 1.0 for s in steps}
    plan = run_value_iteration(steps, success, discount)
    assert plan.values.keys() == plan.actions.keys() == {s.region for s in steps}
    assert all(-1e-9 <= value <= 1 + 1e-9 for value in plan.values.values())
    for region, value in plan.values.items():
        worths = {}
        for action in {s.action for s in steps if s.region == region}:
            mine = [s for s in steps if (s.region, s.action) == (region, action)]
            total, won = sum(s.trials for s in mine), success[region, action]
            on = [s for s in mine if s.next in plan.values]
            ended = 1 - sum(s.trials - s.ends for s in on) / total
            ahead = sum((s.trials - s.ends) / total * plan.values[s.next] for s in on)
            worths[action] = (ended + (1 - ended) * (1 - discount)) * won + discount * ahead
        assert value == pytest.approx(max(worths.values()), abs=1e-4)
        assert worths[plan.actions[region]] == pytest.approx(value, abs=1e-4)


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
    order = [score.success for score in (first, *others)]
    assert order == sorted(order, reverse=True)
    assert all(0.0 <= one.low < one.success < one.high <= 1.0 for one in (first, *others))
    unknown = next(score for score in others if score.action == "put")
    assert unknown.high - unknown.low > first.high - first.low  # it was never tried here
    assert sum(score.share for score in (first, *others)) == pytest.approx(1.0)
    assert {score.action for score in others} == {"find", "put", "throw"}
    elsewhere, desk = world.hubs[9], world.hubs[DESK]
    assert elsewhere not in model.visited_regions
    assert model.success_probability(elsewhere, "take") > 0.5
    assert model.success_probability(elsewhere, "throw") < 0.5
    assert [score.action for score in model.best_action(elsewhere)][-1] == "throw"
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
    world.memory.store.apply([make_change("forget_namespace", world.namespace)])
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
        with pytest.raises(InvalidInputError, match="discount must be"):
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
