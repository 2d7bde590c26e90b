"""The knobs of one namespace: stored as JSON, and applied to the settings."""

import json
import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from crabpath_retrievers.config import Settings, TierSettings
from crabpath_retrievers.config.autotune import WIDEST, AutotuneSettings, Knobs
from crabpath_retrievers.errors import InvalidInputError, StoreError

_log = logging.getLogger(__name__)
_REFLEX = "reflex"


def dump_knobs(knobs: Knobs, settings: Settings) -> str | None:
    """The knobs that differ from the settings, as JSON; None when all are equal."""
    defaults = settings.knobs.to_dict()
    changed = {name: value for name, value in knobs.to_dict().items() if value != defaults[name]}
    return json.dumps(changed, sort_keys=True) if changed else None


def load_knobs(text: str | None, settings: Settings) -> Knobs:
    """The knobs of a namespace.

    Args:
        text: JSON of those that differ from the settings.
        settings: Give the others.

    Raises:
        StoreError: The JSON is damaged.
    """
    try:
        return settings.knobs.replace(**_parse_knobs(text))
    except ValueError as error:
        msg = f"stored knobs are damaged ({error!s:.200}): reset them by crabpath tune reset"
        raise StoreError(msg) from error


def apply_knobs(settings: Settings, text: str | None) -> Settings:
    """The settings of a namespace with these knobs; damaged knobs are ignored."""
    knobs = _parse_or_ignore(text)
    if not knobs:
        return settings
    learning = {name: value for name, value in knobs.items() if name != _REFLEX}
    return settings.replace(
        learning=settings.learning.replace(**learning),
        tiers=apply_knobs_to_tiers(settings.tiers, text),
    )


def apply_knobs_to_tiers(tiers: TierSettings, text: str | None) -> TierSettings:
    """The tier thresholds of a namespace with these knobs; every query needs them."""
    knobs = _parse_or_ignore(text)
    if _REFLEX not in knobs:
        return tiers
    # Rails may let a knob fall below the next threshold; no query fails because of that.
    return tiers.replace(reflex=max(knobs[_REFLEX], tiers.habitual))


@lru_cache(maxsize=1024)
def _parse_or_ignore(text: str | None) -> Mapping[str, Any]:
    """Knobs by name; no query fails because they are damaged."""
    try:
        return _parse_knobs(text)
    except ValueError as error:
        _log.warning("stored knobs are damaged and ignored: %s", error)
        return {}


def _parse_knobs(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    parsed = json.loads(text)
    if not isinstance(parsed, dict):
        msg = f"they must be a JSON object, not {text!r:.100}"
        raise InvalidInputError(msg)
    return _WIDEST.validate_knobs(parsed)


# The rails of the settings may have been narrowed since the knobs were stored.
_WIDEST = AutotuneSettings(rails=WIDEST)
