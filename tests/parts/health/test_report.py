"""Each metric by hand, in and out of its range; what cannot be judged says so."""

import json
import math

import pytest

from crabpath_retrievers import HealthReport, InvalidInputError
from crabpath_retrievers.config import HealthSettings, TierSettings
from crabpath_retrievers.core.records import Authority, StoredWeight, Tier
from crabpath_retrievers.parts.operation.maintenance import (
    EdgeGroup,
    EdgeTally,
    HealthMeasurements,
    TurnFacts,
    assess_health,
    count_edges,
)


def report(measured, settings=None):
    return assess_health(
        measured, settings or HealthSettings(), namespace="ann", turn=3, created=1.0
    )


def edges(reflex=0, habitual=0, dormant=0, **more):
    return EdgeTally({Tier.REFLEX: reflex, Tier.HABITUAL: habitual, Tier.DORMANT: dormant}, **more)


def turns(*facts):
    return [TurnFacts(*fact) for fact in facts for _ in range(10)]


OURS = HealthSettings().ranges
# As the CrabPath paper has them, as shares in place of per cent; and what the text's own edges
# or the way of counting make another matter here.
PAPER = {
    "avg_nodes_fired_per_query": (1.0, 2.0),
    "cross_file_edge_pct": (0.0, 0.15),
    "dormant_pct": (0.7, 0.95),
    "reflex_pct": (0.0, 0.1),
    "context_compression": (0.0, 0.2),
    "proto_promotion_rate": (0.0, 0.5),
    "reconvergence_rate": (0.0, 0.0),
    "orphan_nodes": (0.0, 0.0),
}
OTHERWISE = {
    *("avg_nodes_fired_per_query", "cross_file_edge_pct", "dormant_pct", "proto_promotion_rate"),
}
FIRED, CROSSING = "avg_nodes_fired_per_query", "cross_file_edge_pct"
COMPRESSION, PROMOTED = "context_compression", "proto_promotion_rate"
A_TENTH, A_HALF = edges(fading=10, share=0.1), edges(1, 49, share=0.5)
WITHIN, BOTH = edges(within=40, crossing=10), edges(within=20, crossing=20)
FEW = "fewer than 10"


@pytest.mark.parametrize(
    ("name", "measured", "value", "in_range"),
    [
        # (3 + 5) / 2 nodes a query.
        (FIRED, {"turns": turns((3, 4, 9), (5, 4, 9))}, 4.0, True),
        (FIRED, {"turns": turns((0, 4, 9))}, 0.0, False),
        (FIRED, {"turns": turns((16, 4, 9))}, 16.0, False),
        # 10 of 40, and 20 of 20: 30 of 60.
        (CROSSING, {"documents": 9, "structure": WITHIN, "learned": BOTH}, 0.5, True),
        (CROSSING, {"documents": 9, "structure": edges(within=40)}, 0.0, False),
        # A tenth of the structure was looked at: 0 · 10 + 6 of 10 · 10 + 20.
        ("dormant_pct", {"structure": A_TENTH, "learned": edges(fading=20, faded=6)}, 0.05, True),
        ("dormant_pct", {"learned": edges(fading=20, faded=20)}, 1.0, False),
        # 2 of 100 + 100, where half of the learned edges was looked at.
        ("reflex_pct", {"structure": edges(0, 100), "learned": A_HALF}, 0.01, True),
        ("reflex_pct", {"learned": edges(11, 89)}, 0.11, False),
        # 9 words an answer of 90.
        (COMPRESSION, {"turns": turns((1, 2, 9)), "tokens": 90, "nodes": 10}, 0.1, True),
        (COMPRESSION, {"turns": turns((1, 2, 30)), "tokens": 90, "nodes": 10}, 0.333333, False),
        (PROMOTED, {"pairs": 20, "promoted": 5}, 0.25, True),
        (PROMOTED, {"pairs": 20, "promoted": 19}, 0.95, False),
        # Both ends of a range are in it.
        *(
            (PROMOTED, {"pairs": 100, "promoted": int(share * 100)}, share, True)
            for share in HealthSettings().ranges[PROMOTED]
        ),
        ("reconvergence_rate", {"splits": 4}, 0.0, True),
        ("reconvergence_rate", {"splits": 4, "rejoined": 1}, 0.25, False),
        ("orphan_nodes", {"nodes": 8, "sampled": 8, "missing": 0}, 0.0, True),
        # Three of a tenth of all chunks.
        ("orphan_nodes", {"nodes": 80, "sampled": 8, "missing": 3}, 30.0, False),
    ],
)
def test_each_metric(name, measured, value, in_range):
    metric = report(HealthMeasurements(**measured))[name]
    assert (metric.value, metric.in_range) == (value, in_range)


