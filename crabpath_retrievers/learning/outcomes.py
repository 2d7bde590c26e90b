"""Outcomes as people state them: about documents, a response, a turn or a run.

Answers and citations are found in the outputs of chains, graphs, agents and models.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from pydantic import BaseModel
from typing_extensions import Unpack

from crabpath_retrievers.core.feedback import (
    Feedback,
    FeedbackFields,
    Receipt,
    name_documents,
    validate_outcome,
)
from crabpath_retrievers.core.query import read_answer_block
from crabpath_retrievers.core.records import Turn
from crabpath_retrievers.core.text import format_value, to_plain
from crabpath_retrievers.errors import CrabPathError, InvalidInputError, NotFoundError

_ANSWERS = (
    "answer",
    "output",
    "result",
    "response",
    "output_text",
    "generation",
    "final_answer",
    "text",
)
_CITATIONS = (
    "citations",
    "cited_ids",
    "cited_sources",
    "cited",
    "source_ids",
    "sources",
    "references",
    "used",
)
_NAMES = ("id", "source_id", "document_id", "doc_id", "source", "url", "title", "citation")
_NESTED = ("structured_response", "answer", "output", "result", "response")
_MAX_OUTPUT_DEPTH = 4


class ParsedOutput(NamedTuple):
    """Answer and citations of an output.

    Attributes:
        text: The answer; None if there is none.
        cited: Ids, sources, titles or positions of the cited documents, unchanged.
    """

    text: str | None = None
    cited: tuple[str | int, ...] = ()


def parse_output(output: Any, depth: int = 0) -> ParsedOutput:
    """Find answer and citations in the output of a chain, graph, agent or model.

    Understood are texts, messages, lists of messages, mappings (``create_retrieval_chain``, states
    of LangGraph), pydantic models and dataclasses (structured output), and results of models.
    Anything else, and what is nested in more than four levels, has neither. ``depth`` is the level
    of ``output``.
    """
    if isinstance(output, str):
        return ParsedOutput(output.strip() or None)
    if depth > _MAX_OUTPUT_DEPTH or output is None:
        return ParsedOutput()
    if hasattr(output, "generations"):
        return _parse_model_result(output.generations, depth)
    if _get_role(output) is not None:
        return _parse_messages([output])
    fields = _to_fields(output)
    if fields is not None:
        return _parse_fields(fields, depth)
    return _parse_messages(output) if isinstance(output, (list, tuple)) else ParsedOutput()


def _parse_model_result(generations: Any, depth: int) -> ParsedOutput:
    """Parse the first of a model's ``generations``, which lie at level ``depth`` of an output."""
    while isinstance(generations, (list, tuple)) and generations:
        generations = generations[0]
    message = getattr(generations, "message", None)
    return parse_output(
        getattr(generations, "text", None) if message is None else message, depth + 1
    )


def _parse_messages(messages: Sequence[Any]) -> ParsedOutput:
    """Parse the last message, if it is from the model and calls no tool; others have no answer."""
    last = messages[-1] if messages else None
    if _get_role(last) not in {"ai", "AIMessageChunk", "assistant"} or _has_tool_calls(last):
        return ParsedOutput()
    return ParsedOutput(_get_text(last) or None)


def _parse_fields(fields: Mapping[str, Any], depth: int) -> ParsedOutput:
    cited = next((ids for name in _CITATIONS if (ids := _parse_ids(fields.get(name)))), ())
    text = None
    for name in (*_NESTED, *_ANSWERS, "messages"):
        found = parse_output(fields.get(name), depth + 1)
        text, cited = text or found.text, cited or found.cited
    return ParsedOutput(text, cited)


def _to_fields(output: Any) -> Mapping[str, Any] | None:
    if isinstance(output, Mapping):
        return output
    if isinstance(output, BaseModel):
        return {name: getattr(output, name) for name in type(output).model_fields}
    if dataclasses.is_dataclass(output) and not isinstance(output, type):
        return {field.name: getattr(output, field.name) for field in dataclasses.fields(output)}
    return None


def _get_role(message: Any) -> str | None:
    """Return the role of a message or a message dict; None for anything else."""
    if isinstance(message, Mapping):
        role = message.get("role") or message.get("type")
        return role if isinstance(role, str) and "content" in message else None
    role = getattr(message, "type", None)
    return role if isinstance(role, str) and hasattr(message, "content") else None


def _has_tool_calls(message: Any) -> bool:
    calls = message.get("tool_calls") if isinstance(message, Mapping) else None
    return bool(calls or getattr(message, "tool_calls", None))


