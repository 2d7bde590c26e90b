"""What learning gained, as the memory finds it in the feedback of its own users."""

import json

import minilm
import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from typer.testing import CliRunner

from crabpath_retrievers import CrabPath, InvalidInputError, Settings
from crabpath_retrievers.cli import app
from crabpath_retrievers.config import LearningSettings

pytestmark = pytest.mark.slow

TOPICS = (
    *("apples", "bridges", "candles", "deserts", "engines", "forests", "glaciers", "harbours"),
    *("islands", "jewels", "kettles", "lanterns", "mirrors", "nettles", "orchards", "parrots"),
    *("quarries", "rivers", "saddles", "temples", "umbrellas", "violins", "windmills", "yachts"),
)
QUESTIONS = [f"What should I know about {topic}?" for topic in TOPICS]


@pytest.fixture
def open_topics(location):
    """Opens a memory with one page for each topic, called by its place."""
    index = InMemoryVectorStore(minilm.shared())

    def open_topics(place=location, learning=None):
        settings = Settings(learning=LearningSettings(**(learning or {})))
        model = minilm.shared()
        memory = CrabPath.open(place, embeddings=model, vectors=index, settings=settings)
        pages = [Document(f"A page about {t}.", id=f"p{n}") for n, t in enumerate(TOPICS)]
        memory.add_documents(pages, progress=None)
        return memory

    return open_topics


@pytest.fixture
def memory(open_topics):
    with open_topics() as opened:
        yield opened


def ask_and_judge(memory, right, **options):
    """Ask every question, and name the page that is right for its place."""
    receipts = []
    for n, question in enumerate(QUESTIONS):
        turn = memory.retrieve(question, k=5, **options).turn.id
        receipts.append(memory.record(turn, 1.0, relevant=[f"p{right(n)}"]))
    return receipts


def find_next(n):
    """The page of the next topic, which the text of a question does not lead to."""
    return (n + 1) % len(TOPICS)


@pytest.mark.both_databases
def test_taught_questions_are_a_gain_until_it_is_undone(memory):
    """Nothing before the first lesson; a gain when they are asked again; and exact to undo."""
    assert memory.learning.lift() == []
    first = ask_and_judge(memory, find_next)
    (before,) = memory.learning.lift()
    assert before.turns == len(TOPICS) - 1  # the first one had nothing learned
    again = ask_and_judge(memory, find_next)
    (lift,) = memory.learning.lift()
    assert (lift.group, lift.turns) == ("default", 2 * len(TOPICS) - 1)
    assert lift.wins >= len(TOPICS)
    assert 0 < lift.low < lift.lift < lift.high
    assert lift.lift == pytest.approx(lift.learned - lift.frozen, abs=2e-4)
    for receipt in again:
        memory.undo(receipt.feedback_id)
    assert memory.learning.lift() == [before]
    assert {receipt.status for receipt in first} == {"applied"}


@pytest.mark.slow
def test_random_lessons_are_no_gain(memory):
    """Labels that say nothing about later ones: the interval contains 0."""
    draws = np.random.default_rng(3).integers(len(TOPICS), size=10 * len(TOPICS)).tolist()
    for start in range(0, len(draws), len(TOPICS)):
        ask_and_judge(memory, lambda n, start=start: draws[start + n])
    (lift,) = memory.learning.lift()
    assert lift.turns == len(draws) - 1
    assert lift.low <= 0 <= lift.high


def test_what_is_used_proves_nothing(memory):
    """It is chosen from what was shown; whoever clicks the first document favours what served."""
    ask_and_judge(memory, find_next, namespace="taught")
    for question in QUESTIONS:
        answer = memory.retrieve(question, k=5, namespace="clicked")
        memory.record(answer, 1.0, used=[answer.documents[0].node.id])
    assert [row.group for row in memory.learning.lift()] == ["taught"]


