"""``CrabPathReranker``: the ranker over the nodes of any retriever."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from llama_index.core.bridge.pydantic import ConfigDict, Field
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from crabpath_retrievers import CrabPath, InvalidInputError
from crabpath_retrievers.integration import (
    DEFAULT_NAMESPACE,
    METADATA_KEY,
    Answer,
    Operations,
    QueryOptions,
    arun,
    is_blank,
    read_answer_block,
    run,
)
from llama_index.retrievers.crabpath.nodes import get_score, hide_block, make_blocks
from llama_index.retrievers.crabpath.queries import retrieve_bundle


class CrabPathReranker(BaseNodePostprocessor):
    """Orders nodes by the memory's probability that they are relevant to the query.

    For nodes of any retriever over the same node ids, as ``CrabPathRetriever.from_index`` makes
    them. A node that the memory does not contain keeps its position and score; the others are
    ordered on the remaining positions, with the memory's probability, in (0, 1], as score.

    Reranking is a turn: its id is in the nodes' ``metadata["crabpath"]``, and feedback for it
    teaches the order. Nodes that a CrabPathRetriever returned keep their turn.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    memory: CrabPath = Field(exclude=True)
    """The memory that ranks."""
    top_n: int | None = Field(default=None, ge=1)
    """Number of nodes to keep; None for all."""
    namespace: str = DEFAULT_NAMESPACE
    """Namespace of the user, agent or tenant; the default one if blank."""
    task_type: str | None = None
    """Type of the task, such as "refund"."""

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
    ) -> Operations[list[NodeWithScore]]:
        if not nodes:
            return []
        answer = yield from retrieve_bundle(
            self.memory, _require_query(bundle), self._make_options(nodes)
        )
        return merge_order(nodes, answer)[: self.top_n]

    def _make_options(self, nodes: Sequence[NodeWithScore]) -> QueryOptions:
        ids = [item.node.node_id for item in nodes]
        return {
            "k": len(ids),
            "candidate_ids": ids,
            "namespace": DEFAULT_NAMESPACE if is_blank(self.namespace) else self.namespace,
            "task_type": self.task_type,
            "record": any(read_answer_block(item.node.metadata) is None for item in nodes),
        }


def merge_order(nodes: Sequence[NodeWithScore], answer: Answer) -> list[NodeWithScore]:
    """Order nodes as in an answer; nodes that it does not contain keep their position."""
    given: dict[str, list[NodeWithScore]] = defaultdict(list)
    for item in nodes:
        given[item.node.node_id].append(item)
    blocks = make_blocks(answer)
    ranked = iter(
        [
            _set_score(item, get_score(document), blocks[document.node.id])
            for document in answer.documents
            for item in given[document.node.id]
        ]
    )
    return [next(ranked) if item.node.node_id in blocks else item for item in nodes]


def _set_score(item: NodeWithScore, score: float, block: dict[str, Any]) -> NodeWithScore:
    node = item.node
    if read_answer_block(node.metadata) is None:
        node = node.model_copy(
            update={
                "metadata": {**node.metadata, METADATA_KEY: block},
                "excluded_llm_metadata_keys": hide_block(node.excluded_llm_metadata_keys),
                "excluded_embed_metadata_keys": hide_block(node.excluded_embed_metadata_keys),
            }
        )
    return NodeWithScore(node=node, score=score)


def _require_query(bundle: QueryBundle | None) -> QueryBundle:
    if bundle is None:
        msg = "CrabPathReranker needs the query: pass query_bundle or query_str"
        raise InvalidInputError(msg)
    return bundle
