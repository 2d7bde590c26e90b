"""Settings: the tiers, their presets and the defaults that the design names."""

import ast
import inspect
import math
import textwrap
from itertools import pairwise
from typing import get_args

import pytest
from pydantic import ValidationError

from crabpath_lab.ab import TrialSettings
from crabpath_retrievers import EdgeKind, Knobs, Rule, Settings
from crabpath_retrievers.config import (
    AutotuneSettings,
    HealthSettings,
    IngestSettings,
    LearningSettings,
    LinkSettings,
    TierSettings,
)
from crabpath_retrievers.core.records import OVERLAY_KINDS, TYPED_KINDS, Tier
from crabpath_retrievers.errors import InvalidInputError


@pytest.mark.parametrize(
    ("weight", "tier"),
    [
        (0.8, Tier.REFLEX),
        (0.3, Tier.HABITUAL),
        (0.29, Tier.DORMANT),
        (-0.009, Tier.DORMANT),
        (-0.01, Tier.INHIBITORY),
    ],
)
def test_tiers_by_effective_weight(weight, tier):
    """The thresholds of the CrabPath paper, each belonging to the tier above it."""
    assert TierSettings().tier_of(weight) is tier


def test_the_presets_are_those_of_the_two_papers():
    """``crabpath`` is the default; ``openclawbrain`` follows earlier."""
    assert Settings.preset("crabpath") == Settings()
    tiers = [Settings.preset("openclawbrain").tiers.tier_of(w) for w in (0.6, 0.59, 0.2, 0.19)]
    assert tiers == [Tier.REFLEX, Tier.HABITUAL, Tier.HABITUAL, Tier.DORMANT]
    with pytest.raises(InvalidInputError, match="'crabpath' or 'openclawbrain'"):
        Settings.preset("lobster")


def test_every_kind_of_edge_has_a_prior_and_a_floor_below_reflex():
    """Nothing that the text alone says is followed blindly, or forgotten."""
    links = LinkSettings()
    made_by_outcomes = {*OVERLAY_KINDS, *TYPED_KINDS}
    kinds = set(EdgeKind) - made_by_outcomes - {EdgeKind.STOP}
    assert all(0 < links.priors[kind] < TierSettings().reflex for kind in kinds)
    assert all(links.floor(kind) == links.priors[kind] for kind in kinds)
    assert LinkSettings(fading_kinds=frozenset({EdgeKind.LINK})).floor(EdgeKind.LINK) == 0.0
    assert all(links.priors[kind] == links.floor(kind) == 0 for kind in made_by_outcomes)


def test_settings_cannot_be_changed_in_place():
    """A changed copy is made with ``replace``; shared mappings are read-only too."""
    settings = Settings()
    with pytest.raises(InvalidInputError, match=r"use settings.replace\(max_hops=...\)"):
        settings.walk.max_hops = 9
    for links in (settings.links, LinkSettings(priors={EdgeKind.LINK: 0.5})):
        with pytest.raises(TypeError):
            links.priors[EdgeKind.LINK] = 1.0
    copy = settings.replace(walk=settings.walk.replace(max_hops=9))
    assert (copy.walk.max_hops, settings.walk.max_hops) == (9, 3)


def test_mappings_that_are_given_in_part_keep_their_other_defaults():
    """As the ranges of health and the rails of the autotuner do."""
    assert LinkSettings(priors={EdgeKind.LINK: 0.5}).priors[EdgeKind.SIBLING] == 0.3
    assert LearningSettings(sources={"human": 0.5}).sources["self"] == 0.6


WITHOUT_DEFAULTS = {Knobs, Rule}
(VALIDATED,) = Settings.__bases__
GROUPS = [group for group in VALIDATED.__subclasses__() if group not in WITHOUT_DEFAULTS]


def bounds(field):
    """Bounds of a field by their name: ge, gt, le and lt."""
    return {
        name: getattr(bound, name)
        for bound in field.metadata
        for name in ("ge", "gt", "le", "lt")
        if hasattr(bound, name)
    }


def kinds(field):
    """Types that a field accepts, None among them."""
    members = get_args(field.annotation)
    return members if type(None) in members else (field.annotation,)


