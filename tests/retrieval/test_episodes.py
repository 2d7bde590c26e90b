"""Episodes: successes that similar questions recall, forgotten with their namespace."""

from copy import copy

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, Feedback, MemoryMaintenance, Settings
from crabpath_retrievers.config import MaintenanceSettings
from crabpath_retrievers.core.text import QueryInformation
from crabpath_retrievers.rerank import FEATURES, Reliability
from crabpath_retrievers.retrieval.episodes import EpisodeQuery, score_turns
from crabpath_retrievers.retrieval.namespace_model import NamespaceModel
from crabpath_retrievers.vectors.embedder import to_unit_vector
from tests.seams import get_services, set_bounds

ASKED = "Which orchard grows the crimson apple variety"
ALIKE = "Orchard grows plum variety abroad"
OTHER_WORDS = "something with other words entirely different"


@pytest.fixture
def memory(tmp_path):
    with CrabPath.open(tmp_path, embeddings=DeterministicFakeEmbedding(size=16)) as memory:
        memory.add_documents([Document(f"text {i}", id=i) for i in "abc"], split=False)
        yield memory


def learn(memory, namespace, query="what is it?"):
    """A success that used one document; its vector is searchable at once."""
    answer = memory.retrieve(query, k=3, namespace=namespace)
    memory.record(Feedback(answer.turn.id, 1.0, used=["b"]))
    get_services(memory).episodes.catch_up()


def count_near(memory, namespace, query="what is it?"):
    """How many episodes a query recalls."""
    clock = memory.store.walk.get_clock(namespace)
    return len(
        get_services(memory).episodes.near(memory.store, memory.embedder.query(query), clock)
    )


def test_a_namespace_starts_afresh_after_it_was_forgotten(memory):
    """Its collection is deleted, those of others stay, and nothing is kept under its old key."""
    for namespace in ("ann", "bob"):
        learn(memory, namespace)
    before = memory.store.walk.get_clock("ann").key
    memory.forget(namespace="ann")
    assert memory.index.open_sibling(f"episodes-{before}").count() == 0
    assert count_near(memory, "bob") == 1
    learn(memory, "ann", "something else entirely?")
    assert memory.store.walk.get_clock("ann").key > before
    assert count_near(memory, "ann") == 1


def test_forgetting_a_namespace_that_never_learned_opens_no_collection(memory, monkeypatch):
    memory.retrieve("what is it?", namespace="ann")
    opened = []
    monkeypatch.setattr(type(memory.index), "open_sibling", lambda _, name: opened.append(name))
    memory.forget(namespace="ann")
    assert opened == []


@pytest.mark.parametrize("how", ["undo", "forget"])
@pytest.mark.parametrize("kind", ["episodes", "notes"])
def test_what_is_taken_back_while_it_is_indexed_leaves_no_vector(memory, monkeypatch, kind, how):
    turn = memory.retrieve("what is it?", k=3, namespace="ann").turn
    memory.record(Feedback(turn.id, -1.0, used=["b"], correction="It is c.", namespace="ann"))
    indexed = getattr(get_services(memory), kind)
    key, beside = memory.store.walk.get_clock("ann").key, type(memory.index).open_sibling

    def take_back_first(index, name):
        indexing.undo()
        if how == "undo":
            memory.undo(turn_id=turn.id)
        else:
            memory.forget(namespace="ann")
        return beside(index, name)

    store = memory.store
    assert store.learned.count_unindexed_episodes() or store.notes.count_unindexed()
    with monkeypatch.context() as indexing:
        indexing.setattr(type(memory.index), "open_sibling", take_back_first)
        indexed.catch_up()
        assert type(memory.index).open_sibling is beside  # it was taken back
    assert memory.index.open_sibling(f"{kind}-{key}").count() == 0


