"""What CrabPathRetriever returns: how many, which, and how each option changes it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from langchain_chroma import Chroma
from langchain_core.documents import Document
from pydantic import ValidationError

from crabpath_retrievers import CrabPath, CrabPathRetriever, NotFoundError, Settings
from crabpath_retrievers.config import SeedSettings
from crabpath_retrievers.core.changes import AdjustWeights, WeightDelta
from crabpath_retrievers.core.graph import EdgeKind

SAMPLE = Path(__file__).parents[1] / "examples" / "hotpotqa_sample"
QUESTION = "Were Scott Derrickson and Ed Wood of the same nationality?"
BRIDGE = "Tell me about the film Kiss and Tell and Corliss Archer."
SIZE = 40


@pytest.fixture(scope="module")
def passages() -> list[Document]:
    """The passages of four HotpotQA questions; every second one is in set "odd"."""
    lines = (SAMPLE / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:SIZE]
    return [
        Document(
            id=row["_id"],
            page_content=row["text"],
            metadata={"title": row["title"], "set": ("even", "odd")[number % 2], "number": number},
        )
        for number, row in enumerate(map(json.loads, lines))
    ]


@pytest.fixture(scope="module")
def retriever(embeddings, passages) -> Iterator[CrabPathRetriever]:
    """A retriever whose search finds little, so that the walk has something to add."""
    settings = Settings(seeds=SeedSettings(hits_per_engine=2, max_entries=2))
    memory = CrabPath.open(embeddings=embeddings, settings=settings)
    memory.add_documents(passages)
    yield CrabPathRetriever(memory=memory)
    memory.close()


def ids(documents):
    """Ids in order."""
    return [document.id for document in documents]


@pytest.mark.parametrize("k", [1, 2, 3, 10, SIZE - 1, SIZE])
def test_returns_exactly_k(retriever, k):
    """As many different documents come as were asked for, as far as there are so many."""
    found = retriever.invoke(QUESTION, k=k)
    assert len(set(ids(found))) == len(found) == k


@pytest.mark.parametrize("k", [SIZE + 1, 1000])
def test_returns_all_when_k_is_beyond_the_corpus(retriever, k):
    """Every document comes once when more are asked for than there are."""
    assert sorted(ids(retriever.invoke(QUESTION, k=k))) == sorted(f"h{n}" for n in range(SIZE))


def test_returns_four_by_default(retriever):
    """K is 4 as in LangChain's own retrievers."""
    assert len(retriever.invoke(QUESTION)) == 4


def test_scores_fall(retriever):
    """Documents come best first, with probabilities as scores."""
    scores = [document.metadata["score"] for document in retriever.invoke(QUESTION, k=SIZE)]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


def test_keeps_text_and_metadata(retriever, passages):
    """Text, id and metadata of a document come back as they were given."""
    (found,) = retriever.invoke("Scott Derrickson", k=1)
    (given,) = [p for p in passages if p.metadata["title"] == "Scott Derrickson"]
    assert (found.id, found.page_content) == (given.id, given.page_content)
    assert given.metadata.items() <= found.metadata.items()


def walked(documents):
    """Ids of the documents that only a pointer led to."""
    return [d.id for d in documents if d.metadata["crabpath"]["origin"] == "walk"]


def test_walked_documents_tell_their_path(retriever):
    """A document that only a pointer led to shows the route from a seed to itself."""
    found = retriever.invoke(BRIDGE, k=3)
    # The film names its actress: Shirley Temple (h11).
    assert walked(found) == ["h11"]
    block = next(d.metadata["crabpath"] for d in found if d.id == "h11")
    assert (block["path"][-1]["target"], block["path"][-1]["kind"]) == ("h11", "mention")
    assert block["tier"] == "habitual"


@pytest.mark.parametrize(
    "where", [{"set": "odd"}, {"set": {"$ne": "even"}}, {"number": {"$lt": 9}}]
)
def test_filter_holds_for_every_document(retriever, where):
    """Searched and walked documents alike satisfy the filter, and k is still exact."""
    found = retriever.invoke(BRIDGE, k=8, filter=where)
    assert len(found) == 8
    if "set" in where:
        assert {document.metadata["set"] for document in found} == {"odd"}
    else:
        assert max(document.metadata["number"] for document in found) < 9


def test_filter_holds_for_walked_documents(retriever):
    """The walk's documents are filtered as well: h10 passes "even", h11 does not."""
    assert walked(retriever.invoke(BRIDGE, k=3, filter={"set": "even"})) == ["h10"]
    assert walked(retriever.invoke(BRIDGE, k=3, filter={"set": "odd"})) == ["h11"]


