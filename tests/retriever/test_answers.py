"""What CrabPathRetriever returns: how many, which, and how each option changes it."""

import asyncio
import time
from dataclasses import fields

import minilm
import pytest
from blockbuster import BlockingError, blockbuster_ctx
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from passages import read_passages, read_questions

from crabpath_retrievers import (
    CrabPathRetriever,
    EdgeKind,
    Feedback,
    InvalidInputError,
    NotFoundError,
    Settings,
)
from crabpath_retrievers.integration import Query, QueryOptions, RetrieverOptions
from crabpath_retrievers.vectors import embedder
from tests.seams import make_change

QUESTION = "Were Scott Derrickson and Ed Wood of the same nationality?"
BRIDGE = "Tell me about the film Kiss and Tell and Corliss Archer."
SIZE = 40
FAKE = DeterministicFakeEmbedding(size=16)


@pytest.fixture(scope="module")
def forty(memory):
    return CrabPathRetriever(memory=memory)


def ids(documents):
    return [document.id for document in documents]


def nodes(answer):
    return [document.node.id for document in answer.documents]


def walked(documents):
    """Ids of the documents that only a pointer led to."""
    return [d.id for d in documents if d.metadata["crabpath"]["origin"] == "walk"]


def test_options_are_declared_once():
    """A query has the options and its text; a retriever has those that all retrievers have."""
    assert {field.name for field in fields(Query)} == {"text", *QueryOptions.__annotations__}
    assert set(RetrieverOptions.__annotations__) <= set(CrabPathRetriever.model_fields)


@pytest.mark.parametrize("k", [None, 1, SIZE - 1, SIZE, SIZE + 1, 1000])
def test_returns_exactly_k(forty, k):
    """Best first, with probabilities as scores, as far as there are so many; 4 by default."""
    found = forty.invoke(QUESTION, k=k)
    assert len(set(ids(found))) == len(found) == min(k or 4, SIZE)
    scores = [document.metadata["score"] for document in found]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


def test_returns_documents_as_they_were_given(forty):
    (found,) = forty.invoke("Scott Derrickson", k=1)
    (given,) = [p for p in read_passages(SIZE) if p.metadata["title"] == "Scott Derrickson"]
    assert (found.id, found.page_content) == (given.id, given.page_content)
    assert given.metadata.items() <= found.metadata.items()


def test_walked_documents_show_their_path(forty):
    """A document that only a pointer led to shows the route from a seed to itself."""
    found = forty.invoke(BRIDGE, k=3)
    # The film names its actress: Shirley Temple (h11).
    assert walked(found) == ["h11"]
    block = next(d.metadata["crabpath"] for d in found if d.id == "h11")
    assert (block["path"][-1]["target"], block["path"][-1]["kind"]) == ("h11", "mention")
    assert block["tier"] == "habitual"
    assert walked(forty.invoke(BRIDGE, k=3, filter={"set": "even"})) == ["h10"]
    assert walked(forty.invoke(BRIDGE, k=3, filter={"set": "odd"})) == ["h11"]


def test_a_confined_walk_enters_only_what_the_filter_allows(forty):
    """Another one passes through the rest, and returns nothing of it."""
    inside = {one.id for one in forty.memory.documents(filter={"set": "even"})}
    entered = {}
    for confined in (True, False):
        hops = []
        found = forty.memory.retrieve(
            BRIDGE, k=8, filter={"set": "even"}, confined=confined, on_hop=hops.append
        )
        assert {item.node.id for item in found.documents} <= inside
        entered[confined] = {edge.target for hop in hops for edge in hop.followed}
    assert entered[True] <= inside
    assert not entered[False] <= inside


@pytest.mark.parametrize(
    ("where", "holding"),
    [
        ({"set": "odd"}, range(1, SIZE, 2)),
        ({"set": {"$ne": "even"}}, range(1, SIZE, 2)),
        ({"number": {"$lt": 9}}, range(9)),
        ({"number": {"$lt": 3}}, range(3)),
        ({"set": "none"}, ()),
        ({"colour": "blue"}, ()),
    ],
)
def test_a_filter_holds_for_every_document(forty, where, holding):
    """Searched and walked documents alike satisfy it, and k is still exact."""
    filtered = CrabPathRetriever(memory=forty.memory, filter={"set": "even"})
    found = ids(filtered.invoke(BRIDGE, k=8, filter=where))  # in place of its own
    assert len(set(found)) == min(8, len(holding))
    assert set(found) <= {f"h{number}" for number in holding}


def test_without_fill_only_confident_documents_come(forty):
    every = forty.invoke(QUESTION, k=10)
    sure = [d.id for d in every if d.metadata["score"] >= Settings().rank.min_probability]
    assert ids(forty.invoke(QUESTION, k=10, fill=False)) == sure
    assert 0 < len(sure) < 10
    assert forty.invoke("zebra crossing paint thickness", fill=False) == []


