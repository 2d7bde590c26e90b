"""The ranker as a node post-processor over the nodes of any retriever."""

import pytest
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode

from crabpath_retrievers import EmbeddingMismatchError, InvalidInputError
from llama_index.retrievers.crabpath import CrabPathReranker, CrabPathRetriever, record


@pytest.fixture
def known(index):
    """A memory over the index's own nodes."""
    made = CrabPathRetriever.from_index(index, similarity_top_k=10)
    yield made.memory
    made.memory.close()


@pytest.fixture
def dense(index, question):
    """What the index itself finds."""
    return index.as_retriever(similarity_top_k=10).retrieve(question)


def ids(nodes):
    """Ids in order."""
    return [item.node.node_id for item in nodes]


def test_orders_nodes_as_the_memory_would(known, dense, question):
    """All of them were found, so that the order is that of a retrieval; so are the scores."""
    ranked = CrabPathReranker(memory=known).postprocess_nodes(dense, query_str=question)
    wanted = known.retrieve(question, k=10).documents
    assert ids(ranked) == [document.node.id for document in wanted] != ids(dense)
    assert [n.score for n in ranked] == pytest.approx([max(d.score, 1e-6) for d in wanted])


def test_ranks_nodes_that_the_memory_would_not_find(known, question):
    """Only those that are given, whether its own search finds them or not."""
    last = [d.node.id for d in known.retrieve(question, k=10).documents][-2:]
    given = [NodeWithScore(node=TextNode(id_=name, text="x"), score=1.0) for name in last]
    ranked = CrabPathReranker(memory=known).postprocess_nodes(given, query_str=question)
    assert set(ids(ranked)) == set(last)
    assert 0 < ranked[1].score <= ranked[0].score < 1


async def test_ranks_asynchronously(known, dense, question):
    """As it does synchronously."""
    reranker = CrabPathReranker(memory=known, top_n=3)
    ranked = await reranker.apostprocess_nodes(dense, query_bundle=QueryBundle(question))
    assert ids(ranked) == ids(reranker.postprocess_nodes(dense, query_str=question))
    assert len(ranked) == 3


def test_a_node_that_it_does_not_know_keeps_place_and_score(known, dense, question):
    """The known ones are put in order around it."""
    strange = NodeWithScore(node=TextNode(id_="web", text="From elsewhere."), score=0.42)
    reranker = CrabPathReranker(memory=known)
    without = reranker.postprocess_nodes(dense, query_str=question)
    ranked = reranker.postprocess_nodes([*dense[:2], strange, *dense[2:]], query_str=question)
    assert ranked[2] is strange
    assert ids([*ranked[:2], *ranked[3:]]) == ids(without)
    assert reranker.postprocess_nodes([strange], query_str=question) == [strange]


def test_the_same_node_twice(known, dense, question):
    """Stays twice, side by side."""
    ranked = CrabPathReranker(memory=known).postprocess_nodes(
        [dense[0], dense[1], dense[0]], query_str=question
    )
    assert sorted(ids(ranked)) == sorted(ids([dense[0], dense[1], dense[0]]))


def test_reranking_is_a_turn_that_teaches(known, dense, question):
    """Feedback about the reranked nodes moves what was used up, in the next reranking."""
    reranker = CrabPathReranker(memory=known)
    first = reranker.postprocess_nodes(dense, query_str=question)
    fifth = first[4]
    (receipt,) = record(known, first, 1.0, used=[fifth.node_id])
    assert receipt.status == "applied"
    again = reranker.postprocess_nodes(dense, query_str=question)
    assert ids(again).index(fifth.node_id) < 4


def test_the_nodes_given_are_left_as_they_are(known, dense, question):
    """Turns are noted in copies, out of the model's sight."""
    ranked = CrabPathReranker(memory=known).postprocess_nodes(dense, query_str=question)
    assert all("crabpath" not in item.node.metadata for item in dense)
    assert all("turn_id" in item.node.metadata["crabpath"] for item in ranked)
    assert "turn_id" not in ranked[0].node.get_content(metadata_mode=MetadataMode.LLM)


def test_nodes_of_a_crabpath_retriever_keep_their_turn(known, question):
    """Reranking them is no turn of its own."""
    nodes = CrabPathRetriever(known).retrieve(question)
    turns = known.info()["turns"]
    ranked = CrabPathReranker(memory=known).postprocess_nodes(nodes, query_str=question)
    assert known.info()["turns"] == turns
    assert {n.metadata["crabpath"]["turn_id"] for n in ranked} == {
        n.metadata["crabpath"]["turn_id"] for n in nodes
    }


def test_namespaces_rank_for_themselves(known, dense, question):
    """What one has learned does not move the order of the other."""
    ann = CrabPathReranker(memory=known, namespace="ann")
    bob = CrabPathReranker(memory=known, namespace="bob")
    before = bob.postprocess_nodes(dense, query_str=question)
    first = ann.postprocess_nodes(dense, query_str=question)
    record(known, first, 1.0, used=[first[4].node_id])
    assert ids(bob.postprocess_nodes(dense, query_str=question)) == ids(before)
    (refused,) = record(known, before, 1.0, namespace="ann")
    assert refused.status == "refused"


def test_in_a_query_engine(index, known, question):
    """As post-processor of LlamaIndex's own engine."""
    engine = RetrieverQueryEngine.from_args(
        index.as_retriever(similarity_top_k=10),
        node_postprocessors=[CrabPathReranker(memory=known, top_n=2)],
        llm=MockLLM(),
    )
    found = engine.query(question).source_nodes
    assert ids(found) == [d.node.id for d in known.retrieve(question, k=2).documents]


def test_what_it_cannot_rank_is_refused(known, dense, question):
    """In sentences that say what to do; no nodes are no error."""
    reranker = CrabPathReranker(memory=known)
    assert reranker.postprocess_nodes([]) == []
    with pytest.raises(InvalidInputError, match="needs the query"):
        reranker.postprocess_nodes(dense)
    with pytest.raises(InvalidInputError, match="query is empty"):
        reranker.postprocess_nodes(dense, query_str=" ")
    with pytest.raises(EmbeddingMismatchError, match="3 dimensions"):
        reranker.postprocess_nodes(dense, query_bundle=QueryBundle(question, embedding=[1, 2, 3]))
    with pytest.raises(ValueError, match="top_n"):
        CrabPathReranker(memory=known, top_n=0)
