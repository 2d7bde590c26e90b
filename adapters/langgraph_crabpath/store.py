"""A store of LangGraph over a memory: agents keep items in it, and searches learn from outcomes."""

import builtins
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple, TypeAlias

from langchain_core.documents import Document
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    get_text_at_path,
)
from typing_extensions import Unpack

from crabpath_retrievers import CrabPath, InvalidInputError
from crabpath_retrievers.integration import (
    METADATA_KEY,
    MOST_IDS,
    ORDERS,
    Answer,
    FeedbackFields,
    Operations,
    Outcome,
    QueryOptions,
    Receipt,
    arun,
    find_session,
    is_blank,
    make_lock,
    perform,
    perform_slow,
    perform_sync_or_async,
    require_bounded,
    run,
    to_plain,
)

Labels: TypeAlias = tuple[str, ...]
"""A namespace of LangGraph, such as ``("memories", "ann")``."""


_ROOT = "store:"
_ITEM = "item"  # key of the metadata that holds the item; no vector index filters by it
_MAX_ID_LENGTH = 500  # characters of a namespace and a key together
_MAX_TEXT_LENGTH = 500  # characters of a field of a value by which a vector index filters
_UNSAFE = re.compile(r"^:|[%/\x00-\x1f\x7f-\x9f\ud800-\udfff\U0010ffff]")
_UNSTORED = re.compile(r"[\x00\ud800-\udfff]")  # characters that vector indexes do not store
_ESCAPED = re.compile(r"%([0-9A-F]{6})")
_LARGEST = 2**53  # below it a float holds whole numbers exactly
_CEILING = 10**308  # beyond it there are no floats
_PAGE = 1000  # items read at once where namespaces are listed
_MAX_LISTED = 1_000_000  # documents that a memory lists at once
_LISTS = ("$in", "$nin")
_OPERATORS = ("$eq", "$ne", *ORDERS, *_LISTS)
_GROUPS = {"$and": all, "$or": any}


class CrabPathSearchItem(SearchItem):
    """An item that a search returned, with the turn that found it; see ``CrabPathStore.record``.

    Attributes:
        turn_id: Id of the turn in the memory; None for an item that was listed without a query.
        turn_namespace: Namespace of the memory that the turn belongs to.
    """

    __slots__ = ("turn_id", "turn_namespace")

    def __init__(
        self,
        namespace: Labels,
        key: str,
        value: builtins.dict[str, Any],
        created_at: datetime,
        updated_at: datetime,
        score: float | None = None,
        turn_id: str | None = None,
        turn_namespace: str | None = None,
    ) -> None:
        """Make an item of a search; arguments as the attributes."""
        super().__init__(namespace, key, value, created_at, updated_at, score)
        self.turn_id, self.turn_namespace = turn_id, turn_namespace

    def dict(self) -> builtins.dict[str, Any]:
        """Return the item as plain values for checkpoints and servers, with its turn, if any."""
        plain: builtins.dict[str, Any] = super().dict()
        if self.turn_id is not None:
            plain |= {"turn_id": self.turn_id, "turn_namespace": self.turn_namespace}
        return plain

    @property
    def id(self) -> str:
        """Id of its document in the memory."""
        return _make_id(self.namespace, self.key)

    @property
    def metadata(self) -> builtins.dict[str, Any]:
        """The turn, as every document that CrabPath returns has it; empty without one."""
        if self.turn_id is None:
            return {}
        turn = {"turn_id": self.turn_id, "namespace": self.turn_namespace, "id": self.id}
        return {METADATA_KEY: turn}


