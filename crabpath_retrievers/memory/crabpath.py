"""``CrabPath``: everything that a memory can do."""

from crabpath_retrievers.memory.documents import Documents
from crabpath_retrievers.memory.edges import Edges
from crabpath_retrievers.memory.health import Health
from crabpath_retrievers.memory.history import History
from crabpath_retrievers.memory.maintaining import Maintaining
from crabpath_retrievers.memory.moving import Moving
from crabpath_retrievers.memory.regions import InRegions
from crabpath_retrievers.memory.replaying import Replaying
from crabpath_retrievers.memory.searching import Searching
from crabpath_retrievers.memory.syncing import Syncing
from crabpath_retrievers.memory.teaching import Teaching
from crabpath_retrievers.memory.tuning import Tuning


class CrabPath(
    Documents,
    Replaying,
    Teaching,
    History,
    InRegions,
    Edges,
    Searching,
    Health,
    Maintaining,
    Syncing,
    Moving,
    Tuning,
):
    """A memory: documents as a graph, search and walks over it, and the record of every turn.

    Use :meth:`open`. Safe to use from several threads. One process per embedded directory.
    """
