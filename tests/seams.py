"""The seams: the only places where tests touch what is private to the product, ten at most.

Everything else goes through the public API. A test imports them as ``from tests.seams import …``.
"""

import signal
from collections.abc import Callable
from functools import partial
from importlib import import_module
from inspect import isfunction
from pkgutil import iter_modules
from typing import Any

import pytest
import sqlalchemy as sa

from crabpath_retrievers import CrabPath
from crabpath_retrievers.core import changes
from crabpath_retrievers.ingest import linking, pipeline
from crabpath_retrievers.learning import recorder
from crabpath_retrievers.memory.services import Services
from crabpath_retrievers.parts import bulk, schema_upgrades, store_kinds, vector_store
from crabpath_retrievers.parts.operation import reembedding
from crabpath_retrievers.parts.typed_graph import follow
from crabpath_retrievers.retrieval import episodes
from crabpath_retrievers.storage import GraphStore, sql_tools
from crabpath_retrievers.storage import store as store_module
from crabpath_retrievers.storage import write as writers
from crabpath_retrievers.storage.read import catalog
from crabpath_retrievers.storage.read import walk as corpus
from crabpath_retrievers.storage.write.transaction import Write
from crabpath_retrievers.vectors.base import VectorIndex

_BOUNDS = {
    "in_bulk_from": (pipeline, "MIN_BULK_CHUNKS"),
    "chunks_of_sources": (catalog, "_MANY_CHUNKS"),
    "keys_beside": (catalog, "_NEAR"),
    "published": (pipeline, "PUBLISHED_AT_ONCE"),
    "linked": (linking, "_LINKED_AT_ONCE"),
    "first_batch": (pipeline, "FIRST_BATCH"),
    "files": (bulk, "FILES_AT_ONCE"),
    "filled": (pipeline, "_INDEX_BATCH"),
    "embedded_anew": (reembedding, "_BATCH"),
    "sent": (vector_store, "_BATCH"),
    "listed": (store_kinds, "_PAGE"),
    "episodes_indexed": (recorder, "_INDEX_BATCH"),
    "seconds_between_checks": (recorder, "_CHECK_INTERVAL"),
    "episodes_compared": (episodes, "_MAX_SMALL"),
    "reached": (follow, "MAX_REACHED"),
    "bytes_remembered": (corpus, "_MAX_BYTES"),
    "asked_before_copying": (corpus, "_ASKED_OFTEN"),
    "copied": (corpus, "_MOST_COPIED"),
    "schema_version": (store_module, "SCHEMA_VERSION"),
    "schema_steps": (schema_upgrades, "STEPS"),
}
_WRAPPED = {
    "open_engine": (store_module, "open_engine"),
    "open_cursor": (sql_tools, "open_driver_cursor"),
}


def get_services(memory: CrabPath) -> Services:
    """Return the services of an open memory."""
    return memory._services


def get_engine(store: GraphStore, *, reads: bool = False) -> sa.Engine:
    """Return the engine through which a store writes, or the one through which it reads."""
    return store._reader if reads else store._engine


def get_collection(index: VectorIndex) -> Any:
    """Return the Chroma collection of an index."""
    return index._collection


def count_open_runs(keeper: Any) -> int:
    """Count the runs that a callback handler, or a tracker of LlamaIndex's queries, keeps."""
    if hasattr(keeper, "_listener"):
        return len(keeper._listener.runs)
    return len(keeper._roots) + len(keeper._runs)


def set_bounds(patch: pytest.MonkeyPatch, **bounds: Any) -> None:
    """Set how much work is done at once, how much is kept, and from when on work is done so.

    A test reaches such a bound with few documents then, or does not reach it with many. The schema
    is such a bound, too: its version, and the steps that lead to it.
    """
    for name, bound in bounds.items():
        patch.setattr(*_BOUNDS[name], bound)


def finish_learning(memory: CrabPath) -> None:
    """Wait until the background thread of a memory has nothing left to do."""
    memory._services.recorder._worker.drain()


def get_cache(store: GraphStore) -> Any:
    """Return the caches of what a store has read: of the corpus, and of learned weights."""
    return store.walk._memory


def wrap_function(patch: pytest.MonkeyPatch, what: Any, wrap: Callable[..., Any]) -> None:
    """Have another function take the place of one of these; it gets that one first.

    This is one of the functions of the store, by name, or what the packaged model embeds with.
    """
    place = _WRAPPED[what] if isinstance(what, str) else (what, "_embed")
    patch.setattr(*place, partial(wrap, getattr(*place)))


_WRITERS_OF_PARTS = (
    "crabpath_retrievers.parts.operation.maintenance.changes",
    "crabpath_retrievers.parts.operation.reembedding",
    "crabpath_retrievers.parts.operation.snapshots",
    "crabpath_retrievers.parts.operation.transfer.fill",
    "crabpath_lab.ab.state",
    "benchmarks.speed.clock",
)


def make_change(kind: str, *given: Any, **fields: Any) -> Any:
    """Make a change for ``GraphStore.apply``, or a part of one, by the name of its class.

    What is no record, but a function that writes, is meant by the name of the function.
    """
    found = (f"{writers.__name__}.{module.name}" for module in iter_modules(writers.__path__))
    for name in (changes.__name__, *found, *_WRITERS_OF_PARTS):
        made = getattr(import_module(name), kind, None)
        if made is not None:
            return Write(made, *given, **fields) if isfunction(made) else made(*given, **fields)
    raise KeyError(kind)


def stop_after(
    change: str,
    times: int,
    stop: Callable[[], object] = lambda: signal.raise_signal(signal.SIGKILL),
    patch: pytest.MonkeyPatch | None = None,
) -> None:
    """Kill this process, or ``stop`` it otherwise, once stores have applied a change so often."""
    left = times
    for kind in (GraphStore, store_module._OpenTransaction):

        def apply_and_stop(store: Any, given: Any, apply: Any = kind.apply) -> list[Any]:
            nonlocal left
            found: list[Any] = apply(store, given)
            if change in [getattr(each, "work", type(each)).__name__ for each in given]:
                left -= 1
                if left <= 0:
                    stop()
            return found

        (patch or pytest.MonkeyPatch()).setattr(kind, "apply", apply_and_stop)
