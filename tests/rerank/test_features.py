"""Features of (query, node, path), each against a worked number."""

import numpy as np
import pytest

from crabpath_retrievers.core.graph import (
    LEARNED_KINDS,
    TYPED_KINDS,
    Candidate,
    EdgeKind,
    NodeHead,
    OutgoingEdge,
    Tier,
    WalkEdge,
)
from crabpath_retrievers.core.text import QueryInformation, encode_terms
from crabpath_retrievers.rerank.features import (
    FEATURES,
    SOURCE_FEATURES,
    Evidence,
    compute_features,
    compute_node_features,
)

EVEN = np.zeros(3)  # every node is as likely a source as any other
ASKED = QueryInformation.from_idf({"crab": 30.0, "path": 15.0, "sea": 5.0})
HIDDEN = 99


def head(key, mentions=0, text=""):
    """A node with this number and text."""
    vector = np.array([1, 0], dtype=np.float32)
    return NodeHead(key, f"n{key}", f"Node {key}", mentions, vector, encode_terms(text.split()))


def arrival(target, kind, strength, hop, source=HIDDEN):
    """A pointer of this kind, from a node that is no candidate unless told."""
    pointer = OutgoingEdge(source, target, kind, 0.5, 0.5)
    return WalkEdge(head(source), pointer, 0.5, 0.0, Tier.HABITUAL, strength, hop)


def matrix_of(hits, *arrivals, inhibition=None, sources=EVEN, asked=ASKED):
    """Features of these candidates."""
    return compute_features(Evidence.from_pool(hits, arrivals, inhibition or {}, asked), sources)


def row(hit, *arrivals, **options):
    """The features of one hit that are not zero, by name; alone, it has all of the PageRank."""
    values = matrix_of([hit], *arrivals, **options)[0]
    found = {name: value for name, value in zip(FEATURES, values, strict=True) if value}
    assert found.pop("pagerank", 0.0) == (1.0 if arrivals else 0.0)
    return found


def test_a_search_hit_alone_has_only_its_scores():
    """Similarity, name and hint are taken over; the bias is 1."""
    hit = Candidate(head(1), 0.6, lexical=0.5, name=0.7, exact=1.0, hint=1.0)
    assert row(hit) == {"bias": 1, "similarity": 0.6, "name": 0.7, "exact": 1, "hint": 1}


def test_information_is_the_idf_of_the_words_held():
    """30 + 5 nats in units of 10; words that the query does not ask for count nothing."""
    assert row(Candidate(head(1, text="sea crab sand"), 0))["information"] == pytest.approx(3.5)


@pytest.mark.parametrize(
    "kind",
    [
        k
        for k in EdgeKind
        if k not in (EdgeKind.STOP, EdgeKind.SHARED_TERM, EdgeKind.INHIBITS, *TYPED_KINDS)
    ],
)
def test_every_kind_of_pointer_counts_in_one_column(kind):
    """One hop from an entry each kind has a column; feedback edges share ``learned``."""
    features = row(Candidate(head(1), 0), arrival(head(1), kind, 0.4, 1))
    features.pop("rare_mention", None)
    assert features == {"bias": 1, "learned" if kind in LEARNED_KINDS else kind.label: 0.4}


def test_the_strongest_pointer_of_a_kind_counts():
    """Several pointers of one kind do not add up."""
    arrivals = [arrival(head(1), EdgeKind.LINK, strength, 1) for strength in (0.2, 0.5, 0.3)]
    assert row(Candidate(head(1), 0), *arrivals)["link"] == 0.5


def test_pointers_further_out_count_as_far():
    """From the second hop on, the kind of a pointer no longer matters."""
    arrivals = [arrival(head(1), EdgeKind.LINK, 0.3, 2), arrival(head(1), EdgeKind.MENTION, 0.2, 3)]
    assert row(Candidate(head(1), 0), *arrivals) == {"bias": 1, "far": 0.3}


@pytest.mark.parametrize(
    ("moved", "trained"), [(0.05, 0.0), (-0.1, 0.0), (0.3, 0.08), (-0.3, -0.08)]
)
def test_what_feedback_moved_counts_beyond_what_chance_moves(moved, trained):
    """Beyond 0.1, times the energy of its source: 0.2 / 0.5 here."""
    pointer = OutgoingEdge(HIDDEN, head(1), EdgeKind.LINK, 0.4 + moved, 0.4)
    come = WalkEdge(head(HIDDEN), pointer, 0.5, 0.0, Tier.HABITUAL, 0.2, 1)
    found = row(Candidate(head(1), 0.0), come)
    assert found.get("trained", 0.0) == pytest.approx(trained)


def test_a_mention_of_a_rare_name_says_more():
    """A name with 3 mentions has rarity 1/√(1 + 3) = .5."""
    named = arrival(head(1, mentions=3), EdgeKind.MENTION, 0.4, 1)
    assert row(Candidate(head(1, mentions=3), 0), named)["rare_mention"] == 0.2


