"""Answers and learning do not depend on where the cosines of an embedder lie."""

from itertools import pairwise

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from benchmarks.embedders import Squeezed
from crabpath_lab import load_sample
from crabpath_retrievers import CrabPath

SAMPLE = load_sample()
QUESTIONS = list(SAMPLE.queries.values())[:30]
# Vectors are kept in half precision, which a squeezed scale magnifies; what is chosen first of two
# that are tied is also credited with the words that both have.
TIE = 0.02  # probability
NOTE = "The ferry to Heligoland leaves at nine."


def observe(embeddings, folder):
    """Documents of the sample's questions before and after feedback, notes and a sync."""
    docs = folder / "docs"
    docs.mkdir(parents=True)
    for place, document in enumerate(SAMPLE.documents[:8]):
        (docs / f"{place}.md").write_text(document.page_content)
    with CrabPath.open(embeddings=embeddings) as memory:
        memory.add_documents(SAMPLE.documents, split=False, progress=None)
        cold = [memory.retrieve(question, k=5) for question in QUESTIONS]
        for place, answer in enumerate(cold[:20]):
            shown = [document.node for document in answer.turn.returned]
            memory.record(answer.turn, 1.0, used=[shown[place % 5]])
        memory.teach(NOTE)
        memory.teach(f"{NOTE[:-1]}, always.")
        learned = [memory.retrieve(f"Please tell me: {question}", k=5) for question in QUESTIONS]
        memory.sync(docs, progress=None)
        (docs / "0.md").write_text((docs / "0.md").read_text().replace(" the ", " that "))
        (docs / "1.md").write_text("Tides are caused by the Moon.")
        fates = sorted(section.fate for section in memory.sync(docs, progress=None).sections)
        return [_name_documents(cold), _name_documents(learned), fates]


def _name_documents(answers):
    return [{d.node.content: d.score for d in answer.documents} for answer in answers]


def find_other_orders(answers, others):
    """Answers of other documents, or in another order than that of their probabilities."""
    for found, other in zip(answers, others, strict=True):
        scores = [found.get(content, -1.0) for content in other]
        rises = [after - before for before, after in pairwise(scores)]
        if found.keys() != other.keys() or max(rises) > TIE:
            yield found, other


@pytest.mark.slow
def test_squeezing_all_cosines_changes_no_answer(tmp_path):
    """A cosine c becomes .8 + .2 c: same documents in the same order, taught or not."""
    cold, learned, fates = observe(None, tmp_path / "plain")
    others = observe(Squeezed(), tmp_path / "squeezed")
    assert fates == others[2]
    assert list(find_other_orders(cold, others[0])) == []
    assert list(find_other_orders(learned, others[1])) == []


def test_a_stub_that_knows_few_words_is_not_stretched():
    """Texts without a word that it knows have one vector, which tells nothing of its scale."""

    class TwoWords(Embeddings):
        def embed_documents(self, texts):
            return [self.embed_query(text) for text in texts]

        def embed_query(self, text):
            return [0.1 + text.count(word) for word in ("ferry", "lighthouse")]

    with CrabPath.open(embeddings=TwoWords()) as memory:
        memory.add_documents([Document("A ferry."), Document("A lighthouse.")], progress=None)
        assert memory.store.stretch == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("least", [0.0, 0.5, 0.9])
def test_a_plain_search_keeps_the_embedders_own_cosines(least):
    """similarity_search gives what a vector store gives, whatever the scale."""

    class Cone(Squeezed):
        def embed_documents(self, texts):
            rows = np.array(self._model.embed_documents(texts))
            rows = np.column_stack([np.full(len(rows), least**0.5), (1 - least) ** 0.5 * rows])
            return rows.tolist()

        def embed_query(self, text):
            return self.embed_documents([text])[0]

    embeddings = Cone()
    texts = ["Ferries sail to the island.", "The bank is closed on Sundays."]
    with CrabPath.open(embeddings=embeddings) as memory:
        memory.add_documents([Document(text) for text in texts], progress=None)
        found = {
            document.page_content: score
            for document, score in memory.similarity_search("ferry to the island", k=2)
        }
    question = np.array(embeddings.embed_query("ferry to the island"))
    wanted = dict(zip(texts, np.array(embeddings.embed_documents(texts)) @ question, strict=True))
    assert found == pytest.approx(wanted, abs=2e-3)