def test_groups_and_namespaces_are_kept_apart(memory):
    for _ in range(2):
        ask_and_judge(memory, find_next, namespace="ada")
    ask_and_judge(memory, lambda n: n, namespace="bob")
    ada, bob = memory.learning.lift()
    assert (ada.group, bob.group) == ("ada", "bob")
    assert (ada.low > 0, bob.frozen) == (True, 1.0)
    assert memory.learning.lift(namespace="bob") == [bob]
    assert memory.learning.lift(namespace="nobody") == []
    (human,) = memory.learning.lift(namespace="bob", by="source")
    assert human == bob._replace(group="human", has_lost=None)
    (week,) = memory.learning.lift(namespace="bob", by="week")
    assert week == bob._replace(group=week.group, has_lost=None)
    assert week.group[4:6] == "-W"
    with pytest.raises(InvalidInputError, match="by must be one of namespace, source, week, not 5"):
        memory.learning.lift(by=5)


def test_the_record_says_what_would_have_been_returned(memory):
    """As a namespace without lessons returns it; not where a budget chose, or nothing changed."""
    assert memory.retrieve(QUESTIONS[0], k=5).turn.frozen is None
    ask_and_judge(memory, find_next)
    memory.teach("Candles burn.", query=QUESTIONS[2])
    for question in QUESTIONS:
        turn = memory.retrieve(question, k=5).turn
        fresh = memory.retrieve(question, k=5, namespace="fresh", record=False)
        assert turn.frozen[0] == fresh.documents[0].node.id
        assert len({*turn.frozen} & {item.node.id for item in fresh.documents}) >= 4
        assert memory.store.turns.get(turn.id) == turn
    assert memory.retrieve(QUESTIONS[0], k=5, max_tokens=20).turn.frozen is None


def judge_against(memory, rounds):
    """Judge every question so that learning loses.

    Yields the loss of each turn, in nDCG, and whether the ranking before any lesson answered.
    """
    for shift in range(1, rounds + 1):
        for n, question in enumerate(QUESTIONS):
            turn = memory.retrieve(question, k=5).turn
            shown = [item.node for item in turn.returned]
            first = (turn.frozen or shown)[0]
            lost = turn.frozen is not None and (turn.learned or shown)[0] != first
            right = first if lost else f"p{(n + shift) % len(TOPICS)}"
            memory.record(turn.id, 1.0, relevant=[right])
            place = shown.index(right) if right in shown else None
            gained = 0.0 if place is None else 1 / np.log2(place + 2)
            yield (1.0 - gained if lost else 0.0), turn.learned is not None


@pytest.mark.slow
@pytest.mark.both_databases
def test_feedback_that_shows_a_loss_gives_the_ranking_before_any_lesson(memory, caplog):
    """After a bounded loss, with a line in the log; other namespaces and corrections stay."""
    memory.teach("Candles burn.", query=QUESTIONS[2], namespace="other")
    turns = list(judge_against(memory, 4))
    assert sum(loss for loss, _ in turns) < 17
    assert "is answered by the ranking before any lesson" in caplog.text
    assert turns[-1][1]
    (row,) = memory.learning.lift()
    assert (row.has_lost, row.lift < 0) == (True, True)
    for question in QUESTIONS:
        served = memory.retrieve(question, k=5)
        assert served.turn.frozen == tuple(item.node for item in served.turn.returned)
        assert memory.store.turns.get(served.turn.id) == served.turn
        quiet = memory.retrieve(question, k=5, record=False)
        assert [d.node.id for d in quiet.documents] == [d.node.id for d in served.documents]
    assert memory.retrieve(QUESTIONS[2], namespace="other").turn.learned is None


def test_the_gate_opens_when_the_feedback_is_undone(memory):
    list(judge_against(memory, 4))
    asked = QUESTIONS[3]
    assert memory.retrieve(asked).turn.learned is not None
    for given in memory.learning.feedback(limit=60):
        memory.undo(given.feedback_id)
    assert memory.retrieve(asked).turn.learned is None


def test_the_gate_can_be_switched_off(open_topics):
    with open_topics(learning={"gate": False}) as memory:
        assert not any(is_frozen for _, is_frozen in judge_against(memory, 4))


