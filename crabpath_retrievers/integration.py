"""Building blocks for adapters that connect CrabPath to another framework.

The adapters in this repository import only from here and from ``crabpath_retrievers``. A retrieval
or feedback is written once as ``Steps`` and runs with :func:`run` or :func:`arun`; turns are found
in documents by their ``CRABPATH`` metadata; events that a framework reports become feedback by
:func:`seen_feedback` and :func:`record_over`.
"""

from crabpath_retrievers.callbacks.answers import read
from crabpath_retrievers.callbacks.found import found_in
from crabpath_retrievers.driver import Steps, arun, perform, perform_either, run
from crabpath_retrievers.feedback.precedence import record_over, seen_feedback
from crabpath_retrievers.feedback.receipt import FeedbackFields, Receipt
from crabpath_retrievers.feedback.worker import Worker
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.ingest.pipeline import Cleanup, IngestReport
from crabpath_retrievers.metadata import CRABPATH, block_of, own_metadata
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE, RewardSource
from crabpath_retrievers.outcome_policy import Kind, names_of
from crabpath_retrievers.query import CallOptions, QueryOptions, RetrieverOptions
from crabpath_retrievers.retrieval import Answer, RetrievedDocument
from crabpath_retrievers.retriever import to_documents
from crabpath_retrievers.routing.limited import alimited
from crabpath_retrievers.routing.policy import Router
from crabpath_retrievers.seeds.embedder import Embedder, default_embeddings
from crabpath_retrievers.text import is_blank
from crabpath_retrievers.trajectory import Hop

__all__ = [
    "CRABPATH",
    "DEFAULT_NAMESPACE",
    "Answer",
    "CallOptions",
    "Cleanup",
    "Embedder",
    "FeedbackFields",
    "Hop",
    "IngestReport",
    "Kind",
    "QueryOptions",
    "Receipt",
    "RetrievedDocument",
    "RetrieverOptions",
    "RewardSource",
    "Router",
    "Steps",
    "Vector",
    "Worker",
    "alimited",
    "arun",
    "block_of",
    "default_embeddings",
    "found_in",
    "is_blank",
    "names_of",
    "own_metadata",
    "perform",
    "perform_either",
    "read",
    "record_over",
    "run",
    "seen_feedback",
    "to_documents",
]
