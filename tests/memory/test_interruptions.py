"""A signal handler that raises in the middle of a call, as time limits of task queues do."""

import random
import signal
from collections import Counter

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from sqlalchemy.exc import ResourceClosedError

from crabpath_retrievers import CrabPath, Feedback, StoreError, StoreUnavailableError
from crabpath_retrievers.storage import GraphStore

PLAIN = DeterministicFakeEmbedding(size=16)
_LOCKS = ("sqlalchemy/util/queue.py", "threading.py")


class SoftLimit(Exception):  # noqa: N818  as task queues name theirs
    """What the handler raises."""


@pytest.fixture
def limited():
    """Call something within a time, after which the handler raises; whether it ended before."""

    def interrupt(_number, frame):
        while frame is not None:
            # An exception amid a lock leaves it taken: no library survives that.
            if frame.f_code.co_filename.endswith(_LOCKS):
                signal.setitimer(signal.ITIMER_REAL, 0.001)
                return
            frame = frame.f_back
        raise SoftLimit

    def call(work, seconds):
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            try:
                work()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except (SoftLimit, ResourceClosedError):  # the latter where it came amid a result
            return "interrupted"
        except StoreError as error:
            return f"{type(error).__name__}: {error}"
        return "done"

    former = signal.signal(signal.SIGALRM, interrupt)
    yield call
    signal.signal(signal.SIGALRM, former)


@pytest.mark.slow
@pytest.mark.both_databases
# An interrupted callback of the garbage collector can only say so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_exception_comes_out_and_the_memory_goes_on(location, limited, tmp_path):
    """Whatever was interrupted: no lock is kept, no document is half there."""
    place = {"vectors": tmp_path / "vectors", "embeddings": PLAIN}
    with CrabPath.open(location, **place) as memory:
        pages = [Document(f"Passage {n}", id=f"d{n}") for n in range(40)]
        memory.add_documents(pages, progress=None)

        def learn():
            memory.record(Feedback(memory.retrieve("Passage 3").turn.id, 1.0))

        chance, ended = random.Random(3), Counter()  # noqa: S311
        for n in range(150):
            more = [Document(f"More {n} {one}", id=f"m{n}-{one}") for one in range(4)]
            work = chance.choice(
                [learn, lambda more=more: memory.add_documents(more, progress=None)]
            )
            ended[limited(work, 10 ** chance.uniform(-3.3, -0.7))] += 1
        assert set(ended) == {"done", "interrupted"}
        with memory.store.hold_ingest_lock(wait=False) as free:
            assert free
        memory.add_documents([Document("The last one", id="last")], progress=None)
        assert memory.retrieve("The last one", k=1).documents[0].node.id == "last"
        assert memory.index.count() == memory.info()["nodes"]


def test_what_the_caller_handles_already_is_not_raised_again(limited):
    """A failure while an interruption is handled is a failure of its own."""
    del limited  # its handler is set
    try:
        signal.raise_signal(signal.SIGALRM)
    except SoftLimit:
        with pytest.raises(StoreUnavailableError, match="cannot be reached"):
            GraphStore("postgresql://nobody@127.0.0.1:1/nothing")
