"""``ShadowRetriever``: serves what the present retriever finds, while a memory learns beside it."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
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
from typing_extensions import Self

from crabpath_retrievers.core.calls import limit_waiting, run
from crabpath_retrievers.core.processes import BackgroundWorker, register_owner
from crabpath_retrievers.core.query import (
    METADATA_KEY,
    Query,
    QueryOptions,
    parse_namespace,
    require_count,
)
from crabpath_retrievers.core.records import Node, ReturnedDocument, Vector, make_turn_id
from crabpath_retrievers.core.text import format_value, to_storable, tokenise
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.memory.services import Services
from crabpath_retrievers.retrieval.pipeline import MAX_CHUNKS, find_named_chunks
from crabpath_retrievers.retriever import FIELDS, CrabPathRetriever, InvokeOptions, add_config

_log = logging.getLogger(__name__)
_MOST_WAITING = 64  # questions; more are left out
_LEAST_SHARED = 0.3  # share of the words of the shorter of two texts of one document
MOST_SHOWN = 100
"""Documents of an answer that count, the first ones."""


@dataclass(frozen=True, slots=True)
class ShownAnswer:
    """Answer of the present retriever to a question.

    Attributes:
        turn_id: Id of the turn that will stand for it.
        text: The question.
        documents: What was shown, in order, each with the name by which feedback knows it.
        options: How the memory is asked.
        done: Set when the memory has answered, or failed.
    """

    turn_id: str
    text: str
    documents: Sequence[tuple[str, Document]]
    options: QueryOptions
    done: threading.Event = field(default_factory=threading.Event)


class Shadow:
    """Answers questions beside a present retriever, in a thread of its own, which nobody waits for.

    Attributes:
        failures: How many questions have no turn, since the memory failed or was too slow.
    """

    def __init__(self, services: Services) -> None:
        """Answer from the memory that has these services."""
        self._services = services
        self._worker = BackgroundWorker(self._answer_waiting, "crabpath-shadow")
        self.failures = 0
        self.leave_to_parent()
        register_owner(self)
        services.shadows.add(self)

    def leave_to_parent(self) -> None:
        """Start without questions in a forked process."""
        self._lock = threading.RLock()
        self._waiting = deque[ShownAnswer]()

    def __deepcopy__(self, memo: object) -> Self:
        """Return the shadow itself: copies of a retriever share it."""
        return self

    def add(self, shown: ShownAnswer) -> None:
        """Queue a question to be answered soon, if there is room; returns at once."""
        with self._lock:
            full = len(self._waiting) >= _MOST_WAITING
            if not full:
                self._waiting.append(shown)
        if full:
            self.count_failure(f"{_MOST_WAITING} questions wait already")
        else:
            self._worker.wake()

    def count_failure(self, why: object) -> None:
        """Count a question without a turn; the first one is logged as a warning."""
        with self._lock:
            self.failures += 1
            level = logging.WARNING if self.failures == 1 else logging.DEBUG
        msg = "the memory did not answer a question beside the present retriever, which did: %s"
        _log.log(level, msg, why, exc_info=isinstance(why, Exception) and why)

    def settle(self, seconds: float) -> None:
        """Wait until the questions that wait now are answered, but not longer than this."""
        until = time.monotonic() + seconds
        with self._lock:
            waiting = tuple(self._waiting)
        for shown in waiting:
            if not shown.done.wait(max(0.0, until - time.monotonic())):
                return

    def _answer_waiting(self) -> None:
        while self._waiting:
            shown = self._waiting[0]
            try:
                self._services.require_open()
                with limit_waiting(self._services.settings.time_limit):
                    _record(self._services, shown)
            except Exception as error:  # the present retriever has answered
                self.count_failure(error)
            finally:
                with self._lock:
                    self._waiting.popleft()
                shown.done.set()


def _record(services: Services, shown: ShownAnswer) -> None:
    """Answer a question, and record the turn with what was shown and what would have been."""
    documents = shown.documents[:MOST_SHOWN]
    query = Query.from_options(shown.text, **shown.options)
    clock = services.store.walk.get_clock(query.namespace)
    vector = services.query_vector(query.text)
    options: QueryOptions = {**shown.options, "vector": vector, "record": False}
    answer = run(services.retrieval.steps(query.text, options))
    known = {item.node.id: item.returned for item in answer.documents if item.node.document}
    own = tuple(known)
    matched, ranked = _match(services, query, vector, [document for _, document in documents])
    known |= {item.node: item for item in ranked if item.node not in known}
    names = [name for name, _ in documents]
    turn = replace(
        answer.turn,
        id=shown.turn_id,
        returned=tuple(known[node] for node in dict.fromkeys(matched) if node is not None),
        shadow=own,
        shown={name: node or name for name, node in zip(names, matched, strict=True)},
    )
    services.store.record(turn, vector, clock.key)


def _match(
    services: Services, query: Query, vector: Vector, documents: Sequence[Document]
) -> tuple[list[str | None], Sequence[ReturnedDocument]]:
    """Find the chunk of the memory behind each document that was shown.

    Named by id or source, as in feedback; else the only one that the question leads to and whose
    text or title is the same. Of several chunks of a document the one with the same text, else the
    one that the question ranks best. Two stores may number different texts alike.

    Returns:
        The id of each, or None; and all that might be, as the question ranks them.
    """
    retrieval, catalog = services.retrieval, services.store.catalog
    named = [_list_names(document) for document in documents]
    chunks = find_named_chunks(services.store, {name for names in named for name in names})
    ids = {node for nodes in chunks.values() for node in nodes[:MAX_CHUNKS]}
    contents = catalog.documents(sorted(ids))
    candidates = [
        next(filter(None, (_select(name, chunks[name], contents, text) for name in names)), [])
        for names, text in zip(named, [one.page_content for one in documents], strict=True)
    ]
    if not all(candidates):
        options: QueryOptions = {"vector": vector, "namespace": query.namespace}
        pool = run(retrieval.evidence(query.text, options)).pool
        others = catalog.documents([candidate.head.id for candidate in pool])
        contents |= others
        candidates = [
            found or _find_equal(document, others.values())
            for found, document in zip(candidates, documents, strict=True)
        ]
    wanted = sorted({node for nodes in candidates for node in nodes})
    with services.store.open_reader() as read:
        ranked = retrieval.rank_among(read, query.text, query.namespace, vector, wanted)
    places = {item.node: place for place, item in enumerate(ranked)}

    def choose(document: Document, nodes: Iterable[str]) -> str | None:
        text = _read_words(document.page_content)
        usable = [node for node in nodes if node in places]
        equal = [node for node in usable if _read_words(contents[node].content) == text]
        return min(equal or usable, key=places.__getitem__, default=None)

    return [*map(choose, documents, candidates)], ranked


def _list_names(document: Document) -> list[str]:
    """List possible names of a document in the memory: ids and source."""
    given = (document.id, document.metadata.get("id"), document.metadata.get("source"))
    return [to_storable(str(name)) for name in given if isinstance(name, (str, int)) and name]


def _select(name: str, ids: Iterable[str], contents: dict[str, Node], text: str) -> list[str]:
    """Select the known nodes of a name; a number counts only if the texts share enough words."""
    known, words = [node for node in ids if node in contents], {*tokenise(text)}
    if not (name.isdigit() and words):
        return known
    own = {word for node in known for word in tokenise(contents[node].content)}
    return known if len(words & own) >= _LEAST_SHARED * min(len(words), len(own)) else []


def _find_equal(document: Document, nodes: Iterable[Node]) -> list[str]:
    """Find the nodes with the text of a document, else the only one with its title."""
    text, title = _read_words(document.page_content), document.metadata.get("title")
    known = list(nodes)
    if equal := [node.id for node in known if _read_words(node.content) == text]:
        return equal
    titled = [node.id for node in known if title and node.title == title]
    return titled if len(titled) == 1 else []


def _read_words(text: str) -> str:
    """Normalise a text to single spaces between its words."""
    return " ".join(text.split())


PresentRetriever = Runnable[str, list[Document]] | Callable[[str], list[Document]]
"""Any LangChain retriever or other Runnable from a question to documents, or a function."""


class ShadowRetriever(BaseRetriever):
    """Serves the present retriever's documents, while the memory answers unseen and learns.

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
            space = own["namespace"] = parse_namespace(own["namespace"])
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
    """Add the config for the present retriever, and its run id, to the options."""
    own: InvokeOptions = {}
    if config and config.get("run_id") is not None:
        own["run_id"] = config["run_id"]
    return {**own, **options, "asked": config}


def _mark(document: Document, turn: str, namespace: str, name: str) -> Document:
    """Copy a document with its turn in the metadata; unchanged if it has such a key."""
    if METADATA_KEY in document.metadata:
        return document
    block = {"turn_id": turn, "namespace": namespace, "id": name}
    return document.model_copy(update={"metadata": {**document.metadata, METADATA_KEY: block}})


def make_shadow(
    present: object, beside: CrabPathRetriever, services: Services, k: int | None
) -> ShadowRetriever:
    """Make a retriever that serves the documents that the present one finds."""
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