class CrabPathStore(BaseStore):
    """LangGraph's ``BaseStore`` over a memory; its searches learn from outcomes.

    An item is a document of the memory; its text has the indexed fields, its metadata the value.
    A search with a query is a turn of the memory, and :meth:`record` teaches it which items
    helped. A search never returns, walks through, or shows to a router an item outside of its
    namespace prefix. Give the store a memory of its own: a retriever over the same memory would
    find the items of all namespaces.

    Every operation of a batch sees the store as it was before the batch, as with LangGraph's
    ``InMemoryStore``. TTLs are not supported.
    """

    __slots__ = ("_fields", "_memory", "_options", "_turn_namespace", "_writing")

    def __init__(
        self,
        memory: CrabPath,
        *,
        fields: Sequence[str] = ("$",),
        namespace: str | Callable[[Labels], str] | None = None,
        options: QueryOptions | None = None,
    ) -> None:
        """Keep items in a memory.

        Args:
            memory: An open memory; whoever opened it closes it.
            fields: Paths of the fields of a value that are searched, as LangGraph writes them,
                where :meth:`put` names none; ``"$"`` is the whole value.
            namespace: Namespace of the memory that a search learns in: a text, or a function of
                the namespace prefix that is searched. None keeps them apart: one for each prefix.
            options: Other options of every query, such as ``min_score`` and ``max_tokens``.

        Raises:
            InvalidInputError: An argument cannot be used.
        """
        if not isinstance(memory, CrabPath):
            msg = f"CrabPathStore needs an open CrabPath memory, not a {type(memory).__name__}"
            raise InvalidInputError(msg)
        own = {"k", "filter", "namespace", "confined", "candidate_ids"} & set(options or ())
        if own:
            msg = f"the store sets {', '.join(sorted(own))} itself: leave it out of options="
            raise InvalidInputError(msg)
        self._memory, self._fields = memory, _require_fields(fields)
        self._turn_namespace, self._options = namespace, options or QueryOptions()
        self._writing = make_lock()

    @property
    def memory(self) -> CrabPath:
        """The memory that holds the items."""
        return self._memory

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Perform several operations: reads first, and of several puts for one key the last.

        Args:
            ops: Operations.

        Returns:
            One result for each operation, in their order.

        Raises:
            InvalidInputError: An operation cannot be used; nothing was changed.
            StoreError: A store failed.
        """
        return run(self._steps(list(ops)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """As :meth:`batch`, without blocking the event loop."""
        return await arun(self._steps(list(ops)))

    def record(
        self,
        about: Any,
        outcome: Outcome,
        *,
        prefix: Labels | None = None,
        **fields: Unpack[FeedbackFields],
    ) -> list[Receipt]:
        """Learn from the outcome of searches: which items come first in the next ones.

        Args:
            about: Items of a search; the state of an agent, or another container, that has such
                items as artifacts of tools; a turn id; or None for the last searches under
                ``prefix``.
            outcome: True or ``"up"``, False or ``"down"``, or a number from -1 to 1.
            prefix: The namespace prefix that was searched, where ``about`` is None.
            fields: As for :meth:`CrabPath.record`; ``used``, ``unused``, ``relevant`` and
                ``irrelevant`` also take items. To correct an item, put it again.

        Returns:
            One receipt for each turn.

        Raises:
            InvalidInputError: An argument cannot be used, or nothing can be learned from it.
            NotFoundError: There is no such turn.
            StoreError: It could not be saved.

        Example::

            found = store.search(("memories", "ann"), query="Which tea?")
            store.record(found, True, used=found[:1])
        """
        return run(self._record_steps(about, outcome, prefix, fields))

    async def arecord(
        self,
        about: Any,
        outcome: Outcome,
        *,
        prefix: Labels | None = None,
        **fields: Unpack[FeedbackFields],
    ) -> list[Receipt]:
        """As :meth:`record`, without blocking the event loop."""
        return await arun(self._record_steps(about, outcome, prefix, fields))

    def find_turn_namespace(self, prefix: Labels) -> str:
        """Return the memory's namespace in which searches under a prefix learn."""
        given = self._turn_namespace
        if given is None:
            return _make_place(prefix)
        return given(prefix) if callable(given) else given

    def _record_steps(
        self,
        about: Any,
        outcome: Outcome,
        prefix: Labels | None,
        fields: Mapping[str, Any],
    ) -> Operations[list[Receipt]]:
        if (about is None) != (prefix is not None):
            msg = "pass what it is about; or None, and prefix= with the namespace that was searched"
            raise InvalidInputError(msg)
        if "correction" in fields:
            msg = "a store keeps items, not corrections: put the corrected item"
            raise InvalidInputError(msg)
        given: dict[str, Any] = dict(fields)
        if prefix is not None:
            given["namespace"] = self.find_turn_namespace(tuple(prefix))
            given.setdefault("session", find_session(var_child_runnable_config.get()))
        receipts = yield from perform(lambda: self._memory.record(about, outcome, **given))
        return receipts if isinstance(receipts, list) else [receipts]

    def _steps(self, ops: Sequence[Op]) -> Operations[list[Result]]:
        puts = _collect_puts(ops, self._fields)
        results: list[Result] = [None] * len(ops)
        gets = [op for op in ops if isinstance(op, GetOp)]
        items = (yield from perform(lambda: self._read_existing(gets))) if gets else {}
        for number, op in enumerate(ops):
            if isinstance(op, GetOp):
                results[number] = items.get(_make_id(op.namespace, op.key))
            elif isinstance(op, SearchOp):
                results[number] = yield from self._search(op)
            elif isinstance(op, ListNamespacesOp):
                results[number] = yield from perform(lambda op=op: self._list_namespaces(op))  # type: ignore[misc]
        if puts:
            yield from perform_slow(lambda: self._write(puts))
        return results

    def _read_existing(self, ops: "Iterable[GetOp | _Put]") -> dict[str, Item]:
        ids = list(dict.fromkeys(_make_id(op.namespace, op.key) for op in ops))
        found = _read_items(d for part in _split(ids) for d in self._memory.get_by_ids(part))
        return {item.id: item.to_item() for item in found}

    def _write(self, puts: Mapping[str, "_Put"]) -> None:
        """Add and delete items; each ``created_at`` stays."""
        added = {name: put for name, put in puts.items() if put.value is not None}
        gone = [name for name, put in puts.items() if put.value is None]
        if added:
            with self._writing:  # else two threads that put one new item both set created_at
                known, now = self._read_existing(added.values()), datetime.now(timezone.utc)
                documents = [
                    put.to_document(known[name].created_at if name in known else now, now)
                    for name, put in added.items()
                ]
                report = self._memory.add_documents(
                    documents, ids=list(added), split=False, progress=None
                )
                report.require_all(self._memory.settings.ingest.unusable_vectors)
        for part in _split(gone):
            self._memory.forget(part)

    def _search(self, op: SearchOp) -> Operations[list[SearchItem]]:
        prefix = tuple(op.namespace_prefix)
        wanted = _read_filter({} if op.filter is None else op.filter)
        if op.limit <= 0:
            return []
        end = min(max(0, op.offset) + op.limit, _MAX_LISTED)
        if op.query is None or is_blank(op.query):
            listed = yield from perform(lambda: self._list_items(prefix, wanted, end))
            return [item.to_search_item() for item in listed[max(0, op.offset) : end]]
        answer = yield from self._retrieve(prefix, op.query, wanted, end)
        if answer is None:
            return []
        scores = {item.node.id: item.score for item in answer.documents}
        found = _read_items(
            Document(id=item.node.id, page_content="", metadata=dict(item.node.metadata))
            for item in answer.documents
        )
        turn = answer.turn
        items: list[SearchItem] = [
            item.to_search_item(scores[item.id], turn.id, turn.namespace)
            for item in found
            if item.is_under(prefix) and _passes(item.value, wanted)
        ]
        return items[max(0, op.offset) : end]

    def _retrieve(
        self, prefix: Labels, query: str, wanted: Mapping[str, Any], limit: int
    ) -> Operations[Answer | None]:
        """Search, and return the answer; None if no item passes the filter."""
        condition, complete = _translate_filter(wanted)
        options: QueryOptions = {
            **self._options,
            "k": limit,
            "filter": {f"namespace_{len(prefix)}": _make_place(prefix), **condition},
            "confined": True,
            "namespace": self.find_turn_namespace(prefix),
            "session": find_session(var_child_runnable_config.get()),
        }
        if not complete:  # no vector index knows such a condition
            listed = yield from perform(lambda: self._list_items(prefix, wanted, _MAX_LISTED))
            if not listed:
                return None
            if len(listed) > MOST_IDS:
                msg = (
                    f"{len(listed):,} items pass the filter, and a condition other than on a text, "
                    f"number or flag is for at most {MOST_IDS:,}: search under a longer prefix"
                )
                raise InvalidInputError(msg)
            options["candidate_ids"] = [item.id for item in listed]
        answer = yield from perform_sync_or_async(
            lambda: self._memory.retrieve(query, **options),
            lambda: self._memory.aio.retrieve(query, **options),
        )
        return answer

    def _list_items(
        self, prefix: Labels, wanted: Mapping[str, Any], limit: int
    ) -> list["_StoredItem"]:
        """List items under a prefix that pass a filter, in the order of their ids."""
        count = limit
        while True:
            documents = self._memory.documents(under=_make_place(prefix), limit=count)
            found = [item for item in _read_items(documents) if _passes(item.value, wanted)]
            if len(found) >= limit or len(documents) < count or count == _MAX_LISTED:
                return found[:limit]
            count = min(4 * count, _MAX_LISTED)

    def _list_namespaces(self, op: ListNamespacesOp) -> list[Labels]:
        conditions = [*(op.match_conditions or ())]
        starts = [tuple(c.path) for c in conditions if c.match_type == "prefix"]
        # A prefix without wildcards narrows what is read.
        known = next((path for path in starts if "*" not in path), ())
        found = {
            labels[: op.max_depth]
            for labels in self._iterate_namespaces(_make_place(known))
            if all(_matches(condition, labels) for condition in conditions)
        }
        return sorted(found)[op.offset : op.offset + op.limit]

    def _iterate_namespaces(self, place: str) -> Iterator[Labels]:
        """Yield the namespaces of items whose ids begin with ``place``, some repeatedly."""
        after: str | None = None
        while names := [*self._memory.sources(under=place, after=after, limit=_PAGE)]:
            yield from (_read_id(name)[0] for name in names)
            # Past the other items of the last namespace, which is known already.
            after = f"{_make_place(_read_id(names[-1])[0])}:\U0010ffff"


