"""A query and its options, and how texts, ids and paths from callers are validated.

What cannot be used raises :class:`InvalidInputError`. What answers add to the metadata of the
documents that they return stands here as well.
"""

import hashlib
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

from typing_extensions import TypedDict, Unpack

from crabpath_retrievers.core.metadata import parse_date, require_bounded
from crabpath_retrievers.core.processes import raise_interruption
from crabpath_retrievers.core.records import Hop, Vector
from crabpath_retrievers.core.text import (
    format_value,
    is_blank,
    is_number,
    remove_pictures,
    to_name,
    to_plain,
    to_storable,
)
from crabpath_retrievers.errors import CrabPathError, InvalidInputError

MetadataFilter: TypeAlias = Mapping[str, Any] | Callable[..., bool] | object | None
"""Condition on metadata: a mapping for most vector stores, a function or an object for some."""

_log = logging.getLogger(__name__)
_LONGEST_NAMESPACE = 512
_LONGEST_LABEL = 200
_SHORTEST_HALF_LIFE = 1e-6  # days
_URL = re.compile(r"\s*[A-Za-z][\w+.-]+://")
_MAX_PATH_BYTES = 470  # SQLite takes 504, of which "/vectors/chroma.sqlite3" is a part
_MAX_FLOAT = sys.float_info.max  # larger whole numbers have no float
_MOST = 1_000_000  # more than any answer; vector stores fail in their own ways above it
MOST_IDS = 10_000
"""Ids or other texts that one argument has at most."""


class RetrieverOptions(TypedDict, total=False):
    """Options of a query that are also fields of a retriever, whichever framework it is for."""

    namespace: str
    """User, agent or tenant whose learned weights apply; 1 to 512 characters."""
    task_type: str | None
    """Type of the task that asks, such as "refund", 1 to 200 characters: transitions between
    regions are counted by it too."""
    explore: bool | int
    """Sample the walk and the weights of the ranking instead of taking the best; an integer of at
    least 0 seeds the sampling."""
    fill: bool
    """Return exactly k documents (as far as there are so many); False: only confident ones."""
    min_score: float | None
    """Least probability of relevance of a document, in [0, 1]; None for no bound. Probabilities
    differ between corpora: look at ``metadata["score"]`` of good and bad answers of yours."""
    one_per_document: bool
    """Return at most one chunk of each document."""
    max_tokens: int | None
    """Tokens of all returned texts together, near-duplicates left out; None for no budget."""
    recency: float | None
    """Half-life of a document in days: a new one has 2.7 times the odds of a very old one, and half
    of that advantage after a half-life. None: age does not count, but of two versions of a text the
    newer stands first."""
    as_of: str | date | None
    """Only what was valid then, such as "2024-05-31", and documents without a date; None: all."""


class CallOptions(RetrieverOptions, total=False):
    """Options that one call of a retriever takes."""

    k: int
    """Documents to return, 1 to 1,000,000; notes that correct some of them come on top."""
    filter: MetadataFilter
    """Condition on metadata, in the language of the vector index."""
    seed_ids: Sequence[str] | None
    """Ids of nodes that the caller suggests as entries of the walk."""
    boost_tags: Sequence[str] | None
    """Documents with one of these values in their metadata are preferred."""
    session: str | None
    """Conversation that asks: feedback without a turn is about its own."""
    arm: str | None
    """Arm of an A/B trial that the query belongs to, as ``trial:arm``."""
    on_hop: Callable[[Hop], object] | None
    """Called with every hop of the walk while it happens. It must not block, and is called in
    worker threads: use ``call_soon_threadsafe`` to reach an event loop."""


_NUMBERS = frozenset(
    {
        *("k", "explore", "fill", "min_score", "one_per_document", "max_tokens", "confined"),
        *("record", "recency"),
    }
)


