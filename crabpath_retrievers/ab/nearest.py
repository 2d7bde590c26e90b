"""Plain vector search as a control: the k nearest chunks, recorded as a turn."""

from typing import TYPE_CHECKING

from typing_extensions import Unpack

from crabpath_retrievers.driver import Operations, arun, perform, perform_sync_or_async, run
from crabpath_retrievers.query import Query, QueryOptions

if TYPE_CHECKING:
    from crabpath_retrievers.crabpath import CrabPath
    from crabpath_retrievers.retrieval import Answer


def retrieve_nearest(memory: "CrabPath", text: str, **options: Unpack[QueryOptions]) -> "Answer":
    """Retrieve the k chunks with the nearest vectors, regardless of edges and learning.

    The walk runs, and is recorded, but can add nothing; so the latency is that of a full
    retrieval.

    Args:
        memory: The memory to query.
        text: The query.
        options: As for :meth:`CrabPath.retrieve`, such as those of :meth:`Trial.options`;
            ``candidate_ids`` and ``vector`` are overridden.

    Raises:
        InvalidInputError: The query is not valid.
    """
    return run(_retrieve_steps(memory, text, options))


async def aretrieve_nearest(
    memory: "CrabPath", text: str, **options: Unpack[QueryOptions]
) -> "Answer":
    """As :func:`find_neighbours`, off the event loop."""
    return await arun(_retrieve_steps(memory, text, options))


def _retrieve_steps(memory: "CrabPath", text: str, options: QueryOptions) -> Operations["Answer"]:
    query = Query.validated(text, k=options.get("k", 4), filter=options.get("filter"))
    embedder = memory.embedder
    vector = yield from perform_sync_or_async(
        lambda: embedder.query(query.text), lambda: embedder.aquery(query.text)
    )
    ids = yield from perform(memory.index.search, vector, query.k, query.filter)
    options = {**options, "candidate_ids": ids, "vector": vector, "k": query.k}
    answer: Answer = yield from perform(lambda: memory.retrieve(text, **options))
    return answer
