"""Feedback from LangSmith and to it, with its own client over HTTP."""

import json
import socket
import uuid
from datetime import datetime, timezone

import pytest
from langsmith import Client
from langsmith_server import API_KEY, LangSmithServer
from typer.testing import CliRunner

from crabpath_retrievers import CrabPathRetriever
from crabpath_retrievers.callbacks import CrabPathCallbackHandler, OutcomePolicy, Rule
from crabpath_retrievers.callbacks.langsmith.pull import PullReport, pull
from crabpath_retrievers.callbacks.langsmith.push import LangSmithPush
from crabpath_retrievers.cli import app
from crabpath_retrievers.errors import ConfigurationError, NotFoundError, ServiceError

QUESTION = "Were Scott Derrickson and Ed Wood of the same nationality?"


@pytest.fixture
def server(httpserver) -> LangSmithServer:
    """LangSmith, with an empty project "chat"."""
    return LangSmithServer(httpserver)


@pytest.fixture
def client(server):
    """LangSmith's client."""
    made = Client(api_url=server.url, api_key=API_KEY, auto_batch_tracing=False)
    yield made
    made.session.close()


def ask(retriever, question=QUESTION, **options):
    """A retrieval by a run of LangChain: its run id and its documents."""
    run_id = uuid.uuid4()
    return run_id, retriever.invoke(question, run_id=run_id, **options)


def stands(retriever, feedback_id):
    """What the memory made of feedback of LangSmith."""
    return retriever.memory.store.learned.get_feedback(f"langsmith:{feedback_id}")


@pytest.mark.parametrize(
    ("score", "outcome"), [(1, 1.0), (0, -1.0), (True, 1.0), (False, -1.0), (0.75, 0.5)]
)
def test_scores_are_learned(retriever, server, client, score, outcome):
    """A score from 0 to 1, or a thumb, becomes an outcome of the turn of its run."""
    run_id, _ = ask(retriever)
    given = server.say(run_id, score=score)
    assert pull(client, retriever.memory, "chat") == PullReport(learned=1)
    kept = stands(retriever, given)
    assert (kept.status, kept.feedback.outcome, kept.feedback.source) == (
        "applied",
        outcome,
        "human",
    )


def test_a_correction_changes_the_next_retrieval(retriever, server, client):
    """What somebody wrote into the correction is found for the same question."""
    run_id, _ = ask(retriever)
    right = "Derrickson and Wood are both from the United States."
    server.say(run_id, score=0, correction={"output": right})
    pull(client, retriever.memory, "chat")
    assert retriever.invoke(QUESTION)[0].page_content == right


def test_right_documents_are_learned_as_used(retriever, server, client):
    """A correction that names a returned document ranks it higher next time."""
    run_id, before = ask(retriever)
    last = before[-1]
    given = server.say(run_id, score=0, correction={"documents": [last.id]})
    pull(client, retriever.memory, "chat")
    feedback = stands(retriever, given).feedback
    assert (feedback.outcome, feedback.used) == (1.0, (last.id,))
    after = {d.id: d.metadata["score"] for d in retriever.invoke(QUESTION)}
    assert after[last.id] > last.metadata["score"]


def test_right_documents_that_were_not_found_are_a_failure(retriever, server, client):
    """Where the turn returned none of them, it failed."""
    run_id, _ = ask(retriever)
    given = server.say(run_id, correction={"documents": ["elsewhere"]})
    pull(client, retriever.memory, "chat")
    assert stands(retriever, given).feedback.outcome == -1.0


def test_an_evaluator_counts_as_teacher(retriever, server, client):
    """What a model said weighs less than what a person said."""
    run_id, _ = ask(retriever)
    given = server.say(run_id, score=1, feedback_source={"type": "model", "metadata": {}})
    pull(client, retriever.memory, "chat")
    assert stands(retriever, given).feedback.source == "teacher"


def test_feedback_on_the_root_reaches_all_turns_of_the_trace(retriever, server, client):
    """Users judge answers: the retrievers are looked up, over several pages."""
    runs = [ask(retriever, q)[0] for q in (QUESTION, "Who was Ed Wood?", "Who is Derrickson?")]
    trace = server.trace(*runs, uuid.uuid4())
    server.say(trace, score=0)
    assert pull(client, retriever.memory, "chat") == PullReport(learned=3)
    pages = [path for _, path in server.asked if path.startswith("/runs/query")]
    assert len(pages) == 2


