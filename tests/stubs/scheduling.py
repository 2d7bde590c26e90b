"""How the files of tests are given to the workers of a run."""

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class ResumedFiles(LoadFileScheduling):
    """Files in turn, without the files that an ended worker had finished.

    xdist 3.8 queues these again, as files of no test. A worker that is given one waits for a next
    test before it runs its last, and the run never ends.
    """

    def remove_node(self, node: WorkerController) -> str | None:
        """Queue what the worker has not finished, and return the test that it was in."""
        files = self.assigned_work[node]
        self.assigned_work[node] = {
            name: done for name, done in files.items() if not all(done.values())
        }
        return super().remove_node(node)

    def _reschedule(self, node: WorkerController) -> None:
        """A worker has two tests, or knows that no more come."""
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)


def schedule(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """The scheduler of ``--dist loadfile``; other options keep xdist's."""
    return ResumedFiles(config, log) if config.getvalue("dist") == "loadfile" else None
