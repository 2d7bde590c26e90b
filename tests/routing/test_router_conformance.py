"""What every router does: the policy, alone and sampling, and chat models, good and bad."""

import numpy as np
import pytest

from crabpath_retrievers.config import PolicySettings
from crabpath_retrievers.routing.chat_model.router import ChatModelRouter
from crabpath_retrievers.routing.policy import RoutingRequest, SoftmaxRouter

GOOD = {"follow": [2, 1, 4], "drop": [3], "stop": True, "reason": "because"}


@pytest.mark.parametrize("kind", ["policy", "sampling", "chat model", "chat model that fails"])
async def test_every_choice_gets_its_decision(chat_server, chat_model, request_of, kind):
    """Within the budget, in order, of its own pointers, with probabilities; async as sync."""
    chat_server.says = GOOD if kind == "chat model" else "Who knows?"
    asked = request_of((0.7, 0.55, 0.5), (0.65, 0.6), (0.4, 0.5, 0.6))
    frontier = RoutingRequest(asked.query, asked.choices, 2, read=asked.read, policy=asked.policy)

    def make():
        if "chat model" in kind:
            return ChatModelRouter(chat_model())
        return SoftmaxRouter(
            PolicySettings(), np.random.default_rng(7) if kind == "sampling" else None
        )

    blocking, native = make().route(frontier), await make().aroute(frontier)
    for choice, decision in zip(frontier.choices, blocking.decisions, strict=True):
        assert len(set(decision.followed)) == len(decision.followed) <= frontier.budget
        assert set(decision.followed) <= set(range(len(choice.edges)))
        assert decision.probabilities.shape == (len(choice.edges) + 1,)  # the last one is STOP
        assert decision.probabilities.sum() == pytest.approx(1.0)
    for field in ("followed", "decided_by"):
        assert [getattr(d, field) for d in native.decisions] == [
            getattr(d, field) for d in blocking.decisions
        ]
    assert native.notes == blocking.notes
    nothing = RoutingRequest(asked.query, (), 6, read=asked.read)
    assert list(make().route(nothing).decisions) == []
