"""The conformance suites can fail: a broken part fails at the claim it breaks, a sound one passes."""

import subprocess
import sys

import numpy as np
import pytest

from crabpath_retrievers.errors import EmbeddingMismatchError
from crabpath_retrievers.testing import VectorIndexTests
from crabpath_retrievers.vectors.base import VectorIndex

WITHOUT_PYTEST = """
import sys
sys.modules["pytest"] = None
try:
    import crabpath_retrievers.testing
except ImportError as error:
    print(type(error).__name__, error)
"""


def test_without_pytest_an_import_says_so():
    command = [sys.executable, "-c", WITHOUT_PYTEST]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    says = "crabpath_retrievers.testing needs pytest: pip install 'crabpath-retrievers[test]'"
    assert done.stdout == f"MissingExtraError {says}\n"


class Table(VectorIndex):
    """A sound index without filters."""

    description = "a table"

    def __init__(self):
        self.rows = {}

    def upsert(self, ids, vectors, texts, metadatas):
        self.rows.update(zip(ids, vectors, strict=True))

    def delete(self, ids):
        for each in ids:
            self.rows.pop(each, None)

    def search(self, vector, k, filter=None):  # noqa: A002  the protocol's name
        rows = dict(self.rows)
        if any(row.shape != vector.shape for row in rows.values()):
            msg = "vectors have another dimension"
            raise EmbeddingMismatchError(msg)
        return sorted(rows, key=lambda each: -(rows[each] @ vector))[:k]

    def filter_ids(self, ids, vector, filter):  # noqa: A002  the protocol's name
        return set(ids)

    def count(self):
        return len(self.rows)


class TestTable(VectorIndexTests):
    """It passes, which shows that the others below fail for what is broken in them."""

    filters = False

    @pytest.fixture
    def index(self):
        return Table()


class Farthest(Table):
    def search(self, vector, k, filter=None):  # noqa: A002  the protocol's name
        return super().search(-vector, k)


class Keeping(Table):
    """What it holds is not replaced."""

    def upsert(self, ids, vectors, texts, metadatas):
        self.rows = {**dict(zip(ids, vectors, strict=True)), **self.rows}


class Strict(Table):
    def delete(self, ids):
        for each in ids:
            del self.rows[each]


class Miscounting(Table):
    def count(self):
        return 7


class Numbering(Table):
    """Ids that are numbers are kept as numbers."""

    def upsert(self, ids, vectors, texts, metadatas):
        names = [str(int(each)) if each.isdigit() else each for each in ids]
        super().upsert(names, vectors, texts, metadatas)


class Patient(Table):
    """Vectors of any dimension are compared as far as they go."""

    def search(self, vector, k, filter=None):  # noqa: A002  the protocol's name
        padded = np.zeros(32, dtype=np.float32)
        padded[: len(vector)] = vector
        return super().search(padded, k)


@pytest.mark.parametrize(
    ("broken", "claim"),
    [
        (Farthest, "test_search_orders_by_cosine"),
        (Keeping, "test_a_known_id_replaces_its_vector"),
        (Strict, "test_delete_removes_only_what_is_named"),
        (Miscounting, "test_it_counts_and_lists_what_it_holds"),
        (Table, "test_a_filter_restricts_the_search"),
        (Table, "test_a_known_id_replaces_its_metadata"),
        (Table, "test_what_is_no_condition_is_refused"),
        (Numbering, "test_ids_are_texts_of_any_kind"),
        (Patient, "test_a_vector_of_another_dimension"),
    ],
)
def test_a_broken_index_fails_at_what_it_breaks(broken, claim):
    """With an error of its own, or as a claim that does not hold."""
    with pytest.raises((AssertionError, KeyError, pytest.fail.Exception)):
        getattr(VectorIndexTests(), claim)(broken())
