"""Shadows: a memory answers beside another retriever, serves nothing, and learns from outcomes."""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from langchain_core.documents import Document
from typing_extensions import Self

from crabpath_retrievers.core.calls import limit_waiting, run
from crabpath_retrievers.core.processes import BackgroundWorker, register_owner
from crabpath_retrievers.core.query import Query, QueryOptions
from crabpath_retrievers.core.records import Node, ReturnedDocument, Vector
from crabpath_retrievers.core.text import to_storable, tokenise
from crabpath_retrievers.memory.services import Services
from crabpath_retrievers.retrieval.pipeline import MAX_CHUNKS, find_named_chunks

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
        """Begin without questions, as in a forked process."""
        self._lock = threading.RLock()
        self._waiting = deque[ShownAnswer]()

    def __deepcopy__(self, memo: object) -> Self:
        """Return the shadow itself: copies of a retriever share it."""
        return self

    def add(self, shown: ShownAnswer) -> None:
        """Answer a question soon; at once it is only put behind the others, if there is room."""
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
    """The chunk of the memory behind each document that was shown.

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
    """Possible names of a document in the memory: its id, and id and source of its metadata."""
    given = (document.id, document.metadata.get("id"), document.metadata.get("source"))
    return [to_storable(str(name)) for name in given if isinstance(name, (str, int)) and name]


def _select(name: str, ids: Iterable[str], contents: dict[str, Node], text: str) -> list[str]:
    """The known nodes of a name; a number names none that has hardly a word of the text."""
    known, words = [node for node in ids if node in contents], {*tokenise(text)}
    if not (name.isdigit() and words):
        return known
    own = {word for node in known for word in tokenise(contents[node].content)}
    return known if len(words & own) >= _LEAST_SHARED * min(len(words), len(own)) else []


def _find_equal(document: Document, nodes: Iterable[Node]) -> list[str]:
    """The nodes with the text of a document, else the only one with its title."""
    text, title = _read_words(document.page_content), document.metadata.get("title")
    known = list(nodes)
    if equal := [node.id for node in known if _read_words(node.content) == text]:
        return equal
    titled = [node.id for node in known if title and node.title == title]
    return titled if len(titled) == 1 else []


def _read_words(text: str) -> str:
    """A text with single spaces between its words."""
    return " ".join(text.split())