def click(memory, choose):
    """Ask every question, and call used the document at a place that a function draws."""
    for question in QUESTIONS:
        turn = memory.retrieve(question, k=5).turn
        shown = [item.node for item in turn.returned]
        memory.record(turn.id, 1.0, used=[shown[min(choose(), len(shown) - 1)]])


@pytest.mark.slow
@pytest.mark.parametrize("steepness", [0.2, 0.6, 1.0])
def test_clicks_by_place_prove_nothing(open_topics, steepness):
    """Both rankings draft the answers; whoever clicks by place alone prefers neither of them."""
    rng = np.random.default_rng(5)
    with open_topics(learning={"trial_share": 1.0}) as memory:
        ask_and_judge(memory, lambda n: (7 * n + 5) % len(TOPICS))
        for _ in range(12):
            click(memory, lambda: int(rng.geometric(steepness)) - 1)
        relevant, drafted = sorted(memory.learning.lift(), key=lambda row: -len(row.labels))
    assert (relevant.labels, drafted.labels) == ("relevant", "drafted")
    assert drafted.wins + drafted.losses > 50
    assert drafted.low <= 0 <= drafted.high
    assert drafted.high - drafted.low < 0.3


def test_clicks_on_what_is_right_prove_a_gain(open_topics):
    """With a trial, what was used counts; without one it does not."""
    with open_topics(learning={"trial_share": 1.0}) as memory:
        ask_and_judge(memory, find_next)
        for n, question in enumerate(QUESTIONS * 2):
            turn = memory.retrieve(question, k=24).turn
            memory.record(turn, 1.0, used=[f"p{find_next(n % len(TOPICS))}"])
        drafted, _ = memory.learning.lift()
        (week, _) = memory.learning.lift(by="week")
    assert drafted.labels == "drafted"
    assert drafted.turns > len(TOPICS)
    assert drafted.low > 0
    assert week == drafted._replace(group=week.group, has_lost=None)


def test_what_was_drafted_is_told(open_topics):
    """Both have their best in the answer; each document is from one, or from both."""
    with open_topics(learning={"trial_share": 1.0}) as memory:
        ask_and_judge(memory, find_next)
        for question in QUESTIONS:
            turn = memory.retrieve(question, k=4).turn
            shown = [item.node for item in turn.returned]
            assert shown == [*turn.teams]
            assert {turn.learned[0], turn.frozen[0]} <= {*shown[:2]}
            assert {*turn.teams.values()} <= {"learned", "frozen", "both"}
            assert memory.store.turns.get(turn.id) == turn
            quiet = memory.retrieve(question, k=4, record=False).turn
            assert (quiet.teams, quiet.returned[0].node) == ({}, turn.learned[0])


def test_it_travels(memory, open_topics, tmp_path):
    """An archive carries what lift is computed from."""
    ask_and_judge(memory, find_next)
    archive = tmp_path / "all.crabpath"
    memory.transfer.export(archive, namespace="default")
    with open_topics(tmp_path / "there") as there:
        there.transfer.import_archive(archive)
        assert there.learning.lift() == memory.learning.lift()


@pytest.mark.sqlite  # the command is given the directory
def test_the_command(memory, tmp_path):
    """A table for people, rows for programs, and a sentence where there is nothing to show."""
    cli = CliRunner()
    command = ["report", "--store", str(tmp_path / "memory")]
    assert "no turn since the first lesson has feedback" in cli.invoke(app, command).stdout
    ask_and_judge(memory, find_next)
    shown = cli.invoke(app, command).stdout.split()
    assert shown[:4] == ["namespace", "labels", "turns", "wins"]
    assert "default" in shown
    (row,) = json.loads(cli.invoke(app, [*command, "--by", "source", "--json"]).stdout)
    assert (row["group"], row["turns"]) == ("human", len(TOPICS) - 1)
    refused = cli.invoke(app, [*command, "--by", "day"])
    assert (refused.exit_code, "by must be one of" in refused.stderr) == (2, True)
