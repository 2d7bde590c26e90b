"""Two hundred questions over real passages, before and after a memory has travelled."""

import pytest

from crabpath_retrievers import CrabPath, Feedback, migrate
from crabpath_retrievers.demo import sample

pytestmark = pytest.mark.slow

ASKED = 30  # questions whose passages are held; the others miss theirs


def learn(memory, data):
    """Let it answer every question once, and tell it what was used."""
    for name, text in data.queries.items():
        answer = memory.retrieve(text, k=5)
        used = [d.node.id for d in answer.documents if d.node.id in data.qrels[name]]
        memory.record(Feedback(answer.turn.id, 1.0 if used else -1.0, used=used or None))


def answers(memory, asked):
    """Ids in their order, with scores."""
    found = (memory.retrieve(text, k=10, vector=v, record=False) for text, v in asked)
    return [[(item.node.id, item.score) for item in answer.documents] for answer in found]


@pytest.fixture(scope="module")
def travelled(tmp_path_factory, embeddings):
    """A memory that has learned, what it answers, and its archive."""
    data, place = sample(), tmp_path_factory.mktemp("real")
    held = set().union(*list(data.qrels.values())[:ASKED])
    passages = [document for document in data.documents if document.id in held]
    titles = [str(document.metadata["title"]) for document in passages]
    forms = ("What is {}?", "{}", "Who knows {}?")
    texts = [*data.queries.values(), *(form.format(t) for form in forms for t in titles)][:200]
    with CrabPath.open(place / "here", embeddings=embeddings) as memory:
        memory.add_documents(passages, split=False)
        learn(memory, data)
        memory.teach("Ed Wood was filmed in black and white.", query=texts[0])
        memory.learn_waiting()
        asked = list(zip(texts, memory.embedder.documents(texts), strict=True))
        before = answers(memory, asked)
        memory.export(place / "all")
    assert len(before) == 200
    return place, asked, before


def test_archive(travelled, embeddings, tmp_path):
    """From SQLite to SQLite."""
    place, asked, before = travelled
    with CrabPath.open(tmp_path, embeddings=embeddings) as there:
        there.import_archive(place / "all")
        assert answers(there, asked) == before


def test_through_postgresql(travelled, embeddings, postgres_url, tmp_path):
    """From SQLite to PostgreSQL and back."""
    place, asked, before = travelled
    migrate(place / "here", postgres_url, vectors=str(tmp_path / "vectors"))
    migrate(postgres_url, tmp_path / "back")
    with CrabPath.open(tmp_path / "back", embeddings=embeddings) as there:
        assert answers(there, asked) == before
