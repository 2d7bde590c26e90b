"""The conformance suites can fail: a broken part fails at the claim that it breaks."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from vector_table import Table

from crabpath_lab.streams import FrozenLearner, ReturnedChunk
from crabpath_lab.testing import LearnerTests
from crabpath_retrievers import CrabPath, Decision, Edge, EdgeKind, ModelUsage, RoutingResult
from crabpath_retrievers.testing import LinkerTests, RouterTests, VectorIndexTests

WITHOUT_PYTEST = """
import sys
sys.modules["pytest"] = None
try:
    import crabpath_retrievers.testing
except ImportError as error:
    print(type(error).__name__, error)
"""


def test_without_pytest_an_import_says_so():
    command = [sys.executable, "-c", WITHOUT_PYTEST]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    says = "crabpath_retrievers.testing needs pytest: pip install 'crabpath-retrievers[test]'"
    assert done.stdout == f"MissingExtraError {says}\n"


def expect_failure(request):
    """A broken part, with which the claim named beside it fails; others may fail, too."""
    part, claim = request.param
    is_broken = request.node.originalname == f"test_{claim}"
    request.applymarker(pytest.mark.xfail(strict=is_broken))
    return part


class TestTable(VectorIndexTests):
    """It passes, which shows that the others below fail for what is broken in them."""

    @pytest.fixture
    def index(self):
        return Table()


class Farthest(Table):
    def search(self, vector, k, filter=None):  # noqa: A002  the protocol's name
        return super().search(-vector, k)


class Keeping(Table):
    """What it holds is not replaced."""

    def upsert(self, ids, vectors, texts, metadatas):
        self.rows = {**dict(zip(ids, vectors, strict=True)), **self.rows}


class Strict(Table):
    def delete(self, ids):
        for each in ids:
            del self.rows[each]


class Miscounting(Table):
    def count(self):
        return 7


class Numbering(Table):
    """Ids that are numbers are kept as numbers."""

    def upsert(self, ids, vectors, texts, metadatas):
        names = [str(int(each)) if each.isdigit() else each for each in ids]
        super().upsert(names, vectors, texts, metadatas)


class Patient(Table):
    """Vectors of any dimension are compared as far as they go."""

    def search(self, vector, k, filter=None):  # noqa: A002  the protocol's name
        padded = np.zeros(32, dtype=np.float32)
        padded[: len(vector)] = vector
        return super().search(padded, k)


class Deaf(Table):
    """A filter is ignored, as if there were none."""

    def search(self, vector, k, filter=None):  # noqa: A002  the protocol's name
        return super().search(vector, k)


class Permissive(Table):
    def filter_ids(self, ids, vector, filter):  # noqa: A002  the protocol's name
        return set(ids)


class Claiming(Deaf, Permissive):
    """It says that it reads filters."""

    reads_filters = True


class TestBrokenIndexes(TestTable):
    @pytest.fixture(
        params=[
            (Farthest, "search_orders_by_cosine"),
            (Keeping, "a_known_id_replaces_its_vector"),
            (Strict, "delete_removes_only_what_is_named"),
            (Miscounting, "it_counts_and_lists_what_it_holds"),
            (Numbering, "ids_are_texts_of_any_kind"),
            (Patient, "a_vector_of_another_dimension"),
            (Deaf, "no_filter_is_ignored"),
            (Permissive, "no_filter_is_ignored"),
        ],
        ids=str,
    )
    def index(self, request):
        return expect_failure(request)()


class Overfull(Table):
    def search(self, vector, k, filter=None):  # noqa: A002  the protocol's name
        return super().search(vector, k + 1, filter)


class Doubling(Table):
    def search(self, vector, k, filter=None):  # noqa: A002  the protocol's name
        return [each for each in super().search(vector, k, filter) for _ in "ab"][:k]


class Scoring(Table):
    def search(self, vector, k, filter=None):  # noqa: A002  the protocol's name
        return [(each, 0.5) for each in super().search(vector, k, filter)]


NEAREST, IGNORED = "search must return the nearest first", "search must not ignore a filter"


@pytest.mark.parametrize(
    ("broken", "claims", "says"),
    [
        (Overfull, ["search_orders_by_cosine"], "search returned 4 ids for k=3: return at most k"),
        (Overfull, ["a_known_id_replaces_its_vector"], "search returned 2 ids for k=1"),
        (Doubling, ["search_orders_by_cosine", "ids_are_texts_of_any_kind"], "ids are repeated"),
        (
            Scoring,
            ["search_orders_by_cosine", "delete_removes_only_what_is_named"],
            "without scores",
        ),
        (Farthest, ["search_orders_by_cosine", "a_known_id_replaces_its_vector"], NEAREST),
        (Claiming, ["a_filter_restricts_the_search", "a_known_id_replaces_its_metadata"], IGNORED),
    ],
)
def test_the_message_of_a_suite_names_the_mistake(broken, claims, says):
    for claim in claims:
        with pytest.raises(AssertionError, match=says):
            getattr(VectorIndexTests(), f"test_{claim}")(broken())


def test_a_filter_that_is_ignored_is_named_with_what_it_let_through():
    with pytest.raises(
        AssertionError, match=r"^search with the filter {'lang': 'de'} must not ret"
    ):
        VectorIndexTests().test_it_finds_what_a_condition_says(Claiming(), mixes_kinds=True)


def test_an_order_is_no_mistake_of_a_deletion():
    VectorIndexTests().test_delete_removes_only_what_is_named(Farthest())


class TestUnfilteredIndexes(VectorIndexTests):
    """An index that reads no filters must not say that it does."""

    @pytest.fixture(
        params=[
            (Claiming, "no_filter_is_ignored"),
            (Claiming, "a_filter_restricts_the_search"),
            (Claiming, "a_known_id_replaces_its_metadata"),
            (Claiming, "it_finds_what_a_condition_says"),
            (Claiming, "what_is_no_condition_is_refused"),
        ],
        ids=str,
    )
    def index(self, request):
        return expect_failure(request)()


NEIGHBOURS = [Document(text, id=text[0]) for text in ("a knows b", "b knows nobody", "c knows b")]


class Knowing:
    """A sound linker: a text that says so is joined to the document whose id it names."""

    def link(self, new, store):
        for node in self.find_readers(new, store):
            for key in store.keys(node.text.split()[2:]).values():
                yield self.make_edge(node.key, key)

    def find_readers(self, new, store):
        """All texts: those that came before may name a new one."""
        known = {key for _, key in store.keys(list("abc")).items()}
        return store.nodes(sorted(known | {node.key for node in new}))

    def make_edge(self, source, target, weight=0.5):
        return Edge(source, target, EdgeKind.LINK, weight, weight / 2)


class TestKnowing(LinkerTests):
    """It passes, which shows that the others below fail for what is broken in them."""

    @pytest.fixture
    def linker(self):
        return Knowing()

    @pytest.fixture
    def documents(self):
        return NEIGHBOURS

    @pytest.fixture
    def expected_edges(self):
        return {("a", "b", "link"), ("c", "b", "link")}


class Onward(Knowing):
    """Only new texts are read."""

    def find_readers(self, new, store):
        return new


class Heavy(Knowing):
    def make_edge(self, source, target, weight=0.5):
        return super().make_edge(source, target, 1.5)


class Vain(Knowing):
    def make_edge(self, source, target, weight=0.5):
        return super().make_edge(source, source)


class Taught(Knowing):
    def make_edge(self, source, target, weight=0.5):
        return Edge(source, target, EdgeKind.TAUGHT, 0.5, 0.5)


class Forgetful(Knowing):
    """Each edge is found once."""

    def __init__(self):
        self.seen = set()

    def link(self, new, store):
        found = {*super().link(new, store)} - self.seen
        self.seen |= found
        return found


class Narrow(Knowing):
    def find_readers(self, new, store):
        for node in new:
            node.text.encode("ascii")
        return super().find_readers(new, store)


class TestBrokenLinkers(TestKnowing):
    @pytest.fixture(
        params=[
            (Onward, "edges_come_once_in_any_order"),
            (Heavy, "edges_are_between_documents_with_weights_in_range"),
            (Vain, "edges_are_between_documents_with_weights_in_range"),
            (Taught, "edges_are_between_documents_with_weights_in_range"),
            (Forgetful, "linking_again_finds_the_same_and_writes_nothing"),
            (Narrow, "odd_texts_are_linked_as_others"),
        ],
        ids=str,
    )
    def linker(self, request):
        return expect_failure(request)()


class Eager:
    """A sound router: the first edges are followed as far as the budget goes."""

    def route(self, request):
        return RoutingResult([self.decide(c, request.budget) for c in request.choices])

    async def aroute(self, request):
        return self.route(request)

    def decide(self, choice, budget):
        return self.follow(range(len(choice.edges))[:budget], len(choice.edges))

    def follow(self, followed, count):
        chances = np.full(count + 1, 1 / (count + 1))
        return Decision(tuple(followed), stopped=False, probabilities=chances, decided_by="policy")


class TestEager(RouterTests):
    """It passes, which shows that the others below fail for what is broken in them."""

    @pytest.fixture
    def make_router(self):
        return Eager


class Lavish(Eager):
    def decide(self, choice, budget):
        return super().decide(choice, budget + 1)


class Certain(Eager):
    def follow(self, followed, count):
        return replace(super().follow(followed, count), probabilities=np.ones(count + 1))


class Unstopping(Eager):
    """STOP has no probability."""

    def follow(self, followed, count):
        return super().follow(followed, count - 1)


class Silent(Eager):
    """Nodes with one edge get no decision."""

    def route(self, request):
        choices = [choice for choice in request.choices if len(choice.edges) > 1]
        return RoutingResult([self.decide(choice, request.budget) for choice in choices])


class Late(Eager):
    async def aroute(self, request):
        return super().route(replace(request, budget=1))


class Insisting(Eager):
    """At least one node is decided upon."""

    def route(self, request):
        return RoutingResult([self.decide(request.choices[0], 1), *super().route(request)[0][1:]])


class Rejecting(Eager):
    def route(self, request):
        return super().route(request)._replace(dropped=frozenset({99}))


class Unpriced(Eager):
    def route(self, request):
        return super().route(request)._replace(usage=ModelUsage(cost_usd=float("nan")))


class Tired(Eager):
    """A router for one turn."""

    def route(self, request):
        if hasattr(self, "used"):
            return RoutingResult([])
        self.used = True
        return super().route(request)


class TestBrokenRouters(RouterTests):
    @pytest.fixture(
        params=[
            (Lavish, "every_choice_gets_its_decision"),
            (Certain, "every_choice_gets_its_decision"),
            (Unstopping, "every_choice_gets_its_decision"),
            (Silent, "a_router_decides_again_and_again"),
            (Late, "async_decides_as_sync"),
            (Insisting, "nothing_to_decide_is_no_decision"),
            (Rejecting, "it_speaks_of_nodes_that_it_was_offered"),
            (Unpriced, "its_usage_can_be_stored"),
            (Tired, "a_router_decides_again_and_again"),
        ],
        ids=str,
    )
    def make_router(self, request):
        return expect_failure(request)


class Level:
    """A sound learner that learns nothing: documents in the order of the vectors."""

    def __init__(self, frozen):
        self.frozen = frozen

    def rank(self, query, vector, k):
        return self.frozen.rank(query, vector, k)

    def learn(self, lesson):
        """It has no turns."""

    def correct(self, lesson, right):
        """There is nothing to take back."""


class TestLevel(LearnerTests):
    """It passes, which shows that the others below fail for what is broken in them."""

    @pytest.fixture
    def make_learner(self):
        return Level

    @pytest.fixture
    def takes_back(self):
        return True


class Generous(Level):
    def rank(self, query, vector, k):
        return super().rank(query, vector, k + 1)


class Picky(Level):
    """Feedback has to say what was used."""

    def learn(self, lesson):
        assert len(lesson.signal.used) >= 0


class Stubborn(Level):
    def correct(self, lesson, right):
        raise NotImplementedError


class Grudging(Level):
    """The documents of a lesson that was wrong are never returned first again."""

    worst = frozenset()

    def rank(self, query, vector, k):
        found = super().rank(query, vector, k)
        return sorted(found, key=lambda one: one.chunk in self.worst)

    def correct(self, lesson, right):
        self.worst = {lesson.ranked[0].chunk}


class Recording(Level):
    def learn(self, lesson):
        self.frozen.memory.teach("A note.", namespace="learned")


class Distorting(Level):
    """Each ranking is wrong in one way."""

    def rank(self, query, vector, k):
        return self.distort(super().rank(query, vector, k))


class Repeating(Distorting):
    def distort(self, found):
        return [found[0], *found[:-1]]


class Mute(Distorting):
    def distort(self, found):
        return []


class Unsure(Distorting):
    def distort(self, found):
        return [one._replace(odds=float("nan")) for one in found]


class Inventing(Distorting):
    def distort(self, found):
        return [one._replace(chunk=ReturnedChunk("invented", "invented")) for one in found[:1]]


class Counting(Level):
    def learn(self, lesson):
        return 42


CLAIMS_OF_LEARNERS = (
    "it_ranks_the_best_documents",
    "it_learns_from_feedback_of_every_kind",
    "every_lesson_can_be_corrected",
    "it_leaves_no_trace_in_the_memory",
)


class TestBrokenLearners(LearnerTests):
    @pytest.fixture(
        params=[
            (Generous, "it_ranks_the_best_documents"),
            (Repeating, "it_ranks_the_best_documents"),
            *((Mute, claim) for claim in CLAIMS_OF_LEARNERS),
            (Unsure, "it_ranks_the_best_documents"),
            (Inventing, "it_ranks_the_best_documents"),
            (Counting, "it_learns_from_feedback_of_every_kind"),
            (Picky, "it_learns_from_feedback_of_every_kind"),
            (Stubborn, "every_lesson_can_be_corrected"),
            (Grudging, "a_corrected_learner_ranks_as_one_that_was_never_wrong"),
            (Recording, "it_leaves_no_trace_in_the_memory"),
        ],
        ids=str,
    )
    def make_learner(self, request):
        return expect_failure(request)

    @pytest.fixture
    def takes_back(self):
        return True


@pytest.mark.slow
@pytest.mark.parametrize("claim", CLAIMS_OF_LEARNERS)
def test_an_empty_ranking_is_named(claim, tmp_path):
    embedder = DeterministicFakeEmbedding(size=16)
    vectors = InMemoryVectorStore(embedder)
    with CrabPath.open(tmp_path, embeddings=embedder, vectors=vectors) as memory:
        memory.add_documents([Document(f"Text {n}.", id=f"d{n}") for n in range(8)])
        options = {"writes": False} if claim == "it_leaves_no_trace_in_the_memory" else {}
        test = getattr(LearnerTests(), f"test_{claim}")
        with pytest.raises(AssertionError, match=r"^rank must find documents for k=\d, and ret"):
            test(Mute, FrozenLearner(memory, distinct=False), **options)
