"""Metadata of any kind is kept as JSON keeps it, in both stores."""

import datetime as dt
import enum
import json
import math
import uuid
from decimal import Decimal
from pathlib import PurePosixPath

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.ingest.chunking import to_json_safe


class Colour(enum.Enum):
    """Something that JSON does not know."""

    RED = "red"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(codec="ascii", min_codepoint=32)), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(st.characters(codec="ascii", min_codepoint=32)), JSON, max_size=4))
def test_json_is_left_alone(metadata):
    """What is JSON already comes out equal, and twice is the same as once."""
    assert to_json_safe(metadata) == metadata == json.loads(json.dumps(to_json_safe(metadata)))


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (dt.datetime(2024, 1, 2, 3, 4, tzinfo=dt.timezone.utc), "2024-01-02T03:04:00Z"),
        (dt.date(2024, 1, 2), "2024-01-02"),
        (math.nan, None),
        (math.inf, None),
        (b"\xff\x00", "_wA="),
        (10**30, 10**30),
        pytest.param((1, {"b", "a"}), [1, ["a", "b"]], id="set"),
        ({"deep": {1: math.nan}}, {"deep": {"1": None}}),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Colour.RED, "red"),
        (Decimal("1.5"), "1.5"),
        (PurePosixPath("a/b"), "a/b"),
        (np.float32(1.5), "1.5"),
        ("nul \x00 here", "nul  here"),
        ("\ud800", "?"),
        (r"backslash \u0000 stays", r"backslash \u0000 stays"),
    ],
    ids=str,
)
def test_other_values_become_plain(value, kept):
    """Dates, bytes, enumerations and numbers out of range become text, numbers or None."""
    assert to_json_safe({"x": value}) == {"x": kept}


def test_metadata_that_contains_itself_is_refused():
    """A cycle is named as such."""
    metadata = {}
    metadata["self"] = [metadata]
    with pytest.raises(InvalidInputError, match="contains itself"):
        to_json_safe(metadata)


def test_odd_metadata_reaches_the_answer_and_what_can_be_filtered_the_index(memory, document):
    """The store returns all of it; Chroma, which refuses nesting, gets the rest to filter by."""
    odd = {"when": dt.date(2024, 1, 2), "n": math.nan, "huge": 2**80, "nested": {"a": [1, "b"]}}
    memory.add_documents([document("some text", id="a", year=2024, tags=["x", "y"], **odd)])
    node = memory.store.catalog.documents(["a"])["a"]
    assert node.metadata == {
        "year": 2024,
        "tags": ["x", "y"],
        "when": "2024-01-02",
        "n": None,
        "huge": 2**80,
        "nested": {"a": [1, "b"]},
    }
    stored = memory.index._collection.get(ids=["a"])["metadatas"][0]
    assert stored == {"year": 2024, "tags": ["x", "y"], "when": "2024-01-02"}


def test_documents_without_metadata_are_fine(memory, document, held):
    """Chroma refuses an empty metadata record; a document without any is added all the same."""
    memory.add_documents([document("some text", id="a")])
    assert held(memory) == {"a": "some text"}
