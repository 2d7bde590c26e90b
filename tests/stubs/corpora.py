"""Corpora with edges of all kinds, and the graph of a memory by ids."""

from typing import NamedTuple

import sqlalchemy as sa
from langchain_core.documents import Document

from crabpath_retrievers import EdgeKind
from crabpath_retrievers.storage.schema import edges, nodes

_FIRST = (
    "Alma",
    "Bruno",
    "Clara",
    "Dario",
    "Elsa",
    "Fabio",
    "Greta",
    "Henrik",
    "Irene",
    "Jonas",
    "Karin",
    "Lorenz",
)
_LAST = (
    "Abel",
    "Brandt",
    "Conti",
    "Dorn",
    "Eder",
    "Falk",
    "Grimm",
    "Holm",
    "Ibsen",
    "Jung",
    "Kern",
    "Lang",
    "Moser",
)
_PLACES = ("Harbour", "Valley", "Abbey", "Forge", "Orchard", "Quarry", "Terrace", "Viaduct")


class Graph(NamedTuple):
    """Ids of the nodes with their mentions, and edges by ids and kind."""

    nodes: frozenset[tuple[str, int]]
    edges: frozenset[tuple[str, str, str]]


def make_linked_corpus(count: int) -> list[Document]:
    """Pages of Markdown that name, link and share terms with each other, some of two sections."""
    return [_make_page(number, count) for number in range(count)]


def _make_page(number: int, count: int) -> Document:
    def name(page: int) -> str:
        page %= count
        return f"{_FIRST[page % 12]} {_LAST[page % 13]}{'' if page < 156 else ' Junior'}"

    place = f"{_PLACES[number % 8]} House"
    text = (
        f"{name(number)} met {name(7 * number + 3)} at Old {place} in room R{number // 4}b. "
        f"Their letters name Lake {_LAST[number % 13]} and the {_FIRST[number // 20]} Society. "
        f"See [the next page]({(number * 5 + 1) % count}.md) about {name(number + 1)}."
    )
    if number % 3 == 0:
        text += f"\n\n## {place} {number}\n\nMore on {name(2 * number)} and code X{number // 5}q."
    metadata = {"title": name(number), "source": f"{number}.md"}
    return Document(text, metadata=metadata)


def read_graph(memory: object) -> Graph:
    """The nodes and edges of a memory."""
    source, target = nodes.alias(), nodes.alias()
    query = (
        sa.select(source.c.id, target.c.id, edges.c.kind)
        .join(source, source.c.key == edges.c.source)
        .join(target, target.c.key == edges.c.target)
    )
    with memory.store.connect() as connection:  # type: ignore[attr-defined]
        found = connection.execute(query).all()
        known = connection.execute(sa.select(nodes.c.id, nodes.c.mentions)).all()
    return Graph(
        frozenset((node, mentions) for node, mentions in known),
        frozenset((a, b, EdgeKind(kind).label) for a, b, kind in found),
    )
