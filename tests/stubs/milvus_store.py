"""A store of Milvus Lite, in a file."""

from pathlib import Path
from typing import Any

import pytest

from crabpath_retrievers.testing import NumberEmbeddings


def open_milvus(place: Path, name: str, *, counts: bool = False) -> Any:
    """A collection of Milvus Lite, which may number its ids itself."""
    pytest.importorskip("milvus_lite")
    module = pytest.importorskip("langchain_milvus")
    return module.Milvus(
        NumberEmbeddings(),
        collection_name=name.replace("-", "_"),
        # Its server ends connections whose pings come late, as on a busy machine.
        connection_args={
            "uri": str(place / "milvus.db"),
            "grpc_options": {"grpc.keepalive_time_ms": 3_600_000},
        },
        index_params={"index_type": "FLAT", "metric_type": "COSINE"},
        enable_dynamic_field=True,
        auto_id=counts,
    )
