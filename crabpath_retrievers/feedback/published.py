"""The settings of a serving process, kept in its store for those who learn for it elsewhere."""

import json
from collections.abc import Mapping
from typing import Any

from crabpath_retrievers.changes import PutMeta
from crabpath_retrievers.config import Settings
from crabpath_retrievers.config.base import ValidatedSettings
from crabpath_retrievers.storage import GraphStore

PUBLISHED = "learning"
"""Under which name of the store's own facts they stand."""

# What learning, health, maintenance and autotuning read of the settings.
_GROUPS = (
    *("learning", "episode", "health", "note", "policy", "region", "tiers", "maintenance"),
    "autotune",
)


def publish(store: GraphStore, settings: Settings) -> None:
    """Keep in the store how it is to be learned."""
    text = json.dumps({name: getattr(settings, name).to_dict() for name in _GROUPS})
    if published(store) != text:
        store.apply([PutMeta(((PUBLISHED, text),))])


def published(store: GraphStore) -> str | None:
    """What was published last, as text; None when nothing was."""
    return store.catalog.meta().get(PUBLISHED)


def settings_of(text: str | None) -> Settings:
    """Settings as published; what is missing, or unknown to this release, is as by default."""
    data = {} if text is None else json.loads(text)
    default = Settings()
    groups = {name: getattr(default, name) for name in _GROUPS}
    return default.replace(**{n: _fill(group, data.get(n, {})) for n, group in groups.items()})


def _fill(group: ValidatedSettings, data: Mapping[str, Any]) -> ValidatedSettings:
    return group.replace(**{n: v for n, v in data.items() if n in type(group).model_fields})
