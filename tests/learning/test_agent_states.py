"""What agents saw: found again where they won, with what to do next, in no other answer."""

import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, Feedback, InvalidInputError, NotFoundError, examine

LOST, TWICE, SOAP = "The customer lost her booking", "The booking was paid twice", "No soap is left"
WON = {"texts": [LOST, TWICE], "actions": ["look up", "refund"], "reward": 1.0}


@pytest.fixture
def memory(location, embeddings):
    """Three pages about something else: too few for regions of documents."""
    pages = ["Bees make honey.", "Ships need water.", "Wool is warm."]
    given = {"embeddings": embeddings, "vectors": InMemoryVectorStore(embeddings)}
    with CrabPath.open(location, **given) as opened:
        opened.add_documents([Document(page) for page in pages])
        yield opened


def list_texts(memory, text, **given):
    return [state.text for state in memory.regions.find_states(text, **given)]


@pytest.mark.both_databases
def test_a_won_state_is_found_again_with_what_to_do_next(memory):
    memory.regions.learn_episode(**WON, task_type="booking")
    memory.regions.learn_episode(texts=[SOAP], actions=["order"], reward=0.5)
    best, *_ = memory.regions.find_states("Her booking cannot be found", task_type="booking")
    assert best.text == LOST
    assert [step.action for step in best.steps] == ["look up", "refund"]
    assert best.similarity > 0.5
    mdp = memory.regions.mdp("states")
    here = mdp.assign("somebody paid for a booking two times")
    assert here == best.steps[1].region
    assert mdp.best_action(here)[0].action == "refund"
    assert mdp.strategy_for(here)[0].next_region is None
    assert len(mdp.regions) == 3


def test_each_state_is_a_region_of_its_own_in_any_order(memory):
    """Three states about soap are no region of a corpus; what was lost before a win counts, too."""
    episodes = [
        {"texts": ["The tap is dry"], "actions": ["wait"], "reward": -1.0},
        {"texts": ["The tap is dry"], "actions": ["repair"], "reward": 1.0},
        {"texts": [SOAP], "actions": ["wait"], "reward": -1.0},
        {"texts": [SOAP], "actions": ["order"], "reward": 1.0},
        *[{"texts": ["The soap is wet"], "actions": ["wait"], "reward": 1.0}] * 4,
    ]
    for name, ordered in (("a", episodes), ("b", episodes[::-1])):
        for episode in ordered:
            memory.regions.learn_episode(**episode, namespace=name)
    first, second = (memory.regions.mdp("states", namespace=name) for name in ("a", "b"))
    for text, action in (
        ("The tap is dry", "repair"),
        (SOAP, "order"),
        ("The soap is wet", "wait"),
    ):
        scores = [mdp.best_action(mdp.assign(text)) for mdp in (first, second)]
        assert scores[0][0].action == action
        assert scores[0] == scores[1]


def test_an_equal_text_is_found_however_long_it_is(memory):
    """Embedders read the beginning alone, and logs begin alike."""
    logs = [" ".join(["line of a log that many share"] * 60 + [last]) for last in ("ok", "full")]
    for log, action in zip(logs, ("wait", "clean"), strict=True):
        memory.regions.learn_episode(texts=[log], actions=[action], reward=1.0)
    mdp = memory.regions.mdp("states")
    for log, action in zip(logs, ("wait", "clean"), strict=True):
        assert memory.regions.find_states(log)[0].text == log
        assert mdp.best_action(mdp.assign(log))[0].trials == 1.0
        assert mdp.strategy_for(mdp.assign(log))[0].action == action


def test_what_was_only_lost_is_not_found_but_counts(memory):
    memory.regions.learn_episode(texts=[LOST], actions=["give up"], reward=-1.0)
    assert list_texts(memory, LOST) == []
    mdp = memory.regions.mdp("states")
    assert mdp.success_probability(mdp.assign(LOST), "give up") < 0.5
    memory.regions.learn_episode(texts=[LOST], actions=["look up"], reward=0.1)
    assert list_texts(memory, LOST) == [LOST]


@pytest.mark.both_databases
def test_no_answer_and_no_list_of_notes_has_a_state(memory):
    """Also where the states are all that a namespace has."""
    before = memory.retrieve(TWICE, k=10)
    memory.regions.learn_episode(**WON)
    memory.regions.learn_episode(**WON, namespace="ann")
    for namespace in ("default", "ann"):
        after = memory.retrieve(TWICE, k=10, namespace=namespace)
        assert [item.node for item in after.turn.returned] == [
            item.node for item in before.turn.returned
        ]
        assert memory.notes(namespace=namespace) == []
    memory.teach("Refunds take a week.")
    found = memory.retrieve(TWICE, k=10).turn.returned
    assert not any(item.node.startswith("state:") for item in found)


