"""Models that answer, count or work in ways of their own: none of them breaks a walk."""

import asyncio
import json
import time
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableLambda

from crabpath_retrievers import ChatModelRouter, RouterSettings

SECOND = '{"follow": [2], "drop": [], "stop": true, "reason": "r"}'


class OddModel(BaseChatModel):
    """Says one thing, after a while; its structured output is whatever it is given."""

    message: Any = AIMessage(SECOND)
    seconds: float = 0.0
    structured: Any = None
    asked: int = 0

    @property
    def _llm_type(self):
        return "odd"

    def _generate(self, _messages, stop=None, run_manager=None, **_options):
        self.asked += 1
        time.sleep(self.seconds)
        return ChatResult(generations=[ChatGeneration(message=self.message)])

    def with_structured_output(self, schema, **options):
        if self.structured is None:
            return super().with_structured_output(schema, **options)
        return RunnableLambda(lambda _: self.structured)


def route(model, request, **settings):
    return ChatModelRouter(model, RouterSettings(prices=(1, 1), **settings)).route(request)


@pytest.mark.parametrize(
    ("counts", "output"),
    [
        ({"input_tokens": float("nan"), "output_tokens": float("inf")}, 16),
        ({"input_tokens": -5, "output_tokens": -1}, 16),
        ({}, 16),
        ({"input_tokens": 112.0, "output_tokens": 3.0, "total_tokens": 115.0}, 3),
    ],
)
def test_counts_are_whole_numbers_or_estimated(three, counts, output):
    """A turn can be stored, and its cost added up."""
    message = AIMessage(SECOND)
    message.usage_metadata = counts
    routed = route(OddModel(message=message), three)
    assert routed.decisions[0].followed == (1,)
    assert (routed.usage.input_tokens > 100, routed.usage.output_tokens) == (True, output)
    assert isinstance(routed.usage.output_tokens, int)
    json.dumps(routed.usage.cost_usd, allow_nan=False)


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "reasoning", "reasoning": "hm {"}, {"type": "text", "text": SECOND}],
        f"<think>{{maybe}} the {{first}}? </think>{SECOND}",
        f'First I thought {{"follow": [1], "stop": true}}, but: {SECOND}',
        'Sure:\n```json\n{"follow": [2], "stop": true}\n```\nThat one.',
        '{"follow": [2], "drop": null, "stop": true, "reason": null}',
        '{"follow": ["x", "2", null, 1.5, true], "stop": true}',
        '{"follow": [2], "stop": true, "reason": "it was cut o',
    ],
)
def test_what_is_meant_is_understood(three, content):
    """Blocks, thoughts before the answer, fences, nulls, other numbers, an end that is missing."""
    routed = route(OddModel(message=AIMessage(content)), three, max_retries=0)
    assert routed.decisions[0].followed == (1,)


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        '{"follow": [1], ' + "x" * 60_000,
        "{" * 50_000 + "}" * 50_000,
    ],
    ids=["deep", "long", "braces"],
)
def test_an_endless_answer_costs_no_time(three, content):
    """It is not read to the end, and the policy decides."""
    begun = time.process_time()
    routed = route(OddModel(message=AIMessage(content)), three, max_retries=0)
    assert time.process_time() - begun < 1
    assert (routed.decisions[0].followed, routed.usage.failures) == ((0,), 1)


@pytest.mark.parametrize(
    ("structured", "followed"),
    [
        (json.loads(SECOND), (1,)),
        ({"raw": None, "parsed": json.loads(SECOND), "parsing_error": None}, (1,)),
        ({"raw": AIMessage(SECOND), "parsed": None}, (1,)),
        ({"raw": "x", "parsed": 3}, (0,)),
        ([1], (0,)),
    ],
)
def test_structured_output_of_other_shapes(three, structured, followed):
    routed = route(OddModel(structured=structured), three, max_retries=0)
    assert routed.decisions[0].followed == followed


def test_leaving_all_to_experience_is_an_answer(three):
    """As the instructions say: it is no failure."""
    text = '{"follow": [], "drop": [], "stop": false, "reason": "unsure"}'
    routed = route(OddModel(message=AIMessage(text)), three)
    assert (routed.notes, routed.usage.failures) == (("unsure",), 0)


def test_the_turn_says_what_to_change(three):
    """Without room for a candidate nothing is asked; thoughts of a model need tokens, too."""
    model = OddModel()
    routed = route(model, three, max_input_tokens=100)
    assert (model.asked, routed.usage.calls) == (0, 0)
    assert routed.notes == ("not asked: no candidate fits into 100 tokens",)
    message = AIMessage("", response_metadata={"finish_reason": "length"})
    routed = route(OddModel(message=message), three)
    assert "raise output_tokens, or set it to None" in routed.notes[0]


def test_a_model_that_cannot_be_awaited_keeps_no_thread_of_the_loop(three):
    """Others go on working in its threads, and the loop ends without waiting for the model."""

    async def ask_often() -> float:
        settings = RouterSettings(timeout=0.2, max_retries=0, max_failures=50)
        router = ChatModelRouter(OddModel(seconds=40.0), settings)
        routed = await asyncio.gather(*[router.aroute(three) for _ in range(40)])
        assert all("no answer within 0.2 s" in one.notes[0] for one in routed)
        begun = time.perf_counter()
        await asyncio.to_thread(int)
        return time.perf_counter() - begun

    begun = time.perf_counter()
    assert asyncio.run(ask_often()) < 20
    assert time.perf_counter() - begun < 30


async def test_a_model_that_cannot_be_awaited_is_asked(three):
    assert (await ChatModelRouter(OddModel()).aroute(three)).decisions[0].followed == (1,)
    failing = await ChatModelRouter(OddModel(message=None)).aroute(three)
    assert failing.notes[0].startswith("failed: ")
