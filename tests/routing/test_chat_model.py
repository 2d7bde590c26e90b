"""A real HTTP client against a model on this machine: what it says counts as far as it may."""

import asyncio
import logging
import time
from dataclasses import replace

import pytest
from chat_server import late, too_many
from langchain_core.caches import InMemoryCache
from langchain_core.language_models import FakeListChatModel
from werkzeug import Response

from crabpath_retrievers.core.turn import ModelUsage
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.routing.chat_model.router import ChatModelRouter
from crabpath_retrievers.routing.chat_model.settings import RouterSettings
from crabpath_retrievers.routing.policy import SoftmaxRouter

METHODS = ("json_schema", "function_calling", "json_mode")
QUICK = RouterSettings(timeout=0.3, max_retries=0)


def says(follow=(), drop=(), *, stop=True, reason="because"):
    """A complete answer."""
    return {"follow": list(follow), "drop": list(drop), "stop": stop, "reason": reason}


@pytest.fixture
def router_of(chat_model):
    """A router over the model."""

    def make(settings=None, **fields):
        return ChatModelRouter(chat_model(**fields), settings)

    return make


@pytest.fixture
def three(request_of):
    """Three unclear pointers of one node; the policy follows the first."""
    return request_of((0.7, 0.55, 0.5))


def followed(routed):
    """What is followed, by node."""
    return [decision.followed for decision in routed.decisions]


def the_policy(request):
    """What it decides alone."""
    return followed(SoftmaxRouter(request.policy).route(request))


@pytest.mark.parametrize("method", METHODS)
def test_what_the_model_picks_is_followed(chat_server, router_of, three, method):
    """In its order, whichever way of structured output the model uses."""
    chat_server.says = says([3, 2], reason="two and three")
    routed = router_of(RouterSettings(method=method)).route(three)
    assert followed(routed) == [(2, 1)]
    assert routed.notes == ("two and three",)
    assert routed.chosen == {2, 3}


async def test_async_asks_as_sync_does(chat_server, router_of, three):
    """The same question, and the same decisions."""
    chat_server.says = says([3])
    router = router_of()
    assert followed(await router.aroute(three)) == followed(router.route(three)) == [(2,)]
    first, second = chat_server.requests
    assert first == second


def test_what_it_does_not_mention_is_left_to_the_policy(chat_server, router_of, three):
    """Unless it says that nothing else is worth reading."""
    (own,) = the_policy(three)
    for stop, left in ((False, (2, *own)), (True, (2,))):
        chat_server.says = says([3], stop=stop)
        assert followed(router_of().route(three)) == [left]


def test_probabilities_are_those_of_the_policy(chat_server, router_of, three):
    """They stand beside the choice of the model, for learning."""
    chat_server.says = says([3])
    (own,) = router_of().route(three).decisions
    (policy,) = SoftmaxRouter(three.policy).route(three).decisions
    assert own.decided_by == "chat_model"
    assert own.probabilities.tolist() == policy.probabilities.tolist()


def test_the_whole_frontier_is_asked_about_at_once(chat_server, router_of, request_of):
    """Numbers run over all nodes; each node gets its part of the answer."""
    chat_server.says = says([4, 1])
    routed = router_of().route(request_of((0.7, 0.55), (0.65, 0.5)))
    assert len(chat_server.requests) == 1
    # Numbers run from the best candidate to the worst: .7, .65, .55, .5.
    assert followed(routed) == [(0,), (1,)]


def test_a_node_that_several_pointers_lead_to_is_one_candidate(chat_server, router_of, request_of):
    """It is followed from wherever the walk comes first."""
    chat_server.says = says([1])
    request = request_of((0.7,), (0.65,))
    (one, two) = request.choices
    twice = request_of((0.7,)).choices[0]
    routed = router_of().route(request_of().__class__("q", (one, twice), read=request.read))
    assert two.edges != twice.edges
    assert 'n": 2' not in chat_server.requests[0]["messages"][1]["content"]
    assert followed(routed) == [(0,), (0,)]


