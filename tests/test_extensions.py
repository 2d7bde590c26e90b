"""What an extension must not return is refused in a sentence that names it; filters never leak."""

import asyncio
from dataclasses import replace
from uuid import uuid4

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore
from vector_table import Table

from crabpath_retrievers import (
    ConfigurationError,
    CrabPath,
    Decision,
    Edge,
    EdgeKind,
    InvalidInputError,
    ModelUsage,
    RoutingResult,
    Settings,
)
from crabpath_retrievers.integration import StoreKind

PLAIN = DeterministicFakeEmbedding(size=8)


class Shelf(Table):
    """Sound, but that it ignores filters."""

    description = "a shelf"

    def search(self, vector, k, filter=None):  # noqa: A002  the protocol's name
        return super().search(vector, k)

    def filter_ids(self, ids, vector, filter):  # noqa: A002  the protocol's name
        return set(ids)


class Linked:
    """Joins each new text with the first one."""

    def link(self, new, store):
        (first, *_) = sorted(store.keys(["0", "1", "2"]).values())
        for node in new:
            if node.key != first:
                yield Edge(first, node.key, EdgeKind.LINK, 0.3, 0.2)


class Uniform:
    """Follows as many edges as the budget permits."""

    def route(self, request):
        return RoutingResult([self.decide(c, request.budget) for c in request.choices])

    async def aroute(self, request):
        return self.route(request)

    def decide(self, choice, budget):
        count = len(choice.edges)
        chances = np.full(count + 1, 1 / (count + 1))
        return Decision(
            tuple(range(count))[:budget], stopped=False, probabilities=chances, decided_by="policy"
        )


@pytest.fixture
def open_memory(tmp_path):
    """A function that opens a memory of three texts of two owners; the vectors are on a shelf."""
    opened = []

    def open_with(budget=2, **parts):
        # A walk may enter again what search has found, so that there is something to decide.
        settings = Settings(walk={"max_visits_per_node": 2, "max_new_nodes": budget})
        given = {"vectors": Shelf(), "linkers": [Linked()], "settings": settings, **parts}
        opened.append(CrabPath.open(tmp_path / "m", embeddings=PLAIN, **given))
        pages = [
            Document(f"Page {n}", id=str(n), metadata={"owner": "ab"[n % 2]}) for n in range(3)
        ]
        opened[0].add_documents(pages)
        return opened[0]

    yield open_with
    for memory in opened:
        memory.close()


@pytest.mark.parametrize("confined", [True, False])
def test_an_index_that_ignores_filters_leaks_nothing(open_memory, confined):
    """The memory refuses a filter, unless the index says that it reads filters."""
    memory = open_memory()
    for options in ({}, {"seed_ids": ["1"]}, {"candidate_ids": ["1"]}):
        with pytest.raises(InvalidInputError, match="a shelf: filters are not read here"):
            memory.retrieve("Page 1", filter={"owner": "a"}, confined=confined, **options)
    assert len(memory.retrieve("Page 1", k=3, filter={}).documents) == 3
    assert memory.info()["turns"] == 1


class Claiming(Shelf):
    """It says that it reads filters, and ignores them."""

    reads_filters = True


class Forgetful(InMemoryVectorStore):
    """A store that takes any argument, and ignores the filter."""

    def similarity_search_by_vector(self, embedding, k=4, **_):
        return super().similarity_search_by_vector(embedding, k)


class ForgetfulKind(StoreKind, of="Forgetful"):
    """A kind that translates filters."""

    def translate(self, condition):
        return condition


class Unknown(VectorStore):
    """A store without a kind, whose filters are in its own language: here it ignores them."""

    def __init__(self):
        self.inner = Forgetful(PLAIN)

    @classmethod
    def from_texts(cls, *_, **__):
        raise NotImplementedError

    def add_documents(self, documents, **options):
        return self.inner.add_documents(documents, **options)

    def similarity_search(self, query, k=4, **_):
        raise NotImplementedError

    def similarity_search_by_vector(self, embedding, k=4, **_):
        return self.inner.similarity_search_by_vector(embedding, k)


