"""A real HTTP client against a model on this machine: what it says counts as far as it may."""

import asyncio
import logging
import threading
import time
from dataclasses import replace

import pytest
from chat_server import late, too_many
from langchain_core.caches import InMemoryCache
from langchain_core.language_models import FakeListChatModel
from werkzeug import Response

from crabpath_retrievers import (
    ChatModelRouter,
    ModelUsage,
    RouterSettings,
    RoutingRequest,
    SoftmaxRouter,
)
from crabpath_retrievers.errors import InvalidInputError

CLIENT_LOG = "crabpath_retrievers.parts.chat_router.model_client"
SECOND = '{"follow": [2], "stop": true}'


def make_answer(follow=(), drop=(), *, stop=True, reason="because"):
    return {"follow": list(follow), "drop": list(drop), "stop": stop, "reason": reason}


@pytest.fixture
def router_of(chat_model):
    def make(settings=None, **fields):
        return ChatModelRouter(chat_model(**fields), settings)

    return make


def get_followed(routed):
    return [decision.followed for decision in routed.decisions]


def ask_policy(request):
    return SoftmaxRouter(request.policy).route(request).decisions


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
async def test_what_the_model_picks_is_followed(chat_server, router_of, three, method):
    """In its order, sync and async, beside the probabilities of the policy, for learning."""
    chat_server.says = make_answer([3, 2], reason="two and three")
    router = router_of(RouterSettings(method=method))
    for routed in (router.route(three), await router.aroute(three)):
        assert get_followed(routed) == [(2, 1)]
        assert (routed.notes, routed.chosen) == (("two and three",), {2, 3})
        (decision,), (policy,) = routed.decisions, ask_policy(three)
        assert decision.decided_by == "chat_model"
        assert decision.probabilities.tolist() == policy.probabilities.tolist()
    first, second = chat_server.requests
    assert first == second


@pytest.mark.parametrize(
    ("answer", "scores", "followed"),
    [
        pytest.param(make_answer([3]), [(0.7, 0.55, 0.5)], [(2,)], id="stop: nothing else"),
        pytest.param(
            make_answer([3], stop=False), [(0.7, 0.55, 0.5)], [(2, 0)], id="then the policy"
        ),
        # Numbers run over all nodes, from the best candidate to the worst: .7, .65, .55, .5.
        pytest.param(
            make_answer([4, 1]), [(0.7, 0.55), (0.65, 0.5)], [(0,), (1,)], id="all at once"
        ),
        pytest.param(make_answer([9, "2", 2, 3]), [(0.7, 0.55, 0.5)], [(1, 2)], id="once each"),
        pytest.param(
            make_answer(range(12, 0, -1)), [[0.7] * 12], [(11, 10, 9, 8, 7, 6)], id="budget"
        ),
    ],
)
def test_what_of_an_answer_counts(chat_server, router_of, request_of, answer, scores, followed):
    chat_server.says = answer
    routed = router_of(RouterSettings(method="json_mode")).route(request_of(*scores))
    assert get_followed(routed) == followed
    assert len(chat_server.requests) == 1


def test_what_is_asked(chat_server, router_of, request_of):
    """Not clear pointers: far above STOP they are followed, far below not. Each node once."""
    chat_server.says = make_answer([], stop=True)
    routed = router_of().route(request_of((1.4, 0.6, -0.4)))
    assert get_followed(routed) == [(0,)]
    chat_server.says = make_answer([1])
    twice = [request_of((score,)).choices[0] for score in (0.7, 0.65)]
    routed = router_of().route(RoutingRequest("q", tuple(twice), read=request_of((0.7,)).read))
    assert get_followed(routed) == [(0,), (0,)]
    first, second = [body["messages"][1]["content"] for body in chat_server.requests]
    assert ("Title 2" in first, "Title 1" in first, '[2,"' in second) == (True, False, False)


