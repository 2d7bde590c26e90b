"""Which texts say the same, and who stands for whom."""

import numpy as np
import pytest

from crabpath_retrievers.core.changes.maintenance import MergePair
from crabpath_retrievers.maintenance.merge import group_same_texts, plan_merges
from crabpath_retrievers.storage.read.maintenance import DocumentText, MergeCandidate

TEXT = "The server listens on port 8080 and Ann restarts it when the disk is full."


def groups(*texts, titles=("", ""), metadata=("{}", "{}"), places=("source",)):
    """Whether two texts fall together."""
    said = [
        DocumentText(n, *rest)
        for n, rest in enumerate(zip(titles, texts, metadata, strict=True), 1)
    ]
    looked, found = group_same_texts([said], places)
    assert looked == len(texts)
    return found


@pytest.mark.parametrize(
    "other",
    [
        TEXT,
        TEXT + "\n",
        "the server   listens on port 8080, and Ann restarts it when the disk is full",
        "**The server** listens on port `8080` and Ann restarts it when disk is full.",
    ],
)
def test_setting_and_articles_do_not_matter(other):
    """They say the same."""
    assert groups(TEXT, other) == [[1, 2]]


@pytest.mark.parametrize(
    ("word", "other"),
    [
        ("8080", "8081"),
        ("8080", "-8080"),
        ("8080", "80.80"),
        ("8080", "8080/8081"),
        ("Ann", "Anna"),
        ("Ann", "Bob"),
        ("is full", "is not full"),
        ("is full", "isn't full"),
        ("listens", "never listens"),
        ("and Ann", "or Ann"),
        ("when", "before"),
        ("full.", "full?"),
        ("port 8080", "port > 8080"),
        ("port 8080", "port != 8080"),
    ],
)
def test_one_other_word_is_another_fact(word, other):
    """A number, a sign, a name, a negation, a conjunction."""
    assert word in TEXT
    assert groups(TEXT, TEXT.replace(word, other)) == []


def test_the_same_of_something_else_is_another_fact():
    """A title and metadata say of what; where it stands does not."""
    assert groups(TEXT, TEXT, titles=("Linux", "Windows")) == []
    assert groups(TEXT, TEXT, metadata=('{"team": "a"}', '{"team": "b"}')) == []
    assert groups(TEXT, TEXT, metadata=('{"source": "a"}', '{"source": "b"}')) == [[1, 2]]


@pytest.mark.parametrize("texts", [("猫が好き", "犬が好き"), ("", "x"), ("== !=", "== ==")])
def test_other_scripts_and_signs(texts):
    """Nothing falls together because nothing was read of it."""
    assert groups(*texts) == []


def twin(key, authority=0, uses=0.0, vector=(1.0, 0.0)):
    """A node that may stand for another one."""
    return MergeCandidate(key, authority, uses, np.array(vector, dtype=np.float16))


def test_who_stands_for_whom():
    """More authority, then more use, then age."""
    assert plan_merges([twin(1), twin(2)], 0.97) == [MergePair(2, 1)]
    assert plan_merges([twin(1), twin(2, uses=1.0)], 0.97) == [MergePair(1, 2)]
    assert plan_merges([twin(1, uses=9.0), twin(2, authority=1)], 0.97) == [MergePair(1, 2)]
    assert plan_merges([twin(3), twin(1), twin(2)], 0.97) == [MergePair(2, 1), MergePair(3, 1)]


def test_what_never_goes():
    """Nothing constitutional is merged away; a canonical one only into one that is no less."""
    assert plan_merges([twin(1, authority=2), twin(2, authority=2)], 0.97) == []
    assert plan_merges([twin(1, authority=1), twin(2, authority=2)], 0.97) == [MergePair(1, 2)]
    assert plan_merges([twin(1, authority=1), twin(2, authority=1)], 0.97) == [MergePair(2, 1)]
    assert plan_merges([twin(1, authority=1), twin(2, authority=0, uses=9)], 0.97) == [
        MergePair(2, 1)
    ]


def test_far_vectors_stay_apart():
    """Though the texts say the same."""
    assert plan_merges([twin(1), twin(2, vector=(0.0, 1.0)), twin(3)], 0.97) == [MergePair(3, 1)]
