"""Knobs of a namespace: how they are stored, and how they take the place of settings."""

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from crabpath_retrievers.config import Settings, TierSettings
from crabpath_retrievers.config.autotune import WIDEST, AutotuneSettings, Knobs
from crabpath_retrievers.errors import InvalidInputError, StoreError

_log = logging.getLogger(__name__)
_REFLEX = "reflex"


def stored(knobs: Knobs, settings: Settings) -> str | None:
    """Those that differ from the settings, as JSON; None for none: the others follow them."""
    usual = settings.knobs.to_dict()
    own = {name: value for name, value in knobs.to_dict().items() if value != usual[name]}
    return json.dumps(own, sort_keys=True) if own else None


def knobs_of(text: str | None, settings: Settings) -> Knobs:
    """The knobs of a namespace.

    Args:
        text: As stored.
        settings: For all that are not.

    Raises:
        StoreError: They are damaged.
    """
    try:
        return replace(settings.knobs, **_read(text))
    except ValueError as error:
        msg = f"stored knobs are damaged ({error!s:.200}): crabpath tune reset puts them back"
        raise StoreError(msg) from error


def tuned(settings: Settings, text: str | None) -> Settings:
    """Settings as a namespace with these knobs has them; damaged ones are passed over."""
    own = _own(text)
    if not own:
        return settings
    learning = {name: value for name, value in own.items() if name != _REFLEX}
    return replace(
        settings,
        learning=replace(settings.learning, **learning),
        tiers=tuned_tiers(settings.tiers, text),
    )


def tuned_tiers(tiers: TierSettings, text: str | None) -> TierSettings:
    """The bars between tiers, the same way: it stands on the way of every query."""
    own = _own(text)
    return replace(tiers, reflex=own[_REFLEX]) if _REFLEX in own else tiers


@lru_cache(maxsize=1024)
def _own(text: str | None) -> Mapping[str, Any]:
    """Knobs by name; an answer must not fail because of them."""
    try:
        return _read(text)
    except ValueError as error:
        _log.warning("stored knobs are damaged and passed over: %s", error)
        return {}


def _read(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    found = json.loads(text)
    if not isinstance(found, dict):
        msg = f"they are no object: {text!r:.100}"
        raise InvalidInputError(msg)
    return _WIDEST.checked(found)


# Rails may have been narrowed since; what could not work at all is damaged.
_WIDEST = AutotuneSettings(rails=WIDEST)
