"""Plain search as a control: the k nearest chunks, recorded as a turn like any other."""

from typing import TYPE_CHECKING

from typing_extensions import Unpack

from crabpath_retrievers.driver import Steps, arun, perform, perform_either, run
from crabpath_retrievers.query import Query, QueryOptions

if TYPE_CHECKING:
    from crabpath_retrievers.memory import CrabPath
    from crabpath_retrievers.retrieval import Answer


def nearest(memory: "CrabPath", text: str, **options: Unpack[QueryOptions]) -> "Answer":
    """Answer with the k chunks whose vectors are nearest, whatever pointers or outcomes say.

    The walk is recorded but finds nothing else; so the latency is that of a whole retrieval.

    Args:
        memory: What is asked.
        text: The question.
        options: As for :meth:`CrabPath.retrieve`, such as those of :meth:`Trial.options`;
            ``candidate_ids`` and ``vector`` are overridden.

    Raises:
        InvalidInputError: The query cannot be asked.
    """
    return run(_steps(memory, text, options))


async def anearest(memory: "CrabPath", text: str, **options: Unpack[QueryOptions]) -> "Answer":
    """As :func:`nearest`, off the event loop."""
    return await arun(_steps(memory, text, options))


def _steps(memory: "CrabPath", text: str, options: QueryOptions) -> Steps["Answer"]:
    query = Query.validated(text, k=options.get("k", 4), filter=options.get("filter"))
    embedder = memory.embedder
    vector = yield from perform_either(
        lambda: embedder.query(query.text), lambda: embedder.aquery(query.text)
    )
    ids = yield from perform(memory.index.search, vector, query.k, query.filter)
    options = {**options, "candidate_ids": ids, "vector": vector, "k": query.k}
    answer: Answer = yield from perform(lambda: memory.retrieve(text, **options))
    return answer
