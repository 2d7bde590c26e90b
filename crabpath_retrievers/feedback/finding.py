"""Attribution over a store: what the pure function needs is read, in two queries."""

from crabpath_retrievers.config import SeedSettings
from crabpath_retrievers.feedback.attribution import LONGEST, supported
from crabpath_retrievers.feedback.passage import passages
from crabpath_retrievers.seeds.lexical import query_terms
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.text import tokens
from crabpath_retrievers.trajectory import Turn

_MOST_WORDS = SeedSettings(max_query_terms=2_000)


def find_supported(store: GraphStore, turn: Turn, answer: str) -> dict[str, float]:
    """How far an answer rests on each document of a turn; see :func:`supported`.

    Args:
        store: Where the documents are.
        turn: What was asked and returned.
        answer: What the chain answered.

    Returns:
        Support in [0, 1] by id: of every document, or of none when nothing is known.
    """
    namespace = store.walk.clock(turn.namespace).key
    nodes = store.catalog.documents([item.node for item in turn.returned], namespace=namespace)
    words = tokens(turn.query) + tokens(answer[:LONGEST])
    idf = query_terms(store, words, _MOST_WORDS).idf
    return supported(answer, turn.query, passages(turn, nodes), idf)