class _StoredItem(NamedTuple):
    """An item as stored in its document."""

    id: str
    namespace: Labels
    key: str
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime

    def is_under(self, prefix: Labels) -> bool:
        return self.namespace[: len(prefix)] == prefix

    def to_item(self) -> Item:
        _, namespace, key, value, created_at, updated_at = self
        return Item(
            namespace=namespace,
            key=key,
            value=value,
            created_at=created_at,
            updated_at=updated_at,
        )

    def to_search_item(
        self,
        score: float | None = None,
        turn_id: str | None = None,
        turn_namespace: str | None = None,
    ) -> CrabPathSearchItem:
        return CrabPathSearchItem(*self[1:], score, turn_id, turn_namespace)


class _Put(NamedTuple):
    """An item to write; without a value it is deleted."""

    namespace: Labels
    key: str
    value: dict[str, Any] | None
    text: str
    """What is searched; empty for an item that only ``get`` and listings find."""

    def to_document(self, created_at: datetime, updated_at: datetime) -> Document:
        assert self.value is not None, "a deletion has no document"  # noqa: S101
        name = _make_id(self.namespace, self.key)
        item = {
            # As text: the value comes back exactly, with the order of its keys.
            "value": json.dumps(self.value),
            "created_at": created_at.isoformat(),
            "updated_at": updated_at.isoformat(),
        }
        metadata: dict[str, Any] = {"source": name, _ITEM: item}
        if not self.text:
            return Document(page_content=name, metadata=metadata)
        if isinstance(title := self.value.get("title"), str) and title in self.text:
            metadata["title"] = title
        metadata |= {
            f"namespace_{depth}": _make_place(self.namespace[:depth])
            for depth in range(len(self.namespace) + 1)
        }
        metadata |= {
            f"value_{name}": filterable
            for name, value in self.value.items()
            if name.isidentifier() and (filterable := _to_filterable(value)) is not None
        }
        return Document(page_content=self.text, metadata=metadata)


