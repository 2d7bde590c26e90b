"""Requests that are sent again: one with a known ``Idempotency-Key`` has the former answer."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any, NamedTuple

from crabpath_retrievers.errors import InvalidInputError

IDEMPOTENCY_KEY = "Idempotency-Key"

_MOST_KEYS = 1000
_LONGEST_KEY = 255


class _Known(NamedTuple):
    digest: bytes
    answer: asyncio.Task[Any]


class Repeats:
    """The answers of this process by sender and key, the last ones."""

    def __init__(self) -> None:
        """Know no answer yet."""
        self._known = OrderedDict[tuple[tuple[str, ...], str], _Known]()

    async def answer(
        self, sender: tuple[str, ...], key: str, body: bytes, ask: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Answer a request once; the same one again waits for that answer, or gets it.

        ``sender`` is whoever sent it, and the namespace and path that it was sent to.

        Raises:
            InvalidInputError: The key is not one, or was that of another body.
        """
        if not (1 <= len(key) <= _LONGEST_KEY and key.isascii() and key.isprintable()):
            msg = f"{IDEMPOTENCY_KEY} must have 1 to {_LONGEST_KEY} printable characters of ASCII"
            raise InvalidInputError(msg)
        place, digest = (sender, key), sha256(body).digest()
        known = self._known.get(place)
        if known is None:
            known = _Known(digest, asyncio.ensure_future(_await(ask)))
            self._known[place] = known
            known.answer.add_done_callback(lambda task: self._forget_failed(place, task))
            while len(self._known) > _MOST_KEYS:
                self._known.popitem(last=False)
        elif known.digest != digest:
            msg = f"this {IDEMPOTENCY_KEY} was sent with another body: use a new one"
            raise InvalidInputError(msg)
        return await asyncio.shield(known.answer)

    def _forget_failed(self, place: tuple[tuple[str, ...], str], task: asyncio.Task[Any]) -> None:
        known = self._known.get(place)
        if known is not None and known.answer is task and (task.cancelled() or task.exception()):
            del self._known[place]


async def _await(ask: Callable[[], Awaitable[Any]]) -> Any:
    return await ask()