@pytest.mark.parametrize(
    ("name", "measured", "note"),
    [
        (FIRED, {"turns": [TurnFacts(0, 4, 9)]}, FEW),
        (CROSSING, {"documents": 1, "structure": edges(within=40)}, "one document"),
        ("dormant_pct", {"learned": edges(fading=9, faded=9)}, FEW),
        ("dormant_pct", {"structure": edges(0, 100)}, "no edges that can fade"),
        (COMPRESSION, {"turns": turns((1, 4, 30)), "tokens": 90, "nodes": 19}, "five answers"),
        (PROMOTED, {"pairs": 9, "promoted": 9}, FEW),
        ("orphan_nodes", {"nodes": 9, "sampled": 9}, "the vector index was not asked"),
    ],
)
def test_what_cannot_be_judged(name, measured, note):
    metric = report(HealthMeasurements(**measured))[name]
    assert metric.in_range is None
    assert note in metric.note


def test_an_empty_memory_is_not_ill():
    """There is nothing to judge but that nothing was split and nothing is lost."""
    found = report(HealthMeasurements())
    assert [metric.name for metric in found.metrics] == list(OURS)
    assert (found.healthy, found.judged_count) == (2, 2)
    assert found[FIRED].value is None
    assert found["reconvergence_rate"].value == found["orphan_nodes"].value == 0.0
    with pytest.raises(InvalidInputError, match="is not a health metric: use one of avg_nodes"):
        found["bounce_rate"]


def test_a_report_survives_json_and_counts_all_edges():
    """As many as there are, not as were looked at."""
    half, all_of_them = edges(1, 2, 3, share=0.5), edges(4)
    measured = {"structure": half, "learned": all_of_them, "sampled": 9, "missing": 1}
    found = report(HealthMeasurements(turns=turns((3, 4, 9)), tokens=90, nodes=99, **measured))
    assert found.edges["structure"] == {"reflex": 2, "habitual": 4, "dormant": 6, "inhibitory": 0}
    assert found.edges["learned"]["reflex"] == 4
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert HealthReport.from_dict(json.loads(text)) == found


def test_what_can_fade_and_what_crosses():
    """An edge that the text keeps habitual cannot; one of a note is between no documents.

    Of .8 two half-lives leave a quarter, and .8 / √2 where it leads to a canonical node.
    """
    new, old = StoredWeight(0.9, 1.0), StoredWeight(0.8, 1.0 - 2 * math.log(2))
    rows = [
        EdgeGroup(new, crossing=True, number=1),
        EdgeGroup(new._replace(floor=0.3), crossing=False, number=5),
        EdgeGroup(StoredWeight(0.1, 1.0, 0.29), crossing=None, number=2),
        EdgeGroup(old, crossing=None, number=1),
        EdgeGroup(old._replace(authority=Authority.CANONICAL.value), crossing=None, number=1),
    ]
    found = count_edges(rows, 1.0, TierSettings())
    assert (found.edges, found.fading, found.faded) == (10, 5, 3)
    assert (found.within, found.crossing) == (6, 1)
    assert (found.tiers[Tier.REFLEX], found.tiers[Tier.HABITUAL]) == (6, 1)


def test_ranges_are_those_of_a_preset_but_for_those_that_are_set():
    """The others stay, also in a copy, and as lists that come from JSON."""
    settings = HealthSettings(ranges={"reflex_pct": [0, 0.5]}).replace(min_observations=3)
    assert settings.ranges == {**OURS, "reflex_pct": (0.0, 0.5)}
    assert HealthSettings.preset("paper").ranges == PAPER
    assert HealthSettings.preset("default") == HealthSettings()
    assert {name for name, of in OURS.items() if of != PAPER[name]} == OTHERWISE
    assert OURS["dormant_pct"] == (0.0, 0.95)
    with pytest.raises(InvalidInputError, match="use 'default' or 'paper'"):
        HealthSettings.preset("best")