def test_vectors_of_forgotten_episodes_are_deleted_once_a_search_met_them(memory, monkeypatch):
    """Maintenance, which has no index, left them."""
    set_bounds(monkeypatch, episodes_compared=0)
    for query in ("what is it?", "something else?", "who was there?"):
        learn(memory, "default", query)
    services = copy(get_services(memory))
    services.settings = Settings(maintenance=MaintenanceSettings(max_feedback=1))
    MemoryMaintenance(services).run(["compact"])
    key = memory.store.walk.get_clock("default").key
    vectors = memory.index.open_sibling(f"episodes-{key}")
    assert vectors.count() == 3
    assert count_near(memory, "default") == 1
    learn(memory, "default", "and now?")
    assert vectors.count() == 2


def test_feedback_extends_the_episode_of_its_question_without_a_search(memory, monkeypatch):
    """Capitals and marks make no other question."""
    learn(memory, "default", "something else?")
    key = memory.store.walk.get_clock("default").key
    turns = [memory.retrieve(query, k=3).turn.id for query in ("what is it?", "What is it")]
    monkeypatch.setattr(get_services(memory).episodes, "near", None)
    for turn in turns:
        memory.record(Feedback(turn, 1.0, used=["b"]))
    assert sorted(e.turns for e in memory.store.learned.latest_episodes(key, 9)) == [1.0, 2.0]


def turn_towards(base, cosine):
    """A unit vector at this cosine to another one."""
    other = np.zeros_like(base)
    other[int(np.argmin(np.abs(base)))] = 1.0
    other -= (other @ base) * base
    return to_unit_vector(cosine * base + np.sqrt(1 - cosine**2) * other / np.linalg.norm(other))


SAME = {"a": (0, 1, 0, 0), "b": (1, 0, 0, 0), "c": (0, 1, 0, 0)}
"""Uses and passes by the same question, then by similar ones."""


def of_similar(weight):
    """What a similar question tells of one document that it used and two that it did not."""
    return {"a": (0, 0, 0, weight), "b": (0, 0, weight, 0), "c": (0, 0, 0, weight)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("used", "text", "cosine", "idf", "expected"),
    [
        pytest.param(["b"], ASKED, 1.0, None, SAME, id="the same"),
        # Three of five and seven words: ((.8 + 3 / √35) / 2)^8.
        pytest.param(["b"], ALIKE, 0.8, None, of_similar(0.1824), id="similar"),
        pytest.param(
            ["b"], OTHER_WORDS, 0.85, None, of_similar(0.0326), id="its vector alone says little"
        ),
        pytest.param(None, ALIKE, 0.8, None, {}, id="a bare outcome: no similar question"),
        pytest.param(
            ["b"], "Which orchard grows crimson apple", 0.5, None, SAME, id="nearly its words"
        ),
        pytest.param(
            ["b"],
            "Which grows",
            0.5,
            {"which": 0.5, "grows": 1.0},
            of_similar(0.0716),
            id="common words are not the same question",
        ),
        pytest.param(
            ["b"],
            "Which orchard has Zanzibar Xyzzy Quux",
            0.5,
            {"orchard": 5.0},
            of_similar(0.0218),
            id="words unknown to the corpus count as the rarest",
        ),
        # Three of 21 nats, and of seven words: ((.8 + √(3 / 21 · 3 / 7)) / 2)^8.
        pytest.param(
            ["b"],
            ALIKE,
            0.8,
            {"plum": 9.0, "abroad": 9.0, "orchard": 1.0, "grows": 1.0, "variety": 1.0},
            of_similar(0.0752),
            id="phrases of many questions say little",
        ),
        pytest.param(["b"], "unrelated words of another matter", 0.3, None, {}, id="far"),
    ],
)
def test_what_a_question_recalls_of_a_success(memory, used, text, cosine, idf, expected):
    memory.record(Feedback(memory.retrieve(ASKED, k=3).turn.id, 1.0, used=used))
    vector = turn_towards(to_unit_vector(memory.embedder.query(ASKED)), cosine)
    words = QueryInformation.from_idf(idf or dict.fromkeys(text.lower().split(), 5.0))
    asking = EpisodeQuery(text, vector, words)
    recalled = get_services(memory).episodes.recall(
        memory.store, asking, memory.store.walk.get_clock("default")
    )
    heads = memory.store.walk.get_nodes(["a", "b", "c"])
    heads = [head._replace(vector=heads[0].vector) for head in heads]  # none overtakes another
    scores = score_turns(recalled, heads, asking, words, stretch=1.0)
    said = {node: score[:4] for node, score in scores.items()}
    assert said == {node: pytest.approx(turns, abs=2e-4) for node, turns in expected.items()}