def _get_text(message: Any) -> str:
    content = message["content"] if isinstance(message, Mapping) else message.content
    if isinstance(content, str):
        return content.strip()
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    return "\n".join(text for text in texts if text and isinstance(text, str)).strip()


def _parse_ids(value: Any) -> tuple[str | int, ...]:
    """Return the citations in the value of a field; whole documents in it are not citations."""
    if isinstance(value, str):
        parts = dict.fromkeys((value.strip(), *map(str.strip, value.split(","))))
        return tuple(filter(None, parts))
    if not isinstance(value, Iterable) or isinstance(value, Mapping):
        return ()
    found = [_parse_id(item) for item in value]
    return tuple(item for item in found if item is not None)


def _parse_id(item: Any) -> str | int | None:
    if isinstance(item, (str, int)) and not isinstance(item, bool):
        return item
    if hasattr(item, "page_content"):
        return None
    fields = _to_fields(item) or {}
    named = (fields[name] for name in _NAMES if fields.get(name) is not None)
    return next((name for name in named if isinstance(name, (str, int))), None)


Outcome: TypeAlias = float | bool | str
"""A number in [-1, 1]; True, ``"up"`` or 👍 for 1; False, ``"down"`` or 👎 for -1.

A word counts in any case and skin colour, and as "thumbs up" and "thumbs_down".
"""

_WORDS = {"up": 1.0, "down": -1.0, "👍": 1.0, "👎": -1.0}
_VARIANTS = re.compile("^thumbs?[ _-]?(?=up$|down$)|[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]")

# Parts of responses of LangChain and LlamaIndex that hold documents.
_PARTS = (
    *("metadata", "node", "artifact", "source_nodes", "sources"),
    *("tool_calls", "tool_output", "raw_output", "messages", "documents", "context"),
)
_MAX_DEPTH = 8


def parse_outcome(outcome: Outcome) -> float:
    """Convert an outcome to a number in [-1, 1]."""
    said = to_plain(outcome)
    if isinstance(said, bool):
        return 1.0 if said else -1.0
    if isinstance(said, str):
        word = _VARIANTS.sub("", said.strip().lower())
        if word not in _WORDS:
            msg = (
                "outcome must be 'up', 'down', a boolean or a number from -1 to 1, "
                f"not {format_value(outcome)}: what would have been right goes into correction"
            )
            raise InvalidInputError(msg)
        return _WORDS[word]
    return validate_outcome(outcome)


def find_turn_ids(about: object) -> list[str]:
    """Find the ids of the turns that returned documents, each once, in order.

    Args:
        about: A document or node, several of them, an answer, or whatever holds some: the output of
            a chain, the state of a graph or agent, a response of LlamaIndex, also as JSON. Of a
            list of messages, those after the last question count. A text is an id itself; so are
            the texts of a list.
    """
    return list(_collect_turns(about))


def make_outcome_feedback(
    about: object, outcome: Outcome, **fields: Unpack[FeedbackFields]
) -> list[Feedback]:
    """Make one feedback for each turn behind a response or documents.

    The text of a response counts as ``answer``, unless ``used`` or ``answer`` are given.

    Args:
        about: As for :func:`find_turn_ids`; None for the last turn of a namespace.
        fields: Other fields of the feedback. Of several turns each gets those of the ``used`` and
            ``unused`` documents that no other one returned, and a ``feedback_id`` of its own.

    Raises:
        InvalidInputError: No turn returned any of it, or a field cannot be used.
    """
    value = parse_outcome(outcome)
    found = _collect_turns(about)
    turns: Sequence[str | None] = [None] if about is None else list(found)
    if not turns:
        msg = (
            f"{format_value(about)} has no document that CrabPath returned: pass documents or "
            "a response that still holds them, a turn id, or the run id of the retriever's call"
        )
        raise InvalidInputError(msg)
    if (
        "used" not in fields
        and "relevant" not in fields
        and "answer" not in fields
        and not isinstance(about, (str, UUID))
    ):
        fields["answer"] = parse_output(about).text
    feedbacks = list[Feedback]()
    for turn in turns:
        own = select_use(fields, turn, found)
        if "feedback_id" in own and len(turns) > 1:  # unique for each of several turns
            own["feedback_id"] = f"{own['feedback_id']}-{turn}"
        feedbacks.append(Feedback(turn, value, **own))
    return feedbacks


