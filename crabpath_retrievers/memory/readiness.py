"""Whether the database and the vector store of an open memory answer, for the probes of a host."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from time import monotonic
from typing import Any

from crabpath_retrievers.core.calls import run_with_timeout, shorten_waiting
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.replica import ReplicaState
from crabpath_retrievers.vectors.base import VectorIndex
from crabpath_retrievers.vectors.chroma import ChromaIndex
from crabpath_retrievers.vectors.embedder import EmbedderFingerprint

PATIENCE = 1.0  # seconds for all answers together; the usual limit of a probe
ABSENT = "crabpath-ready"  # an id to ask for; whether there is one does not matter


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a memory can serve.

    Attributes:
        ready: Whether the database and the vector store answer.
        reason: What answers or does not, in one sentence.
    """

    ready: bool
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Convert it to plain, JSON-safe data."""
        return asdict(self)


def check_open_memory(
    store: GraphStore, index: VectorIndex, identity: EmbedderFingerprint
) -> Readiness:
    """Whether both stores of an open memory answer within a second; never raises.

    A memory whose embedder another process has changed is not ready: it refuses all questions.
    """

    def ask_database() -> None:
        store.require_in_place()
        identity.require_current()

    def ask_vectors() -> None:
        index.find_existing([ABSENT])
        if isinstance(index, ChromaIndex) and index.local:
            index.glance([ABSENT])  # reads the files that are there now

    asked = {"database": ask_database, "vector store": ask_vectors}
    return add_replica(ask_parts(asked, "the database and the vector store answer"), store.replica)


def add_replica(found: Readiness, replica: ReplicaState | None) -> Readiness:
    """Add the state of the read replica, without which queries are answered, too."""
    if not found.ready or replica is None:
        return found
    return replace(found, reason=f"{found.reason}; {replica.describe()}")


def ask_parts(parts: Mapping[str, Callable[[], object]], good: str) -> Readiness:
    """Ask one part after the other, all of them within a second."""
    until = monotonic() + PATIENCE
    for name, ask in parts.items():
        try:
            _wait_for(ask, until - monotonic())
        except TimeoutError:
            reason = f"the {name} gave no answer within {PATIENCE:g} s"
            return Readiness(ready=False, reason=reason)
        except Exception as error:
            reason = " ".join(str(error).split()) or f"the {name} failed"
            return Readiness(ready=False, reason=reason)
    return Readiness(ready=True, reason=good)


def _wait_for(ask: Callable[[], object], seconds: float) -> None:
    """Ask in a thread: drivers round limits up, and foreign stores have their own."""

    def ask_briefly() -> None:
        with shorten_waiting(seconds):
            ask()

    run_with_timeout(ask_briefly, max(0.0, seconds))
