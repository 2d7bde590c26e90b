"""``ShadowRetriever``: serves what the present retriever finds, while a memory learns beside it."""

from collections.abc import Callable
from typing import Any, cast

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.config import patch_config
from pydantic import ConfigDict, Field

from crabpath_lab.shadow_turns import MOST_SHOWN, Shadow, ShownAnswer
from crabpath_retrievers.core.query import METADATA_KEY, QueryOptions, namespace_of, require_count
from crabpath_retrievers.core.records import make_turn_id
from crabpath_retrievers.core.text import format_value, to_storable
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.memory.services import Services
from crabpath_retrievers.retriever import FIELDS, CrabPathRetriever, InvokeOptions, add_config

PresentRetriever = Runnable[str, list[Document]] | Callable[[str], list[Document]]
"""Any LangChain retriever or other Runnable from a question to documents, or a function."""


class ShadowRetriever(BaseRetriever):
    """Returns what the present retriever returns; the memory answers beside it, for nobody.

    Documents, their order and errors are those of the present retriever, and options of a call go
    to it. Metadata get one key, ``crabpath`` with ``turn_id``, ``namespace`` and ``id``, by which
    outcomes are reported as for the memory's own answers: ``memory.record(documents, True,
    used=[…])``, or a callback handler. Documents that have such a key already are returned as they
    are, and feedback names their turn by the run id of the call.

    Made by :meth:`CrabPath.shadow`; the namespace of a call is found as by
    :class:`CrabPathRetriever`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    retriever: Runnable[str, list[Document]] = Field(exclude=True)
    """The present retriever."""
    beside: CrabPathRetriever = Field(exclude=True)
    """How the memory is asked."""
    shadow: Shadow = Field(exclude=True)
    """What asks it."""
    k: int | None = None
    """Documents that the memory would return; None for as many as the present one returned."""

    @property
    def memory(self) -> CrabPath:
        """The memory that learns."""
        return self.beside.memory

    @property
    def failures(self) -> int:
        """Number of questions that the memory failed to answer in time; they have no turn."""
        return self.shadow.failures

    def invoke(
        self,
        input: str,  # noqa: A002  LangChain's name
        config: RunnableConfig | None = None,
        **options: Any,
    ) -> list[Document]:
        """Find documents as the present retriever does, with its options.

        Example::

            retriever = memory.shadow(store.as_retriever())
            documents = retriever.invoke("how do I deploy?")
        """
        return super().invoke(input, config, **_hand_on(config, options))

    async def ainvoke(
        self,
        input: str,  # noqa: A002
        config: RunnableConfig | None = None,
        **options: Any,
    ) -> list[Document]:
        """As :meth:`invoke`, awaited.

        Example::

            retriever = memory.shadow(store.as_retriever())
            documents = await retriever.ainvoke("how do I deploy?")
        """
        return await super().ainvoke(input, config, **_hand_on(config, options))

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        asked: RunnableConfig | None = None,
        **options: Any,
    ) -> list[Document]:
        below = patch_config(asked, callbacks=run_manager.get_child())
        found = self.retriever.invoke(query, below, **options)
        return self._follow(query, found, asked, str(run_manager.run_id))

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        asked: RunnableConfig | None = None,
        **options: Any,
    ) -> list[Document]:
        below = patch_config(asked, callbacks=run_manager.get_child())
        found = await self.retriever.ainvoke(query, below, **options)
        return self._follow(query, found, asked, str(run_manager.run_id))

    def _follow(
        self, query: str, found: list[Document], asked: RunnableConfig | None, run_id: str
    ) -> list[Document]:
        """Mark documents with their turn; the memory answers in the background. Never fails."""
        try:
            own: dict[str, Any] = {name: getattr(self.beside, name) for name in FIELDS}
            own |= {**add_config(asked, {}), "run_id": run_id}
            own["k"] = self.k or min(MOST_SHOWN, max(1, len(found)))
            space = own["namespace"] = namespace_of(own["namespace"])
            turn = make_turn_id()
            names = [
                to_storable(document.id or f"{turn}:{place}")
                for place, document in enumerate(found, start=1)
            ]
            named = list(zip(names, found, strict=True))
            marked = [_mark(document, turn, space, name) for name, document in named]
            self.shadow.add(ShownAnswer(turn, query, named, cast("QueryOptions", own)))
        except Exception as error:
            self.shadow.count_failure(error)
            return found
        return marked


def _hand_on(config: RunnableConfig | None, options: dict[str, Any]) -> dict[str, Any]:
    """The options with the config, for the present retriever, and with its run id."""
    own: InvokeOptions = {}
    if config and config.get("run_id") is not None:
        own["run_id"] = config["run_id"]
    return {**own, **options, "asked": config}


def _mark(document: Document, turn: str, namespace: str, name: str) -> Document:
    """Copy of a document with its turn in the metadata; unchanged if it has such a key."""
    if METADATA_KEY in document.metadata:
        return document
    block = {"turn_id": turn, "namespace": namespace, "id": name}
    return document.model_copy(update={"metadata": {**document.metadata, METADATA_KEY: block}})


def make_shadow(
    present: object, beside: CrabPathRetriever, services: Services, k: int | None
) -> ShadowRetriever:
    """A retriever that serves what the present one finds."""
    runnable = present
    if not isinstance(present, Runnable):
        if not callable(present):
            msg = (
                "shadow needs a retriever, another Runnable or a function from a question to "
                f"documents, not {format_value(present)}: of a vector store give as_retriever()"
            )
            raise InvalidInputError(msg)
        runnable = RunnableLambda(present)
    count = None if k is None else require_count("k", k)
    return ShadowRetriever(retriever=runnable, beside=beside, shadow=Shadow(services), k=count)
