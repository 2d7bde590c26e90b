"""Who gave feedback is known, bounded and undone as a whole; which feedback moved an edge."""

import time

import pytest

from crabpath_retrievers import CrabPathRetriever, Feedback, InvalidInputError
from crabpath_retrievers.callbacks import CrabPathCallbackHandler
from crabpath_retrievers.cli.queries import explanation_table

SPAM = "Buy coins."


def give(host, user, outcome=1.0, **fields):
    """Ask and give feedback; returns its id."""
    turn = host.ask(fields.pop("namespace", "default"))
    return host.memory.record(Feedback(turn, outcome, user=user, **fields)).feedback_id


def undo_all(host, **conditions):
    """Take feedback back; returns its ids."""
    receipts = host.memory.learning.undo_all(**conditions)
    assert {one.status for one in receipts} <= {"undone"}
    return [one.feedback_id for one in receipts]


def test_all_of_a_user_is_taken_back_exactly(host, state_of, assert_same):
    """What nobody gave in between is as if that user had never been there; notes go as well."""
    give(host, "ann", used=["a"])
    before = state_of(host.memory, "default")
    ids = [give(host, "eve", used=["b"]), give(host, "eve", -1.0)]
    ids.append(give(host, "eve", -1.0, correction=SPAM))
    assert host.memory.info()["notes"] == 1
    assert undo_all(host, user="eve") == ids[::-1]
    assert_same(state_of(host.memory, "default"), before)
    assert host.memory.info()["notes"] == 0
    assert undo_all(host, user="eve") == []


def test_a_source_and_a_namespace_bound_what_is_taken_back(host):
    """Of several conditions all hold; the same user elsewhere is another matter."""
    kept = give(host, "ann", source="human")
    mine = give(host, "ann", source="self")
    there = give(host, "ann", source="self", namespace="team")
    assert undo_all(host, user="ann", namespace="others") == []
    assert undo_all(host, source="self", namespace="team") == [there]
    assert undo_all(host, user="ann", source="self") == [mine]
    assert [host.status(one) for one in (kept, mine, there)] == ["applied", "undone", "undone"]


def test_feedback_is_listed_by_who_gave_it(host):
    """Newest first, with what was said and where it stands."""
    retriever = CrabPathRetriever(memory=host.memory)
    first = retriever.record(host.ask(), 1.0, user="ann").feedback_id
    second = give(host, "eve", -1.0, correction=SPAM, source="self")
    host.memory.undo(second)
    newest, oldest = host.memory.learning.feedback()
    assert (newest.feedback_id, newest.status, newest.correction) == (second, "undone", SPAM)
    assert (oldest.feedback_id, oldest.user, oldest.source) == (first, "ann", "human")
    assert (oldest.outcome, oldest.turn_id is None) == (1.0, False)
    assert host.memory.learning.feedback(limit=1) == [newest]
    assert host.memory.learning.feedback(user="ann") == [oldest]
    assert host.memory.learning.feedback(source="self", namespace="default") == [newest]
    assert host.memory.learning.feedback(namespace="team") == []
    CrabPathCallbackHandler(host.memory).correct("Apples.", run_id=host.ask(), user="bob")
    assert len(host.memory.learning.feedback(user="bob")) == 1


def test_who_is_nobody(host):
    for user in ("", " \x00", 7, "x" * 513):
        for call in (lambda: Feedback(None, 1.0, user=user), lambda: undo_all(host, user=user)):  # noqa: B023
            with pytest.raises(InvalidInputError, match="user must be a text"):
                call()
    with pytest.raises(InvalidInputError, match="give user, source or both"):
        undo_all(host)
    with pytest.raises(InvalidInputError, match="unknown source 'nobody'"):
        undo_all(host, source="nobody")
    with pytest.raises(InvalidInputError, match="limit must be"):
        host.memory.learning.feedback(limit=0)


def read_credit(host):
    """What stands in the one episode of the default namespace."""
    store = host.memory.store
    (name,) = store.learned.episode_ids(store.walk.get_clock("default").key)
    (episode,) = store.learned.episodes(store.walk.get_clock("default").key, [name])
    return episode.documents


def test_nobody_alone_turns_round_what_another_one_taught(host, state_of, assert_same):
    """However often they say it; they learn how much of it counts, and two outweigh one."""
    give(host, "ann", used=["a"])
    before = state_of(host.memory, "default")
    host.memory.undo(give(host, "eve", used=["b"]))  # as any other feedback, exactly
    assert_same(state_of(host.memory, "default"), before)
    for expected in (60, 0, 0):
        receipt = host.memory.record(Feedback(host.ask(), 1.0, used=["b"], user="eve"))
        assert receipt.status == "applied"
        assert f"counts {expected}% of its full weight" in receipt.note
    assert read_credit(host)["a"] == pytest.approx(0.4)
    assert host.usage()["b"][0] == pytest.approx(0.6)
    give(host, "bob", used=["b"])
    assert read_credit(host)["b"] > read_credit(host)["a"]


@pytest.mark.parametrize("users", [(None, None), ("eve", "eve"), ("ann", None), (None, "eve")])
def test_what_one_user_or_nobody_says_counts_in_full(host, users):
    give(host, users[0], used=["a"])
    receipt = host.memory.record(Feedback(host.ask(), 1.0, used=["b"], user=users[1]))
    assert receipt.note is None
    assert read_credit(host) == pytest.approx({"c": -2.0})


AB, BA = ("a", "b", "co_used"), ("b", "a", "co_used")


def use_together(memory, host, numbers, namespace="default"):
    """Successes of these numbers, of two documents that were used together."""
    for number in numbers:
        turn = host.ask(namespace)
        given = Feedback(turn, 1.0, used=["a", "b"], feedback_id=f"{namespace}-{number}")
        assert memory.record(given).status == "applied"


def read_moves(memory, host, namespace="default"):
    """Feedback ids by edge, as the explanation of a new turn tells them."""
    explanation = memory.explain(host.ask(namespace))
    return {
        (edge.source, edge.target, edge.kind): [move.feedback_id for move in edge.moves]
        for reason in explanation.documents
        for edge in reason.moved
    }


def test_the_newest_five_moves_of_an_edge_are_explained(memory, host):
    """Newest first, with what each added and when, of the own namespace; undone, none."""
    assert read_moves(memory, host) == {}
    begun = time.time()
    use_together(memory, host, range(8))
    use_together(memory, host, range(3), "ada")
    found = read_moves(memory, host)
    newest = [f"default-{number}" for number in (7, 6, 5, 4, 3)]
    assert found.pop(AB, newest) == newest
    assert found.pop(BA, newest) == newest
    explanation = memory.explain(host.ask())
    (move, *_) = next(edge for r in explanation.documents for edge in r.moved).moves
    assert 0 < move.delta < 0.1
    assert begun <= move.created <= time.time()
    # Programs read plain data, people the table of a terminal.
    shown = [edge for d in explanation.to_dict()["documents"] for edge in d["moved"]]
    assert {move["feedback_id"] for edge in shown for move in edge["moves"]} == set(newest)
    routes = "\n".join(map(str, explanation_table(explanation).columns[2].cells))
    assert " by default-7, " in routes
    assert "+0." in routes
    memory.undo("default-6")
    shown = {i for ids in read_moves(memory, host).values() for i in ids}
    assert shown == {f"default-{number}" for number in (7, 5, 4, 3, 2)}
