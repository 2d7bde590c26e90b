"""What episodes say: similar questions speak for documents, the same question also against them."""

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, Feedback
from crabpath_retrievers.core.text import QueryInformation
from crabpath_retrievers.retrieval.episodes import EpisodeQuery
from crabpath_retrievers.vectors.embedder import to_unit_vector

ASKED = "Which orchard grows the crimson apple variety"


def towards(base, cosine):
    """A unit vector at this cosine to another one."""
    other = np.zeros_like(base)
    other[int(np.argmin(np.abs(base)))] = 1.0
    other -= (other @ base) * base
    return to_unit_vector(cosine * base + np.sqrt(1 - cosine**2) * other / np.linalg.norm(other))


@pytest.fixture
def told():
    """What is said of ASKED: it used b, and neither a nor c."""
    return {"used": ["b"]}


@pytest.fixture
def recalls(tmp_path, told):
    """Learns what is told of a success of ASKED; then recalls at a cosine, with other words."""
    vectors = DeterministicFakeEmbedding(size=16)
    with CrabPath.open(tmp_path, embeddings=vectors) as memory:
        memory.add_documents([Document(f"text {i}", id=i) for i in "abc"], split=False)
        turn = memory.retrieve(ASKED, k=3).turn.id
        memory.record(Feedback(turn, 1.0, **told))
        base = to_unit_vector(vectors.embed_query(ASKED))

        def _recalls(text, cosine, idf=None):
            words = QueryInformation.from_idf(idf or dict.fromkeys(text.lower().split(), 5.0))
            question = EpisodeQuery(text, towards(base, cosine), words)
            return memory._services.episodes.recall(
                question, memory.store.walk.get_clock("default")
            )

        yield _recalls


def test_the_same_question_speaks_both_ways(recalls):
    """For what it used, against what it did not."""
    found = recalls(ASKED, 1.0)
    assert found["b"] == pytest.approx((0.0, 1.0), abs=0.01)
    assert found["a"] == pytest.approx((0.0, -1.0), abs=0.01)


def test_a_similar_question_speaks_for_documents_only(recalls):
    """What another question did not use may be just right."""
    found = recalls("something with other words entirely different", 0.8)
    assert set(found) == {"b"}
    assert found["b"] == pytest.approx((0.5, 0.0), abs=0.02)


@pytest.mark.parametrize("told", [{}])
def test_a_bare_outcome_speaks_to_the_same_question_only(recalls):
    """Which of its documents mattered was guessed."""
    assert all(said.same > 0 for said in recalls(ASKED, 1.0).values())
    assert recalls("something with other words entirely different", 0.8) == {}


def test_the_words_tell_the_same_question_when_the_vector_does_not(recalls):
    """A question of which a fifth of the words is left out."""
    found = recalls("Which orchard grows crimson apple", 0.5)
    assert found["b"].same == pytest.approx(1.0)


def test_a_few_common_words_are_no_question(recalls):
    """They stand in many questions."""
    assert recalls("Which grows", 0.5, {"which": 0.5, "grows": 1.0}) == {}


def test_words_that_the_corpus_does_not_know_count_as_the_rarest(recalls):
    """A name that only the question has tells it from others."""
    found = recalls("Which orchard has Zanzibar Xyzzy Quux", 0.5, {"orchard": 5.0})
    assert "b" not in found


def test_far_questions_say_nothing(recalls):
    """Neither words nor vector are alike."""
    assert recalls("unrelated words about another matter", 0.3) == {}
