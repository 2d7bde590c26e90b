"""Batching of concurrent queries for a local embedding model.

A local model uses all cores for one caller: concurrent calls only slow each other down, and occupy
worker threads that other work needs. So one thread embeds the queued queries together.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from crabpath_retrievers.graph import Vector

EmbedTexts = Callable[[Sequence[str]], Sequence[Vector]]


class QueryBatcher:
    """Batches queued queries for one embedder, first in, first out."""

    def __init__(self, embed: EmbedTexts, batch: int) -> None:
        """Embed at most ``batch`` texts per call of ``embed``."""
        self._embed, self._batch = embed, batch
        self._queue: deque[tuple[str, Future[Vector]]] = deque()
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="crabpath-embedding")

    async def embed(self, text: str) -> Vector:
        """The vector of a text; it may be awaited on any event loop."""
        future: Future[Vector] = Future()
        with self._lock:
            self._queue.append((text, future))
        self._thread.submit(self._embed_batch)
        return await asyncio.wrap_future(future)

    def _embed_batch(self) -> None:
        """Embed the head of the queue; an earlier call may have emptied it."""
        with self._lock:
            count = min(self._batch, len(self._queue))
            head = [self._queue.popleft() for _ in range(count)]
        batch = [(text, future) for text, future in head if future.set_running_or_notify_cancel()]
        if not batch:
            return
        try:
            vectors = self._embed([text for text, _ in batch])
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
            else:
                self._embed_one_by_one(batch)
            return
        for (_, future), vector in zip(batch, vectors, strict=True):
            future.set_result(vector)

    def _embed_one_by_one(self, batch: Sequence[tuple[str, Future[Vector]]]) -> None:
        """Embed each text alone, so that one bad text does not fail the others."""
        for text, future in batch:
            try:
                future.set_result(self._embed([text])[0])
            except Exception as error:
                future.set_exception(error)