def test_clear_pointers_stay_with_the_policy(chat_server, router_of, request_of):
    """Far above STOP they are followed, far below they are not, and neither is shown."""
    chat_server.says = says([], stop=True)
    routed = router_of().route(request_of((1.4, 0.6, -0.4)))
    assert followed(routed) == [(0,)]
    assert "Title 2" in chat_server.requests[0]["messages"][1]["content"]
    assert "Title 1" not in chat_server.requests[0]["messages"][1]["content"]


def test_nothing_is_asked_where_all_is_clear(chat_server, router_of, request_of):
    """And the policy decides."""
    request = request_of((1.4, -0.4), (1.2,))
    routed = router_of().route(request)
    assert (chat_server.requests, routed.usage) == ([], ModelUsage())
    assert followed(routed) == the_policy(request)


@pytest.mark.parametrize(("calls", "asked"), [("turn", 0), ("hop", 1)])
def test_one_call_a_turn_unless_told_otherwise(chat_server, router_of, request_of, calls, asked):
    """A turn that has made its call goes on with the policy."""
    chat_server.says = says([2])
    router_of(RouterSettings(ask_per=calls)).route(request_of((0.7, 0.55), calls=1))
    assert len(chat_server.requests) == asked


def test_where_the_walk_begins_may_be_chosen_too(chat_server, router_of, three, pointer_of):
    """Search found it; what the model says of it counts for the ranking, not for the walk."""
    heads = tuple((pointer_of(key, 0.5, f"Found {key}").target, 0.9) for key in (8, 9))
    chat_server.says = says([2, 5], [1])
    routed = router_of().route(replace(three, entries=heads))
    shown = chat_server.requests[0]["messages"][1]["content"]
    assert '[1,"Found 8","Text n8.","search",0.9]' in shown
    assert (routed.chosen, routed.dropped) == ({9, 3}, {8})
    assert followed(routed) == [(2,)]


def test_what_search_found_alone_is_nothing_to_ask_about(chat_server, router_of, request_of):
    """Where every pointer is clear, nothing is asked."""
    request = request_of((1.4,))
    found = tuple((pointer.target, 0.9) for pointer in request.choices[0].edges)
    router_of().route(replace(request, entries=found))
    assert chat_server.requests == []


def test_drop_is_advice_against(chat_server, router_of, three):
    """What is dropped is not followed, and known to the walk; a picked one cannot be dropped."""
    chat_server.says = says([2], [1, 2], stop=False)
    routed = router_of().route(three)
    assert (followed(routed), routed.dropped) == ([(1,)], {1})


BAD = [
    pytest.param(says([7, 0, -1], stop=False), id="numbers never offered"),
    pytest.param({"follow": ["all"], "drop": [], "stop": False, "reason": ""}, id="no numbers"),
    pytest.param({"pick": [1]}, id="another schema"),
    pytest.param("I would read the first one.", id="prose"),
    pytest.param("", id="nothing"),
    pytest.param("[1, 2]", id="a list"),
    pytest.param(Response("<html>", content_type="text/html"), id="no JSON at all"),
    pytest.param(Response('{"choices": []}', content_type="application/json"), id="no choices"),
    pytest.param(Response("", status=500), id="server error"),
    pytest.param(too_many(), id="too many requests"),
    pytest.param(Response("{}", status=401), id="no key"),
]


@pytest.mark.parametrize("answer", BAD)
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_bad_answer_leaves_it_to_the_policy(
    chat_server, router_of, three, answer, asynchronous
):
    """And the turn says so."""
    chat_server.says = answer
    router = router_of(RouterSettings(max_retries=0))
    routed = (await router.aroute(three)) if asynchronous else router.route(three)
    assert followed(routed) == the_policy(three)
    assert routed.notes[0].startswith("failed: ")
    assert (routed.usage.calls, routed.usage.failures) == (1, 1)
    assert not routed.chosen
    assert not routed.dropped