def test_a_namespace_keeps_its_states_to_itself(memory):
    memory.regions.learn_episode(**WON, namespace="ann")
    assert list_texts(memory, LOST, namespace="bob") == []
    with pytest.raises(NotFoundError, match="no agent has seen anything in this namespace"):
        memory.regions.mdp("states", namespace="bob").assign(LOST)
    memory.forget(namespace="ann")
    assert list_texts(memory, LOST, namespace="ann") == []


@pytest.mark.both_databases
def test_undo_takes_what_only_that_episode_saw(memory):
    """The same text in two episodes is one state, which the other one keeps."""
    first = memory.regions.learn_episode(**WON)
    other = {"texts": [TWICE, SOAP], "actions": ["refund", "order"], "reward": 1.0}
    second = memory.regions.learn_episode(**other)
    both = memory.regions.mdp("states")
    assert len(both.regions) == 3
    trials = both.best_action(both.assign(TWICE))[0].trials
    memory.undo(first.feedback_id)
    left = memory.regions.mdp("states")
    assert set(list_texts(memory, "anything")) == {TWICE, SOAP}
    assert trials == 2.0
    assert left.best_action(left.assign(TWICE))[0].trials == 1.0
    memory.undo(second.feedback_id)
    assert list_texts(memory, "anything") == []
    assert memory.regions.mdp("states").regions == ()


def test_the_same_episode_twice_and_a_frozen_namespace_change_nothing(memory):
    memory.regions.learn_episode(**WON, episode_id="e")
    again = {"texts": [SOAP], "actions": ["order"], "reward": 1.0}
    assert memory.regions.learn_episode(**again, episode_id="e").repeated
    memory.namespaces.freeze("default")
    assert memory.regions.learn_episode(**again).status == "refused"
    assert set(list_texts(memory, SOAP)) == {LOST, TWICE}


def test_archives_and_snapshots_hold_states(memory, tmp_path, embeddings):
    memory.regions.learn_episode(**WON)
    kept = memory.namespaces.snapshot()
    expected = memory.regions.find_states(LOST)
    memory.regions.learn_episode(texts=[SOAP], actions=["order"], reward=1.0)
    memory.namespaces.restore(kept)
    assert memory.regions.find_states(LOST) == expected
    memory.transfer.export(tmp_path / "all.zip")
    with CrabPath.open(tmp_path / "copy", embeddings=embeddings) as copy:
        copy.transfer.import_archive(tmp_path / "all.zip")
        assert copy.regions.find_states(LOST) == expected


def test_a_doctor_finds_nothing_wrong(tmp_path, embeddings):
    """The index of notes holds no state, and need not."""
    with CrabPath.open(tmp_path, embeddings=embeddings) as memory:
        memory.add_documents([Document("Bees make honey.")])
        memory.teach("Refunds take a week.")
        memory.regions.learn_episode(**WON)
        memory.retrieve(TWICE)
    found = examine(tmp_path, embeddings=embeddings).findings
    assert [one for one in found if one.severity != "info"] == []


def test_a_memory_without_documents_learns_and_an_agent_may_forget(tmp_path, embeddings):
    with CrabPath.open(tmp_path, embeddings=embeddings) as memory:
        assert memory.regions.find_states(LOST) == []
        memory.regions.learn_episode(**WON)
        state = memory.regions.find_states(LOST)[0].region
        memory.forget(state)
        assert list_texts(memory, LOST) == [TWICE]


def test_feedback_about_documents_and_episodes_are_counted_apart(memory):
    memory.regions.learn_episode(**WON)
    turn = memory.retrieve("honey").turn
    memory.record(Feedback(turn.id, 1.0, used=[turn.returned[0].node]))
    assert memory.regions.mdp("states").actions == ("look up", "refund")


def test_bad_questions(memory):
    for given, words in (((" ",), "must not be empty"), ((LOST, 0), "k must be")):
        with pytest.raises(InvalidInputError, match=words):
            memory.regions.find_states(*given)
    for level in (-1, 0, "state"):
        with pytest.raises(InvalidInputError, match="level must be"):
            memory.regions.mdp(level)
    assert list_texts(memory, "x" * 100_000) == []
