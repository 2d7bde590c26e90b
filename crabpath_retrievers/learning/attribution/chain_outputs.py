"""Finds the answer and the cited documents in the output of a chain."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

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
_MAX_DEPTH = 4


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

    Understands texts, messages, lists of messages, mappings (``create_retrieval_chain``, states
    of LangGraph), pydantic models and dataclasses (structured output), and results of models.

    Args:
        output: The output that the host passed to the callback.
        depth: Depth of ``output`` in the whole output, at least 0.
    """
    if isinstance(output, str):
        return ParsedOutput(output.strip() or None)
    if depth > _MAX_DEPTH or output is None:
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
    """Parse the first generation of a model result."""
    while isinstance(generations, (list, tuple)) and generations:
        generations = generations[0]
    message = getattr(generations, "message", None)
    return parse_output(
        getattr(generations, "text", None) if message is None else message, depth + 1
    )


def _parse_messages(messages: Sequence[Any]) -> ParsedOutput:
    """Return the text of the last message, if it is from the model and calls no tool."""
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
    """Return the citations in a field; whole documents are the context, not citations."""
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
