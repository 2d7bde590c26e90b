"""What every router does: the policy, alone and sampling, and chat models, good and bad."""

import numpy as np
import pytest

from crabpath_retrievers.config import PolicySettings
from crabpath_retrievers.routing.chat_model.router import ChatModelRouter
from crabpath_retrievers.routing.policy import SoftmaxRouter

GOOD = {"follow": [2, 1, 4], "drop": [3], "stop": True, "reason": "because"}


@pytest.fixture(params=["policy", "sampling policy", "chat model", "chat model that fails"])
def make_router(request, chat_server, chat_model):
    """Makes equal routers of each kind."""
    chat_server.says = GOOD if request.param == "chat model" else "Who knows?"

    def make():
        if "chat model" in request.param:
            return ChatModelRouter(chat_model())
        seeded = np.random.default_rng(7) if "sampling" in request.param else None
        return SoftmaxRouter(PolicySettings(), seeded)

    return make


@pytest.fixture
def frontier(request_of):
    """Three nodes with unclear pointers, of which two may be followed from each."""
    asked = request_of((0.7, 0.55, 0.5), (0.65, 0.6), (0.4, 0.5, 0.6))
    return asked.__class__(asked.query, asked.choices, 2, read=asked.read, policy=asked.policy)


def test_every_choice_gets_its_decision_within_the_budget(make_router, frontier):
    """In order; each names pointers of its own choice, none twice, with their probabilities."""
    decisions = make_router().route(frontier).decisions
    for choice, decision in zip(frontier.choices, decisions, strict=True):
        assert len(set(decision.followed)) == len(decision.followed) <= frontier.budget
        assert set(decision.followed) <= set(range(len(choice.edges)))
        assert decision.probabilities.shape == (len(choice.edges) + 1,)  # the last one is STOP
        assert decision.probabilities.sum() == pytest.approx(1.0)


async def test_async_decides_as_sync(make_router, frontier):
    """Equal routers, equal requests."""
    blocking, native = make_router().route(frontier), await make_router().aroute(frontier)
    assert [d.followed for d in native.decisions] == [d.followed for d in blocking.decisions]
    assert [d.decided_by for d in native.decisions] == [d.decided_by for d in blocking.decisions]
    assert native.notes == blocking.notes


def test_nothing_to_decide(make_router, frontier):
    """A frontier without habitual pointers needs no decision."""
    nothing = frontier.__class__(frontier.query, (), read=frontier.read)
    assert list(make_router().route(nothing).decisions) == []
