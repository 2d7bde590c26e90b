"""Who gave feedback is known, bounded and undone as a whole; which feedback moved an edge."""

import time

import pytest

from crabpath_retrievers import CrabPathRetriever, Feedback, InvalidInputError
from crabpath_retrievers.callbacks import CrabPathCallbackHandler

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
    with pytest.raises(InvalidInputError, match="give one of them"):
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


def ask_about(host, question, user, *, used):
    """Ask another question and name what was used; the receipt."""
    turn = host.memory.retrieve(question, k=3).turn
    return host.memory.record(Feedback(turn.id, 1.0, used=used, user=user))


def prove_right(host, *users):
    """All of some users agree on three other questions."""
    for question in ("which pears", "which plums", "which figs"):
        for user in ("zoe", *users):
            ask_about(host, question, user, used=["c"])


def read_answer(host):
    """Credit that the usual question has."""
    store, turn = host.memory.store, host.memory.store.turns.get(host.ask())
    key = store.walk.get_clock("default").key
    found = store.learned.episodes(key, store.learned.episode_ids(key))
    return next(episode for episode in found if episode.query == turn.query).documents


def test_nobody_alone_turns_round_what_another_one_taught(host, state_of, assert_same):
    """However often they say it; they learn how much of it counts."""
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


def test_all_names_without_a_record_count_as_one(host):
    """Names cost nothing: nobody and invented users share what one of them may say."""
    give(host, "ann", used=["a"])
    for user in ("eve", None, "eve 2", "eve 3", None):
        give(host, user, used=["b"])
    assert read_credit(host)["a"] == pytest.approx(0.4)
    give(host, "bob", used=["a"])  # whoever agrees is not bounded
    assert read_credit(host)["a"] == pytest.approx(1.4)


def test_two_who_proved_right_outweigh_one(host):
    """Each has agreed with others on three questions; a third one who has not does not count."""
    prove_right(host, "eve", "bob")
    give(host, "ann", used=["a"])
    for user in ("eve", "bob"):
        give(host, user, used=["b"])
    found = read_answer(host)
    assert found["b"] > found["a"]
    host.memory.learning.undo_all(user="zoe")  # with whom they agreed
    host.memory.learning.undo_all(user="bob")
    give(host, "bob", used=["b"])
    assert read_answer(host)["a"] == pytest.approx(0.4)


def test_what_counts_against_others_is_bounded_on_all_questions_together(host):
    """Lies on many questions count no more than one, and it is there again once they are undone."""
    questions = [f"which {fruit}" for fruit in ("pears", "plums", "figs", "limes")]
    for question in questions:
        ask_about(host, question, "ann", used=["a"])

    def lie():
        return [ask_about(host, question, "eve", used=["b"]) for question in questions]

    first = lie()
    assert "counts 60%" in first[0].note
    assert all("counts 0%" in one.note for one in first[2:])
    undo_all(host, user="eve")
    assert [one.note for one in lie()] == [one.note for one in first]


@pytest.mark.parametrize("user", [None, "eve"])
def test_what_one_user_or_nobody_says_counts_in_full(host, user):
    give(host, user, used=["a"])
    receipt = host.memory.record(Feedback(host.ask(), 1.0, used=["b"], user=user))
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
    routes = " ".join(str(explanation).split())
    assert " by default-7, " in routes
    assert "+0." in routes
    memory.undo("default-6")
    shown = {i for ids in read_moves(memory, host).values() for i in ids}
    assert shown == {f"default-{number}" for number in (7, 5, 4, 3, 2)}
