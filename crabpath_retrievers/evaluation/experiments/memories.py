"""Memories to play in, and what they have learned."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from crabpath_retrievers.config import Settings
from crabpath_retrievers.graph import TYPED_KINDS, EdgeKind
from crabpath_retrievers.memory import CrabPath
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE

STATIC = "static"
"""A namespace that is asked and never told anything."""

_WALKED = tuple(kind.label for kind in EdgeKind if kind not in {*TYPED_KINDS, EdgeKind.STOP})


@contextmanager
def memory_of(
    texts: Mapping[str, str], embeddings: Embeddings, settings: Settings | None = None
) -> Iterator[CrabPath]:
    """A temporary memory of pages, each a source and one document with the id of its page.

    What stands before a slash in the name of a page is where it stands, the rest is its title.
    """
    with CrabPath.open(embeddings=embeddings, settings=settings) as memory:
        memory.add_documents([_page(name, text) for name, text in texts.items()], split=False)
        yield memory


def _page(name: str, text: str) -> Document:
    metadata = {"source": name}
    if "/" in name:
        metadata["title"] = name.split("/", 1)[1]
    return Document(text, id=name, metadata=metadata)


def weights(
    memory: CrabPath, node: str, *kinds: str, namespace: str = DEFAULT_NAMESPACE
) -> dict[str, float]:
    """The strongest effective weight of the edges that lead from a node to each other one.

    Args:
        memory: Whose.
        node: Id of the node.
        kinds: Of edges; none for all that a walk follows.
        namespace: Who asks.
    """
    found: dict[str, float] = {}
    for other in memory.typed_neighbors(node, kinds or _WALKED, namespace=namespace):
        found[other.id] = max(other.weight, found.get(other.id, other.weight), key=abs)
    return found
