"""What became of a decision: worked routes."""

from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.learning.rules.policy_gradient import assign_edge_credit, get_known_credit

AB, BC, CD = ("a", "b"), ("b", "c"), ("c", "d")


def test_credit_reaches_every_decision_of_a_route(turn_of):
    """The last decision led to the document itself, those before it are one and two hops away."""
    turn = turn_of(returned=[("a", "b", "c", "d")])
    assert assign_edge_credit(turn, {"d": 1.0}, {AB, BC, CD}) == {
        AB: (1, 2),
        BC: (1, 1),
        CD: (1, 0),
    }


def test_what_was_not_decided_has_no_merit(turn_of):
    """A reflex, or a last pointer that was not followed, still counts as a hop."""
    turn = turn_of(returned=[("a", "b", "c", "d")])
    assert assign_edge_credit(turn, {"d": 1.0}, {AB}) == {AB: (1, 2)}


def test_the_best_credited_document_counts(turn_of):
    """One useful document behind a decision outweighs a blamed one; of equals the nearer counts."""
    turn = turn_of(returned=[("a", "b"), ("a", "b", "c"), ("a", "b", "c", "d")])
    known = {"b": -1.0, "c": 0.5, "d": 0.5}
    assert assign_edge_credit(turn, known, {AB, BC}) == {AB: (0.5, 1), BC: (0.5, 0)}


def test_only_the_last_decision_counts_for_the_myopic_rule(turn_of):
    """Of the route to d the last decision is b to c: the pointer to d was not decided."""
    turn = turn_of(returned=[("a", "b", "c", "d")])
    assert assign_edge_credit(turn, {"d": 1.0}, {AB, BC}, last_only=True) == {BC: (1, 1)}


def test_the_myopic_rule_blames_no_decision_behind_which_something_was_useful(turn_of):
    """The last decision of the route to b is the one that led on to c."""
    turn = turn_of(returned=[("a", "b"), ("a", "b", "c")])
    known = {"b": -1.0, "c": 1.0}
    assert assign_edge_credit(turn, known, {AB, BC}, last_only=True) == {AB: (1, 1), BC: (1, 0)}


def test_where_nothing_finer_is_known_the_outcome_is_that_of_all(turn_of):
    """With credit by document, only returned documents with credit are known."""
    turn = turn_of(returned=[("a",), ("a", "b")])
    assert get_known_credit(turn, Credit(-0.5)) == {"a": -0.5, "b": -0.5}
    assert get_known_credit(turn, Credit(1.0, documents={"b": 1.0, "elsewhere": 1.0})) == {"b": 1.0}


def test_a_search_hit_has_no_decisions(turn_of):
    """A document without a route credits nobody."""
    assert assign_edge_credit(turn_of(returned=[("a",)]), {"a": 1.0}, {AB}) == {}
