"""The feature ``advice``: a planted region where mentions work, and one where they do not."""

from contextlib import contextmanager

import pytest

from crabpath_retrievers import CrabPath, Feedback, Settings
from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.learning.rules.transitions import get_action_type
from crabpath_retrievers.memory.services import Services
from crabpath_retrievers.regions.success import log_odds

GOOD, BAD, OTHER = 0, 1, 2
PAGE = "Page 5"  # which mentions page 6: a mention leads to an answer


@pytest.fixture
def taught(planted):
    """Mentions succeed in one region and fail in another; searches succeed by half in both."""
    for place in (GOOD, BAD):
        for reward in (1.0, -1.0):
            planted.live([place], ["search"], reward)
    planted.live([GOOD], ["mention"], 1.0, times=4)
    planted.live([BAD], ["mention"], -1.0, times=4)
    return planted


def ask(planted, place, **options):
    """The returned documents of a question that lies in a region."""
    given = {"namespace": planted.namespace, "record": False, "k": 8, **options}
    return planted.memory.retrieve(PAGE, vector=planted.vector(place), **given)


def get_advice(answer):
    """Advice by kind of step; documents of one kind have the same."""
    found = {}
    for item in answer.turn.returned:
        found.setdefault(get_action_type(item), set()).add(item.features.get("advice", 0.0))
    assert all(len(values) == 1 for values in found.values())
    return {kind: value for kind, (value,) in found.items()}


@contextmanager
def open_beside(planted, settings):
    """The same stores under other settings."""
    shared = planted.memory
    memory = CrabPath(Services(shared.store, shared.index, shared.embedder, settings=settings))
    try:
        yield planted._replace(memory=memory)
    finally:
        memory._services._release.detach()


def test_mentions_are_advised_where_they_work(taught):
    good, bad = get_advice(ask(taught, GOOD)), get_advice(ask(taught, BAD))
    assert good["mention"] > 0.3 > -0.3 > bad["mention"]
    assert good["search"] < good["mention"]
    counted = taught.model()._region_counts
    hubs = taught.memory._services.regions.hubs(taught.model().level)
    keys = dict(zip(hubs.ids, hubs.keys, strict=True))
    for place, found in ((GOOD, good), (BAD, bad)):
        here, any_ = (
            log_odds(counted.chances(keys[taught.hubs[place]]).success(action))
            - log_odds(counted.chances(keys[taught.hubs[place]]).success(action, depth=0))
            for action in ("mention", "")
        )
        assert found["mention"] == pytest.approx(here - any_, abs=1e-4)


def test_a_better_step_is_ranked_higher(taught):
    """Where nobody went there is no advice: the namespace as a whole gives none."""
    assert set(get_advice(ask(taught, OTHER)).values()) == {0.0}
    fresh = ask(taught, GOOD, namespace=f"{taught.namespace} fresh")
    node = next(item.node for item in fresh.turn.returned if get_action_type(item) == "mention")
    scores = [
        next(item.score for item in ask(taught, place).documents if item.node.id == node)
        for place in (GOOD, OTHER, BAD)
    ]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == 3


def test_a_fresh_namespace_is_not_advised(taught):
    twin = f"{taught.namespace} twin"
    taught.memory.namespaces.freeze(twin)
    before = ask(taught, GOOD, namespace=twin)
    assert set(get_advice(before).values()) == {0.0}
    taught.live([GOOD], ["mention"], 1.0)
    after = ask(taught, GOOD, namespace=twin)
    assert [(i.node.id, i.score) for i in after.documents] == [
        (i.node.id, i.score) for i in before.documents
    ]


def test_without_regions_there_is_no_advice(taught):
    before = sorted(taught.memory.store.regions.get_all_transitions(taught.namespace, 1))
    with open_beside(taught, Settings(learning=LearningSettings(regions=False))) as plain:
        answer = ask(plain, GOOD, record=True)
        assert set(get_advice(answer).values()) == {0.0}
        used = [answer.documents[0].node.id]
        assert plain.memory.record(Feedback(answer.turn.id, 1.0, used=used)).status == "applied"
    assert sorted(taught.memory.store.regions.get_all_transitions(taught.namespace, 1)) == before


def test_a_type_of_task_has_advice_of_its_own(taught):
    taught.live([GOOD], ["mention"], -1.0, times=5, task="odd")
    taught.live([GOOD], ["search"], 1.0, times=5, task="odd")
    plain = get_advice(ask(taught, GOOD))["mention"]
    assert get_advice(ask(taught, GOOD, task_type="odd"))["mention"] < plain - 0.3
    assert get_advice(ask(taught, GOOD, task_type="new"))["mention"] == pytest.approx(plain)
