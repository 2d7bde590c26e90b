"""Memories that are maintained, and what can be seen of them."""

from hashlib import sha256

import numpy as np
import sqlalchemy as sa
import tables as s
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from crabpath_retrievers import EdgeKind
from tests.seams import make_change

QUESTION = "how do I deploy the service to the cluster?"
STEPS = (
    "Run the tests before you deploy the service to the cluster, then wait until the build is "
    "green, announce it in the channel, press the release button and watch the dashboard."
)
TWINS = [
    Document(STEPS, id="new", metadata={"source": "b.md"}),
    Document("The *red* panda eats bamboo in the mountains.", id="panda"),
    Document(f"{STEPS}\n", id="old", metadata={"source": "a.md"}),
    Document("A database keeps rows; an index finds them.", id="rows"),
]


class Bag(Embeddings):
    """Texts by their words: near where they share most of them."""

    def embed_query(self, text: str) -> list[float]:
        """Counts of words, in 256 numbers."""
        found = np.zeros(256)
        for word in text.lower().split():
            found[int(sha256(word.strip(".,!").encode()).hexdigest()[:8], 16) % 256] += 1.0
        return list(found / max(1.0, float(np.linalg.norm(found))))

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


def ids(memory, question=QUESTION, k=6, **options):
    """What a query returns, best first."""
    answer = memory.retrieve(question, k=k, record=False, **options)
    return [item.node.id for item in answer.documents]


def key_of(memory, node):
    return memory.store.learned.keys([node])[node]


def delta(memory, source, target, weight, kind=EdgeKind.CO_USED):
    return make_change("WeightDelta", key_of(memory, source), key_of(memory, target), kind, weight)


def weights(memory, source, namespace="ann"):
    """Learned weights that leave a document, by kind and target."""
    with memory.store.connect() as connection:
        rows = connection.execute(sa.select(s.nodes.c.key, s.nodes.c.id))
        names = {key: node for key, node in rows}
    found = memory.store.learned.weights(namespace, [key_of(memory, source)])
    return {(kind.label, names.get(to)): weight for (_, to, kind), weight in found.items()}
