"""What stands in the state of a graph, be it a dict, a dataclass or a pydantic model."""

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import HumanMessage, convert_to_messages
from typing_extensions import TypedDict

from crabpath_retrievers import InvalidInputError


class StateKeys(TypedDict, total=False):
    """Which key of the state holds what; the defaults stand in ``DEFAULT_KEYS``."""

    query_key: str
    messages_key: str
    documents_key: str
    turn_key: str
    outcome_key: str
    used_key: str
    unused_key: str
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
    "answer_key": "answer",
    "correction_key": "correction",
    "feedback_key": "feedback",
}


def keys_of(given: StateKeys) -> StateKeys:
    """The keys to use, with those that were given in place of the defaults.

    Raises:
        InvalidInputError: There is no such key.
    """
    unknown = sorted(set(given) - set(DEFAULT_KEYS))
    if unknown:
        msg = f"unknown options {unknown}: the keys of the state are {', '.join(DEFAULT_KEYS)}"
        raise InvalidInputError(msg)
    return {**DEFAULT_KEYS, **given}


def held(state: Any, key: str) -> Any:
    """What stands under a key; None where nothing does."""
    return state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)


def holds(state: Any, key: str) -> bool:
    """Whether there is such a key at all."""
    return key in state if isinstance(state, Mapping) else hasattr(state, key)


def question_in(state: Any, keys: StateKeys) -> Any:
    """The question under its key, else the text of the last human message.

    Raises:
        InvalidInputError: The state holds neither.
    """
    asked = held(state, keys["query_key"])
    if asked is None:
        asked = last_question(held(state, keys["messages_key"]))
    if asked is None:
        msg = (
            f"the state holds neither {keys['query_key']!r} nor a human message in "
            f"{keys['messages_key']!r}: give one of them, or name other keys with "
            "query_key= and messages_key="
        )
        raise InvalidInputError(msg)
    return asked


def last_question(messages: Any) -> str | None:
    """Text of the last human message; None without one."""
    for message in reversed(messages or ()):
        (known,) = convert_to_messages([message])
        if isinstance(known, HumanMessage):
            return str(known.text)
    return None
