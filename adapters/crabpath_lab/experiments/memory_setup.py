"""Memories for experiments, and access to what they have learned."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from crabpath_lab.scratch import open_scratch
from crabpath_retrievers import CrabPath, Settings
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE
from crabpath_retrievers.core.records import TYPED_KINDS, EdgeKind

UNTAUGHT = "static"
"""A namespace that answers questions and never gets feedback."""

_WALKED = tuple(kind.label for kind in EdgeKind if kind not in {*TYPED_KINDS, EdgeKind.STOP})


@contextmanager
def open_memory(
    texts: Mapping[str, str],
    embeddings: Embeddings,
    settings: Settings | None = None,
    titles: Collection[str] = (),
) -> Iterator[CrabPath]:
    """Open a temporary memory of pages, each a source with one document of the page's id.

    What stands before a slash in an id is where the page stands, the rest is its title.

    Args:
        texts: Pages by id.
        embeddings: The embedder.
        settings: Other settings than the usual ones.
        titles: Pages whose id is their title, under which other pages may mention them.
    """
    with open_scratch(embeddings=embeddings, settings=settings) as memory:
        memory.add_documents(make_documents(texts, titles), split=False)
        yield memory


def make_documents(texts: Mapping[str, str], titles: Collection[str] = ()) -> list[Document]:
    """Make documents of the pages."""
    return [
        Document(text, id=name, metadata={"source": name, **_title_metadata(name, titles)})
        for name, text in texts.items()
    ]


def _title_metadata(name: str, titles: Collection[str]) -> dict[str, str]:
    place, _, rest = name.rpartition("/")
    return {"title": rest} if place or name in titles else {}


def strongest_weights(
    memory: CrabPath, node: str, *kinds: str, namespace: str = DEFAULT_NAMESPACE
) -> dict[str, float]:
    """Read the strongest weight from a node to each other; without kinds, of all walked ones."""
    found: dict[str, float] = {}
    for other in memory.graph.neighbors(node, kinds or _WALKED, namespace=namespace):
        found[other.id] = max(other.weight, found.get(other.id, other.weight), key=abs)
    return found


def co_use_weights(
    memory: CrabPath, nodes: Iterable[str], namespace: str = DEFAULT_NAMESPACE
) -> dict[tuple[str, str], float]:
    """Read the edges made by joint use, from and to, with their effective weights."""
    return {
        (node, other): weight
        for node in nodes
        for other, weight in strongest_weights(memory, node, "co_used", namespace=namespace).items()
    }


def shuffle_pages(draws: np.random.Generator, *texts: Mapping[str, str]) -> dict[str, str]:
    """Shuffle all pages into the order in which they reach the memory."""
    pages = [(name, text) for of in texts for name, text in of.items()]
    return dict(pages[int(place)] for place in draws.permutation(len(pages)))


def sample_pages(
    draws: np.random.Generator, texts: Mapping[str, str], number: int
) -> dict[str, str]:
    """Draw some of the pages, to fill a memory with."""
    return dict(list(shuffle_pages(draws, texts).items())[:number])