def test_no_more_are_followed_than_may_be(chat_server, router_of, request_of):
    """The first ones count; a model that picks all has picked none."""
    chat_server.says = says(range(12, 0, -1))
    routed = router_of().route(request_of([0.7] * 12))
    assert routed.chosen == {12, 11, 10, 9, 8, 7}


def test_of_a_mixed_answer_what_was_offered_counts(chat_server, router_of, three):
    """Once each, also where numbers come as texts."""
    chat_server.says = says([9, "2", 2, 3])
    assert followed(router_of(RouterSettings(method="json_mode")).route(three)) == [(1, 2)]


@pytest.mark.parametrize(
    "text",
    [
        '{"follow": [2], "drop": [], "stop": true, "reason": ""}',
        'Sure:\n```json\n{"follow": [2], "stop": true}\n```\nThat one.',
        'I think {"follow": [2], "stop": true, "reason": "it names it"} is best.',
    ],
)
def test_a_model_without_structured_output_is_understood(three, text):
    """JSON in prose or in a fence, also where parts are missing."""
    routed = ChatModelRouter(FakeListChatModel(responses=[text])).route(three)
    assert followed(routed) == [(1,)]


def test_a_server_without_structured_output_is_asked_in_words(chat_server, router_of, three):
    """It refuses once; from then on it is asked for JSON only."""

    def answer(body):
        known = "response_format" not in body and "tools" not in body
        return '{"follow": [2], "stop": true}' if known else Response("no such option", status=400)

    chat_server.says = answer
    router = router_of()
    assert followed(router.route(three)) == followed(router.route(three)) == [(1,)]
    assert ["response_format" in body for body in chat_server.requests] == [True, False, False]


def test_a_request_that_is_bad_in_any_form_says_nothing_of_the_form(chat_server, router_of, three):
    """Such as one that is too long: the next one has its structure again."""
    chat_server.says = Response("too long", status=400)
    router = router_of()
    router.route(three)
    chat_server.says = says([2])
    assert followed(router.route(three)) == [(1,)]
    assert ["response_format" in body for body in chat_server.requests] == [True, False, True]


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of the client itself
def test_a_streaming_model_is_understood(chat_server, router_of, three):
    """Its chunks are put together."""
    chat_server.says = says([2])
    routed = router_of(streaming=True, stream_usage=True).route(three)
    assert routed.notes == ("because",)
    assert followed(routed) == [(1,)]
    assert routed.usage.output_tokens > 0


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_what_may_pass_is_asked_again(chat_server, router_of, three, asynchronous):
    """Twice at most; the turn counts every request."""
    answers = iter([too_many(), Response("", status=503), says([2])])
    chat_server.says = lambda _body: next(answers)
    router = router_of()
    routed = (await router.aroute(three)) if asynchronous else router.route(three)
    assert followed(routed) == [(1,)]
    assert (routed.usage.calls, routed.usage.failures) == (3, 2)


def test_what_will_not_pass_is_not_asked_again(chat_server, router_of, three):
    """A key that is wrong stays wrong."""
    chat_server.says = Response("{}", status=401)
    assert router_of().route(three).usage.calls == 1


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_slow_model_is_not_waited_for(chat_server, router_of, three, asynchronous):
    """The policy decides when the time is over; the event loop stays free."""
    chat_server.says = late(1.5)
    router = router_of(QUICK)
    begun = time.perf_counter()
    if asynchronous:
        routed, _ = await asyncio.gather(router.aroute(three), asyncio.sleep(0.2))
    else:
        routed = router.route(three)
    assert time.perf_counter() - begun < 1.2
    assert followed(routed) == the_policy(three)
    assert "no answer within 0.3 s" in routed.notes[0]


