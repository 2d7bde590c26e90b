"""``CrabPath``: everything that a memory can do."""

from crabpath_retrievers.memory.asking import Asking
from crabpath_retrievers.memory.documents import Documents
from crabpath_retrievers.memory.history import History
from crabpath_retrievers.memory.outcomes import Outcomes
from crabpath_retrievers.memory.teaching import Teaching


class CrabPath(Documents, Asking, Outcomes, Teaching, History):
    """A memory: documents as a graph, search and walks over it, and the record of every turn.

    Use :meth:`open`. Safe to use from several threads. One process per embedded directory.
    """
