"""Feedback from LangSmith and to it, with its own client over HTTP."""

import json
import socket
import uuid
from datetime import datetime, timezone

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langsmith import Client
from langsmith.utils import get_env_var
from langsmith_server import API_KEY, LangSmithServer
from typer.testing import CliRunner

from crabpath_retrievers import CrabPathRetriever, OutcomePolicy, Rule
from crabpath_retrievers.callbacks import CrabPathCallbackHandler
from crabpath_retrievers.cli import app
from crabpath_retrievers.errors import ConfigurationError, NotFoundError, ServiceError
from crabpath_retrievers.parts.langsmith import LangSmithPush, PullReport, pull

pytestmark = pytest.mark.slow

QUESTION = "Were Scott Derrickson and Ed Wood of the same nationality?"


@pytest.fixture
def server(httpserver) -> LangSmithServer:
    """LangSmith, with an empty project "chat"."""
    return LangSmithServer(httpserver)


@pytest.fixture
def connect(server):
    """Makes clients of LangSmith."""
    made = []

    def open_client(url=server.url, key=API_KEY):
        made.append(Client(api_url=url, api_key=key, auto_batch_tracing=False))
        return made[-1]

    yield open_client
    for client in made:
        client.session.close()


@pytest.fixture
def fetch(connect, retriever):
    """Pulls the project into the memory, for the namespace of the test or for all."""
    return lambda **given: pull(connect(), retriever.memory, "chat", **given)


def ask(retriever, question=QUESTION, **options):
    """A retrieval by a run of LangChain: its run id and its documents."""
    run_id = uuid.uuid4()
    return run_id, retriever.invoke(question, run_id=run_id, **options)


@pytest.fixture
def kept(retriever):
    """What the memory made of feedback of LangSmith."""
    return lambda given: retriever.memory.store.learned.get_feedback(f"langsmith:{given}")


@pytest.mark.parametrize(
    ("fields", "outcome", "source"),
    [
        ({"score": 1}, 1.0, "human"),
        ({"score": False}, -1.0, "human"),
        ({"score": 0.75}, 0.5, "human"),
        ({"score": 1, "feedback_source": {"type": "model", "metadata": {}}}, 1.0, "teacher"),
        ({"correction": {"documents": ["elsewhere"]}}, -1.0, "human"),
    ],
)
def test_what_was_said_becomes_an_outcome(retriever, server, fetch, kept, fields, outcome, source):
    """A score or a thumb; of a model's word that of a teacher; right documents that were missed."""
    run_id, _ = ask(retriever)
    given = server.say(run_id, **fields)
    assert fetch() == PullReport(learned=1)
    learned = kept(given)
    assert (learned.status, learned.feedback.outcome) == ("applied", outcome)
    assert learned.feedback.source == source


def test_corrections_are_learned(retriever, server, fetch, kept):
    """Words are returned next time; a returned document that is named is used, and gains."""
    run_id, before = ask(retriever)
    last = before[-1]
    given = server.say(run_id, score=0, correction={"documents": [last.id]})
    right = "Derrickson and Wood are both from the United States."
    server.say(ask(retriever)[0], score=0, correction={"output": right})
    assert fetch() == PullReport(learned=2)
    feedback = kept(given).feedback
    assert (feedback.outcome, feedback.used) == (1.0, (last.id,))
    best, *others = retriever.invoke(QUESTION, k=4)
    assert best.page_content.splitlines()[1:] == [right]
    scores = {d.id: d.metadata["score"] for d in others}
    assert scores[last.id] > last.metadata["score"]


def test_a_document_that_was_missed_is_found_next_time(retriever, server, fetch, kept):
    run_id, _ = ask(retriever)
    missed = retriever.invoke(QUESTION, k=9)[-1].id
    given = server.say(run_id, score=0, correction={"documents": [missed]})
    assert fetch() == PullReport(learned=1)
    assert (kept(given).feedback.outcome, kept(given).note) == (-1.0, None)
    assert retriever.invoke(QUESTION)[0].id == missed


def test_feedback_on_the_root_reaches_all_turns_of_the_trace(retriever, server, fetch):
    """Users judge answers: the retrievers are looked up, over several pages."""
    runs = [ask(retriever, q)[0] for q in (QUESTION, "Who was Ed Wood?", "Who is Derrickson?")]
    for _ in range(150):
        server.say(uuid.uuid4(), score=1)
    server.say(server.trace(*runs, uuid.uuid4()), score=0)
    assert fetch() == PullReport(learned=3, unmatched=150)
    pages = [path for _, path in server.asked if path.startswith("/feedback")]
    assert len(pages) == 2


def test_only_newer_feedback_under_keys_of_the_policy_counts(retriever, server, fetch):
    """``since`` is asked of LangSmith; without zone it is meant as UTC.

    Other keys, such as latencies, are left alone; what was pulled before changes nothing.
    """
    for day in ("01", "03"):
        server.say(ask(retriever)[0], score=1, created_at=f"2026-11-{day}T08:00:00+00:00")
    since = datetime(2026, 11, 2)  # noqa: DTZ001  without zone on purpose
    assert fetch(since=since) == PullReport(learned=1)
    before = retriever.memory.info()
    zoned = datetime(2026, 11, 3, tzinfo=timezone.utc)
    assert fetch(since=zoned) == PullReport(known=1)
    assert retriever.memory.info() == before
    server.say(ask(retriever)[0], key="tone", score=1)
    assert fetch(policy=OutcomePolicy(feedback_keys=("tone",))) == PullReport(learned=1)
    off = OutcomePolicy(langsmith=Rule(1.0, "human", on=False))
    assert fetch(policy=off) == PullReport()


