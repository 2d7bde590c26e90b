"""What the messages of an agent say about its documents, where no person says anything."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from crabpath_retrievers import OutcomePolicy
from crabpath_retrievers.integration import Kind, names_of, read


def seen_in(
    messages: Sequence[BaseMessage], answer: str | None, policy: OutcomePolicy
) -> set[Kind]:
    """Events of a run, from the messages that it added and its answer, whether they count or not.

    Of a failed tool the agent keeps but words; an error of transport is known by its name in them.
    """
    failed = (m for m in messages if isinstance(m, ToolMessage) and m.status == "error")
    seen: set[Kind] = set()
    if any(
        policy.is_about_documents(_find_exception_names(str(message.text))) for message in failed
    ):
        seen.add("tool_error")
    if answer:
        seen.add("silent_success")
    return seen


def answer_of(messages: Sequence[BaseMessage], structured: Any = None) -> str | None:
    """What the model said last, in the structured output or in words; None where it did not."""
    spoken = [message for message in messages if isinstance(message, AIMessage)]
    return read({"structured_response": structured, "messages": spoken[-1:]}).text


def _find_exception_names(text: str) -> set[str]:
    """Words of a text, and the bases of those that are exceptions."""
    words = set(re.findall(r"\w+", text))
    known = (error for error in _iterate_subclasses(BaseException) if error.__name__ in words)
    return words.union(*map(names_of, known))


def _iterate_subclasses(error: type[BaseException]) -> Iterator[type[BaseException]]:
    for each in error.__subclasses__():
        yield each
        yield from _iterate_subclasses(each)