def test_filter_that_matches_little(retriever):
    """A filter that three documents satisfy gives these three."""
    assert set(ids(retriever.invoke(QUESTION, k=8, filter={"number": {"$lt": 3}}))) == {
        "h0",
        "h1",
        "h2",
    }


def test_filter_that_matches_nothing(retriever):
    """A filter that nothing satisfies gives nothing."""
    assert retriever.invoke(QUESTION, filter={"set": "none"}) == []


def test_filter_of_the_call_replaces_that_of_the_retriever(retriever):
    """A call may choose another filter; an empty one switches filtering off."""
    odd = CrabPathRetriever(memory=retriever.memory, filter={"set": "odd"}, k=SIZE)
    assert len(odd.invoke(QUESTION)) == SIZE // 2
    assert len(odd.invoke(QUESTION, filter={})) == SIZE


def test_without_fill_only_confident_documents_come(retriever):
    """fill=False keeps the documents whose score reaches the threshold of confidence."""
    every = retriever.invoke(QUESTION, k=10)
    sure = [d.id for d in every if d.metadata["score"] >= Settings().rank.min_probability]
    assert ids(retriever.invoke(QUESTION, k=10, fill=False)) == sure
    assert 0 < len(sure) < 10


def test_without_fill_nothing_may_come(retriever):
    """fill=False gives nothing for a question that no document is about."""
    assert retriever.invoke("zebra crossing paint thickness", fill=False) == []


def test_distinct_returns_one_chunk_of_each_document(embeddings):
    """Of three documents cut into chunks, three come back, each by its best chunk."""
    texts = {
        name: "\n\n".join(f"{topic} {detail} are told here at length." * 12 for detail in "abcd")
        for name, topic in (("tides", "Tides and moons"), ("crabs", "Crabs"), ("boats", "Boats"))
    }
    documents = [Document(text, metadata={"source": name}) for name, text in texts.items()]
    with CrabPathRetriever.from_documents(documents, embeddings).memory as memory:
        assert memory.info()["nodes"] > 5
        retriever = CrabPathRetriever(memory=memory, k=3)
        chunks = [d.metadata["source"] for d in retriever.invoke("What is told of crabs?")]
        found = retriever.invoke("What is told of crabs?", one_per_document=True)
        sources = [document.metadata["source"] for document in found]
        assert len(set(chunks)) < 3
        assert sorted(sources) == ["boats", "crabs", "tides"]
        assert sources[0] == "crabs"
        scores = [document.metadata["score"] for document in found]
        assert scores == sorted(scores, reverse=True)


def test_max_tokens_bounds_the_context(retriever):
    """The texts together stay within the budget at four characters a token."""
    found = retriever.invoke(QUESTION, k=10, max_tokens=200)
    assert 0 < sum(len(document.page_content) for document in found) <= 200 * 4


def test_max_tokens_leaves_out_near_duplicates(embeddings):
    """With a budget a text that says the same as a better one is passed over."""
    texts = ["The deploy runs on Friday.", "the deploy runs on friday.", "Lunch is at noon."]
    retriever = CrabPathRetriever.from_texts(texts, embeddings)
    found = [d.page_content for d in retriever.invoke("when is the deploy?", max_tokens=100)]
    assert len(retriever.invoke("when is the deploy?")) == 3
    assert len(set(found) & set(texts[:2])) == 1
    assert "Lunch is at noon." in found
    retriever.memory.close()


def test_seed_ids_enter_the_result(retriever):
    """A document that the host suggests is considered although search did not find it."""
    plain = retriever.invoke(QUESTION, k=4)
    suggested = next(f"h{n}" for n in range(SIZE) if f"h{n}" not in ids(retriever.invoke(QUESTION)))
    hinted = retriever.memory.retrieve(QUESTION, k=4, seed_ids=[suggested])
    assert suggested not in ids(plain)
    assert suggested in [seed.node for seed in hinted.turn.seeds if seed.hinted]
    assert suggested in ids(retriever.invoke(QUESTION, k=12, seed_ids=[suggested]))


def test_unknown_seed_ids_change_nothing(retriever):
    """Suggested ids that the memory does not know are ignored."""
    assert ids(retriever.invoke(QUESTION, seed_ids=["nope"])) == ids(retriever.invoke(QUESTION))


def test_boost_tags_prefer_documents(retriever):
    """A document whose metadata carries a boosted value gains score, the others do not."""
    plain = {d.id: d.metadata["score"] for d in retriever.invoke(QUESTION, k=SIZE)}
    boosted = retriever.invoke(QUESTION, k=SIZE, boost_tags=["odd"])
    for document in boosted:
        score = document.metadata["score"]
        better = score > plain[document.id]
        assert better if document.metadata["set"] == "odd" else score <= plain[document.id]