def record_outcome(
    record: Callable[[Feedback], Receipt],
    about: object,
    outcome: Outcome,
    *,
    strict: bool = True,
    **fields: Unpack[FeedbackFields],
) -> list[Receipt]:
    """Record what a person says about documents, a response, a turn or a run.

    Args:
        strict: False returns the receipts also where all were refused.

    Returns:
        One receipt for each turn.

    Raises:
        InvalidInputError: As for :func:`make_outcome_feedback`; or nothing can be learned from it.
        NotFoundError: There is no such turn.
        StoreError: It could not be stored.
    """
    receipts = [record(feedback) for feedback in make_outcome_feedback(about, outcome, **fields)]
    if strict and all(receipt.status == "refused" for receipt in receipts):
        for receipt in receipts:
            if receipt.reason != "outranked":  # a better giver spoke, which is no fault
                raise _make_refusal(receipt)
    return receipts


def record_said(
    record: Callable[[Feedback], Receipt],
    about: object,
    outcome: Outcome | None,
    *,
    strict: bool,
    **fields: Unpack[FeedbackFields],
) -> Receipt | list[Receipt]:
    """Record ``about`` itself if it is a ``Feedback``, else the outcome by :func:`record_outcome`.

    A ``Feedback`` has its outcome and fields itself, so none may be given with it.

    Returns:
        One receipt if ``about`` is a ``Feedback``, None, an id, a document or an answer; else a
        list with one receipt for each turn.
    """
    if isinstance(about, Feedback):
        if outcome is not None or fields:
            msg = "a Feedback has its outcome and fields itself: record(feedback)"
            raise InvalidInputError(msg)
        return record(about)
    if outcome is None:
        msg = "record needs an outcome: record(documents, True), or False, or a number"
        raise InvalidInputError(msg)
    receipts = record_outcome(record, about, outcome, strict=strict, **fields)
    single = about is None or isinstance(about, (str, UUID)) or hasattr(about, "page_content")
    return receipts[0] if single or hasattr(about, "turn") else receipts


def _make_refusal(receipt: Receipt) -> CrabPathError:
    missing = receipt.reason == "unknown_turn"
    kind = NotFoundError if missing else InvalidInputError
    hint = (
        "; give the turn_id of an answer, or the run id of the retrieval itself: only a callback "
        "handler knows the runs around it, such as those of chains and agents"
        if missing
        else ""
    )
    return kind(f"{receipt.note}{hint}")


NamedDocuments: TypeAlias = dict[str, list[str]]
"""Ids of documents of a turn by what names them."""


def _collect_turns(about: object) -> dict[str, NamedDocuments]:
    """Map ids of the turns in ``about`` to ids of their documents there, by name."""
    turns: dict[str, NamedDocuments] = {}
    for turn, node, names in _iterate_turns(about):
        known = turns.setdefault(turn, {})
        for name in names:
            known.setdefault(name, []).append(node)
    return turns


def select_use(
    fields: FeedbackFields, turn: str | None, turns: Mapping[str, NamedDocuments]
) -> FeedbackFields:
    """Select the fields of the feedback on one of several turns.

    ``turns`` has the named documents of each turn. In ``used`` and ``unused``, names of this turn's
    documents become ids, names of other turns' documents are dropped, and a field of which nothing
    is left becomes None. Names that no turn knows stay: they are looked up or refused later.
    """
    own = turns.get(turn or "", {})
    others = set[str]().union(*turns.values()) - own.keys()
    chosen: dict[str, list[str] | None] = {}
    for field in ("used", "unused"):
        if (given := fields.get(field)) is not None:
            names = name_documents(given, field)
            kept = [node for n in names if n not in others for node in own.get(n, [n])]
            chosen[field] = kept if kept or not names else None  # not known, and not none
    return {**fields, **chosen}  # type: ignore[typeddict-item]


def _iterate_turns(
    given: object, depth: int = 0, *, said: bool = True
) -> Iterator[tuple[str, str, Iterable[str]]]:
    """Yield ``(turn id, document id, names)`` for the turns and documents in an object.

    A text is a turn id only if the caller ``said`` it: gave it alone or in a list. Parts below the
    eighth level (``depth``) are not read.
    """
    if isinstance(given, (str, UUID)):
        if said:
            yield str(given), "", ()
    elif turns := _read_turn(given):
        yield from turns
    elif depth < _MAX_DEPTH:
        listed = said and isinstance(given, (list, tuple))
        for part in _list_parts(given):
            yield from _iterate_turns(part, depth + 1, said=listed)