class QueryOptions(CallOptions, total=False):
    """All options of one query, see :meth:`CrabPath.retrieve`."""

    candidate_ids: Sequence[str] | None
    """Ids of the only nodes that are ranked and returned, whether search finds them or not;
    unknown ids are ignored. None ranks all that is found."""
    vector: Sequence[float] | Vector | None
    """Query vector of shape ``[d]``, not all zero; None embeds the text."""
    existing_ids: Callable[[Sequence[str]], set[str] | None] | None
    """Returns those of some ids that the host still has; others are not returned. None asks the
    vector store, if the memory wraps one."""
    confined: bool
    """True: the walk enters only documents that the filter allows. False: it may pass through
    others, which are not returned."""
    record: bool
    """Whether the turn is recorded, so that feedback can refer to it."""
    run_id: str | UUID | None
    """Run of the host framework, by which feedback can refer to the turn."""
    callbacks: Any
    """Callbacks of the host framework, for a router that runs models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One validated question: ``text`` and :class:`QueryOptions`; see :meth:`from_options`."""

    text: str
    k: int = 4
    namespace: str = "default"
    filter: MetadataFilter = None
    seed_ids: Sequence[str] = ()
    boost_tags: Sequence[str] = ()
    explore: bool | int = False
    fill: bool = True
    min_score: float | None = None
    one_per_document: bool = False
    max_tokens: int | None = None
    recency: float | None = None
    as_of: datetime | None = None
    candidate_ids: Sequence[str] | None = None
    vector: Vector | None = None
    existing_ids: Callable[[Sequence[str]], set[str] | None] | None = None
    confined: bool = False
    record: bool = True
    task_type: str | None = None
    session: str | None = None
    arm: str | None = None
    run_id: str | None = None
    callbacks: Any = None
    on_hop: Callable[[Hop], object] | None = None

    @classmethod
    def from_options(cls, text: str, **options: Unpack[QueryOptions]) -> "Query":
        """Check the options of a question, and normalise its texts for storage.

        Raises:
            InvalidInputError: The text is empty, or an option cannot be used.
        """
        if not isinstance(text, str):
            msg = f"the query must be a text, not {type(text).__name__}: pass the question itself"
            raise InvalidInputError(msg)
        question = remove_pictures(to_storable(text))
        if not question.strip():
            msg = "the query is empty: pass a question or some words"
            raise InvalidInputError(msg)
        plain = {name: to_plain(options.get(name)) for name in _NUMBERS & options.keys()}
        given: dict[str, Any] = {**options, **plain}
        if "namespace" in given:
            given["namespace"] = parse_namespace(given["namespace"])
        if given.get("session") is not None:
            given["session"] = parse_session(given["session"])
        labels = ("task_type", "arm", "run_id")
        given |= {n: parse_label(n, given[n]) for n in labels if given.get(n) is not None}
        if given.get("as_of") is not None:
            given["as_of"] = parse_moment("as_of", given["as_of"])
        for name in ("seed_ids", "boost_tags", "candidate_ids"):
            if given.get(name) is not None:
                given[name] = parse_texts(given[name], name=name)
            elif name != "candidate_ids":  # None is the default
                given.pop(name, None)
        try:
            query = cls(text=question, **given)
        except TypeError as error:
            raise InvalidInputError(explain_unknown(given, QueryOptions.__annotations__)) from error
        query._require_valid_options()
        return query

    def _require_valid_options(self) -> None:
        require_count("k", self.k)
        if self.max_tokens is not None:
            require_count("max_tokens", self.max_tokens)
        if self.min_score is not None:
            require_number("min_score", self.min_score, 0.0, 1.0)
        if self.recency is not None:
            require_number("recency", self.recency, _SHORTEST_HALF_LIFE, _MAX_FLOAT)
        require_flags(
            fill=self.fill,
            one_per_document=self.one_per_document,
            confined=self.confined,
            record=self.record,
        )
        if not isinstance(self.explore, int) or self.explore < 0:
            shown = format_value(self.explore)
            msg = f"explore must be a boolean or a seed of at least 0, not {shown}"
            raise InvalidInputError(msg)
        if self.filter is not None:
            require_bounded(self.filter)
        try:
            holds_nothing = not self.filter
        except Exception as error:  # vector stores have filters of all kinds
            raise_interruption(error)
            msg = f"the filter cannot be used ({error}): pass one of your vector store's language"
            raise InvalidInputError(msg) from error
        if holds_nothing and not (self.filter is None or isinstance(self.filter, (Mapping, str))):
            shown = format_value(self.filter)
            msg = f"the filter must be a condition, or None for none, not {shown}"
            raise InvalidInputError(msg)
        for name, what in (("on_hop", "one hop"), ("existing_ids", "a list of ids")):
            value = getattr(self, name)
            if value is not None and not callable(value):
                msg = f"{name} must be a function of {what}, not {format_value(value)}"
                raise InvalidInputError(msg)


