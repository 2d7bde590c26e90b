"""Queries that wait for a local model at the same time are embedded together, by one thread.

A model on this machine computes on all cores for one caller: several at once only get in each
other's way, and hold the threads that everything else needs.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from crabpath_retrievers.graph import Vector

Embed = Callable[[Sequence[str]], Sequence[Vector]]


class Gathering:
    """Hands what waits to one embedder, in the order in which it came."""

    def __init__(self, embed: Embed, most: int) -> None:
        """Embed at most ``most`` texts at once with ``embed``."""
        self._embed, self._most = embed, most
        self._waiting: deque[tuple[str, Future[Vector]]] = deque()
        self._changing = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="crabpath-embedding")

    async def embedded(self, text: str) -> Vector:
        """The vector of a text; it may be awaited on any event loop."""
        future: Future[Vector] = Future()
        with self._changing:
            self._waiting.append((text, future))
        self._thread.submit(self._work)
        return await asyncio.wrap_future(future)

    def _work(self) -> None:
        """Embed what waits; those whose turn this was before find nothing left."""
        with self._changing:
            count = min(self._most, len(self._waiting))
            taken = [self._waiting.popleft() for _ in range(count)]
        wanted = [(text, future) for text, future in taken if future.set_running_or_notify_cancel()]
        if not wanted:
            return
        try:
            vectors = self._embed([text for text, _ in wanted])
        except Exception as error:
            if len(wanted) == 1:
                wanted[0][1].set_exception(error)
            else:
                self._one_by_one(wanted)
            return
        for (_, future), vector in zip(wanted, vectors, strict=True):
            future.set_result(vector)

    def _one_by_one(self, wanted: Sequence[tuple[str, Future[Vector]]]) -> None:
        """One text that cannot be embedded does not spoil the others."""
        for text, future in wanted:
            try:
                future.set_result(self._embed([text])[0])
            except Exception as error:
                future.set_exception(error)