def _read_turn(given: object) -> list[tuple[str, str, Iterable[str]]]:
    """List ``(turn id, document id, names)`` of a turn, an answer or the metadata of a document.

    A turn itself is listed with an empty document. Anything else gives an empty list.
    """
    turn = getattr(given, "turn", given)
    if isinstance(turn, Turn):
        nodes = [item.node for item in turn.returned]
        return [(turn.id, "", ()), *((turn.id, node, [node]) for node in nodes)]
    block = read_answer_block(given) if isinstance(given, Mapping) else None
    if block is None or not isinstance(given, Mapping):
        return []
    names = [str(name) for name in (block["id"], block.get("source"), given.get("source")) if name]
    return [(str(block["turn_id"]), str(block["id"]), dict.fromkeys(names))]


def _list_parts(given: object) -> Iterable[object]:
    """List the parts of a response that may hold documents."""
    if isinstance(given, Mapping):
        return given.values()
    if isinstance(given, (list, tuple)):
        return _select_last_round(given)
    if not hasattr(given, "__dict__"):  # an object with slots
        return [getattr(given, name) for name in _PARTS if hasattr(given, name)]
    held = given.__dict__
    return [held[name] for name in _PARTS if name in held]


def _select_last_round(items: Sequence[object]) -> Sequence[object]:
    """Select the messages after the last question; all items if there is none."""
    for index in range(len(items) - 1, -1, -1):
        item = items[index]
        kind = item.get("role") if isinstance(item, Mapping) else getattr(item, "type", None)
        if kind in ("human", "user"):
            return items[index + 1 :]
    return items


@dataclass(frozen=True, slots=True)
class RetrievedTurn:
    """A turn, as recorded in the metadata of its documents.

    Attributes:
        run_id: Id of the host's retriever run.
        place: LangGraph task of the run; empty elsewhere.
        names: Names of each document (id, sources, title), in rank order.
    """

    turn_id: str
    namespace: str
    run_id: str
    place: str
    names: tuple[tuple[str, ...], ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the documents, in rank order."""
        return tuple(names[0] for names in self.names)

    @property
    def ids_by_name(self) -> NamedDocuments:
        """Ids of the documents by their names."""
        found: NamedDocuments = {}
        for own in self.names:
            for name in dict.fromkeys(own):
                found.setdefault(name, []).append(own[0])
        return found

    def select_used(self, cited: Sequence[str | int], *, places: bool) -> tuple[str, ...] | None:
        """Return the ids of the cited documents; None if the citations say nothing.

        They say nothing if they match no document, or all of several: some chains list their whole
        context.

        Args:
            places: Whether numbers may be positions of documents.
        """
        wanted = {str(item) for item in cited}
        ids = {names[0] for names in self.names if wanted.intersection(names)}
        if not ids and places:
            ids = self._find_at_positions({int(item) for item in cited if _is_number(item)})
        if not ids or len(ids) == len(self.names) > 1:
            return None
        return tuple(name for name in self.ids if name in ids)

    def _find_at_positions(self, positions: set[int]) -> set[str]:
        """Return the ids at positions; none if they may count from 0 as well as from 1."""
        first, last = min(positions, default=-1), max(positions, default=-1)
        from_zero, from_one = first == 0 and last < len(self.names), first > 0
        if not from_zero and not (from_one and last == len(self.names)):
            return set()
        return {self.names[position - from_one][0] for position in positions}


def find_turns(documents: Any, run_id: str, place: str) -> list[RetrievedTurn]:
    """Find the turns of retrieved documents; none if another retriever returned them."""
    turns: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for document in documents if isinstance(documents, (list, tuple)) else ():
        metadata = getattr(document, "metadata", None) or {}
        block = read_answer_block(metadata)
        if block is not None:
            names = (
                block["id"],
                block.get("source"),
                metadata.get("source"),
                metadata.get("title"),
            )
            key = (str(block["turn_id"]), str(block["namespace"]))
            turns.setdefault(key, []).append(tuple(str(name) for name in names if name))
    return [
        RetrievedTurn(turn, space, run_id, place, tuple(names))
        for (turn, space), names in turns.items()
    ]


def find_turns_in_state(state: Any) -> list[RetrievedTurn]:
    """Find the turns of documents in the state of a graph, or in its messages."""
    if not isinstance(state, Mapping):
        return []
    lists = [value for value in state.values() if isinstance(value, list)]
    artifacts = [getattr(item, "artifact", None) for value in lists for item in value]
    turns = {
        turn.turn_id: turn for given in (*artifacts, *lists) for turn in find_turns(given, "", "")
    }
    return list(turns.values())


def _is_number(item: str | int) -> bool:
    return isinstance(item, int) or item.isdecimal()