def parse_moment(name: str, value: object) -> datetime:
    """Parse a date or text to a moment, see :func:`parse_date`; a day or month to its end."""
    if (found := parse_date(value, last=True)) is None:
        msg = f'{name} must be a date such as "2024-05-31", not {format_value(value)}'
        raise InvalidInputError(msg)
    return found


def parse_text(name: str, value: object) -> str:
    """Check a text, and normalise it for storage; ids may be numbers or UUIDs, sources paths."""
    text = _spell(value)
    if text is None:
        msg = f"{name} must be a text, not {format_value(value)}"
        raise InvalidInputError(msg)
    return to_storable(text)


def _spell(value: object) -> str | None:
    """Convert a text, whole number, UUID or path to text; return None for any other value."""
    plain = to_plain(value)
    if isinstance(plain, bool) or not isinstance(plain, (str, int, UUID, os.PathLike)):
        return None
    try:
        return str(plain)
    except ValueError:  # a number of too many digits
        return None


def parse_texts(values: Iterable[object], *, name: str = "ids") -> list[str]:
    """Parse one or several texts to a list; a single text is one value, not its characters.

    Raises:
        InvalidInputError: A value is no text, or there are more than 10,000.
    """
    if isinstance(values, str):
        return [to_storable(values)]
    given = require_list(name, values, "a list of texts")
    return [parse_text(name, value) for value in require_few(name, given)]


def require_few(name: str, values: list[Any]) -> list[Any]:
    """Return a list of at most 10,000 values; refuse a longer one."""
    if len(values) > MOST_IDS:
        msg = f"{name} has {len(values):,} values: give at most {MOST_IDS:,} at a time"
        raise InvalidInputError(msg)
    return values


def parse_ids(values: object, *, name: str = "ids") -> list[str]:
    """Parse the ids of one or several documents or nodes, or objects that have an id.

    Raises:
        InvalidInputError: A value is or has no id, or there are more than 10,000.
    """
    single = isinstance(values, (str, int, UUID)) or hasattr(values, "page_content")
    found = []
    given = [values] if single else require_list(name, values, "a list of ids or documents")
    for value in require_few(name, given):
        known = value if isinstance(value, (str, int, UUID)) else find_id(value)
        if known is None or isinstance(known, bool):
            msg = f"{name} must be ids, or documents that have one, not {format_value(value)}"
            raise InvalidInputError(msg)
        found.append(parse_text(name, known))
    return found


def find_id(given: object) -> str | int | UUID | None:
    """Find the id of a document or node, or in its answer metadata; None for other objects."""
    metadata = getattr(given, "metadata", None)
    block = read_answer_block(metadata) if isinstance(metadata, Mapping) else None
    found = *(getattr(given, name, None) for name in ("id", "node_id")), (block or {}).get("id")
    return next((name for name in found if isinstance(name, (str, int, UUID)) and name), None)


def require_list(name: str, values: object, what: str = "a list") -> list[Any]:
    """List the items of an iterable; refuse a text, and whatever has no items."""
    try:
        if not isinstance(values, (str, bytes, bytearray, Mapping)):
            return list(values)  # type: ignore[call-overload, no-any-return]
    except CrabPathError:
        raise
    except Exception as error:
        raise_interruption(error)
        _log.debug("%s cannot be gone through", name, exc_info=True)
    msg = f"{name} must be {what}, not {format_value(values)}"
    raise InvalidInputError(msg)


def require_result(source: object, what: str, found: object, *, fits: bool) -> None:
    """Refuse the result of a custom part, such as an index or router, unless it ``fits``.

    ``source`` is the part, ``what`` says what it must return, and ``found`` is what it returned.
    """
    if not fits:
        msg = f"{type(source).__name__} must return {what}, not {format_value(found)}"
        raise InvalidInputError(msg)


def is_url(place: object) -> bool:
    """Whether a place is a URL: a text that begins with a scheme of two letters or more and ``://``.

    Every other text, and every ``Path``, is the name of a directory.
    """
    return isinstance(place, str) and _URL.match(place) is not None


