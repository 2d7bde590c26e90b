"""Settings of the serving process, published in its store for learners in other processes."""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from crabpath_retrievers.changes import PutMeta
from crabpath_retrievers.config import Settings
from crabpath_retrievers.storage import GraphStore

PUBLISHED = "learning"
"""Key of the published settings in the store's metadata."""

# Groups that learning, health, maintenance and autotuning read.
_GROUPS = (
    *("learning", "episode", "health", "note", "policy", "region", "tiers", "maintenance"),
    "autotune",
)


def publish(store: GraphStore, settings: Settings) -> None:
    """Write the settings that learning needs to the store."""
    text = json.dumps({name: _to_plain(getattr(settings, name)) for name in _GROUPS})
    if published(store) != text:
        store.apply([PutMeta(((PUBLISHED, text),))])


def published(store: GraphStore) -> str | None:
    """Read the published settings as JSON text; None if there are none."""
    return store.catalog.meta().get(PUBLISHED)


def settings_of(text: str | None) -> Settings:
    """Parse published settings; missing fields get their defaults, unknown fields are dropped."""
    data = {} if text is None else json.loads(text)
    default = Settings()
    values = {n: _merge_known(getattr(default, n), data.get(n, {})) for n in _GROUPS}
    return replace(default, **values)


def _to_plain(group: Any) -> dict[str, Any]:
    values = {field.name: getattr(group, field.name) for field in fields(group)}
    return {n: dict(v) if isinstance(v, Mapping) else v for n, v in values.items()}


def _merge_known(default: Any, data: Mapping[str, Any]) -> Any:
    known = {field.name for field in fields(default)}
    values = {n: tuple(v) if isinstance(v, list) else v for n, v in data.items() if n in known}
    return replace(default, **values)