def test_nothing_is_asked_where_all_is_clear(chat_server, router_of, request_of):
    """Nor about what search alone has found, nor again in a turn that has made its call."""
    request = request_of((1.4, -0.4), (1.2,))
    found = tuple((pointer.target, 0.9) for pointer in request.choices[0].edges)
    for clear in (request, replace(request, entries=found)):
        routed = router_of().route(clear)
        assert routed.usage == ModelUsage()
        assert get_followed(routed) == [one.followed for one in ask_policy(request)]
    again = request_of((0.7, 0.55), calls=1)
    router_of().route(again)
    assert chat_server.requests == []
    chat_server.says = make_answer([2])
    router_of(RouterSettings(ask_per="hop")).route(again)
    assert len(chat_server.requests) == 1


def test_where_the_walk_begins_may_be_chosen_too(chat_server, router_of, three, pointer_of):
    """What the model says of search results counts for the ranking, not for the walk."""
    heads = tuple((pointer_of(key, 0.5, f"Found {key}").target, 0.9) for key in (8, 9))
    chat_server.says = make_answer([2, 5], [1])
    routed = router_of().route(replace(three, entries=heads))
    shown = chat_server.requests[0]["messages"][1]["content"]
    assert '[1,"Found 8","Text n8.","search",0.9]' in shown
    assert (routed.chosen, routed.dropped) == ({9, 3}, {8})
    assert get_followed(routed) == [(2,)]
    # What is dropped is not followed; a picked one cannot be dropped.
    chat_server.says = make_answer([2], [1, 2], stop=False)
    routed = router_of().route(three)
    assert (get_followed(routed), routed.dropped) == ([(1,)], {1})


BAD = {
    "numbers never offered": make_answer([7, 0, -1], stop=False),
    "no numbers": {"follow": ["all"], "drop": [], "stop": False, "reason": ""},
    "prose": "I would read the first one.",
    "no JSON at all": Response("<html>", content_type="text/html"),
    "no choices": Response('{"choices": []}', content_type="application/json"),
    "too many requests": too_many(),
    "no key": Response("{}", status=401),
}


@pytest.mark.parametrize("answer", BAD.values(), ids=BAD)
async def test_a_bad_answer_leaves_it_to_the_policy(chat_server, router_of, three, answer):
    """Sync and async; the turn says so."""
    chat_server.says = answer
    router = router_of(RouterSettings(max_retries=0))
    for routed in (router.route(three), await router.aroute(three)):
        assert get_followed(routed) == [one.followed for one in ask_policy(three)]
        assert routed.notes[0].startswith("failed: ")
        assert (routed.usage.calls, routed.usage.failures) == (1, 1)
        assert not routed.chosen | routed.dropped


def test_a_server_without_structured_output_is_asked_in_words(chat_server, router_of, three):
    """It refuses once; a request that is bad in any form says nothing of the form."""
    router = router_of()
    chat_server.says = Response("too long", status=400)
    router.route(three)

    def answer(body):
        known = "response_format" not in body and "tools" not in body
        return SECOND if known else Response("no such option", status=400)

    chat_server.says = answer
    for _ in range(2):
        assert get_followed(router.route(three)) == [(1,)]
    structured = ["response_format" in body for body in chat_server.requests]
    assert structured == [True, False, True, False, False]


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_what_may_pass_is_asked_again(chat_server, router_of, three, asynchronous):
    """Twice at most; the turn counts every request. A key that is wrong stays wrong."""
    answers = iter(
        [too_many(), Response("", status=503), make_answer([2]), Response("{}", status=401)]
    )
    chat_server.says = lambda _body: next(answers)
    router = router_of()
    for calls, failures in ((3, 2), (1, 1)):
        routed = (await router.aroute(three)) if asynchronous else router.route(three)
        assert (routed.usage.calls, routed.usage.failures) == (calls, failures)
        assert get_followed(routed) == ([(1,)] if failures == 2 else [(0,)])