@pytest.mark.parametrize("fields", [{"score": 4}, {"score": -0.5}, {}])
def test_what_is_no_judgement_is_counted_and_left(retriever, server, fetch, fields):
    """Stars from 1 to 5, or a label alone, teach nothing."""
    server.say(ask(retriever)[0], **fields)
    assert fetch() == PullReport(unusable=1)


def test_a_pull_for_one_user_teaches_that_user_alone(retriever, server, fetch, kept):
    """What one user's pull refuses is learned by the pull of whose turn it is."""
    run_id, _ = ask(retriever)
    given = server.say(run_id, score=1)
    assert fetch(namespace="bob") == PullReport(refused=1)
    with pytest.raises(NotFoundError):
        kept(given)
    assert retriever.memory.store.turns.find(str(run_id)).consumed is None
    assert fetch(namespace=retriever.namespace) == PullReport(learned=1)


def test_a_person_in_langsmith_outweighs_silence(retriever, server, fetch, silent, recorded):
    (retriever | (lambda _: "Yes.")).invoke(QUESTION, {"callbacks": [silent]})
    server.say(retriever.memory.store.turns.get(recorded.turns[0]).run_id, score=0)
    assert fetch() == PullReport(learned=1)
    history = retriever.memory.store.history
    assert history.get_feedback_state(recorded[0][0].feedback_id).status == "undone"


def test_what_is_learned_is_pushed_once_and_never_pulled(retriever, server, connect, fetch, kept):
    """The run that retrieved carries the outcome; the same again overwrites it."""
    push = LangSmithPush(connect(), retriever.memory, "chat")
    handler = CrabPathCallbackHandler(retriever, on_receipt=push)
    run_id, documents = ask(retriever)
    for _ in range(2):
        handler.score(0.75, run_id=run_id, used=[documents[0].id], source="human")
    push.close()
    (given,) = server.feedback.values()
    assert (given["run_id"], given["session_id"]) == (str(run_id), server.project_id)
    assert (given["key"], given["score"]) == ("crabpath_outcome", 0.75)
    assert given["feedback_source"]["metadata"]["used"] == [documents[0].id]
    policy = OutcomePolicy(feedback_keys=("crabpath_outcome",))
    assert fetch(policy=policy) == PullReport()
    said = server.say(ask(retriever)[0], score=1)
    fetch()
    assert push.push(kept(said).feedback) is None  # it came from there
    assert len(server.feedback) == 2


def test_errors_are_sentences(retriever, connect, caplog):
    """A wrong project, a wrong key, nobody there; a push that fails breaks nothing."""
    push = LangSmithPush(connect(key="wrong"), retriever.memory, "chat")
    handler = CrabPathCallbackHandler(retriever, on_receipt=push)
    assert handler.score(1, run_id=ask(retriever)[0])[0].status == "applied"
    push.close()
    assert "LangSmith refuses the API key" in caplog.text
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    gone = connect(f"http://127.0.0.1:{port}")
    for client, project, error, sentence in (
        (connect(), "chta", NotFoundError, "LangSmith has no project 'chta'"),
        (connect(key="wrong"), "chat", ConfigurationError, "set LANGSMITH_API_KEY"),
        (gone, "chat", ServiceError, "check LANGSMITH_ENDPOINT"),
    ):
        with pytest.raises(error, match=sentence):
            pull(client, retriever.memory, project)


@pytest.fixture
def learn(server, tmp_path):
    """``crabpath learn`` as from a shell."""

    def run(*options, key=API_KEY):
        environment = {"LANGSMITH_ENDPOINT": server.url, "LANGSMITH_API_KEY": key}
        get_env_var.cache_clear()
        try:
            command = ["learn", "--store", str(tmp_path / "memory"), *options]
            return CliRunner().invoke(app, command, env=environment)
        finally:
            get_env_var.cache_clear()

    return run


def test_the_command_pulls(server, learn, tmp_path):
    """``crabpath learn --from-langsmith`` needs neither embedder nor the serving process."""
    vectors = DeterministicFakeEmbedding(size=8)
    retriever = CrabPathRetriever.from_texts(["Both."], vectors, path=tmp_path / "memory")
    with retriever.memory:
        server.say(ask(retriever)[0], score=1, correction={"text": "Both are American."})
    done = learn("--from-langsmith", "chat", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["langsmith"] == PullReport(learned=1)._asdict()
    again = learn("--from-langsmith", "chat", "--since", "2026-10-01")
    assert "LangSmith: 0 learned, 0 refused, 1 known" in again.output
    for given, code, sentence in (
        (("--from-langsmith", "chat", "--since", "yesterday"), 2, "--since must be a time"),
        (("--since", "2026-10-01"), 2, "give --from-langsmith"),
        (("--from-langsmith", "chta"), 2, "no project 'chta'"),
    ):
        refused = learn(*given)
        assert (refused.exit_code, sentence in refused.output) == (code, True)