def test_a_pointer_counts_as_much_as_its_source_is_likely():
    """With 10 per unit of similarity, a source .1 behind the best is e^-1 times as likely."""
    hits = [Candidate(head(1), 0.5), Candidate(head(2), 0.4), Candidate(head(3), 0.0)]
    mention = arrival(head(3), EdgeKind.MENTION, 0.4, 1, source=2)
    features = matrix_of(hits, mention, sources=np.array([10.0, 0.0, 0.0]))[2]
    assert features[FEATURES.index("likely_mention")] == pytest.approx(np.exp(-1))


def test_a_shared_term_says_less_to_a_query_that_asks_for_much():
    """50 nats are typical, 25 count double; 200 leave a quarter, and so do few: 2.5 / 12.5."""
    hits = [Candidate(head(1), 0.5), Candidate(head(2), 0.5)]
    shared = arrival(head(2), EdgeKind.SHARED_TERM, 0.35, 1, source=1)
    column = FEATURES.index("shared_term")
    for nats, expected in ((50.0, 1.0), (200.0, 0.25), (25.0, 2.0), (2.5, 0.2)):
        asked = QueryInformation.from_idf({"crab": nats})
        assert matrix_of(hits, shared, asked=asked)[1, column] == pytest.approx(expected)


def test_a_bridge_adds_what_its_source_lacks():
    """The source holds "crab" (30 of 50 nats); "path" (15) is new, "crab" is not."""
    hits = [Candidate(head(1, text="crab"), 0), Candidate(head(2, text="crab path"), 0)]
    link = arrival(head(2), EdgeKind.LINK, 0.6, 1, source=1)
    features = matrix_of(hits, link)
    assert features[:, FEATURES.index("bridge")] == pytest.approx([0.0, 0.3])


def test_pagerank_reaches_what_nobody_likely_points_at_directly():
    """Half follow to the second, half of those to the third."""
    hits = [Candidate(head(1), 0.9), Candidate(head(2), 0.0), Candidate(head(3), 0.0)]
    first = arrival(head(2), EdgeKind.MENTION, 0.5, 1, source=1)
    second = arrival(head(3), EdgeKind.MENTION, 0.3, 2, source=2)
    features = matrix_of(hits, first, second, sources=np.array([100.0, 0.0, 0.0]))
    assert features[:, FEATURES.index("pagerank")] == pytest.approx([1.0, 0.5, 0.25])


def test_a_source_that_is_no_candidate_builds_no_bridge():
    """What a filter hides says nothing about its words."""
    assert "bridge" not in row(
        Candidate(head(1, text="crab"), 0), arrival(head(1), EdgeKind.LINK, 1, 1)
    )


def test_inhibition_and_arrivals_reach_their_own_row_only():
    """What is known of nodes that are no candidates is left out."""
    hits = [Candidate(head(1), 0), Candidate(head(2), 0)]
    arrivals = [arrival(head(2), EdgeKind.LINK, 0.4, 1), arrival(head(9), EdgeKind.LINK, 0.9, 1)]
    matrix = matrix_of(hits, *arrivals, inhibition={1: (head(1), 0.3), 9: (head(9), 0.9)})
    columns = [FEATURES.index("link"), FEATURES.index("inhibition")]
    assert matrix[:, columns].tolist() == [[0, 0.3], [0.4, 0]]


def test_a_query_without_known_words_can_be_ranked():
    """Pointers count as far as they need no words."""
    nothing = QueryInformation.from_idf({})
    link = arrival(head(2), EdgeKind.SHARED_TERM, 0.4, 1, source=1)
    matrix = matrix_of([Candidate(head(1), 0.2), Candidate(head(2), 0.1)], link, asked=nothing)
    assert np.isfinite(matrix).all()
    assert not matrix[:, FEATURES.index("shared_term")].any()


def test_what_a_node_says_itself_needs_no_pointer():
    """Its columns are the same with and without the graph; those of the graph stay 0."""
    hits = [
        Candidate(head(1, text="sea crab"), 0.6, name=0.7, hint=1.0),
        Candidate(head(2), 0.1, exact=1.0),
    ]
    inhibition = {1: (head(1), 0.3)}
    evidence = Evidence.from_pool(
        hits, [arrival(head(2), EdgeKind.LINK, 0.4, 1)], inhibition, ASKED
    )
    own, whole = compute_node_features(evidence), compute_features(evidence, EVEN)
    said = [FEATURES.index(name) for name in ("bias", "exact", "hint", *SOURCE_FEATURES)]
    assert own[:, said].tolist() == whole[:, said].tolist()
    assert not np.delete(own, said, axis=1).any()


def test_no_hits_give_an_empty_matrix():
    """An empty store can be ranked too."""
    assert matrix_of([]).shape == (0, len(FEATURES))
