"""Building blocks for adapters that connect CrabPath to another framework.

The adapters in this repository import only from here and from ``crabpath_retrievers``. A retrieval
or feedback is written once as ``Operations`` and runs with :func:`run` or :func:`arun`; turns are
found in documents by their ``METADATA_KEY`` metadata; reported events become feedback by
:func:`make_event_feedback`. A :class:`StoreKind` says what a vector store does differently;
:func:`parse_filter` and :func:`make_test` read filters for an index or a store.
"""

from typing import TYPE_CHECKING, Any

from crabpath_retrievers.config.outcome_policy import EventKind, collect_exception_names
from crabpath_retrievers.core.calls import (
    Operations,
    arun,
    arun_with_timeout,
    perform,
    perform_slow,
    perform_sync_or_async,
    run,
)
from crabpath_retrievers.core.extras import load_part
from crabpath_retrievers.core.feedback import (
    DEFAULT_NAMESPACE,
    DOCUMENT_FIELDS,
    FeedbackFields,
    Receipt,
    ReceiptReason,
    RewardSource,
)
from crabpath_retrievers.core.metadata import (
    DEEPEST,
    ORDERS,
    Condition,
    Group,
    KeyCondition,
    make_test,
    parse_filter,
    require_bounded,
)
from crabpath_retrievers.core.processes import BackgroundWorker, make_lock
from crabpath_retrievers.core.query import (
    METADATA_KEY,
    MOST_IDS,
    CallOptions,
    Query,
    QueryOptions,
    RetrieverOptions,
    explain_unknown,
    find_namespace,
    find_session,
    parse_namespace,
    parse_session,
    read_answer_block,
    remove_answer_metadata,
)
from crabpath_retrievers.core.records import Hop, Vector
from crabpath_retrievers.core.text import count_words, describe_type, is_blank, to_plain
from crabpath_retrievers.ingest.pipeline import Cleanup, IngestReport
from crabpath_retrievers.learning.outcomes import (
    Outcome,
    find_turn_ids,
    find_turns_in_state,
    make_outcome_feedback,
    parse_outcome,
    parse_output,
    record_outcome,
)
from crabpath_retrievers.learning.rules import make_event_feedback
from crabpath_retrievers.memory.services import NAMED_OPTIONS, OpenOptions
from crabpath_retrievers.retrieval.pipeline import Answer, RetrievedDocument
from crabpath_retrievers.retriever import to_documents
from crabpath_retrievers.routing import Router
from crabpath_retrievers.vectors.embedder import (
    Embedder,
    load_default_embeddings,
    resolve_embeddings,
)

if TYPE_CHECKING:
    from crabpath_retrievers.parts.vector_store import StoreKind

__all__ = [
    "DEEPEST",
    "DEFAULT_NAMESPACE",
    "DOCUMENT_FIELDS",
    "METADATA_KEY",
    "MOST_IDS",
    "NAMED_OPTIONS",
    "ORDERS",
    "Answer",
    "BackgroundWorker",
    "CallOptions",
    "Cleanup",
    "Condition",
    "Embedder",
    "EventKind",
    "FeedbackFields",
    "Group",
    "Hop",
    "IngestReport",
    "KeyCondition",
    "OpenOptions",
    "Operations",
    "Outcome",
    "Query",
    "QueryOptions",
    "Receipt",
    "ReceiptReason",
    "RetrievedDocument",
    "RetrieverOptions",
    "RewardSource",
    "Router",
    "StoreKind",
    "Vector",
    "arun",
    "arun_with_timeout",
    "collect_exception_names",
    "count_words",
    "describe_type",
    "explain_unknown",
    "find_namespace",
    "find_session",
    "find_turn_ids",
    "find_turns_in_state",
    "is_blank",
    "load_default_embeddings",
    "make_event_feedback",
    "make_lock",
    "make_outcome_feedback",
    "make_test",
    "parse_filter",
    "parse_namespace",
    "parse_outcome",
    "parse_output",
    "parse_session",
    "perform",
    "perform_slow",
    "perform_sync_or_async",
    "read_answer_block",
    "record_outcome",
    "remove_answer_metadata",
    "require_bounded",
    "resolve_embeddings",
    "run",
    "to_documents",
    "to_plain",
]


def __getattr__(name: str) -> Any:
    if name == "StoreKind":
        return load_part("crabpath_retrievers.parts.vector_store").StoreKind
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