async def test_a_slow_model_is_not_waited_for(chat_server, router_of, three):
    """The policy decides when the time is over; the event loop stays free."""
    awaited = threading.Event()
    chat_server.says = lambda _body: str(awaited.wait(60))
    router = router_of(RouterSettings(timeout=0.3, max_retries=0))
    routed, other, _ = await asyncio.gather(
        router.aroute(three), asyncio.to_thread(router.route, three), asyncio.sleep(0.2)
    )
    awaited.set()
    for one in (routed, other):
        assert get_followed(one) == [decision.followed for decision in ask_policy(three)]
        assert "no answer within 0.3 s" in one.notes[0]


def test_after_three_failures_in_a_row_the_model_is_left_alone(
    chat_server, router_of, three, caplog
):
    """It says so once in the log and on every turn, and tries again after a while."""
    answers = iter(["prose", "prose", make_answer([2])])
    chat_server.says = lambda _body: next(answers, "prose")
    router = router_of(RouterSettings(recovery_seconds=0.4, max_retries=0))
    with caplog.at_level(logging.WARNING, logger=CLIENT_LOG):
        notes = [router.route(three).notes[0] for _ in range(8)]
    assert len(chat_server.requests) == 6
    assert [note.startswith("not asked: 3 failures in a row") for note in notes[-2:]] == [True] * 2
    assert router.state == "open"
    assert sum(record.name == CLIENT_LOG for record in caplog.records) == 1
    chat_server.says = make_answer([2])
    time.sleep(0.5)
    assert router.state == "half_open"
    assert get_followed(router.route(three)) == [(1,)]
    assert router.state == "closed"


async def test_of_many_turns_one_tries_again(chat_server, router_of, three):
    """While it tries, the others go on; a cancelled turn is no failure and no success."""
    router = router_of(RouterSettings(recovery_seconds=0.2, max_retries=0, max_failures=1))
    chat_server.says = late(0.5)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(router.aroute(three), 0.1)
    assert router.state == "closed"
    chat_server.says = "prose"
    router.route(three)
    await asyncio.sleep(0.3)
    chat_server.requests.clear()
    chat_server.says = late(0.3, SECOND)
    await asyncio.gather(*[router.aroute(three) for _ in range(5)])
    assert len(chat_server.requests) == 1


def test_tokens_and_cost_are_counted(chat_server, router_of, three):
    """As the model tells them, at the prices of the user; what a cache answers costs nothing."""
    chat_server.says = make_answer([2])
    router = router_of(RouterSettings(prices=(0.15, 0.6)), cache=InMemoryCache())
    usage = router.route(three).usage
    assert usage.calls == 1
    assert usage.input_tokens > 100
    assert usage.output_tokens > 5
    cost = (usage.input_tokens * 0.15 + usage.output_tokens * 0.6) / 1e6
    assert usage.cost_usd == pytest.approx(cost)
    routed = router.route(three)
    assert routed.usage == ModelUsage(calls=0, cached_calls=1)
    assert (get_followed(routed), len(chat_server.requests)) == ([(1,)], 1)
    estimated = ChatModelRouter(FakeListChatModel(responses=[SECOND])).route(three).usage
    assert estimated.input_tokens > 100
    assert estimated.output_tokens == 9


def test_the_answer_is_limited(chat_server, router_of, three):
    """To 180 tokens, or to what the model was given if that is less."""
    chat_server.says = make_answer([2])
    for fields in ({}, {"max_tokens": 60}, {"max_tokens": 999}):
        router_of(**fields).route(three)
    router_of(RouterSettings(max_output_tokens=None)).route(three)
    limits = [body.get("max_completion_tokens") for body in chat_server.requests]
    assert limits == [180, 60, 180, None]


@pytest.mark.parametrize("wrap", [None, "bind", "with_retry"])
def test_a_router_needs_a_chat_model_itself(wrap):
    model = FakeListChatModel(responses=[SECOND])
    given = "gpt" if wrap is None else getattr(model, wrap)()
    with pytest.raises(InvalidInputError, match="pass a BaseChatModel itself, without bind"):
        ChatModelRouter(given)
