"""What an application needs under a LangGraph server: one memory and one model per process.

A server calls the factory of a graph for every run, in its event loop. An embedded memory belongs
to one process, is opened once, and opening it reads files: so it is opened in a thread, and kept.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from langchain_core.language_models import BaseChatModel

from crabpath_retrievers import CrabPathRetriever

T = TypeVar("T")
STORE = "CRABPATH_STORE"
VECTORS = "CRABPATH_VECTORS"
MODEL = "CRABPATH_MODEL"
_DEFAULT_STORE = "memory"
_DEFAULT_MODEL = "openai:gpt-5-mini"

_lock = threading.Lock()
_instances: dict[tuple[str, ...], Any] = {}


async def served_retriever() -> CrabPathRetriever:
    """The retriever of this process, over the memory that the environment names.

    ``CRABPATH_STORE`` is its directory or database URL, by default ``memory``;
    ``CRABPATH_VECTORS`` is the directory of the vectors, for a store at a URL.

    Raises:
        NotFoundError: There is no memory; nothing is created.
        StoreLockedError: Another process uses the directory.
    """
    store, vectors = os.environ.get(STORE, _DEFAULT_STORE), os.environ.get(VECTORS) or None
    return await _make_once(
        ("retriever", store, str(vectors)),
        lambda: CrabPathRetriever.from_existing(store, vectors=vectors),
    )


async def served_model() -> BaseChatModel:
    """The chat model of this process: ``CRABPATH_MODEL``, by default ``openai:gpt-5-mini``.

    The name is one that LangChain's ``init_chat_model`` knows. With ``openai:`` the variable
    ``OPENAI_BASE_URL`` names any server that speaks as OpenAI's does.
    """
    name = os.environ.get(MODEL, _DEFAULT_MODEL)
    return await _make_once(("model", name), lambda: _make_model(name))


def _make_model(name: str) -> BaseChatModel:
    from langchain.chat_models import init_chat_model

    model: BaseChatModel = init_chat_model(name)
    return model


async def _make_once(key: tuple[str, ...], make: Callable[[], T]) -> T:
    """What was made for a key before, else what is made now, in a thread."""

    def get_or_make() -> T:
        with _lock:
            if key not in _instances:
                _instances[key] = make()
            found: T = _instances[key]
            return found

    return await asyncio.to_thread(get_or_make)
