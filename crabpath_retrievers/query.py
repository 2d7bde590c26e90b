"""What is asked of the memory."""

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from crabpath_retrievers.errors import CrabPathError, InvalidInputError
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.text import shown, storable
from crabpath_retrievers.trajectory import Hop

_log = logging.getLogger(__name__)
_LONGEST_NAMESPACE = 512
_LONGEST_LABEL = 200
_MOST = 1_000_000  # more than any answer; vector stores fail in their own ways above it


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One question to the memory.

    Attributes:
        text: What is asked.
        k: Documents to return, at least 1.
        namespace: Whose learned weights apply, and whose clock advances.
        filter: Condition on metadata, in the vector index's own language.
        seed_ids: Nodes that the host suggests as entries (document 002 §1.4).
        boost_tags: Documents whose metadata carries one of these values are preferred.
        fill: Return exactly k (as far as there are documents); else only confident ones.
        distinct: Return at most one chunk of every document.
        max_tokens: Budget for the returned texts, near-duplicates left out; None for no budget.
        among: Ids of the only nodes that are ranked and returned, whether search finds them or
            not; unknown ids are ignored. None ranks all that is found.
        vector: Unit query vector of shape ``[d]``; None embeds the text.
        held: Tells which of some ids the host still holds; others are not returned. None asks the
            vector store, if the memory wraps one.
        record: Whether to keep the turn record.
        task_type: Type of the task that asks, such as "refund": what is learned of steps in regions
            is also counted by it.
        session: Conversation that asks, for trials (see :mod:`crabpath_retrievers.ab`).
        arm: Arm of a trial that it belongs to, as ``trial:arm``.
        run_id: Run of the host framework, by which feedback may find the turn.
        callbacks: Callbacks of the host framework, for a router that runs models.
        on_hop: Told of every hop of the walk while it happens; it must not block. Async calls walk
            in worker threads and on the event loop: use ``call_soon_threadsafe`` for the latter.
    """

    text: str
    k: int = 4
    namespace: str = "default"
    filter: Mapping[str, Any] | None = None
    seed_ids: Sequence[str] = ()
    boost_tags: Sequence[str] = ()
    fill: bool = True
    distinct: bool = False
    max_tokens: int | None = None
    among: Sequence[str] | None = None
    vector: Vector | None = None
    held: Callable[[Sequence[str]], set[str] | None] | None = None
    record: bool = True
    task_type: str | None = None
    session: str | None = None
    arm: str | None = None
    run_id: str | None = None
    callbacks: Any = None
    on_hop: Callable[[Hop], object] | None = None

    @classmethod
    def of(cls, text: str, **options: Any) -> "Query":
        """A question with its texts such as every database stores them.

        Raises:
            InvalidInputError: The question cannot be asked.
        """
        if not isinstance(text, str):
            msg = f"the query must be a text, not {type(text).__name__}: pass the question itself"
            raise InvalidInputError(msg)
        given = dict(options)
        if "namespace" in given:
            given["namespace"] = namespace_of(given["namespace"])
        for name in ("task_type", "session", "arm", "run_id"):
            if given.get(name) is not None:
                given[name] = label_of(name, given[name])
        for name in ("seed_ids", "boost_tags", "among"):
            if given.get(name) is not None:
                given[name] = texts_of(given[name], name=name)
            elif name != "among":  # as if it had not been given
                given.pop(name, None)
        return cls(text=storable(text), **given)

    def __post_init__(self) -> None:
        """Refuse what cannot be asked.

        Raises:
            InvalidInputError: Empty text, k or budget below 1, an unusable namespace or ``on_hop``.
        """
        if not isinstance(self.text, str) or not self.text.strip():
            msg = "the query is empty: pass a question or some words"
            raise InvalidInputError(msg)
        require_count("k", self.k)
        if self.max_tokens is not None:
            require_count("max_tokens", self.max_tokens)
        namespace_of(self.namespace)
        require_flags(fill=self.fill, distinct=self.distinct, record=self.record)
        try:
            bool(self.filter)
        except Exception as error:  # vector stores have filters of all kinds
            msg = f"the filter cannot be used ({error}): pass one of your vector store's language"
            raise InvalidInputError(msg) from error
        for name, what in (("on_hop", "one hop"), ("held", "a list of ids")):
            value = getattr(self, name)
            if value is not None and not callable(value):
                msg = f"{name} must be a function of {what}, not {shown(value)}"
                raise InvalidInputError(msg)


def text_of(name: str, value: object) -> str:
    """A text as it is stored; ids may also be given as numbers or UUIDs.

    Raises:
        InvalidInputError: It is nothing that has a text.
    """
    try:
        if not isinstance(value, (bytes, bytearray)):
            return storable(str(value))
    except Exception:  # whatever an object of a caller raises
        _log.debug("%s has no text", name, exc_info=True)
    msg = f"{name} must be a text, not {shown(value)}"
    raise InvalidInputError(msg)


def texts_of(values: Iterable[object], *, name: str = "ids") -> list[str]:
    """One or several texts as a list; a single text is one value, not its characters.

    Raises:
        InvalidInputError: It is neither.
    """
    if isinstance(values, str):
        return [storable(values)]
    return [text_of(name, value) for value in listed(name, values, "a list of texts")]


def listed(name: str, values: object, what: str = "a list") -> list[Any]:
    """The items of a list, or of anything else that can be gone through, but for texts.

    Raises:
        InvalidInputError: It cannot.
    """
    try:
        if not isinstance(values, (str, bytes, bytearray, Mapping)):
            return list(values)  # type: ignore[call-overload, no-any-return]
    except CrabPathError:
        raise
    except Exception:
        _log.debug("%s cannot be gone through", name, exc_info=True)
    msg = f"{name} must be {what}, not {shown(values)}"
    raise InvalidInputError(msg)


def path_of(name: str, value: object) -> Path:
    """A path with ``~`` expanded, whether there is something or not.

    Raises:
        InvalidInputError: It is none that the system could know.
    """
    why = ""
    try:
        if isinstance(value, (str, os.PathLike)) and str(value):
            path = Path(value).expanduser()
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                path.lstat()
            return path
    except (OSError, ValueError, RuntimeError) as error:
        why = f" ({error})"[:200]
    msg = f"{name} must be a path, not {shown(value)}{why}"
    raise InvalidInputError(msg)


def require_splitter(splitter: object) -> None:
    """Refuse what cannot split texts.

    Raises:
        InvalidInputError: It is neither None nor like a ``TextSplitter`` of LangChain.
    """
    if splitter is not None and not callable(getattr(splitter, "split_text", None)):
        msg = f"splitter must be a LangChain TextSplitter, not {shown(splitter)}"
        raise InvalidInputError(msg)


def require_flags(**given: object) -> None:
    """Refuse flags that are neither True nor False.

    Raises:
        InvalidInputError: One is something else.
    """
    for name, value in given.items():
        if not isinstance(value, bool):
            msg = f"{name} must be True or False, not {shown(value)}"
            raise InvalidInputError(msg)


def namespace_of(name: object) -> str:
    """A namespace as it is stored.

    Raises:
        InvalidInputError: It is no text, empty, or longer than databases can index.
    """
    # Checked as it is stored: what is not stored of a text may be all that there is.
    text = storable(name) if isinstance(name, str) else ""
    if not text.strip():
        msg = f"namespace must be a non-empty text, not {shown(name)}"
        raise InvalidInputError(msg)
    if len(text) > _LONGEST_NAMESPACE:
        msg = f"namespace must have at most {_LONGEST_NAMESPACE} characters, not {len(text)}"
        raise InvalidInputError(msg)
    return text


def label_of(name: str, value: object) -> str:
    """The type of a task or of an action, or another label, as it is stored.

    Raises:
        InvalidInputError: It is no text of 1 to 200 characters.
    """
    text = storable(str(value)) if isinstance(value, (str, UUID)) else ""
    if not text.strip() or len(text) > _LONGEST_LABEL:
        msg = f"{name} must be a text of 1 to {_LONGEST_LABEL} characters, not {shown(value)}"
        raise InvalidInputError(msg)
    return text


def require_count(name: str, value: object) -> None:
    """Refuse what is no number of things to return.

    Raises:
        InvalidInputError: It is no whole number from 1 to a million.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
        msg = f"{name} must be a whole number of at least 1 and at most {_MOST}, not {shown(value)}"
        raise InvalidInputError(msg)
