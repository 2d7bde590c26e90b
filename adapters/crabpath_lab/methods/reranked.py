"""A reranker behind CrabPath, and behind hybrid search as its baseline."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from langchain_core.cross_encoders import BaseCrossEncoder

from crabpath_lab.methods.base import (
    EvaluationCorpus,
    Method,
    RankFunction,
    RetrievedChunk,
)
from crabpath_lab.methods.cold import open_cold
from crabpath_lab.methods.hybrid import open_hybrid
from crabpath_retrievers.config import Settings
from crabpath_retrievers.core.calls import run
from crabpath_retrievers.core.extras import load_attribute
from crabpath_retrievers.core.records import Node, Vector
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.memory.services import HostReranker
from crabpath_retrievers.parts.reranker import ModelReranker


class LocalCrossEncoder(BaseCrossEncoder):
    """A cross-encoder of sentence-transformers, by folder or hub name."""

    def __init__(self, name: str) -> None:
        """Load the model."""
        from sentence_transformers import CrossEncoder

        self._model = CrossEncoder(name)

    def score(self, text_pairs: list[tuple[str, str]]) -> list[float]:
        """Score pairs of question and text."""
        scores: list[float] = self._model.predict(text_pairs, show_progress_bar=False).tolist()
        return scores


def load_reranker(name: str) -> HostReranker:
    """Load ``module:attribute``, a reranker or what makes one, or else a cross-encoder.

    That is one of sentence-transformers, by folder or hub name. What cannot be loaded raises
    InvalidInputError.
    """
    try:
        made: HostReranker | None = load_attribute(name)
        if made is None:
            return LocalCrossEncoder(name)
        ModelReranker(made, 1.0)
    except Exception as error:
        msg = (
            f"the reranker {name!r} cannot be used ({type(error).__name__}: {error}): give the "
            "folder of a cross-encoder, or module:attribute"
        )
        raise InvalidInputError(msg) from error
    return made


def make_reranked(model: HostReranker) -> dict[str, Method]:
    """Make ``cold+reranker`` and ``hybrid+reranker``, which reorder equally many candidates."""
    return {
        "hybrid+reranker": partial(_open_hybrid_reranked, model=model),
        "cold+reranker": partial(open_cold, reranker=model),
    }


@contextmanager
def _open_hybrid_reranked(corpus: EvaluationCorpus, model: HostReranker) -> Iterator[RankFunction]:
    settings = Settings().rank
    reranker = ModelReranker(model, settings.reranker_timeout)
    with open_hybrid(corpus) as search:

        def rank(query: str, vector: Vector, depth: int) -> list[RetrievedChunk]:
            offered = max(depth, min(depth * settings.reranked_per_document, settings.max_reranked))
            found = {str(n): hit for n, hit in enumerate(search(query, vector, offered)[:offered])}
            nodes = [Node(name, hit.document, "", hit.text) for name, hit in found.items()]
            return [found[name] for name in run(reranker.steps(query, nodes))][:depth]

        yield rank
