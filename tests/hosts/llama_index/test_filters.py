"""Metadata filters of LlamaIndex, on real Chroma."""

import pytest
from llama_index.core import Document
from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilters
from llama_index.core.vector_stores import MetadataFilter as Filter

from crabpath_retrievers import InvalidInputError
from llama_index.retrievers.crabpath import CrabPathRetriever

NOT = FilterCondition.NOT
OR = FilterCondition.OR
FRUIT = [
    ("apple", {"colour": "red", "grams": 150, "sold": ["box", "bag"]}),
    ("pear", {"colour": "green", "grams": 180, "sold": ["box"]}),
    ("grape", {"colour": "green", "grams": 5, "sold": ["bag"]}),
]


@pytest.fixture(scope="module")
def fruit(embeddings):
    """Three documents with metadata."""
    documents = [Document(id_=name, text=f"A {name}.", metadata=data) for name, data in FRUIT]
    made = CrabPathRetriever.from_documents(documents, embeddings)
    yield made
    made.memory.close()


def found(fruit, filters):
    """Ids of what is found."""
    retriever = CrabPathRetriever(fruit.memory, filters=filters)
    return {item.node_id for item in retriever.retrieve("fruit")}


@pytest.mark.parametrize(
    ("operator", "key", "value", "wanted"),
    [
        ("==", "colour", "green", {"pear", "grape"}),
        ("!=", "colour", "green", {"apple"}),
        (">", "grams", 150, {"pear"}),
        (">=", "grams", 150, {"apple", "pear"}),
        ("<", "grams", 150, {"grape"}),
        ("<=", "grams", 150, {"apple", "grape"}),
        ("in", "colour", ["red", "blue"], {"apple"}),
        ("nin", "colour", ["red", "blue"], {"pear", "grape"}),
        ("contains", "sold", "bag", {"apple", "grape"}),
    ],
)
def test_every_operator_of_chroma(fruit, operator, key, value, wanted):
    """Means in Chroma what it means in LlamaIndex."""
    one = Filter(key=key, value=value, operator=FilterOperator(operator))
    assert found(fruit, MetadataFilters(filters=[one])) == wanted


def test_joined_filters(fruit):
    """And, or, one inside the other, none at all; and Chroma's own language."""
    green, heavy = Filter(key="colour", value="green"), Filter(key="grams", value=150)
    both = MetadataFilters(filters=[green, heavy], condition=OR)
    small = Filter(key="grams", value=100, operator=FilterOperator.LT)
    assert found(fruit, both) == {"apple", "pear", "grape"}
    assert found(fruit, MetadataFilters(filters=[both, small])) == {"grape"}
    assert found(fruit, MetadataFilters(filters=[])) == {"apple", "pear", "grape"}
    assert found(fruit, {"colour": "red"}) == {"apple"}


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ([Filter(key="a", value="b", operator=FilterOperator.TEXT_MATCH)], "by 'text_match'"),
        ([Filter(key="a", value=None, operator=FilterOperator.IS_EMPTY)], "by 'is_empty'"),
        ([Filter(key="a", value=None)], "with None"),
        (MetadataFilters(filters=[Filter(key="a", value=1)], condition=NOT), "'!=' and 'nin'"),
        (["a"], "filters cannot be a list: pass MetadataFilters"),
        ("a", "filters cannot be a str"),
    ],
)
def test_other_filters_are_refused(fruit, filters, message):
    """When the retriever is made, in a sentence that says what to use."""
    if isinstance(filters, list) and isinstance(filters[0], Filter):
        filters = MetadataFilters(filters=filters)
    with pytest.raises(InvalidInputError, match=message):
        CrabPathRetriever(fruit.memory, filters=filters)
