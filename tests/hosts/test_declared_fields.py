"""Options of a query and fields of feedback that are declared are taken by every host."""

import inspect

from crabpath_retrievers import Feedback
from crabpath_retrievers.cli.feedback import run_feedback
from crabpath_retrievers.core.feedback import SignalFields
from crabpath_retrievers.integration import (
    DOCUMENT_FIELDS,
    FeedbackFields,
    QueryOptions,
    RetrieverOptions,
)
from crabpath_retrievers.retriever import RetrieverFields
from crabpath_server.routes import FeedbackBody, QueryBody
from langgraph_crabpath.nodes import FEEDBACK_FIELDS
from langgraph_crabpath.recall import DEFAULT_KEYS, StateKeys
from llama_index.retrievers.crabpath.queries import LlamaIndexOptions

NAMES = FeedbackFields.__annotations__.keys()


def test_hosts_and_server_take_every_option_of_a_query():
    """A request has no functions and no vector; its namespace is in its header."""
    names, fields = QueryOptions.__annotations__.keys(), RetrieverOptions.__annotations__.keys()
    local = {"namespace", "vector", "existing_ids", "on_hop", "callbacks"}
    assert QueryBody.model_fields.keys() == {"text", *names} - local
    for taken in (RetrieverFields, LlamaIndexOptions):
        assert fields <= taken.__annotations__.keys()


def test_the_declaration_has_every_field_of_feedback():
    """Events have all of them but those that they make themselves."""
    assert inspect.signature(Feedback).parameters.keys() == {"turn_id", "outcome", *NAMES}
    made = {"correction", "source", "feedback_id", "session"}
    assert SignalFields.__annotations__.keys() == NAMES - made
    assert set(DOCUMENT_FIELDS) < NAMES


def test_the_shell_and_the_server_take_every_field():
    """The namespace of a request is in its header."""
    assert inspect.signature(run_feedback).parameters.keys() >= NAMES
    assert FeedbackBody.model_fields.keys() | {"namespace"} >= NAMES


def test_a_graph_has_a_key_for_what_its_state_may_say():
    """Not for who says it, and where: those are arguments of the node."""
    said = NAMES - {"source", "feedback_id", "namespace", "user", "session"}
    assert {*FEEDBACK_FIELDS} == {"outcome", *said}
    assert {f"{name}_key" for name in FEEDBACK_FIELDS} <= DEFAULT_KEYS.keys()
    assert DEFAULT_KEYS.keys() == StateKeys.__annotations__.keys()
