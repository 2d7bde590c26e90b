"""CrabPath before any feedback, with a chat model as router."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from langchain_core.language_models import BaseChatModel

from crabpath_retrievers.core.graph import Vector
from crabpath_retrievers.core.turn import ModelUsage
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.evaluation.methods.base import (
    EvaluationCorpus,
    Method,
    RankFunction,
    RetrievedChunk,
)
from crabpath_retrievers.evaluation.methods.cold import open_indexed, retrieve_options
from crabpath_retrievers.routing.chat_model.client import RouterSettings
from crabpath_retrievers.routing.chat_model.router import ChatModelRouter


@dataclass(slots=True)
class RoutedRanking:
    """A ranking function that adds up what the chat model cost.

    Attributes:
        usage: Usage of the chat model so far.
    """

    memory: CrabPath
    corpus: EvaluationCorpus
    usage: ModelUsage = field(default_factory=ModelUsage)

    def __call__(self, query: str, vector: Vector, depth: int) -> list[RetrievedChunk]:
        """Chunks, best first."""
        options = retrieve_options(self.corpus, depth)
        answer = self.memory.retrieve(query, vector=vector, record=False, **options)
        self.usage += answer.turn.usage
        return [RetrievedChunk(item.node.document, item.node.content) for item in answer.documents]


def make_routed(model: BaseChatModel, prices: tuple[float, float]) -> Method:
    """Make the method for one model; prices are US dollars per million tokens in and out."""

    @contextmanager
    def method(corpus: EvaluationCorpus) -> Iterator[RankFunction]:
        router = ChatModelRouter(model, RouterSettings(prices=prices))
        with open_indexed(corpus, router=router) as memory:
            yield RoutedRanking(memory, corpus)

    return method
