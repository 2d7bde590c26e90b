"""Settings: the tiers, their presets and the defaults that the design names."""

from dataclasses import FrozenInstanceError

import pytest

from crabpath_retrievers import Settings
from crabpath_retrievers.config import LinkSettings, PolicySettings, TierSettings, WalkSettings
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.graph import OVERLAY_KINDS, TYPED_KINDS, EdgeKind, Tier


@pytest.mark.parametrize(
    ("weight", "tier"),
    [
        (1.0, Tier.REFLEX),
        (0.8, Tier.REFLEX),
        (0.79, Tier.HABITUAL),
        (0.3, Tier.HABITUAL),
        (0.29, Tier.DORMANT),
        (0.0, Tier.DORMANT),
        (-0.009, Tier.DORMANT),
        (-0.01, Tier.INHIBITORY),
        (-1.0, Tier.INHIBITORY),
    ],
)
def test_tiers_by_effective_weight(weight, tier):
    """The thresholds of document 000, each belonging to the tier above it."""
    assert TierSettings().tier_of(weight) is tier


def test_the_presets_are_those_of_the_two_papers():
    """``crabpath`` is the default; ``openclawbrain`` follows earlier."""
    assert Settings.preset("crabpath") == Settings()
    other = Settings.preset("openclawbrain").tiers
    assert [other.tier_of(w) for w in (0.6, 0.59, 0.2, 0.19)] == [
        Tier.REFLEX,
        Tier.HABITUAL,
        Tier.HABITUAL,
        Tier.DORMANT,
    ]


def test_an_unknown_preset_names_the_known_ones():
    """The message lists what can be given."""
    with pytest.raises(InvalidInputError, match="'crabpath' or 'openclawbrain'"):
        Settings.preset("lobster")


def test_the_budgets_of_a_walk_are_those_of_the_design():
    """24 nodes, 6 new per node and hop, 3 hops, 2 without a new node, one visit, λ = .3."""
    assert WalkSettings() == WalkSettings(
        max_nodes=24, max_new_nodes=6, max_hops=3, barren_hops=2, visits_per_node=1, damping=0.3
    )


def test_every_kind_of_edge_has_a_prior_and_a_floor_below_reflex():
    """Nothing that the text alone says is followed blindly, or forgotten."""
    links = LinkSettings()
    made_by_outcomes = {*OVERLAY_KINDS, *TYPED_KINDS}
    kinds = set(EdgeKind) - made_by_outcomes - {EdgeKind.STOP}
    assert all(0 < links.priors[kind] < TierSettings().reflex for kind in kinds)
    assert all(links.floor(kind) == links.priors[kind] for kind in kinds)
    assert LinkSettings(fading=frozenset({EdgeKind.LINK})).floor(EdgeKind.LINK) == 0.0
    assert all(links.priors[kind] == links.floor(kind) == 0 for kind in made_by_outcomes)


def test_settings_cannot_be_changed_in_place():
    """A changed copy is made with ``dataclasses.replace``; shared priors are read-only too."""
    settings = Settings()
    with pytest.raises(FrozenInstanceError):
        settings.walk.max_hops = 9
    with pytest.raises(TypeError):
        settings.links.priors[EdgeKind.LINK] = 1.0


def test_a_temperature_that_divides_by_zero_is_refused():
    """Every softmax divides by it."""
    with pytest.raises(InvalidInputError, match="temperature must be above 0"):
        PolicySettings(temperature=0)
