"""Words as codes: what a text holds of a query."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.core.text import QueryInformation, encode_terms

WORDS = ("crab", "path", "sea", "graph", "日", "überall")


def test_present_marks_the_words_that_a_text_holds():
    """One row a text, one column a word."""
    information = QueryInformation.from_idf({"crab": 2.0, "sea": 1.0})
    texts = [encode_terms(["sea", "sea", "sand"]), encode_terms([]), encode_terms(["crab", "sea"])]
    assert information.find_words(texts).tolist() == [[0, 1], [0, 0], [1, 1]]


@given(st.lists(st.sets(st.sampled_from(WORDS)), max_size=6), st.sets(st.sampled_from(WORDS)))
def test_present_agrees_with_sets(texts, asked):
    """These words have codes of their own, so nothing is seen that is not there."""
    information = QueryInformation.from_idf(dict.fromkeys(sorted(asked), 1.0))
    found = information.find_words([encode_terms(text) for text in texts])
    expected = [[float(word in text) for word in information.words] for text in texts]
    assert found.tolist() == (expected or np.zeros((0, len(asked))).tolist())


def test_codes_take_two_bytes_for_each_distinct_word():
    """Repeats are free."""
    assert len(encode_terms(["crab", "path", "crab"])) == 4


def test_total_is_all_that_is_asked_for():
    """The sum over the words, 0 without any."""
    assert QueryInformation.from_idf({"crab": 2.0, "sea": 1.5}).total == pytest.approx(3.5)
    assert QueryInformation.from_idf({}).total == 0.0


def test_is_subset_recognises_a_query_that_is_only_a_name():
    """Every word of the query must be part of the name."""
    information = QueryInformation.from_idf({"crab": 2.0, "sea": 1.5})
    assert information.is_subset(["the", "sea", "crab"])
    assert not information.is_subset(["crab"])


def test_no_more_words_than_a_byte_counts():
    """255 words are more than a query may look up."""
    information = QueryInformation.from_idf({f"w{i}": 1.0 for i in range(300)})
    assert len(information.words) == len(information.nats) == 255