def test_after_three_failures_the_model_is_left_alone(chat_server, router_of, three, caplog):
    """It says so once in the log and on every turn, and tries again after a while."""
    chat_server.says = "prose"
    router = router_of(RouterSettings(recovery_seconds=0.4))
    with caplog.at_level(logging.WARNING, logger="crabpath_retrievers.routing.chat_model.client"):
        notes = [router.route(three).notes[0] for _ in range(5)]
    assert len(chat_server.requests) == 2 * 3  # each once more in plain words
    assert [note.startswith("not asked: 3 failures in a row") for note in notes[3:]] == [True, True]
    said = [r for r in caplog.records if r.name == "crabpath_retrievers.routing.chat_model.client"]
    assert (router.state, len(said)) == ("open", 1)
    chat_server.says = says([2])
    time.sleep(0.5)
    assert router.state == "half_open"
    assert followed(router.route(three)) == [(1,)]
    assert router.state == "closed"


def test_a_success_in_between_keeps_it_closed(chat_server, router_of, three):
    """Only failures in a row count."""
    answers = iter(["prose", "prose", says([2]), "prose", "prose"])
    chat_server.says = lambda _body: next(answers)
    router = router_of(RouterSettings(max_retries=0))
    for _ in range(5):
        router.route(three)
    assert (router.state, len(chat_server.requests)) == ("closed", 5)


async def test_of_many_turns_one_tries_again(chat_server, router_of, three):
    """While it tries, the others go on without the model."""
    chat_server.says = "prose"
    router = router_of(RouterSettings(recovery_seconds=0.2, max_retries=0))
    for _ in range(3):
        router.route(three)
    await asyncio.sleep(0.3)
    chat_server.says = late(0.3, '{"follow": [2], "stop": true}')
    await asyncio.gather(*[router.aroute(three) for _ in range(5)])
    assert len(chat_server.requests) == 4


async def test_a_cancelled_turn_is_no_failure_and_no_success(chat_server, router_of, three):
    """Whoever stops waiting says nothing about the model."""
    chat_server.says = "prose"
    router = router_of()
    router.route(three)
    router.route(three)
    chat_server.says = late(0.5)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(router.aroute(three), 0.1)
    chat_server.says = "prose"
    router.route(three)
    assert router.state == "open"


def test_tokens_and_cost_are_counted(chat_server, router_of, three):
    """As the model tells them, at the prices of the user."""
    chat_server.says = says([2])
    usage = router_of(RouterSettings(prices=(0.15, 0.6))).route(three).usage
    assert usage.calls == 1
    assert usage.input_tokens > 100
    assert usage.output_tokens > 5
    cost = (usage.input_tokens * 0.15 + usage.output_tokens * 0.6) / 1e6
    assert usage.cost_usd == pytest.approx(cost)


def test_tokens_are_estimated_where_the_model_does_not_tell(three):
    """A quarter more or less."""
    usage = (
        ChatModelRouter(FakeListChatModel(responses=['{"follow": [2], "stop": true}']))
        .route(three)
        .usage
    )
    assert usage.input_tokens > 100
    assert usage.output_tokens == 9


def test_what_a_cache_answers_costs_nothing(chat_server, router_of, three):
    """It is counted apart."""
    chat_server.says = says([2])
    router = router_of(RouterSettings(prices=(1, 1)), cache=InMemoryCache())
    router.route(three)
    routed = router.route(three)
    assert routed.usage == ModelUsage(calls=0, cached_calls=1)
    assert followed(routed) == [(1,)]
    assert len(chat_server.requests) == 1


def test_the_answer_is_limited(chat_server, router_of, three):
    """To 180 tokens, or to what the model was given if that is less."""
    chat_server.says = says([2])
    for fields in ({}, {"max_tokens": 60}, {"max_tokens": 999}):
        router_of(**fields).route(three)
    router_of(RouterSettings(max_output_tokens=None)).route(three)
    limits = [body.get("max_completion_tokens") for body in chat_server.requests]
    assert limits == [180, 60, 180, None]


def test_a_router_needs_a_chat_model():
    """The message says what to pass."""
    with pytest.raises(InvalidInputError, match="not str: pass a BaseChatModel"):
        ChatModelRouter("gpt")
