"""The record of a retrieval (the CrabPath v2 specification §2.10) and its explanation."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from langchain_core.documents import Document

from crabpath_retrievers import CrabPath, NotFoundError, Settings
from crabpath_retrievers.config import SeedSettings

SAMPLE = Path(__file__).parents[1] / "examples" / "hotpotqa_sample"
QUESTION = "Tell me about the film Kiss and Tell and Corliss Archer."


@pytest.fixture(scope="module")
def memory(embeddings) -> Iterator[CrabPath]:
    """Twenty passages; search finds two of them, the walk must reach the others."""
    settings = Settings(seeds=SeedSettings(hits_per_engine=2, max_entries=2))
    lines = (SAMPLE / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:20]
    with CrabPath.open(embeddings=embeddings, settings=settings) as opened:
        opened.add_documents(
            Document(id=row["_id"], page_content=row["text"], metadata={"title": row["title"]})
            for row in map(json.loads, lines)
        )
        yield opened


@pytest.fixture
def turn(memory):
    """The stored record of one retrieval."""
    return memory.explain(memory.retrieve(QUESTION, k=3).turn.id).turn


def test_every_fired_node_is_a_seed_or_was_followed(turn):
    """The fired ids are the seeds and, once each, the targets of the pointers followed."""
    followed = [entry["target"] for entry in turn.follow_log]
    assert followed
    assert [*(seed.node for seed in turn.seeds), *followed] == list(turn.visited)


def test_follow_log_tells_who_decided(turn):
    """Each pointer followed is logged with its weight and the channel that decided."""
    for entry in turn.follow_log:
        assert set(entry) == {"source", "target", "weight", "decision_channel"}
        # Mentions and links weigh 0.6 and less before learning: habitual, so the policy decides.
        assert 0.3 <= entry["weight"] < 0.8
        assert entry["decision_channel"] == "policy"


def test_probabilities_of_a_step_sum_to_one(turn):
    """At a node the policy's probabilities of the habitual pointers and of STOP sum to 1."""
    decided = [step for step in turn.steps if step.stop_probability]
    assert decided
    for step in decided:
        habitual = [c.probability for c in step.candidates if c.tier == "habitual"]
        assert sum(habitual) + step.stop_probability == pytest.approx(1, abs=1e-3)


def test_trace_tells_depth_and_energy(turn):
    """The trace lists the fired nodes in order, seeds at depth 0, others one below their source."""
    depth = {entry["node_id"]: entry["depth"] for entry in turn.trace}
    assert list(depth) == list(turn.visited)
    assert {depth[seed.node] for seed in turn.seeds} == {0}
    assert all(depth[e["target"]] == depth[e["source"]] + 1 for e in turn.follow_log)
    assert all(math.isfinite(entry["energy"]) for entry in turn.trace)


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


def test_no_model_no_calls(turn):
    """Without a chat model a turn costs no calls, tokens or money."""
    assert (turn.llm_calls, turn.llm_tokens, turn.cost_usd) == (0, 0, 0.0)


def test_guardrails_are_empty_before_learning(turn):
    """Nothing is advised against before anything was learned."""
    assert turn.guardrails == ()


def test_record_is_what_was_answered(memory):
    """The stored record equals the record that the answer carries."""
    answer = memory.retrieve(QUESTION, k=3)
    stored = memory.explain(answer.turn.id).turn
    assert stored == answer.turn
    assert [item.node for item in stored.returned] == [d.node.id for d in answer.documents]


def test_clock_counts_the_turns_of_a_namespace(memory):
    """Each namespace counts its own turns."""
    turns = [memory.retrieve(QUESTION, namespace="clock").turn for _ in range(2)]
    assert [memory.explain(turn.id).turn.clock for turn in turns] == [1, 2]
    assert memory.retrieve(QUESTION, namespace="other clock").turn.clock == 1


def test_record_can_be_left_out(memory):
    """record=False leaves no turn behind."""
    before = memory.info()["turns"]
    turn = memory.retrieve(QUESTION, record=False).turn
    assert memory.info()["turns"] == before
    with pytest.raises(NotFoundError, match="no turn"):
        memory.explain(turn.id)


def test_turns_of_others_are_not_shown(memory):
    """A turn is found in its own namespace only, when one is named."""
    turn = memory.retrieve(QUESTION, namespace="ada").turn
    assert memory.explain(turn.id, namespace="ada").turn == turn
    with pytest.raises(NotFoundError, match="check the id and the namespace"):
        memory.explain(turn.id, namespace="grace")


def test_explanation_adds_up(memory):
    """The contributions of a document's features sum to the log-odds of its probability."""
    shown = memory.explain(memory.retrieve(QUESTION, k=3).turn.id)
    for reason in shown.documents:
        odds = math.log(reason.probability / (1 - reason.probability))
        # Contributions are rounded to three decimals, eleven of them at most.
        assert sum(reason.contributions.values()) == pytest.approx(odds, abs=0.01)


def test_explanation_names_the_route(memory):
    """A walked document is explained by its route, with the titles of what lies on it."""
    shown = memory.explain(memory.retrieve(QUESTION, k=3).turn.id)
    (walked,) = [reason for reason in shown.documents if reason.origin == "walk"]
    route = [shown.titles[walked.path[0].source], *(shown.titles[e.target] for e in walked.path)]
    assert route[-1] == walked.title == "Shirley Temple"
    assert "Kiss and Tell" in route[0]


def test_explanation_is_json(memory):
    """The explanation is plain data for programs."""
    data = memory.explain(memory.retrieve(QUESTION, k=3).turn.id).to_dict()
    assert json.loads(json.dumps(data, allow_nan=False))["documents"] == json.loads(
        json.dumps(data["documents"])
    )
    assert {"visited", "follow_log", "guardrails", "novelty", "llm_calls"} <= set(data["turn"])


def test_explanation_outlives_its_documents(embeddings):
    """A turn whose document was forgotten is still explained, without the title."""
    with CrabPath.open(embeddings=embeddings) as memory:
        memory.add_documents([Document("Apples are red.", id="a", metadata={"title": "Apples"})])
        turn = memory.retrieve("apples").turn
        memory.forget("a")
        (reason,) = memory.explain(turn.id).documents
    assert (reason.id, reason.title) == ("a", "")
