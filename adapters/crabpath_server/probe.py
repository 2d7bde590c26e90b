"""Whether a server should be sent requests: its embedder has answered, and it is not ending."""

import asyncio
import logging
import threading
import time
from collections.abc import MutableMapping
from typing import Any

from crabpath_retrievers.core.calls import elapsed_ms
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.memory.services import Readiness

_log = logging.getLogger(__name__)
_LEAVING = "crabpath_leaving"  # in the state of the lifespan, which every request has

_LONGEST_LOAD = 10.0  # seconds


class Probe:
    """Asks the embedder once, so that no question waits for it, and answers ``/ready``."""

    def __init__(self, memory: CrabPath) -> None:
        """Make a probe of ``memory``, whose embedder has not answered yet."""
        self._memory = memory
        self._waits_for: str | None = "the embedder is loading"
        self._thread: threading.Thread | None = None
        self._asked: asyncio.Task[Readiness] | None = None

    def warm_up(self) -> None:
        """Ask the embedder in a thread, unless it has answered or is being asked."""
        if self._waits_for is not None and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._ask, name="crabpath-warm-up", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Wait until the embedder has answered: a process may not end while it loads a model."""
        if self._thread is not None:
            self._thread.join(_LONGEST_LOAD)

    def _ask(self) -> None:
        begun = time.perf_counter()
        try:
            self._memory.similarity_search("warm", k=1)
        except Exception as error:  # of any embedder
            self._waits_for = f"the embedder does not answer: {error}"
            _log.warning("%s", self._waits_for)
        else:
            self._waits_for = None
            _log.info("the embedder has answered in %.0f ms", elapsed_ms(begun))

    async def check(self) -> Readiness:
        """Check whether all parts answer; concurrent calls share one answer."""
        self.warm_up()
        if self._waits_for is not None:
            return Readiness(ready=False, reason=self._waits_for)
        if self._asked is None or self._asked.done():
            self._asked = asyncio.ensure_future(self._memory.aio.ready())
        return await asyncio.shield(self._asked)


def announce_leaving(state: MutableMapping[str, Any]) -> None:
    """Say in the state of a lifespan that the server is ending."""
    state[_LEAVING] = True


def is_leaving(scope: MutableMapping[str, Any]) -> bool:
    """Whether the server of a request is ending."""
    return _LEAVING in scope.get("state", ())
