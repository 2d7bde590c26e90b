"""Room for requests: how many are served at the same time, and what each token has of it."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from weakref import WeakValueDictionary

from starlette.requests import Request

from crabpath_retrievers.errors import InvalidInputError, ServiceError
from crabpath_server.access import Grant

_BODIES = 16  # largest bodies that are held at the same time, all requests together
_SLOW_AT_ONCE = 4  # ingests and maintenance runs
_MINUTE, _HOUR = 60.0, 3600.0
_MOST_RATES = 10_000  # kept at the same time


class TooManyRequestsError(ServiceError):
    """A token has sent as much as it may for now.

    Attributes:
        seconds: After how many there is room for another one, at least 1.
    """

    def __init__(self, most: str, seconds: float) -> None:
        """Name the limit, such as ``60 requests a minute``."""
        self.seconds = max(1, round(seconds + 0.5))
        super().__init__(f"this token may send {most}: try again in {self.seconds} s")


class Rate:
    """A limit on events: some at once, then evenly, so many in a period.

    The generic cell rate algorithm, which keeps one time [ITU-T I.371].
    """

    def __init__(self, number: int, seconds: float) -> None:
        """Allow some events in some seconds."""
        self._number, self._period, self._full = number, seconds, 0.0

    def take(self, now: float, amount: int = 1) -> float:
        """Count events now; return 0, or the seconds until they are allowed if they are not."""
        if self._number <= 0:
            return self._period
        step = self._period / self._number
        full = max(now, self._full) + step * amount
        if full - now > self._period * (1 + 1e-9):
            return full - now - self._period
        self._full = full
        return 0.0

    def is_idle(self, now: float) -> bool:
        """Whether all events are long enough ago to count no more."""
        return self._full <= now


class Rates:
    """The rates of tokens, each by its id."""

    def __init__(self, number: int, seconds: float, what: str) -> None:
        """Allow some events in some seconds; ``what`` names both in messages."""
        self._number, self._seconds, self._what = number, seconds, what
        self._known: dict[tuple[str, int], Rate] = {}

    def take(self, token: str, own: int | None, amount: int = 1) -> None:
        """Count events of a token, which may have a rate of its own.

        Raises:
            TooManyRequestsError: There were too many.
        """
        now, number = time.monotonic(), self._number if own is None else own
        if len(self._known) >= _MOST_RATES:
            self._known = {k: rate for k, rate in self._known.items() if not rate.is_idle(now)}
        rate = self._known.setdefault((token, number), Rate(number, self._seconds))
        if (seconds := rate.take(now, amount)) > 0:
            most = f"{number:,} {self._what}"
            raise TooManyRequestsError(most, seconds)


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
    """Limits on requests and on bytes of their bodies; senders are tokens, by their ids."""

    def __init__(self, requests: int, body_bytes: int, a_minute: int, feedbacks: int) -> None:
        """Set the limits.

        Args:
            requests: Requests at once; as many more are still being read.
            body_bytes: Bytes of the largest body.
            a_minute: Requests a minute of one token.
            feedbacks: Feedbacks an hour of one token.
        """
        self._body_bytes, self._a_minute = body_bytes, a_minute
        self._bytes = Places(_BODIES * body_bytes, "bodies of requests")
        self._coming = Places(requests, "requests that have not come in")
        self._running = Places(requests, "requests")
        self._requests = Rates(a_minute, _MINUTE, "requests a minute")
        self._feedbacks = Rates(feedbacks, _HOUR, "feedbacks an hour")
        self._slow = asyncio.Semaphore(_SLOW_AT_ONCE)
        self._own_slow = WeakValueDictionary[str, asyncio.Lock]()

    @asynccontextmanager
    async def admit(self, request: Request, grant: Grant) -> AsyncIterator[None]:
        """Read the body of an authorised request, and hold a place until it is answered."""
        sender, headers = grant.token, request.headers
        if sender is not None:
            self._requests.take(sender, grant.requests_per_minute)
        is_open = "transfer-encoding" in headers
        size = self._body_bytes if is_open else int(headers.get("content-length", "0"))
        with self._bytes.take(sender, size):
            with self._coming.take(sender) if size else nullcontext():
                await request.body()
            with self._running.take(sender):
                yield

    def count_more(self, grant: Grant, amount: int) -> None:
        """Count what an admitted request holds beyond one; refuse it where that is too much."""
        if grant.token is not None and amount:
            own = grant.requests_per_minute
            if amount >= (most := self._a_minute if own is None else own):
                msg = f"{amount + 1} questions are more than the {most} requests a minute of this "
                msg += "token: send fewer at once"
                raise InvalidInputError(msg)
            self._requests.take(grant.token, grant.requests_per_minute, amount)

    def count_feedback(self, grant: Grant) -> None:
        """Count a feedback or note of a token; refuse it where there were too many."""
        if grant.token is not None:
            self._feedbacks.take(grant.token, grant.feedbacks_per_hour)

    @asynccontextmanager
    async def wait_for_slow(self, grant: Grant) -> AsyncIterator[None]:
        """Wait until slow work may begin: of each token one at a time, of all together four."""
        if grant.token is None:
            async with self._slow:
                yield
            return
        own = self._own_slow.setdefault(grant.token, asyncio.Lock())
        async with own, self._slow:
            yield
