"""The softmax policy against numbers worked out by hand, and the claims that every router holds."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers import (
    ChatModelRouter,
    EdgeKind,
    RouterChoice,
    RoutingRequest,
    SoftmaxRouter,
)
from crabpath_retrievers.config import PolicySettings
from crabpath_retrievers.core.records import NodeHead, OutgoingEdge
from crabpath_retrievers.testing import RouterTests

# The OpenClawBrain paper §3: e^.5 = 1.649, e^.3 = 1.350, e^-.2 = .819, e^0 = 1; together 4.817.
WEIGHTS = (0.5, 0.3, -0.2)
EXPECTED = (0.342, 0.280, 0.170, 0.208)
ONE = PolicySettings(temperature=1.0, stop_score=0.0)
NUMBER = st.floats(-1, 1)


def make_choice(weights, relevance=None, stop_weight=0.0):
    """A choice between pointers with these weights, irrelevant unless said otherwise."""
    vector = np.array([1, 0], dtype=np.float32)
    pointers = tuple(
        OutgoingEdge(0, NodeHead(i + 1, f"n{i}", "", 0, vector), EdgeKind.LINK, weight, weight)
        for i, weight in enumerate(weights)
    )
    given_relevance = np.zeros(len(weights)) if relevance is None else np.array(relevance)
    return RouterChoice("n", pointers, given_relevance, np.array(weights), stop_weight)


def decide(one, settings=ONE, budget=6, rng=None):
    (decision,) = SoftmaxRouter(settings, rng).route(RoutingRequest("q", (one,), budget)).decisions
    return decision


def test_probabilities_are_those_of_the_document():
    """The worked example of the OpenClawBrain paper §3."""
    decision = decide(make_choice(WEIGHTS))
    assert decision.probabilities == pytest.approx(EXPECTED, abs=5e-4)
    assert decision.decided_by == "policy"


@pytest.mark.parametrize(
    ("given", "options", "followed", "stopped"),
    [
        # r + w = .9 and .5 + .3 = .8 against STOP at .85.
        (
            make_choice((0.1, 0.5), relevance=(0.8, 0.3)),
            {"settings": PolicySettings(temperature=0.2, stop_score=0.85)},
            (0,),
            True,
        ),
        (make_choice(WEIGHTS, stop_weight=0.4), {}, (0,), True),
        (make_choice(WEIGHTS, stop_weight=-0.3), {}, (0, 1, 2), False),
        (make_choice(WEIGHTS), {"budget": 1}, (0,), False),
    ],
    ids=["relevance and weight add up", "a learned STOP", "a weaker STOP", "budget is not STOP"],
)
def test_what_the_greedy_policy_follows(given, options, followed, stopped):
    decision = decide(given, **options)
    assert (decision.followed, decision.stopped) == (followed, stopped)


def test_routes_are_drawn_without_replacement_until_stop():
    """Each of the 16 sequences comes as often as Plackett–Luce says, within 4 standard errors.

    P(a, b, STOP) = π(a) · π(b)/(1 - π(a)) · π(STOP)/(1 - π(a) - π(b)).
    """
    router = SoftmaxRouter(ONE, np.random.default_rng(20))
    many = RoutingRequest("q", (make_choice(WEIGHTS),) * 20_000, 6)
    samples = Counter(d.followed for d in router.route(many).decisions)
    pi = decide(make_choice(WEIGHTS)).probabilities
    for size in range(4):
        for followed in permutations(range(3), size):
            probability, left = 1.0, 1.0
            for action in (*followed, 3):
                probability *= pi[action] / left
                left -= pi[action]
            error = np.sqrt(probability * (1 - probability) / 20_000)
            assert abs(samples[followed] / 20_000 - probability) <= 4 * error, followed


@given(
    st.lists(st.tuples(NUMBER, NUMBER), min_size=1, max_size=12),
    st.floats(-2, 2),
    st.floats(0.01, 10),
    st.integers(1, 8),
)
def test_what_any_greedy_decision_satisfies(pairs, stop, temperature, budget):
    """Probabilities sum to 1 with STOP; what is followed beats STOP, best first, within budget."""
    relevance, weights = zip(*pairs, strict=True)
    settings = PolicySettings(temperature=temperature, stop_score=stop)
    decision = decide(make_choice(weights, relevance), settings, budget)
    scores = np.add(relevance, weights)
    followed = scores[list(decision.followed)]
    assert decision.probabilities.sum() == pytest.approx(1)
    assert decision.probabilities.shape == (len(pairs) + 1,)
    assert all(followed >= stop - 1e-9)
    assert list(followed) == sorted(followed, reverse=True)
    assert len(followed) == len(set(decision.followed)) <= budget
    assert len(followed) >= min(budget, np.count_nonzero(scores > stop + 1e-9))


GOOD = {"follow": [2, 1, 4], "drop": [3], "stop": True, "reason": "because"}


@pytest.mark.parametrize("kind", ["policy", "sampling", "chat model", "chat model that fails"])
class TestRouters(RouterTests):
    @pytest.fixture
    def make_router(self, kind, chat_server, chat_model):
        chat_server.says = GOOD if kind == "chat model" else "Who knows?"

        def make():
            if "chat model" in kind:
                return ChatModelRouter(chat_model())
            rng = np.random.default_rng(7) if kind == "sampling" else None
            return SoftmaxRouter(PolicySettings(), rng)

        return make