def test_what_was_pulled_before_changes_nothing(retriever, server, client):
    """Pulling is safe to repeat, directly and by trace."""
    direct, _ = ask(retriever)
    inside, _ = ask(retriever, "Who was Ed Wood?")
    server.say(direct, score=1)
    server.say(server.trace(inside), score=0)
    assert pull(client, retriever.memory, "chat") == PullReport(learned=2)
    before = retriever.memory.info()
    assert pull(client, retriever.memory, "chat") == PullReport(known=2)
    assert retriever.memory.info() == before


def test_feedback_is_paged(retriever, server, client):
    """A project with more feedback than a page is read to its end."""
    run_id, _ = ask(retriever)
    server.say(run_id, score=1)
    for _ in range(150):
        server.say(uuid.uuid4(), score=1)
    assert pull(client, retriever.memory, "chat") == PullReport(learned=1, unmatched=150)
    assert len([p for _, p in server.asked if p.startswith("/feedback")]) == 2


def test_only_what_is_newer_is_pulled(retriever, server, client):
    """``since`` is asked of LangSmith; without zone it is meant as UTC."""
    old, _ = ask(retriever)
    new, _ = ask(retriever)
    server.say(old, score=1, created_at="2026-11-01T08:00:00+00:00")
    server.say(new, score=1, created_at="2026-11-03T08:00:00+00:00")
    since = datetime(2026, 11, 2)  # noqa: DTZ001  without zone on purpose
    assert pull(client, retriever.memory, "chat", since=since) == PullReport(learned=1)
    zoned = datetime(2026, 11, 1, tzinfo=timezone.utc)
    assert pull(client, retriever.memory, "chat", since=zoned) == PullReport(learned=1, known=1)


def test_only_keys_of_the_policy_count(retriever, server, client):
    """Other keys, such as latencies, are left alone."""
    run_id, _ = ask(retriever)
    server.say(run_id, key="tone", score=1)
    assert pull(client, retriever.memory, "chat") == PullReport()
    policy = OutcomePolicy(feedback_keys=("tone",))
    assert pull(client, retriever.memory, "chat", policy=policy) == PullReport(learned=1)
    off = OutcomePolicy(langsmith=Rule(1.0, "human", on=False))
    assert pull(client, retriever.memory, "chat", policy=off) == PullReport()


@pytest.mark.parametrize("fields", [{"score": 4}, {"score": -0.5}, {}, {"value": "good"}])
def test_what_is_no_judgement_is_counted_and_left(retriever, server, client, fields):
    """Stars from 1 to 5, or a label alone, teach nothing."""
    run_id, _ = ask(retriever)
    server.say(run_id, **fields)
    assert pull(client, retriever.memory, "chat") == PullReport(unusable=1)


def test_feedback_for_another_namespace_is_refused(retriever, server, client):
    """A project that is pulled for one user teaches that user alone."""
    run_id, _ = ask(retriever, namespace="alice")
    given = server.say(run_id, score=1)
    assert pull(client, retriever.memory, "chat", namespace="bob") == PullReport(refused=1)
    with pytest.raises(NotFoundError):
        stands(retriever, given)
    assert retriever.memory.store.turns.find(str(run_id)).consumed is None


def test_who_is_pulled_first_uses_nothing_up(retriever, server, client):
    """What one user's pull refuses is learned by the pull of whose turn it is."""
    run_id, _ = ask(retriever, namespace="alice")
    server.say(run_id, score=1)
    pull(client, retriever.memory, "chat", namespace="bob")
    assert pull(client, retriever.memory, "chat", namespace="alice") == PullReport(learned=1)


def test_a_person_in_langsmith_outweighs_silence(retriever, server, client, told):
    """What the silent success taught is undone first."""
    silent = OutcomePolicy(silent_success=Rule(0.2, "harvested"))
    handler = CrabPathCallbackHandler(retriever, silent, on_receipt=told)
    documents = (retriever | (lambda _: "Yes.")).invoke(QUESTION, {"callbacks": [handler]})
    assert documents == "Yes."
    turn = retriever.memory.store.turns.get(told[0][0].turn_id)
    server.say(turn.run_id, score=0)
    assert pull(client, retriever.memory, "chat") == PullReport(learned=1)
    history = retriever.memory.store.history
    assert history.get_feedback_state(told[0][0].feedback_id).status == "undone"