def directory_of(name: str, value: object) -> Path:
    """Make an absolute path with ``~`` expanded; it need not exist.

    Raises:
        InvalidInputError: The value is no path, or its name is too long or not in UTF-8.
    """
    path = parse_path(name, value).absolute()
    with suppress(OSError, RuntimeError, UnicodeEncodeError):
        if len(str(path.resolve()).encode()) <= _MAX_PATH_BYTES:
            return path
    msg = (
        f"{name} must be a directory with a name in UTF-8 of at most {_MAX_PATH_BYTES} bytes, not "
        f"{format_value(str(value))}: choose another"
    )
    raise InvalidInputError(msg)


def parse_path(name: str, value: object) -> Path:
    """Parse a path and expand ``~``; it need not exist."""
    why = ""
    try:
        if isinstance(value, (str, os.PathLike)) and str(value):
            path = Path(value)
            if str(value).startswith("~"):  # not "./~", which is a name
                path = path.expanduser()
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                path.lstat()
            return path
    except (OSError, ValueError, RuntimeError) as error:
        why = f" ({error})"[:200]
    msg = f"{name} must be a path, not {format_value(value)}{why}"
    raise InvalidInputError(msg)


def require_splitter(splitter: object) -> None:
    """Refuse an object that cannot split texts."""
    if splitter is not None and not callable(getattr(splitter, "split_text", None)):
        msg = f"splitter must be a LangChain TextSplitter, not {format_value(splitter)}"
        raise InvalidInputError(msg)


def require_flags(**given: object) -> None:
    """Refuse flags that are neither True nor False."""
    for name, value in given.items():
        if not isinstance(to_plain(value), bool):
            msg = f"{name} must be True or False, not {format_value(value)}"
            raise InvalidInputError(msg)


def parse_namespace(name: object) -> str:
    """Check a namespace, and normalise it to the text that is stored.

    Raises:
        InvalidInputError: The namespace is no text, is empty or has more than 512 characters.
    """
    # Checked as it is stored: what is not stored of a text may be all that there is.
    text = to_name(name) if isinstance(name, str) else ""
    if not text.strip():
        msg = f"namespace must be a non-empty text, not {format_value(name)}"
        raise InvalidInputError(msg)
    if len(text) > _LONGEST_NAMESPACE:
        msg = f"namespace must have at most {_LONGEST_NAMESPACE} characters, not {len(text)}"
        raise InvalidInputError(msg)
    return text


_RUNTIME, _USER = "__pregel_runtime", "langgraph_auth_user"  # keys that LangGraph writes


def find_namespace(configurable: Mapping[str, Any]) -> str | None:
    """Find the namespace of a call in the configuration of its run: the first that is given.

    1. The user authenticated by a LangGraph server;
    2. ``namespace``, then ``user_id``, of the context of LangGraph's runtime;
    3. ``namespace``, then ``user_id``, of the configuration itself.

    Blank texts are skipped: a LangGraph server without authentication writes one. None if none is
    given: then the retriever's own namespace applies.
    """
    runtime = configurable.get(_RUNTIME)
    places = getattr(runtime, "context", None), configurable
    found = [_read_member(configurable.get(_USER), "identity")]
    found += [_read_member(place, name) for place in places for name in ("namespace", "user_id")]
    return next((str(name) for name in found if not is_blank(name)), None)


_SESSIONS = ("thread_id", "session_id", "conversation_id")


def find_session(config: Mapping[str, Any] | None) -> str | None:
    """Find the conversation of a call in the config of its run; None if none is given.

    ``thread_id`` of LangGraph, ``session_id`` of LangChain's message histories, or
    ``conversation_id``, in ``config["configurable"]``, else in ``config["metadata"]``, where
    LangSmith finds them.
    """
    places = [(config or {}).get(part) or {} for part in ("configurable", "metadata")]
    given = (place.get(name) for place in places for name in _SESSIONS)
    return next((parse_session(str(name)) for name in given if not is_blank(name)), None)


def parse_session(session: object) -> str:
    """Normalise a conversation for storage: its text, or the SHA-256 if above 200 characters."""
    text = to_name(_spell(session) or "")
    if is_blank(text):
        msg = f"session must be a non-empty text, a number or a UUID, not {format_value(session)}"
        raise InvalidInputError(msg)
    return text if len(text) <= _LONGEST_LABEL else hashlib.sha256(text.encode()).hexdigest()


def _read_member(place: object, name: str) -> Any:
    """Read ``name`` from a mapping, or from the attributes of another object; None if missing."""
    return place.get(name) if isinstance(place, Mapping) else getattr(place, name, None)


