"""Detects events in the messages of an agent."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from crabpath_retrievers import OutcomePolicy
from crabpath_retrievers.integration import EventKind, collect_exception_names, parse_output


def detect_events(
    messages: Sequence[BaseMessage], answer: str | None, policy: OutcomePolicy
) -> set[EventKind]:
    """Detect the events of a run in its new messages and its answer, counted or not.

    The agent keeps only the text of a tool error; a transport error is recognised by the name of
    its exception in the text.
    """
    failed = (m for m in messages if isinstance(m, ToolMessage) and m.status == "error")
    seen: set[EventKind] = set()
    if any(
        policy.is_about_documents(_find_exception_names(str(message.text))) for message in failed
    ):
        seen.add("tool_error")
    if answer:
        seen.add("silent_success")
    return seen


def find_answer(messages: Sequence[BaseMessage], structured: Any = None) -> str | None:
    """Return the answer: the structured output or the last message; None without one."""
    spoken = [message for message in messages if isinstance(message, AIMessage)]
    return parse_output({"structured_response": structured, "messages": spoken[-1:]}).text


def _find_exception_names(text: str) -> set[str]:
    """Return the words of a text, and the base classes of those that name exceptions."""
    words = set(re.findall(r"\w+", text))
    known = (error for error in _iterate_subclasses(BaseException) if error.__name__ in words)
    return words.union(*map(collect_exception_names, known))


def _iterate_subclasses(error: type[BaseException]) -> Iterator[type[BaseException]]:
    for each in error.__subclasses__():
        yield each
        yield from _iterate_subclasses(each)
