"""Who gave feedback is known: theirs is listed, and taken back as a whole; on both databases."""

import json

import pytest
from typer.testing import CliRunner

from crabpath_retrievers import CrabPathRetriever, Feedback, InvalidInputError
from crabpath_retrievers.callbacks import CrabPathCallbackHandler
from crabpath_retrievers.cli import app

SPAM = "Buy coins."


def give(host, user, outcome=1.0, **fields):
    """Ask and give feedback; returns its id."""
    turn = host.ask(fields.pop("namespace", "default"))
    return host.memory.record(Feedback(turn, outcome, user=user, **fields)).feedback_id


def test_all_of_a_giver_is_taken_back_exactly(host, state_of, assert_same):
    """What nobody gave in between is as if that user had never been there; notes go as well."""
    give(host, "ann", used=["a"])
    before = state_of(host.memory, "default")
    ids = [give(host, "eve", used=["b"]), give(host, "eve", -1.0)]
    ids.append(give(host, "eve", -1.0, correction=SPAM))
    assert host.memory.info()["notes"] == 1
    receipts = host.memory.learning.undo_all(user="eve")
    assert [(one.feedback_id, one.status) for one in receipts] == [
        (name, "undone") for name in reversed(ids)
    ]
    assert_same(state_of(host.memory, "default"), before)
    assert host.memory.info()["notes"] == 0
    assert host.memory.learning.undo_all(user="eve") == []


def test_others_keep_what_they_taught(host):
    """Also where both taught in turn; released turns may be learned from again."""
    give(host, "ann", used=["a"])
    give(host, "eve", used=["b"])
    give(host, None, used=["a"])
    give(host, "eve", used=["b"])
    host.memory.learning.undo_all(user="eve")
    assert host.usage()["a"][0] == pytest.approx(2.0)
    assert host.usage().get("b", (0.0,))[0] == pytest.approx(0.0)


def test_a_source_and_a_namespace_bound_what_is_taken_back(host):
    kept = give(host, "ann", source="human")
    mine = give(host, "ann", source="self")
    there = give(host, "ann", source="self", namespace="team")
    assert [
        one.feedback_id for one in host.memory.learning.undo_all(source="self", namespace="team")
    ] == [there]
    assert [
        one.feedback_id for one in host.memory.learning.undo_all(user="ann", source="self")
    ] == [mine]
    assert [host.status(one) for one in (kept, mine, there)] == ["applied", "undone", "undone"]


def test_feedback_is_listed_by_who_gave_it(host):
    first = give(host, "ann")
    second = give(host, "eve", -1.0, correction=SPAM, source="self")
    host.memory.undo(second)
    newest, oldest = host.memory.learning.feedback()
    assert (newest.feedback_id, newest.status, newest.correction) == (second, "undone", SPAM)
    assert (oldest.feedback_id, oldest.user, oldest.source, oldest.outcome) == (
        *(first, "ann", "human"),
        1.0,
    )
    assert oldest.turn_id is not None
    assert host.memory.learning.feedback(limit=1) == [newest]
    assert host.memory.learning.feedback(user="ann") == [oldest]
    assert host.memory.learning.feedback(source="self", namespace="default") == [newest]
    assert host.memory.learning.feedback(namespace="team") == []


def test_nobody_reaches_another_namespace(host):
    there = give(host, "ann", namespace="team")
    assert host.memory.learning.undo_all(user="ann", namespace="default") == []
    assert host.status(there) == "applied"


@pytest.mark.parametrize("user", ["", " ", "\x00", 7, "x" * 513])
def test_a_user_is_a_name(host, user):
    with pytest.raises(InvalidInputError, match="user must be a text"):
        Feedback(None, 1.0, user=user)
    with pytest.raises(InvalidInputError, match="user must be a text"):
        host.memory.learning.undo_all(user=user)
    assert host.memory.learning.feedback() == []


def test_undo_all_needs_a_user_or_a_source(host):
    with pytest.raises(InvalidInputError, match="give user, source or both"):
        host.memory.learning.undo_all()
    with pytest.raises(InvalidInputError, match="unknown source 'nobody'"):
        host.memory.learning.undo_all(source="nobody")
    with pytest.raises(InvalidInputError, match="limit must be"):
        host.memory.learning.feedback(limit=0)


def test_the_handler_and_the_retriever_tell_who_it_was(host):
    first, second = host.ask(), host.ask()
    handler = CrabPathCallbackHandler(host.memory)
    handler.correct("Apples.", run_id=first, user="ann")
    CrabPathRetriever(memory=host.memory).record(second, 1.0, user="bob")
    assert {one.user for one in host.memory.learning.feedback()} == {"ann", "bob"}


def test_the_commands_know_users(host, location):
    turn = host.ask()
    host.memory.store.flush()
    run = CliRunner().invoke
    there = ["--store", location]
    assert run(app, ["feedback", turn, "--outcome", "1", "--user", "eve", *there]).exit_code == 0
    result = run(app, ["undo", "--user", "eve", "--json", *there])
    assert [one["status"] for one in json.loads(result.stdout)] == ["undone"]
    assert "0 undone" in run(app, ["undo", "--user", "eve", *there]).stdout
    assert run(app, ["undo", "f", "--user", "eve", *there]).exit_code == 2


def believed(host):
    """What stands in the one episode of the default namespace."""
    store = host.memory.store
    (name,) = store.learned.episode_ids(store.walk.get_clock("default").key)
    (episode,) = store.learned.episodes(store.walk.get_clock("default").key, [name])
    return episode.documents


def test_nobody_alone_turns_round_what_another_one_taught(host):
    """However often they say it; they are told how much of it counts, and two outweigh one."""
    give(host, "ann", used=["a"])
    for expected in (60, 0, 0):
        receipt = host.memory.record(Feedback(host.ask(), 1.0, used=["b"], user="eve"))
        assert receipt.status == "applied"
        assert f"counts {expected}% of its full weight" in receipt.note
    assert believed(host)["a"] == pytest.approx(0.4)
    assert host.usage()["b"][0] == pytest.approx(0.6)
    receipt = host.memory.record(Feedback(host.ask(), 1.0, used=["b"], user="bob"))
    assert believed(host)["b"] > believed(host)["a"]


@pytest.mark.parametrize("users", [(None, None), ("eve", "eve"), ("ann", None), (None, "eve")])
def test_what_one_user_or_nobody_says_counts_in_full(host, users):
    give(host, users[0], used=["a"])
    receipt = host.memory.record(Feedback(host.ask(), 1.0, used=["b"], user=users[1]))
    assert receipt.note is None
    assert believed(host) == pytest.approx({"c": -2.0})


def test_the_bound_is_a_setting(open_memory, host_of):
    with open_memory(max_user_share=None) as memory:
        host = host_of(memory)
        give(host, "ann", used=["a"])
        assert memory.record(Feedback(host.ask(), 1.0, used=["b"], user="eve")).note is None


def test_bounded_feedback_is_taken_back_exactly(host, state_of, assert_same):
    give(host, "ann", used=["a"])
    before = state_of(host.memory, "default")
    given = give(host, "eve", used=["b"])
    host.memory.undo(given)
    assert_same(state_of(host.memory, "default"), before)
    receipt = host.memory.record(Feedback(host.ask(), 1.0, used=["b"], user="eve"))
    assert "counts 60% of its full weight" in receipt.note