def test_one_chunk_of_each_document(embeddings):
    """Of three documents cut into chunks, three come back, each by its best chunk."""
    documents = [
        Document(
            "\n\n".join(f"{topic} {detail} are told here at length." * 12 for detail in "abcd"),
            metadata={"source": topic},
        )
        for topic in ("Tides and moons", "Crabs", "Boats")
    ]
    retriever = CrabPathRetriever.from_documents(documents, embeddings, k=3)
    with retriever.memory as memory:
        assert memory.info()["nodes"] > 5
        chunks = [d.metadata["source"] for d in retriever.invoke("What is told of crabs?")]
        found = retriever.invoke("What is told of crabs?", one_per_document=True)
        assert len(set(chunks)) < 3
        best, *others = [document.metadata["source"] for document in found]
        assert (best, sorted(others)) == ("Crabs", ["Boats", "Tides and moons"])
        scores = [document.metadata["score"] for document in found]
        assert scores == sorted(scores, reverse=True)


def test_a_budget_of_tokens(forty, embeddings):
    """Four characters a token; a text that says the same as a better one is passed over."""
    found = forty.invoke(QUESTION, k=10, max_tokens=200)
    assert 0 < sum(len(document.page_content) for document in found) <= 200 * 4
    texts = ["The deploy runs on Friday.", "the deploy runs on Friday.", "Lunch is at noon."]
    retriever = CrabPathRetriever.from_texts(texts, embeddings)
    with retriever.memory:
        assert len(retriever.invoke("when is the deploy?")) == 2
        said = [d.page_content for d in retriever.invoke("when is the deploy?", max_tokens=100)]
        assert len(set(said) & set(texts[:2])) == 1
        assert "Lunch is at noon." in said


def test_what_does_not_fit_is_not_replaced(caplog):
    """A short text about something else is no answer, where the right one is too long."""
    texts = ["The service listens on port 8080. " + "It also answers health checks. " * 10]
    texts += ["Backups run at night.", "Lunch is at noon.", "Ports below 1024 need root rights."]
    retriever = CrabPathRetriever.from_texts(texts, minilm.shared())
    with retriever.memory:
        question = "Which port does the service listen on?"
        assert retriever.invoke(question, max_tokens=60) == []
        assert "no document fits into max_tokens=60" in caplog.text
        assert retriever.invoke(question, max_tokens=200)[0].page_content == texts[0]


def test_boost_tags_prefer_documents(forty):
    """A document whose metadata carries a boosted value gains score, the others do not."""
    plain = {d.id: d.metadata["score"] for d in forty.invoke(QUESTION, k=SIZE)}
    for document in forty.invoke(QUESTION, k=SIZE, boost_tags=["odd"]):
        better = document.metadata["score"] > plain[document.id]
        assert better == (document.metadata["set"] == "odd")


def test_exploring_with_a_seed_is_reproducible(forty):
    """The same integer walks the same way; different integers walk different ways."""
    seeds = (*range(5), *range(5))
    walks = [forty.memory.retrieve(BRIDGE, explore=seed).turn.visited for seed in seeds]
    assert walks[:5] == walks[5:]
    assert len(set(walks)) > 1


def test_namespaces_learn_apart(forty):
    """What one namespace has learned changes its own walks and nobody else's."""
    memory = forty.memory
    edge = next(r.path[-1] for r in memory.retrieve(BRIDGE, k=3).turn.returned if r.node == "h11")
    keys = {head.id: head.key for head in memory.store.walk.get_nodes([edge.source, edge.target])}
    lesson = make_change(
        "WeightDelta", keys[edge.source], keys[edge.target], EdgeKind.MENTION, -2.0
    )
    memory.store.apply([make_change("AdjustWeights", "grace", (lesson,), "test")])
    assert memory.retrieve(BRIDGE, namespace="grace").turn.guardrails == ("h11",)
    assert memory.retrieve(BRIDGE, namespace="ada").turn.guardrails == ()


def test_candidates_that_the_host_names(forty, namespace):
    """In the order that they have among all, also those that search would not find."""
    memory = forty.memory
    every = nodes(memory.retrieve(QUESTION, k=8))
    for left_out in every[:3]:
        named = [node for node in every if node != left_out]
        assert nodes(memory.retrieve(QUESTION, k=8, candidate_ids=named[::-1])) == named
    others = [f"h{n}" for n in range(SIZE) if f"h{n}" not in every][:3]
    for options, count in (({}, 3), ({"k": 1}, 1), ({"filter": {"no": "such"}}, 0)):
        found = nodes(memory.retrieve(QUESTION, candidate_ids=others, **{"k": 5, **options}))
        assert (len(found), set(found) <= set(others)) == (count, True)
    hinted = memory.retrieve(QUESTION, k=12, seed_ids=[others[0], "nope"])
    assert others[0] in {seed.node for seed in hinted.turn.seeds if seed.hinted}
    assert others[0] in nodes(hinted)
    first = memory.retrieve(QUESTION, k=3, candidate_ids=others, namespace=namespace)
    last = nodes(first)[-1]
    feedback = Feedback(first.turn.id, 1.0, used=[last])
    assert memory.record(feedback).status == "applied"
    again = memory.retrieve(QUESTION, k=3, candidate_ids=others, namespace=namespace)
    assert nodes(again).index(last) < 2


