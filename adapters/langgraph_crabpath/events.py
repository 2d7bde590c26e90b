"""Events of a retrieval in the custom stream of a graph: plain, JSON-safe data."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from langchain_core.documents import Document

from crabpath_retrievers.integration import Hop


def make_hop_event(hop: Hop) -> dict[str, Any]:
    """Make the event of one hop of the walk."""
    return {
        "type": "crabpath_hop",
        "hop": hop.number,
        "frontier": list(hop.frontier),
        "followed": [asdict(edge) for edge in hop.followed],
        "decided_by": hop.decided_by,
    }


def make_retrieved_event(
    turn_id: str, namespace: str, documents: Sequence[Document]
) -> dict[str, Any]:
    """Make the event of the retrieved documents."""
    found = [{"id": item.id, "score": item.metadata["crabpath"]["score"]} for item in documents]
    return {
        "type": "crabpath_retrieved",
        "turn_id": turn_id,
        "namespace": namespace,
        "documents": found,
    }
