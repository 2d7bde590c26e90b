"""One memory and one model per process, for applications on a LangGraph server.

A server calls the factory of a graph for every run, in its event loop. An embedded memory belongs
to one process, and opening it reads files: so it is opened once, in a thread.
"""

import asyncio
import os
from collections.abc import Callable
from typing import Any, TypeVar

from langchain_core.language_models import BaseChatModel

from crabpath_retrievers import CrabPathRetriever
from crabpath_retrievers.integration import NAMED_OPTIONS, make_lock

T = TypeVar("T")
STORE = "CRABPATH_STORE"
MODEL = "CRABPATH_MODEL"
_DEFAULT_STORE = "memory"
_DEFAULT_MODEL = "openai:gpt-5-mini"

_lock = make_lock()
_instances: dict[tuple[str, ...], Any] = {}


async def served_retriever() -> CrabPathRetriever:
    """Return the retriever of this process, over the memory that the environment names.

    ``CRABPATH_STORE`` is its directory or database URL, by default ``memory``;
    ``CRABPATH_VECTORS`` is the directory of the vectors, for a store at a URL;
    ``CRABPATH_REPLICA`` is the URL of a read replica;
    ``CRABPATH_EMBEDDINGS`` is the embedder, such as ``openai:text-embedding-3-small``, unless the
    memory remembers it.

    Raises:
        NotFoundError: The memory does not exist; nothing is created.
        StoreLockedError: Another process uses the directory.
    """
    store = os.environ.get(STORE, _DEFAULT_STORE)
    named: dict[str, Any] = {
        name: os.environ.get(f"CRABPATH_{name.upper()}") or None for name in NAMED_OPTIONS
    }
    return await _make_once(
        ("retriever", store, *map(str, named.values())),
        lambda: CrabPathRetriever.from_existing(store, **named),
    )


async def served_model() -> BaseChatModel:
    """Return the chat model of this process: ``CRABPATH_MODEL`` or ``openai:gpt-5-mini``.

    The name is passed to LangChain's ``init_chat_model``. With ``openai:`` the variable
    ``OPENAI_BASE_URL`` names any server with an OpenAI-compatible API.
    """
    name = os.environ.get(MODEL, _DEFAULT_MODEL)
    return await _make_once(("model", name), lambda: _make_model(name))


def _make_model(name: str) -> BaseChatModel:
    from langchain.chat_models import init_chat_model

    model: BaseChatModel = init_chat_model(name)
    return model


async def _make_once(key: tuple[str, ...], make: Callable[[], T]) -> T:
    """Return the instance of a key; make it in a thread at first use."""

    def get_or_make() -> T:
        with _lock:
            own = (str(os.getpid()), *key)  # a forked process opens its own
            if own not in _instances:
                _instances[own] = make()
            found: T = _instances[own]
            return found

    return await asyncio.to_thread(get_or_make)