def test_exploring_with_a_seed_is_reproducible(retriever):
    """The same integer walks the same way; different integers walk different ways."""
    walks = [
        retriever.memory.retrieve(BRIDGE, explore=seed).turn.visited
        for seed in (*range(5), *range(5))
    ]
    assert walks[:5] == walks[5:]
    assert len(set(walks)) > 1


def test_namespaces_learn_apart(retriever):
    """What one namespace has learned changes its own walks and nobody else's."""
    memory = retriever.memory
    edge = next(r.path[-1] for r in memory.retrieve(BRIDGE, k=3).turn.returned if r.node == "h11")
    keys = {head.id: head.key for head in memory.store.walk.get_nodes([edge.source, edge.target])}
    lesson = WeightDelta(keys[edge.source], keys[edge.target], EdgeKind.MENTION, -2.0)
    memory.store.apply([AdjustWeights("grace", (lesson,), "test")])
    assert memory.retrieve(BRIDGE, namespace="grace").turn.guardrails == ("h11",)
    assert memory.retrieve(BRIDGE, namespace="ada").turn.guardrails == ()


@pytest.mark.parametrize("name", ["kk", "top_k", "record"])
def test_unknown_argument_of_a_call(retriever, name):
    """A misspelt argument is refused and the message tells the usable ones."""
    with pytest.raises(TypeError, match="use k, filter, namespace"):
        retriever.invoke(QUESTION, **{name: 1})


async def test_unknown_argument_of_an_async_call(retriever):
    """A misspelt argument is refused by ainvoke too."""
    with pytest.raises(TypeError, match="use k, filter, namespace"):
        await retriever.ainvoke(QUESTION, kk=1)


def test_unknown_argument_of_the_constructor(embeddings, tmp_path):
    """A misspelt field is refused, and the directory is free again."""
    with pytest.raises(ValidationError, match="namspace"):
        CrabPathRetriever.from_texts(["a b c"], embeddings, path=tmp_path, namspace="ada")
    with CrabPathRetriever.from_existing(tmp_path, embeddings).memory as memory:
        assert memory.info()["nodes"] == 1


def test_from_texts_with_ids_and_metadata(embeddings):
    """from_texts takes ids and metadata per text."""
    texts = ["Apples are red.", "The sky is blue."]
    retriever = CrabPathRetriever.from_texts(
        texts, embeddings, [{"a": 1}, {"a": 2}], ids=["x", "y"], k=1
    )
    (found,) = retriever.invoke("colour of the sky")
    assert (found.id, found.metadata["a"]) == ("y", 2)
    retriever.memory.close()


def test_from_vectorstore_searches_the_store_in_place(embeddings, passages):
    """A wrapped Chroma answers with its own documents and is not written to."""
    store = Chroma(collection_name="mine", embedding_function=embeddings)
    store.add_documents(passages[:10])
    before = store.get()
    retriever = CrabPathRetriever.from_vectorstore(store, k=10)
    assert sorted(ids(retriever.invoke(QUESTION))) == sorted(before["ids"])
    assert store.get() == before
    retriever.memory.close()


def test_from_existing_answers_as_before(embeddings, passages, tmp_path):
    """A memory opened again gives the answers it gave."""
    made = CrabPathRetriever.from_documents(passages[:10], embeddings, path=tmp_path)
    before = ids(made.invoke(QUESTION))
    made.memory.close()
    again = CrabPathRetriever.from_existing(tmp_path, embeddings)
    assert ids(again.invoke(QUESTION)) == before
    again.memory.close()


def test_from_existing_refuses_a_missing_path(embeddings, tmp_path):
    """A path without a memory is refused, and nothing is created there."""
    with pytest.raises(NotFoundError, match="there is no memory at"):
        CrabPathRetriever.from_existing(tmp_path / "typo", embeddings)
    assert list(tmp_path.iterdir()) == []


def test_from_existing_refuses_an_empty_database(embeddings, postgres_url, tmp_path):
    """A database without a memory is refused, and no tables are created."""
    for _ in range(2):
        with pytest.raises(NotFoundError, match="there is no memory at"):
            CrabPathRetriever.from_existing(postgres_url, embeddings, vectors=tmp_path)


async def test_documents_can_be_added_later(embeddings):
    """Documents added through the retriever, also asynchronously, are found."""
    retriever = CrabPathRetriever.from_texts(["Apples are red."], embeddings, k=3)
    (second,) = retriever.add_documents([Document("The sky is blue.")])
    (third,) = await retriever.aadd_documents([Document("Grass is green.")])
    assert {second, third} < set(ids(retriever.invoke("colours")))
    retriever.memory.close()