def parse_label(name: str, value: object) -> str:
    """Check the type of a task or an action, or another label, and normalise it for storage."""
    text = to_storable(str(value)) if isinstance(value, (str, UUID)) else ""
    if not text.strip() or len(text) > _LONGEST_LABEL:
        msg = (
            f"{name} must be a text of 1 to {_LONGEST_LABEL} characters, not {format_value(value)}"
        )
        raise InvalidInputError(msg)
    return text


def require_number(
    name: str, value: object, least: float = -_MAX_FLOAT, most: float = _MAX_FLOAT
) -> float:
    """Check that a number is from ``least`` to ``most``, and return it."""
    number = to_plain(value)
    if not is_number(number) or not least <= number <= most:
        kind = "finite number" if least == -_MAX_FLOAT else f"number from {least:g} to {most:g}"
        msg = f"{name} must be a {kind}, not {format_value(value)}"
        raise InvalidInputError(msg)
    return float(number)


def explain_unknown(given: Iterable[str], usable: Iterable[str]) -> str:
    """Explain in one sentence which of the arguments ``given`` are not ``usable``.

    The sentence names similar ones that are; without any it names all.
    """
    names = list(usable)
    unknown = [name for name in given if name not in names]
    similar = [n for name in unknown for n in get_close_matches(name, names, n=1)]
    return f"unknown arguments {', '.join(unknown)}: use {', '.join(similar or names)}"


def require_count(name: str, value: object, least: int = 1, most: int = _MOST) -> int:
    """Check that a whole number is from ``least`` to ``most``, and return it."""
    count = to_plain(value)
    if isinstance(count, bool) or not isinstance(count, int) or not least <= count <= most:
        msg = f"{name} must be a whole number from {least} to {most}, not {format_value(value)}"
        raise InvalidInputError(msg)
    return count


METADATA_KEY = "crabpath"
"""Key of the block that describes how a document was found; documents have none of their own."""

_ADDED = "added"
_SHORTCUTS = ("id", "score")
_TURN = {"turn_id", "namespace", "id"}


def add_answer_metadata(own: Mapping[str, Any], block: Mapping[str, Any]) -> dict[str, Any]:
    """Add the block of an answer to the metadata of a returned document.

    ``own`` is the document's metadata, which stays as it is. ``block`` says how the document was
    found; it has ``id`` and ``score``. It is added under ``crabpath``; id and score are also added
    at the top level, unless the document has such keys.
    """
    added = [name for name in _SHORTCUTS if name not in own]
    shortcuts = {name: block[name] for name in added}
    return {**shortcuts, **own, METADATA_KEY: {**block, _ADDED: added}}


def read_answer_block(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Read the block that an answer added to metadata; None if there is none."""
    block = metadata.get(METADATA_KEY)
    return block if isinstance(block, Mapping) and block.keys() >= _TURN else None


def remove_answer_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the additions of an answer, so that a returned document can be added again.

    Raises:
        InvalidInputError: Something else is under the key of the answer's block.
    """
    block = read_answer_block(metadata)
    if block is None and METADATA_KEY in metadata:
        msg = (
            f"a document has {format_value(metadata[METADATA_KEY])} under {METADATA_KEY!r} in its "
            "metadata, where answers say how they found it: give that key another name"
        )
        raise InvalidInputError(msg)
    block = block or {}
    added = [name for name in _SHORTCUTS if name in (block.get(_ADDED) or ())]
    ours = {METADATA_KEY, *(name for name in added if metadata.get(name) == block.get(name))}
    return {key: value for key, value in metadata.items() if key not in ours}


_TITLES = {"correction": "Correction", "directive": "Instruction", "auto": "Earlier answer"}


def complete_note_metadata(
    own: Mapping[str, Any], samples: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Add to the metadata of a returned note all keys that document templates may use.

    Keys that all ``samples`` of documents have and the note lacks become empty strings; ``source``
    and ``title`` are never empty.
    """
    known = list(samples)
    common = [key for key in (known[0] if known else ()) if all(key in other for other in known)]
    kind = own.get("note", "teaching")
    defaults = {"source": f"crabpath:{kind}", "title": _TITLES.get(kind, "Note")}
    blank = {key: "" for key in common if key not in (*_SHORTCUTS, METADATA_KEY)}
    return {**blank, **defaults, **own}
