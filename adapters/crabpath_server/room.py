"""Room for requests: how many are served at the same time, and what each token has of it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from weakref import WeakValueDictionary

from starlette.requests import Request

from crabpath_retrievers.errors import ServiceError
from crabpath_server.access import Access, read_token

_BODIES = 16  # largest bodies that are held at the same time, all requests together
_SLOW_AT_ONCE = 4  # ingests and maintenance runs


class Places:
    """Places that senders share: each may have as many as are left to the others.

    So one sender takes half of them at most, and the next one always finds some [Choudhury and
    Hahne 1998].
    """

    def __init__(self, number: int, what: str) -> None:
        """Limit concurrent requests to a number of places; ``what`` names them in messages."""
        self._number, self._what = number, what
        self._taken = Counter[str | None]()

    @contextmanager
    def take(self, sender: str | None, amount: int = 1) -> Iterator[None]:
        """Hold some places of a sender in the block."""
        left = self._number - self._taken.total()
        if amount > left or (sender is not None and self._taken[sender] + amount > left):
            whose = "the server has" if sender is None else "the server has for this token"
            msg = f"{self._what} fill the room that {whose}: try again"
            raise ServiceError(msg)
        self._taken[sender] += amount
        try:
            yield
        finally:
            self._taken[sender] -= amount
            if not self._taken[sender]:
                del self._taken[sender]


class Room:
    """Limits on requests, and on bytes of their bodies, that a server handles at once."""

    def __init__(self, access: Access, requests: int, body_bytes: int) -> None:
        """Allow so many requests, and as many that are still being read."""
        self._access, self._body_bytes = access, body_bytes
        self._bytes = Places(_BODIES * body_bytes, "bodies of requests")
        self._coming = Places(requests, "requests that have not come in")
        self._running = Places(requests, "requests")
        self._slow = asyncio.Semaphore(_SLOW_AT_ONCE)
        self._own_slow = WeakValueDictionary[str, asyncio.Lock]()

    def _find_sender(self, request: Request) -> str | None:
        return read_token(request.headers) if self._access.needs_token else None

    @asynccontextmanager
    async def admit(self, request: Request) -> AsyncIterator[None]:
        """Read the body of an authorised request, and hold a place until it is answered."""
        sender, headers = self._find_sender(request), request.headers
        is_open = "transfer-encoding" in headers
        size = self._body_bytes if is_open else int(headers.get("content-length", "0"))
        with self._bytes.take(sender, size):
            with self._coming.take(sender) if size else nullcontext():
                await request.body()
            with self._running.take(sender):
                yield

    @asynccontextmanager
    async def wait_for_slow(self, request: Request) -> AsyncIterator[None]:
        """Wait until slow work may begin: of each token one at a time, of all together four."""
        sender = self._find_sender(request)
        if sender is None:
            async with self._slow:
                yield
            return
        own = self._own_slow.setdefault(sender, asyncio.Lock())
        async with own, self._slow:
            yield