def find_ids(memory, **options):
    return {found.node.id for found in memory.retrieve("Page 1", k=3, **options).documents}


@pytest.mark.parametrize("confined", [True, False])
@pytest.mark.parametrize(
    "make", [Claiming, lambda: Forgetful(PLAIN), Unknown], ids=["index", "kind", "unknown store"]
)
def test_what_a_filter_does_not_allow_is_left_out(open_memory, make, confined):
    """An index or store that ignores filters leaks nothing."""
    memory = open_memory(vectors=make())
    assert find_ids(memory) == {"0", "1", "2"}
    for owner, ids in (("a", {"0", "2"}), ("b", {"1"}), ("nobody", set())):
        condition = {"owner": owner}
        assert find_ids(memory, filter=condition, confined=confined) == ids
        assert find_ids(memory, filter=condition, candidate_ids=["0", "1"]) == ids - {"2"}


def test_a_leak_is_logged_once(open_memory, caplog):
    name = f"Index{uuid4().hex}"
    memory = open_memory(vectors=type(name, (Claiming,), {})())
    for owner in "ab":
        memory.retrieve("Page 1", filter={"owner": owner})
    (said,) = [text for text in caplog.messages if name in text]
    assert said.startswith(f"{name} returned documents that the filter does not allow")


@pytest.mark.parametrize(
    "condition", [{"metadata.owner": "a"}, {"term": {"owner": "a"}}, {"tags": "x"}], ids=str
)
def test_a_filter_in_the_own_language_of_a_store_is_left_to_it(open_memory, condition):
    memory = open_memory(vectors=Unknown())
    memory.add_documents([Document("Page 3", id="3", metadata={"tags": ["x", "y"]})])
    assert len(find_ids(memory, filter=condition)) == 3


@pytest.mark.parametrize(
    "found",
    [None, [("0", 0.9)], [0], {"0": 0.9}, "012", np.array(["0"])],
    ids=str,
)
def test_an_index_must_return_ids(open_memory, found):
    class Odd(Shelf):
        def search(self, vector, k, filter=None):  # noqa: A002  the protocol's name
            return found

    memory = open_memory(vectors=Odd())
    with pytest.raises(InvalidInputError, match=r"^Odd must return a list of ids, .* from search"):
        memory.retrieve("Page 1")


@pytest.mark.parametrize("found", [None, [True], ["0"], {("0", 0.9)}], ids=str)
def test_a_filtering_index_must_return_a_set_of_ids(open_memory, found):
    class Odd(Shelf):
        reads_filters = True

        def filter_ids(self, ids, vector, filter):  # noqa: A002  the protocol's name
            return found

    memory = open_memory(vectors=Odd())
    with pytest.raises(InvalidInputError, match=r"^Odd must return a set of ids, .* filter_ids"):
        memory.retrieve("Page 1", k=1, filter={"owner": "a"})


EDGE = Edge(1, 2, EdgeKind.LINK, 0.5, 0.2)


@pytest.mark.parametrize(
    "found",
    [
        None,
        5,
        [5],
        [("0", "1")],
        [None],
        [replace(EDGE, source="0")],
        [replace(EDGE, kind=EdgeKind.CO_USED)],
        [replace(EDGE, kind="link")],
        [replace(EDGE, prior=1.5)],
        [replace(EDGE, floor=float("nan"))],
        [replace(EDGE, prior="high")],
    ],
    ids=str,
)
def test_a_linker_must_return_edges(open_memory, found):
    class Odd:
        def link(self, new, store):
            return found

    with pytest.raises(InvalidInputError, match="Odd must return edges with keys of nodes, a kind"):
        open_memory(linkers=[Odd()])


def _change(**changes):
    class Odd(Uniform):
        def decide(self, choice, budget):
            return replace(super().decide(choice, budget), **changes)

    return Odd()


