"""``similar``: nearest neighbours by embedding, off by default."""

from crabpath_retrievers.core.graph import EdgeKind

SIMILAR = EdgeKind.SIMILAR


def texts(document):
    """Two texts of nearly the same words, and one of others."""
    return (
        document("red apples grow on old trees", id="a"),
        document("red apples grow on young trees", id="b"),
        document("taxes were due by noon", id="c"),
    )


def test_it_is_off_by_default(linked, document):
    """Search finds near texts anyway."""
    assert linked(SIMILAR, texts(document)) == set()


def test_a_node_is_no_neighbour_of_itself(linked, document):
    """A text alone, or with only far ones, gets no edge."""
    assert linked(SIMILAR, texts(document)[:1], similar_neighbours=5, min_similarity=-1.0) == set()
    assert linked(SIMILAR, texts(document)[1:], similar_neighbours=5, min_similarity=0.6) == set()


def test_the_number_of_neighbours_is_bounded(linked, document):
    """Each new node is joined to its ``similar`` nearest; edges back come on top."""
    documents = [document(f"red apples grow on old trees {i}", id=f"d{i}") for i in range(6)]
    pairs = linked(SIMILAR, documents[:5], documents[5:], similar_neighbours=1, min_similarity=0.0)
    assert len({pair for pair in pairs if pair[0] == "d5"}) == 1
