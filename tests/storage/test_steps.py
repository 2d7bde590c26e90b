"""Transition counts in the store: sums and undo."""

import pytest

from crabpath_retrievers import Feedback
from crabpath_retrievers.core.records import compute_hub_level
from tests.seams import make_change

HUB = next(f"hub{i}" for i in range(500) if compute_hub_level(f"hub{i}"))
PLAIN = next(f"plain{i}" for i in range(500) if not compute_hub_level(f"plain{i}"))
ONE = make_change("TransitionCount", 0, 0, "", "find", 0, 1.0, 0.5, 1.0, 0.5)


def read(store, namespace="ann", level=1):
    """Counts by place."""
    return {one.place: one.counts for one in store.regions.get_all_transitions(namespace, level)}


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ([(1.0, 0.5, 1.0, 0.5)], (2.0, 1.0, 2.0, 1.0)),
        ([(-1.0, -0.5, -1.0, -0.5)], None),
        ([(-5.0, -5.0, 0, 0)], (0.0, 0.0, 1.0, 0.5)),
        ([(1 / 3, 0.1, 0, 0)] * 3 + [(-2.0, -0.8, -1.0, -0.5)], None),  # rounding leaves no row
    ],
)
def test_counts_add_up_and_never_fall_below_nothing(store, changes, left):
    """Rows begin with what is added; what is taken back, or taken from nothing, leaves none."""
    store.apply([make_change("AddTransitions", "ann", (ONE,))])
    for counts in changes:
        store.apply(
            [
                make_change(
                    "AddTransitions", "ann", (make_change("TransitionCount", *ONE.place, *counts),)
                )
            ]
        )
    store.apply(
        [
            make_change(
                "AddTransitions",
                "bob",
                (make_change("TransitionCount", *ONE.place, -1.0, 0, 0, 0),),
            )
        ]
    )
    assert (read(store), read(store, "bob")) == ({ONE.place: left} if left else {}, {})


def test_only_the_regions_that_are_asked_for_are_read(store, graph, make):
    """Level and region belong together; other namespaces have counts of their own."""
    one, two, other = graph.publish(make("one"), make("two"), make("other"))
    steps = tuple(ONE._replace(level=lev, region=key) for lev in (1, 2) for key in (one, two))
    store.apply(
        [
            make_change("AddTransitions", "ann", (ONE, *steps)),
            make_change("AddTransitions", "bob", steps),
        ]
    )
    ann, transitions = store.walk.get_clock("ann").key, store.regions.get_transitions
    found = transitions(ann, [(0, 0), (1, one), (2, two)])
    assert {(one.level, one.region) for one in found} == {(0, 0), (1, one), (2, two)}
    assert transitions(ann, [(1, other)]) == transitions(0, [(1, one)]) == []
    assert {one.level for one in store.regions.get_all_transitions("ann", 2)} == {0, 2}
    store.apply([make_change("forget_namespace", "ann")])
    assert (read(store), len(read(store, "bob"))) == ({}, 2)


def test_a_node_takes_the_counts_of_its_region(store, graph, make):
    """Not those of regions that led there; a restored snapshot does not bring them back."""
    hub, _, other = graph.publish(make(HUB), make(PLAIN), make("other"))
    at, there = (ONE._replace(level=1, region=key, next=to) for key, to in ((hub, 0), (other, hub)))
    store.apply(
        [
            make_change("AddTransitions", "ann", (ONE, at, there)),
            make_change("write_snapshot", "ann", "s", None),
        ]
    )
    version = store.regions.version()
    graph.publish(removed=(HUB,))
    assert read(store) == {ONE.place: ONE.counts, there.place: there.counts}
    assert store.regions.version() == version + 1
    graph.publish(removed=(PLAIN, "unknown"))
    assert store.regions.version() == version + 1
    store.apply([make_change("apply_snapshot", "s")])
    assert at.place not in read(store)
    assert read(store)[ONE.place] == ONE.counts


@pytest.mark.parametrize("restored", [False, True])
def test_undoing_steps_of_a_hub_that_is_gone(store, graph, make, restored):
    """What is left of them goes; the hub that comes again begins with nothing."""
    (hub,) = graph.publish(make(HUB))
    steps = (ONE, ONE._replace(level=1, region=hub))
    counted = make_change("AddTransitions", "ann", steps)
    store.apply(
        [make_change("KeepFeedback", Feedback(None, 1.0, feedback_id="f", namespace="ann"))]
    )
    store.apply(
        [make_change("ConsumeFeedback", "ann", "f", (), 0, "{}", changes=(counted,)), counted]
    )
    graph.publish(removed=(HUB,))
    if restored:
        assert graph.publish(make(HUB)) != [hub]
    store.apply([make_change("undo_feedback", "ann", "f", 1, "{}", "note")])
    assert read(store) == {}
