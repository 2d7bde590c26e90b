"""Reads the state of a graph, which is a dict, a dataclass or a pydantic model."""

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import HumanMessage, convert_to_messages
from typing_extensions import TypedDict

from crabpath_retrievers import InvalidInputError


class StateKeys(TypedDict, total=False):
    """Keys of the state that a node reads and writes; defaults in ``DEFAULT_KEYS``."""

    query_key: str
    messages_key: str
    documents_key: str
    turn_key: str | None
    outcome_key: str
    used_key: str
    unused_key: str
    relevant_key: str
    irrelevant_key: str
    answer_key: str
    correction_key: str
    feedback_key: str


DEFAULT_KEYS: StateKeys = {
    "query_key": "question",
    "messages_key": "messages",
    "documents_key": "documents",
    "turn_key": "turn_id",
    "outcome_key": "outcome",
    "used_key": "used",
    "unused_key": "unused",
    "relevant_key": "relevant",
    "irrelevant_key": "irrelevant",
    "answer_key": "answer",
    "correction_key": "correction",
    "feedback_key": "feedback",
}


def merge_keys(given: StateKeys) -> StateKeys:
    """Merge the given keys with the defaults."""
    unknown = sorted(set(given) - set(DEFAULT_KEYS))
    if unknown:
        msg = f"unknown options {unknown}: the keys of the state are {', '.join(DEFAULT_KEYS)}"
        raise InvalidInputError(msg)
    return {**DEFAULT_KEYS, **given}


def get_value(state: Any, key: str) -> Any:
    """Return the value of a key; None if there is none."""
    return state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)


def require_question(state: Any, keys: StateKeys) -> Any:
    """Return the question under its key, else the text of the last human message."""
    asked = get_value(state, keys["query_key"])
    if asked is None:
        asked = find_last_question(get_value(state, keys["messages_key"]))
    if asked is None:
        msg = (
            f"the state holds neither {keys['query_key']!r} nor a human message in "
            f"{keys['messages_key']!r}: give one of them, or name other keys with "
            "query_key= and messages_key="
        )
        raise InvalidInputError(msg)
    return asked


def find_last_question(messages: Any) -> str | None:
    """Return the text of the last human message; None without one."""
    for message in reversed(messages or ()):
        (known,) = convert_to_messages([message])
        if isinstance(known, HumanMessage):
            return str(known.text)
    return None
