"""What agents remember of their users: a store over a memory of its own, which learns.

Switch it on by a line in ``langgraph.json``: ``"store": {"path": "./store.py:store"}``. The memory
is ``CRABPATH_ITEMS``: a directory, by default ``items``, or the URL of a memory that exists.
``@auth.on.store`` decides who may name which namespace.
"""

import os

from crabpath_retrievers import CrabPath
from langgraph_crabpath import CrabPathStore

store = CrabPathStore(
    CrabPath.open(
        os.environ.get("CRABPATH_ITEMS", "items"),
        embeddings=os.environ.get("CRABPATH_EMBEDDINGS") or None,
    )
)