def _split(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split ids into parts that a memory takes at once."""
    return (ids[start : start + MOST_IDS] for start in range(0, len(ids), MOST_IDS))


def _read_items(documents: Iterable[Document]) -> list[_StoredItem]:
    """Read the items among documents."""
    found: list[_StoredItem] = []
    for document in documents:
        name, item = str(document.id), document.metadata.get(_ITEM)
        if name.startswith(f"{_ROOT}/") and isinstance(item, dict):
            value = json.loads(item["value"])
            times = [datetime.fromisoformat(item[key]) for key in ("created_at", "updated_at")]
            found.append(_StoredItem(name, *_read_id(name), value, *times))
    return found


def _collect_puts(ops: Iterable[Op], fields: Sequence[str]) -> dict[str, _Put]:
    """Collect the items that a batch writes, by id: of each the last one."""
    puts: dict[str, _Put] = {}
    for op in ops:
        if isinstance(op, PutOp):
            name, namespace = _make_id(op.namespace, op.key), tuple(op.namespace)
            if op.value is None:
                puts[name] = _Put(namespace, op.key, None, "")
                continue
            value = _require_value(op.value)
            paths = fields if op.index is None else _require_fields(op.index or ())
            puts[name] = _Put(namespace, op.key, value, _make_text(value, paths))
        elif not isinstance(op, (GetOp, SearchOp, ListNamespacesOp)):
            msg = f"a batch takes the operations of LangGraph's store, not {type(op).__name__}"
            raise InvalidInputError(msg)
    return puts


def _require_value(value: Mapping[str, Any]) -> dict[str, Any]:
    try:
        if isinstance(value, Mapping):
            plain: dict[str, Any] = json.loads(
                json.dumps(dict(value), allow_nan=False, default=_require_plain)
            )
            return plain
    except (TypeError, ValueError, RecursionError) as error:
        msg = (
            f"the value of an item must be JSON, and {error}: put texts, numbers, booleans, None, "
            "lists and dicts of these, and a date as its isoformat()"
        )
        raise InvalidInputError(msg) from error
    msg = f"the value of an item must be a dict, not a {type(value).__name__}"
    raise InvalidInputError(msg)


def _require_plain(part: object) -> Any:
    """Convert a numpy number to a Python one, for JSON."""
    plain = to_plain(part)
    if plain is part:
        msg = f"{part!r:.80} is none"
        raise TypeError(msg)
    return plain


def _require_fields(fields: Sequence[str]) -> tuple[str, ...]:
    listed = isinstance(fields, (list, tuple))
    if not listed or not all(isinstance(path, str) for path in fields):
        msg = f"the fields to search must be a list of paths such as ['text'], not {fields!r}"
        raise InvalidInputError(msg)
    return tuple(fields)


def _make_text(value: Mapping[str, Any], paths: Iterable[str]) -> str:
    """Join the texts at some paths of a value by lines; for the whole value, its leaves."""
    texts: list[str] = []
    for path in paths:
        texts += _describe(value) if path == "$" else get_text_at_path(value, path)
    return "\n".join(text for text in dict.fromkeys(texts) if not is_blank(text))


def _describe(value: Mapping[str, Any]) -> list[str]:
    """List texts, numbers and flags of a value, each with its name unless it is the only one."""
    leaves = list(_list_leaves(value))
    if len(leaves) == 1:
        return [text for _, text in leaves]
    return [f"{name}: {text}" for name, text in leaves]


def _list_leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _list_leaves(part, str(key))
    elif isinstance(value, list):
        for part in value:
            yield from _list_leaves(part, name)
    elif value is not None:
        yield name, str(value)


def _escape(label: str) -> str:
    """Escape separators and characters that databases do not store in a label."""
    return _UNSAFE.sub(lambda found: f"%{ord(found[0]):06X}", label) or "%"


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), "" if text == "%" else text)


def _make_place(labels: Iterable[str]) -> str:
    """Make the text with which the ids of all items under a namespace prefix begin."""
    return f"{_ROOT}/" + "".join(f"{_escape(label)}/" for label in labels)


def _make_id(namespace: Iterable[str], key: str) -> str:
    """Make id and source of an item's document; a colon sets it apart from deeper namespaces."""
    name = f"{_make_place(namespace)}:{_escape(key)}"
    if len(name) > _MAX_ID_LENGTH:
        msg = (
            f"the namespace and key {name[:60]!r}… have {len(name)} characters together: "
            f"use at most {_MAX_ID_LENGTH}"
        )
        raise InvalidInputError(msg)
    return name


def _read_id(name: str) -> tuple[Labels, str]:
    """Parse an item's id to its namespace and key."""
    *labels, key = name.removeprefix(f"{_ROOT}/").split("/")
    return tuple(map(_unescape, labels)), _unescape(key[1:])


def _matches(condition: MatchCondition, labels: Labels) -> bool:
    path = tuple(condition.path)
    if len(labels) < len(path):
        return False
    part = labels[: len(path)] if condition.match_type == "prefix" else labels[-len(path) :]
    return not path or all(wanted in ("*", own) for own, wanted in zip(part, path, strict=True))


def _read_filter(wanted: object) -> dict[str, Any]:
    """Convert the values of a filter to plain ones."""
    require_bounded(wanted)
    if not isinstance(wanted, Mapping):
        msg = f"a store filters by a mapping of fields to values, not by a {type(wanted).__name__}"
        raise InvalidInputError(msg)
    return {
        name: _read_group(name, given) if str(name).startswith("$") else _read_condition(given)
        for name, given in wanted.items()
    }


def _read_group(name: str, given: object) -> list[dict[str, Any]]:
    if name not in _GROUPS or not isinstance(given, (list, tuple)):
        msg = (
            f"a store cannot filter with {name}: {given!r:.80}: name a field first, as in "
            "{'age': {'$gt': 5}}, or give $and or $or a list of such filters"
        )
        raise InvalidInputError(msg)
    return [_read_filter(part) for part in given]


def _read_condition(given: Any) -> Any:
    value = to_plain(given)
    if isinstance(value, (list, tuple)):
        return [_read_condition(part) for part in value]
    if not isinstance(value, Mapping):
        return value
    has_operators = any(str(key).startswith("$") for key in value)
    if unknown := [key for key in value if has_operators and key not in _OPERATORS]:
        msg = f"a store cannot filter with {unknown[0]}: use one of {', '.join(_OPERATORS)}"
        raise InvalidInputError(msg)
    for key in _LISTS:
        if key in value and not isinstance(value[key], (list, tuple)):
            msg = f"{key} in the filter of a store needs a list of values, not {value[key]!r:.80}"
            raise InvalidInputError(msg)
    return {key: _read_condition(part) for key, part in value.items()}


def _to_filterable(value: object) -> str | float | None:
    """Convert a value to the form in vector indexes; None if they cannot filter by it.

    Numbers beyond those that a float holds exactly are rounded: they stay on their side of others.
    """
    if isinstance(value, str):
        fits = len(value) <= _MAX_TEXT_LENGTH and not _UNSTORED.search(value)
        return value if fits else None
    if isinstance(value, (int, float)):
        exact = isinstance(value, bool) or abs(value) < _LARGEST
        return value if exact else float(max(-_CEILING, min(value, _CEILING)))
    return None


def _translate_filter(wanted: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Translate what a vector index can apply of a filter; also return whether that is all."""
    condition: dict[str, Any] = {}
    for name, value in wanted.items():
        if name in _GROUPS:
            parts = [_translate_filter(part) for part in value]
            if all(part and complete for part, complete in parts):
                condition[name] = [part for part, _ in parts]
            continue
        given = value if isinstance(value, Mapping) else {"$eq": value}
        if name.isidentifier() and given and all(map(_is_known, given, given.values())):
            condition[f"value_{name}"] = dict(given)
    return condition, len(condition) == len(wanted)


def _is_known(operator: str, value: Any) -> bool:
    """Whether vector indexes know such a comparison: of texts and flags only equality."""
    if operator in _LISTS:
        return isinstance(value, list) and all(_is_known("$eq", part) for part in value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return operator in _OPERATORS and abs(value) < _LARGEST
    return operator in ("$eq", "$ne") and _to_filterable(value) is not None


def _passes(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the value of an item passes a filter."""
    return all(
        _GROUPS[name](_passes(value, part) for part in given)
        if name in _GROUPS
        else _satisfies(value.get(name), given)
        for name, given in wanted.items()
    )


def _satisfies(own: Any, wanted: Any) -> bool:
    """Whether a part of a value passes its condition: equality, nested conditions, or operators."""
    if isinstance(wanted, Mapping):
        if any(str(key).startswith("$") for key in wanted):
            return all(_compare(own, operator, given) for operator, given in wanted.items())
        return isinstance(own, dict) and _passes(own, wanted)
    if isinstance(wanted, (list, tuple)):
        return (
            isinstance(own, list)
            and len(own) == len(wanted)
            and all(_satisfies(*pair) for pair in zip(own, wanted, strict=True))
        )
    return _is_equal(own, wanted)


def _compare(own: Any, operator: str, wanted: Any) -> bool:
    """Apply an operator; numbers are compared with numbers, and texts with texts."""
    if operator not in ORDERS:
        allowed = [wanted] if operator in ("$eq", "$ne") else wanted
        found = any(_is_equal(own, part) for part in allowed)
        return found == (operator in ("$eq", "$in"))
    kinds = [{str: str, int: float, float: float}.get(type(value)) for value in (own, wanted)]
    return kinds[0] is not None and kinds[0] == kinds[1] and ORDERS[operator](own, wanted)


def _is_equal(own: Any, wanted: Any) -> bool:
    """Whether two JSON values are equal; True is no number."""
    return isinstance(own, bool) == isinstance(wanted, bool) and bool(own == wanted)
