"""Settings of the serving process, published in its store for learners in other processes."""

import json
from collections.abc import Mapping
from typing import Any

from crabpath_retrievers.changes import PutMeta
from crabpath_retrievers.config import Settings
from crabpath_retrievers.config.base import ValidatedSettings
from crabpath_retrievers.storage import GraphStore

PUBLISHED_SETTINGS = "learning"
"""Key of the published settings in the store's metadata."""

# Groups that learning, health, maintenance and autotuning read.
_GROUPS = (
    *("learning", "episode", "health", "note", "policy", "region", "tiers", "maintenance"),
    "autotune",
)


def publish_settings(store: GraphStore, settings: Settings) -> None:
    """Write the settings that learning needs to the store."""
    text = json.dumps({name: getattr(settings, name).to_dict() for name in _GROUPS})
    if read_published_settings(store) != text:
        store.apply([PutMeta(((PUBLISHED_SETTINGS, text),))])


def read_published_settings(store: GraphStore) -> str | None:
    """Read the published settings as JSON text; None if there are none."""
    return store.catalog.meta().get(PUBLISHED_SETTINGS)


def parse_settings(text: str | None) -> Settings:
    """Parse published settings; missing fields get their defaults, unknown fields are dropped."""
    data = {} if text is None else json.loads(text)
    default = Settings()
    groups = {name: getattr(default, name) for name in _GROUPS}
    return default.replace(**{n: _fill(group, data.get(n, {})) for n, group in groups.items()})


def _fill(group: ValidatedSettings, data: Mapping[str, Any]) -> ValidatedSettings:
    return group.replace(**{n: v for n, v in data.items() if n in type(group).model_fields})