def test_what_is_learned_is_pushed_once_and_never_pulled(retriever, server, client):
    """The run that retrieved carries the outcome; the same again overwrites it."""
    push = LangSmithPush(client, retriever.memory, "chat")
    handler = CrabPathCallbackHandler(retriever, on_receipt=push)
    run_id, documents = ask(retriever)
    handler.score(0.75, run_id=run_id, used=[documents[0].id], source="human")
    handler.score(0.75, run_id=run_id, used=[documents[0].id], source="human")
    push.close()
    ((_, given),) = server.feedback.items()
    assert (given["run_id"], given["key"], given["score"]) == (
        str(run_id),
        "crabpath_outcome",
        0.75,
    )
    assert given["session_id"] == server.project_id
    assert given["feedback_source"]["metadata"]["used"] == [documents[0].id]
    policy = OutcomePolicy(feedback_keys=("crabpath_outcome",))
    assert pull(client, retriever.memory, "chat", policy=policy) == PullReport()


def test_what_came_from_langsmith_is_not_sent_back(retriever, server, client):
    """Feedback that was pulled stays the one that there is."""
    run_id, _ = ask(retriever)
    given = server.say(run_id, score=1)
    pull(client, retriever.memory, "chat")
    push = LangSmithPush(client, retriever.memory, "chat")
    assert push.push(stands(retriever, given).feedback) is None
    push.close()
    assert len(server.feedback) == 1


def test_a_push_that_fails_breaks_nothing(retriever, server, caplog):
    """The handler goes on; the log says why."""
    wrong = Client(api_url=server.url, api_key="wrong", auto_batch_tracing=False)
    push = LangSmithPush(wrong, retriever.memory, "chat")
    handler = CrabPathCallbackHandler(retriever, on_receipt=push)
    run_id, _ = ask(retriever)
    (receipt,) = handler.score(1, run_id=run_id)
    push.close()
    wrong.session.close()
    assert receipt.status == "applied"
    assert "LangSmith refuses the API key" in caplog.text


def test_errors_are_sentences(retriever, server, client):
    """A wrong project, a wrong key, nobody there."""
    with pytest.raises(NotFoundError, match="LangSmith has no project 'chta'"):
        pull(client, retriever.memory, "chta")
    wrong = Client(api_url=server.url, api_key="wrong", auto_batch_tracing=False)
    with pytest.raises(ConfigurationError, match="set LANGSMITH_API_KEY"):
        pull(wrong, retriever.memory, "chat")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    gone = Client(api_url=f"http://127.0.0.1:{port}", api_key="k", auto_batch_tracing=False)
    with pytest.raises(ServiceError, match="check LANGSMITH_ENDPOINT"):
        pull(gone, retriever.memory, "chat")
    wrong.session.close()
    gone.session.close()


@pytest.fixture
def asked(place, embeddings):
    """The run that asked the memory, which nobody serves any more."""
    retriever = CrabPathRetriever.from_existing(place, embeddings)
    with retriever.memory:
        run_id, _ = ask(retriever)
    return run_id


def learn(server, place, *options, key=API_KEY):
    """``crabpath learn`` as from a shell."""
    environment = {"LANGSMITH_ENDPOINT": server.url, "LANGSMITH_API_KEY": key}
    command = ["learn", "--store", str(place), *options]
    from langsmith.utils import get_env_var

    get_env_var.cache_clear()
    try:
        return CliRunner().invoke(app, command, env=environment)
    finally:
        get_env_var.cache_clear()


def test_the_command_pulls(server, place, asked):
    """``crabpath learn --from-langsmith`` needs neither embedder nor the serving process."""
    server.say(asked, score=1, correction={"text": "Both are American."})
    done = learn(server, place, "--from-langsmith", "chat", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["langsmith"] == PullReport(learned=1)._asdict()
    again = learn(server, place, "--from-langsmith", "chat", "--since", "2026-10-01")
    assert "LangSmith: 0 learned, 0 refused, 1 known" in again.output


def test_the_command_says_what_is_wrong(server, place):
    """One sentence and an exit code."""
    unknown = learn(server, place, "--from-langsmith", "chta")
    assert (unknown.exit_code, "no project 'chta'" in unknown.output) == (2, True)
    denied = learn(server, place, "--from-langsmith", "chat", key="wrong")
    assert (denied.exit_code, "refuses the API key" in denied.output) == (1, True)
    early = learn(server, place, "--from-langsmith", "chat", "--since", "yesterday")
    assert (early.exit_code, "--since must be a time" in early.output) == (2, True)
    alone = learn(server, place, "--since", "2026-10-01")
    assert (alone.exit_code, "give --from-langsmith" in alone.output) == (2, True)
