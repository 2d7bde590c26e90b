"""Plain search as a control: the k nearest chunks, recorded as a turn like any other."""

from typing import TYPE_CHECKING, Any

from crabpath_retrievers.driver import Steps, arun, perform, perform_either, run

if TYPE_CHECKING:
    from crabpath_retrievers.crabpath import CrabPath
    from crabpath_retrievers.retrieval import Answer


def nearest(memory: "CrabPath", text: str, *, k: int = 4, **options: Any) -> "Answer":
    """Answer with the k chunks whose vectors are nearest, whatever pointers or outcomes say.

    The walk is recorded but finds nothing else; so the latency is that of a whole retrieval.

    Args:
        memory: What is asked.
        text: The question.
        k: Documents to return, at least 1.
        options: As for :meth:`CrabPath.retrieve`, such as those of :meth:`Trial.options`.

    Raises:
        InvalidInputError: The query cannot be asked.
    """
    return run(_steps(memory, text, k, options))


async def anearest(memory: "CrabPath", text: str, *, k: int = 4, **options: Any) -> "Answer":
    """As :func:`nearest`, off the event loop."""
    return await arun(_steps(memory, text, k, options))


def _steps(memory: "CrabPath", text: str, k: int, options: dict[str, Any]) -> Steps["Answer"]:
    from crabpath_retrievers.query import Query

    query = Query.of(text, k=k, filter=options.get("filter"))
    embedder = memory.embedder
    vector = yield from perform_either(
        lambda: embedder.query(query.text), lambda: embedder.aquery(query.text)
    )
    ids = yield from perform(memory.index.search, vector, k, query.filter)
    options = {**options, "among": ids, "vector": vector, "k": k}
    answer: Answer = yield from perform(memory.retrieve, text, **options)
    return answer
