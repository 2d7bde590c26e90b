"""A cross-encoder or a compressor of the host orders the answer, and cannot lose it."""

import asyncio
import logging
import time

import pytest
from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.documents import BaseDocumentCompressor, Document

from crabpath_retrievers import CrabPathRetriever, InvalidInputError, Settings
from crabpath_retrievers.config import RankSettings

WORDS = ("apple", "banana", "cherry", "damson", "elder", "fig", "grape", "hazel")
DOCUMENTS = [
    Document(f"A fruit called {word}, number {n} of the list.", id=word)
    for n, word in enumerate(WORDS)
]
QUERY = "Which fruit is on the list?"


class LatestFirst(BaseCrossEncoder):
    """Prefers the documents at the end of the list; remembers what it was asked."""

    def __init__(self):
        self.seen = []

    def score(self, text_pairs):
        self.seen.append(text_pairs)
        return [float(text.partition("number ")[2].split()[0]) for _, text in text_pairs]


class Compressor(BaseDocumentCompressor):
    """Returns what a function makes of the documents; says how it was called."""

    make: object
    called: list

    def compress_documents(self, documents, query, callbacks=None):
        self.called.append("sync")
        return self.make(list(documents))

    async def acompress_documents(self, documents, query, callbacks=None):
        self.called.append("async")
        return self.make(list(documents))


@pytest.fixture
def ask(embeddings):
    """The ids that a retriever with this reranker returns, and the retriever."""
    opened = []

    def _ask(reranker, *, query=QUERY, settings=None, **fields):
        retriever = CrabPathRetriever.from_documents(
            DOCUMENTS, embeddings, split=False, reranker=reranker, settings=settings, **fields
        )
        opened.append(retriever)
        return [document.id for document in retriever.invoke(query)], retriever

    yield _ask
    for retriever in opened:
        retriever.close()


def test_a_cross_encoder_orders_the_best_candidates_and_k_are_returned(ask):
    model = LatestFirst()
    found, retriever = ask(model, k=2)
    assert found == ["hazel", "grape"]
    assert len(model.seen[0]) == 8
    assert {query for query, _ in model.seen[0]} == {QUERY}
    assert asyncio.run(retriever.ainvoke(QUERY))[0].id == "hazel"


def test_the_number_of_candidates_is_a_setting(ask):
    model = LatestFirst()
    settings = Settings(rank=RankSettings(reranked_per_document=2, max_reranked=3))
    for k, offered in ((1, 2), (2, 3), (4, 4)):
        assert len(ask(model, k=k, settings=settings)[0]) == k
        assert len(model.seen[-1]) == offered


def test_scores_stay_probabilities_and_features_are_those_of_the_order(ask):
    """What learning reads fits the answer: one text answers, so each counts what it covers."""
    (_, plain), (_, reranked) = ask(None, k=8), ask(LatestFirst(), k=8)
    before, after = (
        {d.id: d.metadata["crabpath"] for d in retriever.invoke(QUERY)}
        for retriever in (plain, reranked)
    )
    assert list(after) == list(reversed(WORDS))
    first = next(iter(after.values()))["features"]
    assert first["coverage"] == after["apple"]["features"]["coverage"] > 0
    assert all(0 <= block["score"] <= 1 for block in after.values())
    same = [name for name in first if name != "coverage"]
    assert [first[name] for name in same] == [before["hazel"]["features"][name] for name in same]


def test_feedback_on_a_reranked_answer_is_learned_and_exploring_claims_no_propensity(ask):
    _, retriever = ask(LatestFirst(), k=2)
    documents = retriever.invoke(QUERY)
    assert retriever.record(documents, "up", used=documents[:1])[0].status == "applied"
    answer = retriever.memory.retrieve(QUERY, k=2, explore=1)
    assert [item.node.id for item in answer.documents] == ["hazel", "grape"]
    assert {item.returned.propensity for item in answer.documents} == {None}
    assert "rerank" in answer.turn.latency_ms


def test_notes_keep_their_place(ask):
    _, retriever = ask(LatestFirst(), k=3)
    note = retriever.memory.teach("Only the grape is on the list.", query=QUERY)
    place = [d.id for d in retriever.invoke(QUERY)].index(note)
    assert place == 0
    assert [d.id for d in retriever.invoke(QUERY)] == [note, "hazel", "grape"]


def _fail(_documents):
    msg = "no such server"
    raise RuntimeError(msg)


def _sleep(documents):
    time.sleep(0.6)
    return documents


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "first", "problem"),
    [
        (_fail, [], "failed (RuntimeError: no such server)"),
        (_sleep, [], "failed (TimeoutError"),
        (lambda _: None, [], "failed (TypeError"),
        (lambda _: [], [], "returned 0 of 8 documents"),
        (lambda given: [given[-1], given[-1]], [-1], "returned 1 of 8 documents"),
        (lambda given: [Document("?", id="unknown"), given[3]], [3], "returned 1 of 8 documents"),
        # As LangChain's extractors do: other texts, no ids, the metadata of the documents.
        (
            lambda given: [Document("short", metadata=d.metadata) for d in given[::-1]],
            [-1, -2, -3, -4],
            None,
        ),
    ],
)
def test_no_reranker_loses_the_answer(ask, caplog, make, first, problem):
    """What it does not name follows in our order; the log says so once."""
    plain, _ = ask(None, k=8)
    settings = Settings(rank=RankSettings(reranker_timeout=0.3))
    compressor = Compressor(make=make, called=[])
    with caplog.at_level(logging.WARNING):
        found, retriever = ask(compressor, k=4, settings=settings)
        if make is not _sleep:
            assert [d.id for d in asyncio.run(retriever.ainvoke(QUERY))] == found
            assert compressor.called == ["sync", "async"]
    moved = [plain[place] for place in first]
    assert found == [*moved, *(name for name in plain if name not in moved)][:4]
    said = [r.getMessage() for r in caplog.records if "the reranker" in r.getMessage()]
    assert len(said) == (problem is not None)
    assert problem is None or problem in said[0]


@pytest.mark.parametrize("scores", [[1.0], [[1.0, 2.0]] * 8, "high", [float("nan")] * 8])
def test_scores_that_cannot_be_used_leave_our_order(ask, monkeypatch, scores):
    monkeypatch.setattr(LatestFirst, "score", lambda *_: scores)
    assert ask(LatestFirst(), k=8)[0] == ask(None, k=8)[0]


def test_a_budget_holds_after_reordering(ask):
    found, _ = ask(LatestFirst(), k=4, max_tokens=25)
    assert found == ["hazel", "grape"]


def test_a_reranker_is_a_cross_encoder_or_a_compressor(embeddings):
    with pytest.raises(InvalidInputError, match="reranker must be a LangChain BaseCrossEncoder"):
        CrabPathRetriever.from_documents(DOCUMENTS, embeddings, reranker="bge-reranker")
