"""The record of a retrieval (the CrabPath v2 specification §2.10) and its explanation."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest

from crabpath_retrievers import NotFoundError, Turn
from crabpath_retrievers.core.records import LazySteps

QUESTION = "Tell me about the film Kiss and Tell and Corliss Archer."


@pytest.fixture(scope="module")
def answer(memory):
    return memory.retrieve(QUESTION, k=3, namespace="turns")


@pytest.fixture(scope="module")
def explained(memory, answer):
    return memory.explain(answer.turn.id)


@pytest.fixture(scope="module")
def turn(explained):
    """The stored record of one retrieval."""
    return explained.turn


def test_the_record_is_what_was_answered(answer, turn):
    """The stored record equals the record that the answer carries, also by way of JSON."""
    assert turn == answer.turn == Turn.from_dict(json.loads(json.dumps(turn.to_dict())))
    assert [item.node for item in turn.returned] == [d.node.id for d in answer.documents]
    # Without a chat model a turn costs nothing; before learning nothing is advised against.
    assert (turn.llm_calls, turn.llm_tokens, turn.cost_usd) == (0, 0, 0.0)
    assert turn.guardrails == ()


def test_follow_log_and_trace(turn):
    """Fired nodes are seeds or were followed; energies multiply the weights of the way."""
    followed = [entry["target"] for entry in turn.follow_log]
    assert followed
    assert [*(seed.node for seed in turn.seeds), *followed] == list(turn.visited)
    fired = {entry["node_id"]: entry for entry in turn.trace}
    assert list(fired) == list(turn.visited)
    for seed in turn.seeds:
        assert (fired[seed.node]["depth"], fired[seed.node]["energy"]) == (0, seed.score)
    for entry in turn.follow_log:
        assert set(entry) == {"source", "target", "weight", "decision_channel"}
        source, target = fired[entry["source"]], fired[entry["target"]]
        assert target["depth"] == source["depth"] + 1
        assert target["energy"] == pytest.approx(source["energy"] * entry["weight"])
        # Mentions and links weigh 0.6 and less before learning: habitual, so the policy decides.
        assert 0.3 <= entry["weight"] < 0.8
        assert entry["decision_channel"] == "policy"
    step = next(step for step in turn.steps if step.chosen)
    reflex = replace(step, reflexes=step.chosen[:1], chosen=())
    log = replace(turn, steps=(reflex, step)).follow_log
    assert [entry["decision_channel"] for entry in log[:2]] == ["reflex", "policy"]


def test_probabilities_of_a_step_sum_to_one(turn):
    """At a node the policy's probabilities of the habitual pointers and of STOP."""
    decided = [step for step in turn.steps if step.stop_probability]
    assert decided
    for step in decided:
        habitual = [c.probability for c in step.candidates if c.tier == "habitual"]
        assert sum(habitual) + step.stop_probability == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("question", "known", "novel"),
    [
        ("Kiss and Tell is a 1945 American comedy film starring Shirley Temple", True, False),
        ("Who directs horror films in Los Angeles?", False, True),
        ("qxzv wplk", False, False),
    ],
)
def test_novelty(memory, question, known, novel):
    """A question close to a passage is known, a distant one novel, noise neither."""
    novelty = memory.retrieve(question).turn.novelty
    assert (novelty["known"], novelty["novel"]) == (known, novel)


def test_turns_belong_to_their_namespace(memory, namespace):
    """Each counts its own and shows them to nobody else; record=False leaves none behind."""
    turns = [memory.retrieve(QUESTION, namespace=namespace).turn for _ in range(2)]
    assert [memory.explain(turn.id).turn.clock for turn in turns] == [1, 2]
    assert memory.explain(turns[0].id, namespace=namespace).turn == turns[0]
    with pytest.raises(NotFoundError, match="check the id and the namespace"):
        memory.explain(turns[0].id, namespace="grace")
    before = memory.info()["turns"]
    left_out = memory.retrieve(QUESTION, record=False).turn
    assert memory.info()["turns"] == before
    with pytest.raises(NotFoundError, match="no turn"):
        memory.explain(left_out.id)


def test_an_explanation_adds_up_and_names_the_route(explained):
    """Contributions of features sum to the log-odds; a walked document shows titles on its way."""
    for reason in explained.documents:
        odds = math.log(reason.probability / (1 - reason.probability))
        # Contributions are rounded to three decimals, eleven of them at most.
        assert sum(reason.contributions.values()) == pytest.approx(odds, abs=0.01)
    (walked,) = [reason for reason in explained.documents if reason.origin == "walk"]
    titles = explained.titles
    route = [titles[walked.path[0].source], *(titles[edge.target] for edge in walked.path)]
    assert route[-1] == walked.title == "Shirley Temple"
    assert "Kiss and Tell" in route[0]
    data = explained.to_dict()
    assert json.loads(json.dumps(data, allow_nan=False))["turn"]["query"] == QUESTION
    assert {"visited", "follow_log", "guardrails", "novelty", "llm_calls"} <= set(data["turn"])


def test_an_explanation_tells_past_uses_together(memory, turn):
    """They are trials: none of them adds log-odds of its own."""
    features = {"bias": 1.0, "similarity": 0.5, "coverage": 2.0, "inhibition": -0.2}
    features |= {"again": 0.4, "missed": 0.1}
    item = replace(turn.returned[0], features=features, probability=0.6)
    told = replace(turn, id="told", run_id=None, returned=(item,))
    memory.store.record(told, memory.embedder.query(turn.query))
    (reason,) = memory.explain("told").documents
    assert reason.contributions["past_uses"] > 0
    assert not {"again", "missed"} & reason.contributions.keys()
    assert sum(reason.contributions.values()) == pytest.approx(math.log(0.6 / 0.4), abs=0.003)


def test_an_explanation_outlives_its_documents(retriever):
    turn = retriever.memory.retrieve("red?").turn
    retriever.memory.forget([item.node for item in turn.returned])
    reasons = retriever.memory.explain(turn.id).documents
    assert [reason.id for reason in reasons] == [item.node for item in turn.returned]


def test_late_steps_are_described_once_whichever_threads_read_them(turn):
    described = []

    def describe(number):
        described.append(number)
        return replace(turn.steps[0], node=f"n{number}")

    late = LazySteps([partial(describe, number) for number in range(3)])
    assert not described
    with ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(lambda _: [step.node for step in late], range(8)))
    assert seen == [["n0", "n1", "n2"]] * 8
    before = [*described]
    assert late[1].node == "n1"
    assert late == tuple(late) == late[:]
    assert described == before
