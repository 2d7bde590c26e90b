"""The ranker as a node post-processor over the nodes of any retriever."""

import pytest
from host_answers import block_of, ids, turn_of
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode

from crabpath_retrievers import EmbeddingMismatchError, InvalidInputError
from llama_index.retrievers.crabpath import CrabPathReranker, CrabPathRetriever, record


@pytest.fixture
def memory(retriever):
    return retriever.memory


@pytest.fixture
def dense(documents):
    """All passages as another retriever might return them."""
    return [
        NodeWithScore(node=TextNode(id_=item.id_, text=item.text), score=1 - place / 20)
        for place, item in enumerate(sorted(documents, key=lambda item: item.text))
    ]


@pytest.fixture
def rerank(memory, question):
    """Reranks nodes for the question."""

    def ranked(nodes, query=question, **options):
        return CrabPathReranker(memory=memory, **options).postprocess_nodes(nodes, query_str=query)

    return ranked


async def test_orders_nodes_as_the_memory_would(memory, dense, question, rerank):
    """All of them were found, so that order and scores are those of a retrieval."""
    ranked = rerank(dense)
    wanted = memory.retrieve(question, k=10).documents
    assert ids(ranked) == [document.node.id for document in wanted] != ids(dense)
    assert [n.score for n in ranked] == pytest.approx([max(d.score, 1e-6) for d in wanted])
    reranker = CrabPathReranker(memory=memory, top_n=3)
    best = await reranker.apostprocess_nodes(dense, query_bundle=QueryBundle(question))
    assert ids(best) == ids(ranked)[:3]
    last = [item for item in dense if item.node_id in ids(ranked)[-2:]]
    few = rerank(last)
    assert set(ids(few)) == set(ids(last))
    assert 0 < few[1].score <= few[0].score < 1


def test_a_node_that_it_does_not_know_keeps_place_and_score(dense, rerank):
    """The known ones are put in order around it; the same node twice stays twice."""
    strange = NodeWithScore(node=TextNode(id_="web", text="From elsewhere."), score=0.42)
    ranked = rerank([*dense[:2], strange, *dense[2:]])
    assert ranked[2] is strange
    assert ids([*ranked[:2], *ranked[3:]]) == ids(rerank(dense))
    assert rerank([strange]) == [strange]
    twice = [dense[0], dense[1], dense[0]]
    assert sorted(ids(rerank(twice))) == sorted(ids(twice))


def test_reranking_is_a_turn_that_teaches_its_namespace(memory, dense, rerank):
    """Feedback moves what was used up in the next reranking, and for nobody else."""
    before = rerank(dense, namespace="bob")
    first = rerank(dense, namespace="ann")
    fifth = first[4].node_id
    (receipt,) = record(memory, first, 1.0, used=[fifth])
    assert receipt.status == "applied"
    assert ids(rerank(dense, namespace="ann")).index(fifth) < 4
    assert ids(rerank(dense, namespace="bob")) == ids(before)
    (refused,) = record(memory, before, 1.0, namespace="ann", strict=False)
    assert refused.status == "refused"
    assert block_of(rerank(dense, namespace=""))["namespace"] == "default"


def test_turns_are_noted_in_copies_out_of_the_sight_of_models(memory, dense, question, rerank):
    """But nodes of a CrabPath retriever keep their turn."""
    ranked = rerank(dense)
    assert all("crabpath" not in item.node.metadata for item in dense)
    assert all("turn_id" in item.node.metadata["crabpath"] for item in ranked)
    assert "turn_id" not in ranked[0].node.get_content(metadata_mode=MetadataMode.LLM)
    nodes = CrabPathRetriever(memory).retrieve(question)
    turns = memory.info()["turns"]
    assert turn_of(rerank(nodes)) == turn_of(nodes)
    assert memory.info()["turns"] == turns


def test_what_it_cannot_rank_is_refused(memory, dense, question, rerank):
    reranker = CrabPathReranker(memory=memory)
    assert reranker.postprocess_nodes([]) == []
    with pytest.raises(InvalidInputError, match="needs the query"):
        reranker.postprocess_nodes(dense)
    with pytest.raises(InvalidInputError, match="query is empty"):
        rerank(dense, " ")
    with pytest.raises(EmbeddingMismatchError, match="3 dimensions"):
        reranker.postprocess_nodes(dense, query_bundle=QueryBundle(question, embedding=[1, 2, 3]))
    with pytest.raises(ValueError, match="top_n"):
        CrabPathReranker(memory=memory, top_n=0)
