"""``CrabPathReranker``: the ranker over the nodes of any retriever."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from llama_index.core.bridge.pydantic import ConfigDict, Field
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.driver import Steps, arun, run
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.metadata import CRABPATH, block_of
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE
from crabpath_retrievers.retrieval import Answer
from crabpath_retrievers.text import is_blank
from llama_index.retrievers.crabpath.bundles import asked
from llama_index.retrievers.crabpath.nodes import blocks_of, hidden, score_of


class CrabPathReranker(BaseNodePostprocessor):
    """Orders the nodes that a memory knows by how likely they are relevant to the query.

    For nodes of any retriever over the same node ids, as ``CrabPathRetriever.from_index`` makes
    them. A node that the memory does not know keeps its place and its score; the known ones are
    put in order on the other places, with the memory's probability, in (0, 1], as score.

    Reranking is a turn of its own: its id stands in the nodes' ``metadata["crabpath"]``, and
    feedback about it teaches the order. Nodes that a CrabPathRetriever found keep their turn.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    memory: CrabPath = Field(exclude=True)
    """The memory that ranks."""
    top_n: int | None = Field(default=None, ge=1)
    """Nodes to keep; None keeps all."""
    namespace: str = DEFAULT_NAMESPACE
    """User, agent or tenant whose learned weights apply; a blank one is the default."""
    task_type: str | None = None
    """Type of the task that asks, such as "refund"."""

    @classmethod
    def class_name(cls) -> str:
        """Name in LlamaIndex's own serialisation."""
        return "CrabPathReranker"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return run(self._steps(nodes, query_bundle))

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        return await arun(self._steps(nodes, query_bundle))

    def _steps(
        self, nodes: Sequence[NodeWithScore], bundle: QueryBundle | None
    ) -> Steps[list[NodeWithScore]]:
        if not nodes:
            return []
        answer = yield from asked(self.memory, _query(bundle), self._asked(nodes))
        return merged(nodes, answer)[: self.top_n]

    def _asked(self, nodes: Sequence[NodeWithScore]) -> dict[str, Any]:
        ids = [item.node.node_id for item in nodes]
        return {
            "k": len(ids),
            "among": ids,
            "namespace": DEFAULT_NAMESPACE if is_blank(self.namespace) else self.namespace,
            "task_type": self.task_type,
            "record": any(block_of(item.node.metadata) is None for item in nodes),
        }


def merged(nodes: Sequence[NodeWithScore], answer: Answer) -> list[NodeWithScore]:
    """The nodes in the order of an answer; those that it does not have stay where they are."""
    given: dict[str, list[NodeWithScore]] = defaultdict(list)
    for item in nodes:
        given[item.node.node_id].append(item)
    blocks = blocks_of(answer)
    ranked = iter(
        [
            _scored(item, score_of(document), blocks[document.node.id])
            for document in answer.documents
            for item in given[document.node.id]
        ]
    )
    return [next(ranked) if item.node.node_id in blocks else item for item in nodes]


def _scored(item: NodeWithScore, score: float, block: dict[str, Any]) -> NodeWithScore:
    node = item.node
    if block_of(node.metadata) is None:
        node = node.model_copy(
            update={
                "metadata": {**node.metadata, CRABPATH: block},
                "excluded_llm_metadata_keys": hidden(node.excluded_llm_metadata_keys),
                "excluded_embed_metadata_keys": hidden(node.excluded_embed_metadata_keys),
            }
        )
    return NodeWithScore(node=node, score=score)


def _query(bundle: QueryBundle | None) -> QueryBundle:
    if bundle is None:
        msg = "CrabPathReranker needs the query: pass query_bundle or query_str"
        raise InvalidInputError(msg)
    return bundle