def refused(field):
    """Values that no field of this kind accepts."""
    accepted = kinds(field)
    values = [object(), math.nan, b"x", 1j]
    if type(None) not in accepted:
        values.append(None)
    if bool in accepted:
        return [*values, 0, 1, "yes", []]
    values += [True, False, ""] if str not in accepted else [True]
    if int in accepted or float in accepted:
        outside = {"ge": -1, "gt": 0, "le": 1, "lt": 0}
        values += [limit + outside[name] for name, limit in bounds(field).items()]
        values += [math.inf, -math.inf, "5", [1], *([1.5] if int in accepted else ())]
    return values


@pytest.mark.parametrize("group", GROUPS)
def test_values_and_fields_that_are_refused(group):
    """Out of range, not finite or of another type: one sentence names field and value."""
    known = next(iter(group.model_fields))
    with pytest.raises(InvalidInputError, match=f"has no setting '{known}s': use {known}"):
        group(**{f"{known}s": 1})
    with pytest.raises(InvalidInputError, match=f"has no setting 'zzz': use .*{known}"):
        group(zzz=1)
    for name, field in group.model_fields.items():
        for value in refused(field):
            with pytest.raises(InvalidInputError) as caught:
                group(**{name: value})
            with pytest.raises(InvalidInputError):
                group().replace(**{name: value})
            said = str(caught.value)
            assert "must" in said, (name, value)
            assert "\n" not in said
            assert "pydantic" not in said
            if not name.startswith(("rails", "ranges")):
                assert f"{group.__name__}.{name} must be " in said
            assert not isinstance(caught.value.__cause__, ValidationError)


def described(group):
    """Names of the fields that a text follows."""
    body = ast.parse(textwrap.dedent(inspect.getsource(group))).body[0].body
    pairs = [(a, b) for a, b in pairwise(body) if isinstance(a, ast.AnnAssign)]
    return {a.target.id for a, b in pairs if isinstance(getattr(b, "value", None), ast.Constant)}


@pytest.mark.parametrize("group", GROUPS)
def test_every_field_is_described_and_bounded(group):
    """Its default is valid, and numbers have a least and a greatest value."""
    for name, field in group.model_fields.items():
        default = getattr(group(), name)
        assert getattr(group().replace(**{name: default}), name) == default
        assert name in described(group) or isinstance(default, VALIDATED), name
        if {int, float} & set(kinds(field)):
            assert {"ge", "gt"} & set(bounds(field)), name
            assert {"le", "lt"} & set(bounds(field)), name


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: TierSettings(reflex=0.2), r"habitual \(0.3\) must not be above reflex \(0.2\)"),
        (lambda: IngestSettings(chunk_size=100), "chunk_overlap .* must be below chunk_size"),
        (lambda: TrialSettings(decisive_turns=10), "must not be above decisive_turns"),
        (lambda: HealthSettings(ranges={"reflex_pct": (1, 0)}), "the least one first"),
        (lambda: HealthSettings(ranges={"bounces": (0, 1)}), "there is no metric .* use avg_nodes"),
        (lambda: AutotuneSettings(rails={"promotion_threshold": (1, 9)}), "from 2 to 1000"),
        (lambda: AutotuneSettings(rails={"reflex": 0.9}), "must be two numbers"),
        (lambda: AutotuneSettings(rails={"speed": (0, 1)}), "there is no knob 'speed': use half"),
        (lambda: LinkSettings(priors={EdgeKind.LINK: 2.0}), "LinkSettings.priors must be"),
        (lambda: LearningSettings(sources={"me": 0.5}), "no source of feedback 'me': use human"),
        (lambda: LearningSettings(sources={"human": 2}), "LearningSettings.sources must be"),
        (lambda: LearningSettings(usage_prior=(0.0, 1.0)), "usage_prior must be a pair"),
        (lambda: Settings(walk={"max_hops": -1}), "WalkSettings.max_hops must be"),
    ],
)
def test_values_that_do_not_fit_together(make, sentence):
    """Reversed thresholds, and mappings with a name or value that cannot be."""
    with pytest.raises(InvalidInputError, match=sentence):
        make()
