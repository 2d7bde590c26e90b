"""Attribution over a store: reads what the pure function needs, in two queries."""

from crabpath_retrievers.config import SeedSettings
from crabpath_retrievers.feedback.attribution import MAX_ANSWER_CHARS, attribute_answer
from crabpath_retrievers.feedback.passage import to_passages
from crabpath_retrievers.seeds.lexical import look_up_terms
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.text import tokenise
from crabpath_retrievers.trajectory import Turn

_ANSWER_SEARCH = SeedSettings(max_query_terms=2_000)


def attribute_turn(store: GraphStore, turn: Turn, answer: str) -> dict[str, float]:
    """Compute how far an answer rests on each document of a turn; see :func:`attribute_answer`.

    Args:
        store: The store with the documents.
        turn: The turn with its query and returned documents.
        answer: The chain's answer.

    Returns:
        Support in [0, 1] by document id: of every document, or empty if nothing is known.
    """
    namespace = store.walk.get_clock(turn.namespace).key
    nodes = store.catalog.documents([item.node for item in turn.returned], namespace=namespace)
    words = tokenise(turn.query) + tokenise(answer[:MAX_ANSWER_CHARS])
    idf = look_up_terms(store, words, _ANSWER_SEARCH).idf
    return attribute_answer(answer, turn.query, to_passages(turn, nodes), idf)
