"""Metadata filters of LlamaIndex, on real Chroma."""

import pytest
from host_answers import ids
from llama_index.core import Document
from llama_index.core.vector_stores import FilterCondition, FilterOperator, MetadataFilters
from llama_index.core.vector_stores import MetadataFilter as Filter

from crabpath_retrievers import InvalidInputError
from llama_index.retrievers.crabpath import CrabPathRetriever

FRUIT = [
    ("apple", {"colour": "red", "grams": 150, "sold": ["box", "bag"]}),
    ("pear", {"colour": "green", "grams": 180, "sold": ["box"]}),
    ("grape", {"colour": "green", "grams": 5, "sold": ["bag"]}),
]
GREEN, HEAVY = Filter(key="colour", value="green"), Filter(key="grams", value=150)
EITHER = MetadataFilters(filters=[GREEN, HEAVY], condition=FilterCondition.OR)
SMALL = Filter(key="grams", value=100, operator=FilterOperator.LT)
ALL = {"apple", "pear", "grape"}


def one(key, operator, value):
    only = Filter(key=key, value=value, operator=FilterOperator(operator))
    return MetadataFilters(filters=[only])


@pytest.fixture(scope="module")
def fruit(embeddings):
    documents = [Document(id_=name, text=f"A {name}.", metadata=data) for name, data in FRUIT]
    made = CrabPathRetriever.from_documents(documents, embeddings)
    yield made.memory
    made.memory.close()


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        (one("colour", "==", "green"), {"pear", "grape"}),
        (one("colour", "!=", "green"), {"apple"}),
        (one("grams", ">", 150), {"pear"}),
        (one("grams", ">=", 150), {"apple", "pear"}),
        (one("grams", "<=", 150), {"apple", "grape"}),
        (one("colour", "in", ["red", "blue"]), {"apple"}),
        (one("colour", "nin", ["red", "blue"]), {"pear", "grape"}),
        (one("sold", "contains", "bag"), {"apple", "grape"}),
        (EITHER, ALL),
        (MetadataFilters(filters=[EITHER, SMALL]), {"grape"}),
        (MetadataFilters(filters=[]), ALL),
        ({"colour": "red"}, {"apple"}),
    ],
)
def test_filters_mean_in_chroma_what_they_mean_in_llama_index(fruit, filters, wanted):
    assert set(ids(CrabPathRetriever(fruit, filters=filters).retrieve("fruit"))) == wanted


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        (one("a", "text_match", "b"), "by 'text_match'"),
        (one("a", "==", None), "with None"),
        (MetadataFilters(filters=[GREEN], condition=FilterCondition.NOT), "'!=' and 'nin'"),
        (["a"], "filters cannot be a list: pass MetadataFilters"),
    ],
)
def test_other_filters_are_refused_when_the_retriever_is_made(fruit, filters, message):
    with pytest.raises(InvalidInputError, match=message):
        CrabPathRetriever(fruit, filters=filters)