@pytest.mark.parametrize(
    ("outcome", "source", "uses"), [(1, "harvested", 0.3), (0.5, "human", 0.5)]
)
def test_a_weak_success_is_a_weak_use_and_no_pass(memory, outcome, source, uses):
    turn = memory.retrieve(ASKED, k=3).turn.id
    memory.record(Feedback(turn, outcome, used=["b"], source=source))
    features = {r.node: r.features for r in memory.retrieve(ASKED, k=3).turn.returned}["b"]
    assert (features["again"], "passed" in features) == (pytest.approx(uses, abs=1e-3), False)


def test_reliability_scales_what_similar_questions_say(memory):
    """Uses and passes alike; what the same question says is believed."""
    prior = get_services(memory).retrieval.models.prior
    trusted, doubted = (
        dict(zip(FEATURES, NamespaceModel(prior, trust=trust).weights(), strict=True))
        for trust in (Reliability({"episode": (50.0, 50.0)}), Reliability({"episode": (0, 50)}))
    )
    assert trusted["episode"] == trusted["missed"] > 0
    assert doubted["episode"] == doubted["missed"] < 0.1 * trusted["episode"]
    assert (doubted["again"], doubted["passed"]) == (trusted["again"], trusted["passed"])


def test_a_bare_outcome_speaks_for_all_documents_of_the_same_question(memory):
    memory.record(Feedback(memory.retrieve(ASKED, k=3).turn.id, 1.0))
    returned = memory.retrieve(ASKED, k=3).turn.returned
    assert [item.features["again"] > 0 for item in returned] == [True] * 3


def test_questions_without_words_are_different_questions(memory):
    for question in ("😀", "???", "🚀"):
        learn(memory, "ann", question)
    assert count_near(memory, "ann", "🚀") == 3
    learn(memory, "ann", " 🚀 ")
    assert count_near(memory, "ann", "🚀") == 3


@pytest.mark.parametrize("names", [("C", "C#", "C++"), (">5", "<5"), ("-O2", "O2"), ("R", "R&D")])
def test_questions_that_differ_in_a_sign_are_different_questions(memory, names):
    """Each gets what was right for it, though words and nearly all of the vectors are equal."""
    documents = dict(zip(names, "abc", strict=False))
    for name, used in documents.items():
        answer = memory.retrieve(f"what is {name}?", k=3, namespace="ann")
        memory.record(Feedback(answer.turn.id, 1.0, used=[used]))
    assert count_near(memory, "ann") == len(names)
    for name, used in documents.items():
        returned = memory.retrieve(f"what is {name}?", k=3, namespace="ann").turn.returned
        assert [item.node for item in returned if item.features.get("again")] == [used]


@pytest.mark.slow
def test_an_episode_keeps_what_was_used_before_what_was_not(tmp_path):
    """The one document of twenty that helps is the last of them, by rank and by id."""
    texts = [Document(f"Thing {number}", id=f"d{number:02}") for number in range(20)]
    embeddings = DeterministicFakeEmbedding(size=16)
    with CrabPath.open(tmp_path / "many", embeddings=embeddings) as many:
        many.add_documents(texts, split=False, progress=None)
        for _ in range(3):
            answer = many.retrieve("thing", k=20)
            many.record(Feedback(answer.turn.id, 1.0, used=["d19"]))
        returned = many.retrieve("thing", k=20).turn.returned
    found = {item.node: item.features for item in returned}
    assert found["d19"]["again"] == pytest.approx(3.0, abs=0.01)