async def test_unknown_candidates_are_ignored(retriever):
    """All of them unknown is an empty answer, whose turn can be asked for."""
    memory = retriever.memory
    answer = await memory.aio.retrieve("red?", k=3, candidate_ids=["never", "a"])
    assert nodes(answer) == ["a"]
    empty = await memory.aio.retrieve("red?", k=3, candidate_ids=["never"])
    assert nodes(empty) == nodes(memory.retrieve("red?", candidate_ids=[])) == []
    assert memory.explain(empty.turn.id).turn.returned == ()
    note = memory.teach("Cherries are red.", namespace="ann")
    for namespace, found in (("ann", [note]), ("bob", [])):
        named = memory.retrieve("red?", namespace=namespace, candidate_ids=[note])
        assert nodes(named) == found


async def test_unknown_arguments(retriever, tmp_path):
    """A misspelt one is refused, the message tells the usable ones; nothing was opened."""
    with pytest.raises(InvalidInputError, match="top_k: use k"):
        retriever.invoke(QUESTION, top_k=1)
    with pytest.raises(InvalidInputError, match="use k, filter, namespace"):
        await retriever.ainvoke(QUESTION, record=1)
    with pytest.raises(InvalidInputError, match="namspace: use namespace"):
        CrabPathRetriever.from_texts(["a b c"], FAKE, path=tmp_path, namspace="ada")
    assert not any(tmp_path.iterdir())


async def test_a_memory_of_texts_is_added_to_and_opened_again(tmp_path):
    """With ids and metadata per text; what is added later is found, also asynchronously."""
    texts = ["Apples are red.", "The sky is blue."]
    made = CrabPathRetriever.from_texts(
        texts, FAKE, [{"a": 1}, {"a": 2}], ids=["x", "y"], path=tmp_path / "m"
    )
    assert {d.id: d.metadata["a"] for d in made.invoke("colours")} == {"x": 1, "y": 2}
    (third,) = made.add_documents([Document("Grass is green.")])
    (fourth,) = await made.aadd_documents([Document("Snow is white.")])
    before = ids(made.invoke("colours"))
    assert set(before) == {"x", "y", third, fourth}
    made.memory.close()
    again = CrabPathRetriever.from_existing(tmp_path / "m", FAKE)
    with again.memory:
        assert ids(again.invoke("colours")) == before


def test_from_existing_refuses_a_place_without_memory(postgres_url, tmp_path):
    """Nothing is created there; the message hides the password."""
    with pytest.raises(NotFoundError, match="there is no memory at"):
        CrabPathRetriever.from_existing(tmp_path / "typo", FAKE)
    url = postgres_url.replace("postgres@", "postgres:secret@")
    for _ in range(2):
        with pytest.raises(NotFoundError, match=r"there is no memory at .*postgres:\*\*\*@"):
            CrabPathRetriever.from_existing(url, FAKE, vectors=tmp_path)
    assert list(tmp_path.iterdir()) == []


def shown(documents):
    """Documents without what differs between two turns."""
    return [
        (d.id, d.metadata["score"], *(d.metadata["crabpath"][name] for name in ("origin", "path")))
        for d in documents
    ]


async def test_async_answers_equal_sync_answers(forty):
    """Documents, scores and paths, also with options."""
    options = {"k": 7, "namespace": "ada", "explore": 3, "max_tokens": 300, "seed_ids": ["h20"]}
    for question, given in [(q, {}) for q in read_questions(20)] + [(QUESTION, options)]:
        found = await forty.ainvoke(question, **given)
        assert shown(found) == shown(forty.invoke(question, **given))


async def test_questions_do_not_block(forty):
    """Nor does one that is cancelled disturb the next."""
    options = {"explore": 1, "fill": False, "max_tokens": 100, "boost_tags": ["Ed Wood"]}
    task = asyncio.create_task(forty.ainvoke(QUESTION))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with blockbuster_ctx():
        assert await forty.ainvoke(QUESTION, **options)
        with pytest.raises(BlockingError):
            time.sleep(0.01)  # noqa: ASYNC251  blocking on purpose


@pytest.mark.slow
async def test_the_default_model_is_loaded_off_the_loop(tmp_path, embeddings, monkeypatch):
    """By the first question to a memory that is opened again, and by the first documents."""
    passages = read_passages(3)
    CrabPathRetriever.from_documents(passages, embeddings, path=tmp_path).memory.close()
    monkeypatch.setattr(embedder, "load_default_embeddings", minilm.load)
    again = CrabPathRetriever.from_existing(tmp_path, k=1)
    fresh = CrabPathRetriever.from_documents([])
    with blockbuster_ctx():
        assert len(await again.ainvoke("Scott Derrickson")) == 1
        assert await fresh.ainvoke("anything") == []
        assert len(await fresh.aadd_documents(passages)) == 3
        assert len(await fresh.ainvoke("Scott Derrickson", k=3)) == 3
    again.memory.close()
    fresh.memory.close()
