"""The thread that works when it is woken."""

import threading
import time

from crabpath_retrievers.learning.recorder import BackgroundWorker


def test_waking_works_once_more():
    """Whoever wakes it during the work gets work that began after that."""
    begun, gate, done = threading.Event(), threading.Event(), []

    def work():
        begun.set()
        gate.wait(5)
        done.append(1)

    worker = BackgroundWorker(work, "test")
    worker.wake()
    begun.wait(5)
    worker.wake()
    worker.wake()
    gate.set()
    worker.drain()
    assert len(done) == 2


def test_draining_an_idle_worker_returns_at_once():
    """Nothing was ever to do."""
    BackgroundWorker(lambda: None, "test").drain()


def test_an_error_ends_no_worker(caplog):
    """It is logged, and the next wake works again."""
    done = []

    def work():
        done.append(1)
        if len(done) == 1:
            msg = "the database is down"
            raise OSError(msg)

    worker = BackgroundWorker(work, "test-thread")
    for _ in range(2):
        worker.wake()
        worker.drain()
    assert len(done) == 2
    assert "test-thread could not finish" in caplog.text


def test_the_thread_is_gone_when_nothing_is_left():
    """No idle thread stays behind."""
    worker = BackgroundWorker(lambda: time.sleep(0.01), "crabpath-test-thread")
    worker.wake()
    worker.drain()
    time.sleep(0.05)
    assert "crabpath-test-thread" not in {thread.name for thread in threading.enumerate()}


def test_work_that_drains_does_not_wait_for_itself():
    """A memory whose last reference ends on the thread is closed there."""
    worker = BackgroundWorker(print, "test")
    worker._work = worker.drain
    worker.wake()
    worker.drain()
