"""Features of (query, node, path), each against a worked number."""

import numpy as np
import pytest

from crabpath_retrievers.graph import EdgeKind, NodeHead, Pointer, Tier
from crabpath_retrievers.offer import Option
from crabpath_retrievers.rerank.features import FEATURES, Hit, feature_matrix
from crabpath_retrievers.traversal import Arrival


def head(key, mentions=0):
    """A node with this number."""
    return NodeHead(key, f"n{key}", f"Node {key}", mentions, np.array([1, 0], dtype=np.float32))


def arrival(target, kind, strength, hop):
    """A pointer of this kind from some other node."""
    pointer = Pointer(99, target, kind, 0.5, 0.5)
    return Arrival(head(99), Option(pointer, 0.5, 0.0, Tier.HABITUAL), strength, hop)


def row(hit, *arrivals, inhibition=None):
    """The features of one hit that are not zero, by name."""
    matrix = feature_matrix([hit], arrivals, inhibition or {})
    return {name: value for name, value in zip(FEATURES, matrix[0], strict=True) if value}


def test_a_search_hit_alone_has_only_its_scores():
    """Similarity, lexical score, name and hint are taken over; the bias is 1."""
    hit = Hit(head(1), 0.6, lexical=0.5, name=0.7, hint=1.0)
    assert row(hit) == {"bias": 1, "similarity": 0.6, "lexical": 0.5, "name": 0.7, "hint": 1}


@pytest.mark.parametrize("kind", [k for k in EdgeKind if k is not EdgeKind.STOP])
def test_every_kind_of_pointer_counts_in_one_column(kind):
    """One hop from an entry each kind has a column; feedback edges share ``learned``."""
    learned = kind in (EdgeKind.FOLLOWS, EdgeKind.TOOL)
    features = row(Hit(head(1), 0), arrival(head(1), kind, 0.4, 1))
    assert features == {"bias": 1, "rarity": 1, "learned" if learned else kind.label: 0.4}


def test_the_strongest_pointer_of_a_kind_counts():
    """Several pointers of one kind do not add up."""
    arrivals = [arrival(head(1), EdgeKind.LINK, strength, 1) for strength in (0.2, 0.5, 0.3)]
    assert row(Hit(head(1), 0), *arrivals)["link"] == 0.5


def test_pointers_further_out_count_as_far():
    """From the second hop on, the kind of a pointer no longer matters."""
    arrivals = [arrival(head(1), EdgeKind.LINK, 0.3, 2), arrival(head(1), EdgeKind.MENTION, 0.2, 3)]
    assert row(Hit(head(1), 0), *arrivals) == {"bias": 1, "rarity": 1, "far": 0.3}


def test_rarity_is_that_of_a_node_a_pointer_leads_to():
    """A name with 3 mentions has rarity 1/√(1 + 3) = .5; without a pointer it does not count."""
    assert row(Hit(head(1, mentions=3), 0)) == {"bias": 1}
    named = arrival(head(1, mentions=3), EdgeKind.LINK, 0.4, 1)
    assert row(Hit(head(1, mentions=3), 0), named)["rarity"] == 0.5


def test_inhibition_and_arrivals_reach_their_own_row_only():
    """What is known of nodes that are no candidates is left out."""
    hits = [Hit(head(1), 0), Hit(head(2), 0)]
    arrivals = [arrival(head(2), EdgeKind.LINK, 0.4, 1), arrival(head(9), EdgeKind.LINK, 0.9, 1)]
    matrix = feature_matrix(hits, arrivals, {1: (head(1), 0.3), 9: (head(9), 0.9)})
    columns = [FEATURES.index("link"), FEATURES.index("inhibition")]
    assert matrix[:, columns].tolist() == [[0, 0.3], [0.4, 0]]


def test_no_hits_give_an_empty_matrix():
    """An empty store can be ranked too."""
    assert feature_matrix([], [], {}).shape == (0, len(FEATURES))
