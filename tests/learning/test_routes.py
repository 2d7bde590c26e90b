"""Routes to what was used become reflexes, and what nobody judged stays where it was."""

import pytest

from benchmarks.routes import MODEL, chain_corpus, measure_routes, read_weights
from crabpath_retrievers import CrabPath, Feedback
from crabpath_retrievers.config import LearningSettings

BOUND = 0.2
CORPUS = chain_corpus(8)


@pytest.fixture
def filled(tmp_path, embeddings):
    """A memory of procedures whose pages mention each other."""
    with CrabPath.open(tmp_path, embeddings=embeddings) as memory:
        memory.add_documents(CORPUS.documents, split=False, progress=None)
        yield memory


@pytest.mark.slow
def test_one_report_moves_an_edge_by_at_most_a_fifth(filled):
    """Some move, none becomes negative, and undone they are as they were."""
    largest = 0.0
    for question, right in 3 * list(CORPUS.questions.items()):
        before = read_weights(filled, CORPUS)
        turn = filled.retrieve(question, k=10).turn
        used = [item.node for item in turn.returned if item.node in right]
        receipt = filled.record(Feedback(turn.id, 1.0, used=used))
        after = read_weights(filled, CORPUS)
        largest = max(largest, *(abs(after[edge] - weight) for edge, weight in before.items()))
        assert min(after.values()) >= 0
    assert 0.01 < largest <= BOUND + 1e-9
    filled.undo(receipt.feedback_id)
    assert read_weights(filled, CORPUS) == pytest.approx(before)


@pytest.mark.slow
def test_routes_become_reflexes_and_the_model_is_asked_no_more(embeddings):
    """Without the gradient none does."""
    variants = {"all": LearningSettings(), "none": LearningSettings(policy_gradient=False)}
    found = [row for row in measure_routes(CORPUS, embeddings, variants) if row.router == MODEL]
    learned, fixed = found
    assert learned.reflex_before == fixed.reflex == 0
    assert learned.reflex >= learned.routes / 2 > 0
    assert learned.changed_tier == learned.inhibitory == 0
    assert learned.calls[1] <= 0.1 * learned.calls[0]
