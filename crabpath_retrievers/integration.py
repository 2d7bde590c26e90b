"""Building blocks for adapters that connect CrabPath to another framework.

The adapters in this repository import only from here and from ``crabpath_retrievers``. A retrieval
or feedback is written once as ``Operations`` and runs with :func:`run` or :func:`arun`; turns are found
in documents by their ``METADATA_KEY`` metadata; events that a framework reports become feedback by
:func:`make_event_feedback` and :func:`record_superseding`.
"""

from crabpath_retrievers.callbacks.answers import parse_output
from crabpath_retrievers.callbacks.found import find_turns_in_state
from crabpath_retrievers.driver import Operations, arun, perform, perform_sync_or_async, run
from crabpath_retrievers.feedback.precedence import make_event_feedback, record_superseding
from crabpath_retrievers.feedback.receipt import FeedbackFields, Receipt
from crabpath_retrievers.feedback.worker import BackgroundWorker
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.ingest.pipeline import Cleanup, IngestReport
from crabpath_retrievers.metadata import METADATA_KEY, read_answer_block, remove_answer_metadata
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE, RewardSource
from crabpath_retrievers.outcome_policy import EventKind, collect_exception_names
from crabpath_retrievers.query import CallOptions, QueryOptions, RetrieverOptions
from crabpath_retrievers.retrieval import Answer, RetrievedDocument
from crabpath_retrievers.retriever import to_documents
from crabpath_retrievers.routing.limited import arun_with_timeout
from crabpath_retrievers.routing.policy import Router
from crabpath_retrievers.seeds.embedder import Embedder, load_default_embeddings
from crabpath_retrievers.text import is_blank
from crabpath_retrievers.trajectory import Hop

__all__ = [
    "DEFAULT_NAMESPACE",
    "METADATA_KEY",
    "Answer",
    "BackgroundWorker",
    "CallOptions",
    "Cleanup",
    "Embedder",
    "EventKind",
    "FeedbackFields",
    "Hop",
    "IngestReport",
    "Operations",
    "QueryOptions",
    "Receipt",
    "RetrievedDocument",
    "RetrieverOptions",
    "RewardSource",
    "Router",
    "Vector",
    "arun",
    "arun_with_timeout",
    "collect_exception_names",
    "find_turns_in_state",
    "is_blank",
    "load_default_embeddings",
    "make_event_feedback",
    "parse_output",
    "perform",
    "perform_sync_or_async",
    "read_answer_block",
    "record_superseding",
    "remove_answer_metadata",
    "run",
    "to_documents",
]
