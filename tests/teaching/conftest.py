"""Memories that can be taught: with side collections in Chroma and without, on both databases."""

from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from tables import nodes

from crabpath_retrievers import CrabPath, Settings

TEXTS = {"a": "Apples are red fruit.", "b": "The sky is blue.", "c": "Grass is green."}
QUESTION = "Which fruit is red?"
VECTORS = DeterministicFakeEmbedding(size=16)
DOCUMENTS = [Document(text, id=node) for node, text in TEXTS.items()]


class Asker:
    """Asks a memory, and looks at what it keeps."""

    def __init__(self, memory: CrabPath) -> None:
        self.memory = memory

    def ask(self, text: str = QUESTION, namespace: str = "default", k: int = 10, **options):
        """The answer to a question, deep enough to hold all that there is."""
        return self.memory.retrieve(text, namespace=namespace, k=k, **options)

    def found(self, text: str = QUESTION, namespace: str = "default", **options) -> list[str]:
        """Ids of all that a question returns, best first."""
        return [item.node.id for item in self.ask(text, namespace, **options).documents]

    def weights(self, namespace: str = "default") -> dict[tuple[str, str, str], float]:
        """Weights of all learned edges, by ids and kind."""
        store = self.memory.store
        notes = [fact.id for fact in store.notes.get_facts(self.ids())]
        ids = {key: node for node, key in store.learned.keys([*TEXTS, *notes]).items()}
        return {
            (ids[source], ids[target], kind.label): weight
            for (source, target, kind), weight in store.learned.weights(namespace, [*ids]).items()
        }

    def ids(self) -> list[str]:
        """Ids of the notes of all namespaces."""
        return [note.id for note in self.memory.store.notes.get_unindexed()]

    def facts(self, node: str):
        """What the store knows of one note; None when it is none."""
        return next(iter(self.memory.store.notes.get_facts([node])), None)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Without side collections; with those of Chroma where vectors are moved into them."""
    if "open_memory" in metafunc.fixturenames:
        moved = "index_vectors" in metafunc.fixturenames
        both = metafunc.definition.get_closest_marker("both_databases")
        fast = {"sqlite": True, "postgresql": both, "chroma": moved}
        kinds = [pytest.param(k, marks=() if v else pytest.mark.slow) for k, v in fast.items()]
        metafunc.parametrize("open_memory", kinds, indirect=True)


@pytest.fixture
def open_memory(request: pytest.FixtureRequest, tmp_path) -> Callable[..., CrabPath]:
    """Opens the memory of the test with settings, as often as wanted."""
    kind, place = request.param, str(tmp_path / "memory")
    if kind == "postgresql":
        place = request.getfixturevalue("postgres_store")
    index = None if kind == "chroma" else InMemoryVectorStore(VECTORS)

    def open_memory(**settings) -> CrabPath:
        given = Settings(**settings)
        memory = CrabPath.open(place, embeddings=VECTORS, vectors=index, settings=given)
        if not memory.info()["nodes"]:
            memory.add_documents(DOCUMENTS)
        return memory

    return open_memory


@pytest.fixture
def memory(open_memory) -> Iterator[CrabPath]:
    """Three documents under vectors that mean nothing."""
    with open_memory() as opened:
        yield opened


@pytest.fixture
def asker(memory) -> Asker:
    return Asker(memory)


@pytest.fixture
def index_vectors() -> Callable[[CrabPath], None]:
    """Moves vectors of notes and episodes into their side collections, where there are any."""

    def move(memory: CrabPath) -> None:
        memory._services.notes.catch_up()
        memory._services.episodes.catch_up()

    return move


@pytest.fixture
def asker_of() -> type[Asker]:
    return Asker


@pytest.fixture
def authority(memory) -> Callable[..., list[int]]:
    """The authority of nodes as it is stored."""

    def read(*ids: str) -> list[int]:
        with memory.store.open_reader() as connection:
            query = sa.select(nodes.c.id, nodes.c.authority).where(nodes.c.id.in_(ids))
            stored = {node: rank for node, rank in connection.execute(query)}
        return [stored[node] for node in ids]

    return read
