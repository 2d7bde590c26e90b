"""Two policies in a real memory: the better one is promoted, a harmful one is rolled back."""

import itertools
import json

import pytest
from ab_turns import SMALL
from langchain_core.documents import Document
from maintained import Bag
from typer.testing import CliRunner

from crabpath_lab.ab import Trial, TrialSettings, aretrieve_nearest, retrieve_nearest
from crabpath_lab.ab.state import TrialQueries
from crabpath_retrievers import CrabPath, CrabPathRetriever, Feedback, InvalidInputError
from crabpath_retrievers.cli import app

QUESTION = "How do I restart {}?"
THINGS = ("payroll", "billing", "search")
SETTINGS = TrialSettings(
    directional_turns=15,
    decisive_turns=18,
    min_sessions=6,
    checkpoint_turns=9,
    feedback_seconds=0.0,
    resamples=1000,
)


@pytest.fixture
def memory(tmp_path):
    """Of each thing an outdated page, which is nearest, and the page that is right."""
    with CrabPath.open(tmp_path / "memory", embeddings=Bag()) as opened:
        for thing in THINGS:
            pages = {
                f"old {thing}": f"How do I restart {thing}? Restart {thing} with the old script.",
                f"new {thing}": f"The {thing} service is restarted by the green button.",
            }
            documents = [Document(text, id=name) for name, text in pages.items()]
            opened.add_documents(documents, split=False)
        yield opened


def live(memory, trial, policies, sessions, *, user="ann"):
    """Sessions of three questions: the first document decides, and a user who scrolls says so."""
    vectors = {thing: memory.embedder.query(QUESTION.format(thing)) for thing in THINGS}
    for session, thing in itertools.product(sessions, THINGS):
        given, right = trial.options(user, session), f"new {thing}"
        asked = {"k": policies[trial.arm(session)], "vector": vectors[thing]}
        question = QUESTION.format(thing)
        answer = memory.retrieve(question, **asked, **given)
        ids = [item.node.id for item in answer.documents]
        if ids[0] == right:
            memory.record(Feedback(answer.turn.id, 1.0, used=[right]))
            continue
        memory.record(Feedback(answer.turn.id, -1.0, used=ids[:1]))
        if right in ids:
            found = memory.retrieve(question, **asked, namespace=given["namespace"])
            memory.record(Feedback(found.turn.id, 1.0, used=[right]))


def sessions_of(trial, arm, number):
    return list(itertools.islice((n for n in itertools.count() if trial.arm(n) == arm), number))


@pytest.mark.slow
def test_the_better_one_is_promoted(memory):
    """Learning against a frozen namespace: it is corrected less, and the command says so."""
    trial = Trial.start(memory, "learning", settings=SETTINGS)
    memory.namespaces.freeze(trial.namespaces("ann")["control"])
    with pytest.raises(InvalidInputError, match="too little data"):
        trial.promote()
    sessions = sessions_of(trial, "control", 6) + sessions_of(trial, "treatment", 6)
    live(memory, trial, {"control": 6, "treatment": 6}, sessions)
    assert not trial.checkpoint().worse
    report = trial.promote()
    assert report.verdict == "promote"
    assert report.treatment.correction_rate < report.control.correction_rate
    assert report["correction_rate"].high < 0
    assert report.treatment.known_bad_avoided is not None
    assert report.control.edges_moved == 0
    assert trial.namespace("ann", sessions[0]) == "ann#learning"


async def test_a_langchain_retriever_takes_the_options(memory):
    trial = Trial.start(memory, "hosts", settings=SMALL)
    retriever = CrabPathRetriever(memory=memory)
    for arm in ("control", "treatment"):
        given = await trial.aoptions("ann", "s", arm=arm)
        (document, *_) = await retriever.ainvoke("payroll?", **given)
        turn = memory.store.turns.get(document.metadata["crabpath"]["turn_id"])
        assert (turn.session, turn.arm) == ("s", f"hosts:{arm}")
        assert turn.namespace == trial.namespaces("ann")[arm]
    assert (await trial.acheckpoint()) is None
    report = await trial.areport()
    assert (report.control.turns, report.treatment.turns) == (1, 1)
    assert report.control.context_characters > 0


def test_notes_count_in_their_namespace(memory):
    """Two namespaces may have notes with one id."""
    for name, text in (("ann", "Payroll runs on Fridays."), ("bob", "Payroll " * 50)):
        memory.teach(text, id="note", namespace=name)
    sizes = TrialQueries(memory.store).characters(["note"])
    assert sizes == {("ann", "note"): 24, ("bob", "note"): 399}


async def test_the_nearest_are_the_nearest(memory):
    trial = Trial.start(memory, "knn", settings=SMALL)
    live(memory, trial, {"treatment": 6, "control": 6}, range(2))
    question = "How do I restart payroll?"
    near = memory.index.search(memory.embedder.query(question), 2)
    given = trial.options("ann", 1, arm="control")
    for answer in (
        retrieve_nearest(memory, question, k=2, **given),
        await aretrieve_nearest(memory, question, k=2, **given),
    ):
        assert {item.node.id for item in answer.documents} == set(near)
        assert answer.turn.arm == "knn:control"


def test_the_command(memory, tmp_path):
    """Lists, tells, refuses and ends; exit code 2 for what cannot be done."""

    def ran(*arguments, code=0):
        done = CliRunner().invoke(app, ["ab", *arguments, "--store", str(tmp_path / "memory")])
        assert done.exit_code == code, done.output
        return done.output

    assert "no trials" in ran("list")
    trial = Trial.start(memory, "cli", settings=SMALL)
    live(memory, trial, {"treatment": 6, "control": 6}, range(3))
    assert "cli: running, share 0.5" in ran("list")
    printed = json.loads(ran("checkpoint", "cli", "--json"))
    assert printed["control"]["turns"] + printed["treatment"]["turns"] == 9
    assert printed["comparisons"][0]["metric"] == "correction_rate"
    shown = ran("report", "cli")
    assert "correction_rate_by_lag" in shown
    ran("report", "nobody", code=2)
    assert "roll back: the trial has ended: by hand" in ran("roll-back", "cli")
    ran("roll-back", "cli", code=2)
    assert json.loads(ran("list", "--json"))["trials"][0]["status"] == "rolled_back"
