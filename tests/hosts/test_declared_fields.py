"""Options of a query and fields of feedback that are declared are taken by every host."""

import inspect
import json
from pathlib import Path
from typing import get_args

from typer.main import get_command

from crabpath_retrievers import CrabPathRetriever, Feedback
from crabpath_retrievers.cli import app
from crabpath_retrievers.core.feedback import SignalFields
from crabpath_retrievers.integration import (
    DOCUMENT_FIELDS,
    FeedbackFields,
    QueryOptions,
    RetrieverOptions,
)
from langgraph_crabpath.nodes import FEEDBACK_FIELDS
from langgraph_crabpath.recall import DEFAULT_KEYS, StateKeys
from llama_index.retrievers.crabpath.queries import LlamaIndexOptions

NAMES = FeedbackFields.__annotations__.keys()
REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def list_fields(model):
    """Fields of a body that the server takes, as its description has them."""
    described = json.loads((REFERENCE / "openapi.json").read_text(encoding="utf-8"))
    return described["components"]["schemas"][model]["properties"].keys()


def test_hosts_and_server_take_every_option_of_a_query():
    """A request has no functions and no vector; its namespace is in its header."""
    names, fields = QueryOptions.__annotations__.keys(), RetrieverOptions.__annotations__.keys()
    local = {"namespace", "vector", "existing_ids", "on_hop", "callbacks"}
    assert list_fields("QueryBody") == {"text", *names} - local
    *_, rest = inspect.signature(CrabPathRetriever.from_existing).parameters.values()
    for taken in (*get_args(rest.annotation), LlamaIndexOptions):
        assert fields <= taken.__annotations__.keys()


def test_the_declaration_has_every_field_of_feedback():
    """Events have all of them but those that they make themselves."""
    assert inspect.signature(Feedback).parameters.keys() == {"turn_id", "outcome", *NAMES}
    made = {"correction", "source", "feedback_id", "session"}
    assert SignalFields.__annotations__.keys() == NAMES - made
    assert set(DOCUMENT_FIELDS) < NAMES


def test_the_shell_and_the_server_take_every_field():
    """The namespace of a request is in its header."""
    assert {option.name for option in get_command(app).commands["feedback"].params} >= NAMES
    assert list_fields("FeedbackBody") | {"namespace"} >= NAMES


def test_a_graph_has_a_key_for_what_its_state_may_say():
    """Not for who says it, and where: those are arguments of the node."""
    said = NAMES - {"source", "feedback_id", "namespace", "user", "session"}
    assert {*FEEDBACK_FIELDS} == {"outcome", *said}
    assert {f"{name}_key" for name in FEEDBACK_FIELDS} <= DEFAULT_KEYS.keys()
    assert DEFAULT_KEYS.keys() == StateKeys.__annotations__.keys()
