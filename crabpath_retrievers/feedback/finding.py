"""Attribution over a store: reads what the pure function needs, in two queries."""

from crabpath_retrievers.config import SeedSettings
from crabpath_retrievers.feedback.attribution import LONGEST, supported
from crabpath_retrievers.feedback.passage import passages
from crabpath_retrievers.seeds.lexical import query_terms
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.text import tokens
from crabpath_retrievers.trajectory import Turn

_ANSWER_SEARCH = SeedSettings(max_query_terms=2_000)


def find_supported(store: GraphStore, turn: Turn, answer: str) -> dict[str, float]:
    """Compute how far an answer rests on each document of a turn; see :func:`attribute_answer`.

    Args:
        store: The store with the documents.
        turn: The turn with its query and returned documents.
        answer: The chain's answer.

    Returns:
        Support in [0, 1] by document id: of every document, or empty if nothing is known.
    """
    namespace = store.walk.clock(turn.namespace).key
    nodes = store.catalog.documents([item.node for item in turn.returned], namespace=namespace)
    words = tokens(turn.query) + tokens(answer[:LONGEST])
    idf = query_terms(store, words, _ANSWER_SEARCH).idf
    return supported(answer, turn.query, passages(turn, nodes), idf)