def _answer(answer):
    class Odd(Uniform):
        def route(self, request):
            return answer(super().route(request))

    return Odd()


@pytest.mark.parametrize(
    ("router", "sign"),
    [
        (_answer(lambda _: None), r"RoutingResult\(\[...\]\), not None"),
        (_answer(lambda routed: routed.decisions), r"RoutingResult\(\[...\]\), not \["),
        (_answer(lambda _: RoutingResult([])), "one Decision for each of 1 choices, in order"),
        (_answer(lambda routed: routed._replace(decisions=[(0,)])), "one Decision for each of 1"),
        (_answer(lambda routed: routed._replace(decisions=None)), "one Decision for each of 1"),
        (_answer(lambda routed: routed._replace(notes="why")), "notes that are a tuple of texts"),
        (_answer(lambda routed: routed._replace(chosen=[1])), "chosen and dropped nodes as froz"),
        (_answer(lambda routed: routed._replace(usage=None)), "ModelUsage of finite numbers"),
        (
            _answer(lambda routed: routed._replace(usage=ModelUsage(cost_usd=float("nan")))),
            "ModelUsage of finite numbers",
        ),
        (_change(followed=(7,)), r"followed with distinct indices below 2, not \(7,\)"),
        (_change(followed=(-1,)), "followed with distinct indices below 2"),
        (_change(followed=(0, 0)), "followed with distinct indices below 2"),
        (_change(followed=(0.0,)), "followed with distinct indices below 2"),
        (_change(followed=None), "followed with distinct indices below 2"),
        (_change(probabilities=np.ones(3)), "3 probabilities in an array, .* that sum to 1"),
        (_change(probabilities=np.ones(1)), "3 probabilities in an array, .* that sum to 1"),
        (_change(probabilities=np.array([0.5, np.nan, 0.5])), "3 probabilities in an array"),
        (_change(probabilities=np.array([1.5, -0.5, 0.0])), "3 probabilities in an array"),
        (_change(probabilities=[0.5, 0.5, 0.0]), "3 probabilities in an array"),
        (_change(probabilities=None), "3 probabilities in an array"),
        (_change(decided_by="oracle"), "decided_by as one of .*'policy'.*, not 'oracle'"),
        (_change(stopped=None), "stopped as a bool"),
    ],
)
def test_a_router_must_decide_as_asked(open_memory, router, sign):
    """Sync and async, before anything is recorded."""
    memory = open_memory(router=router)
    for ask in (memory.retrieve, lambda text: asyncio.run(memory.aio.retrieve(text))):
        with pytest.raises(InvalidInputError, match=f"^Odd must return {sign}"):
            ask("Page 0")
    assert memory.info()["turns"] == 0


def test_a_router_must_keep_the_budget(open_memory):
    class Lavish(Uniform):
        def decide(self, choice, budget):
            return super().decide(choice, budget + 1)

    memory = open_memory(budget=1, router=Lavish())
    with pytest.raises(InvalidInputError, match="Lavish must return at most 1 edges to follow"):
        memory.retrieve("Page 0")


def test_a_sound_router_and_linker_are_used(open_memory):
    answer = open_memory(router=Uniform()).retrieve("Page 0", k=3)
    assert [step.decided_by for step in answer.turn.steps] == ["policy"]


@pytest.mark.parametrize(
    ("given", "error", "sign"),
    [
        ({"router": 5}, InvalidInputError, "not a int: .* with the methods route and aroute"),
        ({"router": Uniform}, InvalidInputError, "not the class Uniform itself: "),
        ({"linkers": [5]}, InvalidInputError, "the method link, without a int"),
        ({"linkers": [Linked]}, InvalidInputError, "without the class Linked itself"),
        ({"vectors": Shelf}, ConfigurationError, "cannot be the class Shelf itself: pass"),
    ],
)
def test_what_is_no_extension_is_refused_at_once(tmp_path, given, error, sign):
    with pytest.raises(error, match=sign):
        CrabPath.open(tmp_path / "m", embeddings=PLAIN, **given)
