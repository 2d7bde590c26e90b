"""Which vanished text lives on in which new one, on vectors that a reader can compute."""

import numpy as np
import pytest

from crabpath_retrievers import Node
from crabpath_retrievers.parts.sync import plan_sync


def make(name, content, document="a.md", title=""):
    """A section; its id says where it comes from."""
    return Node(name, document, document, content, title=title)


def make_vectors(degrees):
    """Unit vectors in the plane by text: ``old=0, new=10`` have cosine .985."""
    angles = {text: np.deg2rad(value) for text, value in degrees.items()}
    return {t: np.array([np.cos(a), np.sin(a)], np.float32) for t, a in angles.items()}


def match(old, new, retired=(), /, **degrees):
    """Fate, old id and new document of each section."""
    sections = plan_sync(old, new, make_vectors(degrees), retired=retired)
    return {
        (s.fate, s.was.id if s.was else None, s.now.document if s.now else None) for s in sections
    }


def test_a_reworded_section_keeps_its_id():
    """Above the threshold a text is a version of the old one, below it is another one."""
    old, new = [make("1", "old")], [make("2", "new")]
    (section,) = plan_sync(old, new, make_vectors({"old": 0, "new": 10}))
    assert (section.fate, section.now.id, section.now.content) == ("edited", "1", "new")
    assert section.similarity == pytest.approx(np.cos(np.deg2rad(10)), abs=1e-3)
    assert match(old, new, old=0, new=24) == {("added", None, "a.md"), ("removed", "1", None)}


def test_equal_text_goes_before_near_vectors():
    """A moved text is itself, even where another one has a nearer vector by chance."""
    old = [make("1", "same"), make("2", "other")]
    new = [make("n", "same", "b.md"), make("m", "fresh", "a.md")]
    found = match(old, new, same=0, fresh=0, other=5)
    assert found == {("moved", "1", "b.md"), ("edited", "2", "a.md")}


def test_a_text_in_many_files_stays_with_its_file_and_its_heading():
    """Of equal texts each goes where the other texts of its file went."""

    def files(prefix, names):
        texts = [(n, text) for n in names for text in ("the licence", f"only in {n}")]
        return [make(f"{n} {text}", text, f"{prefix}{n}.md") for n, text in texts]

    found = match(files("", "ab"), files("z", "ba"))
    assert {(was[0], now) for _, was, now in found} == {("a", "za.md"), ("b", "zb.md")}
    old, new = (
        [make(f"{place} {title}", "see below", place, title) for title in titles]
        for place, titles in (("a.md", ["Linux", "Windows"]), ("b.md", ["Windows", "Linux"]))
    )
    for section in plan_sync(old, new, {}):
        assert section.was.title == section.now.title


def test_every_text_is_matched_once_and_as_many_as_can_be():
    """The nearest pair alone would leave two texts without a partner."""
    old, new = [make("1", "old1"), make("2", "old2")], [make("x", "new1"), make("y", "new2")]
    # old1 is nearer to new1 than to new2, but old2 has no other version than new1.
    found = plan_sync(old, new, make_vectors({"old1": 0, "old2": 20, "new1": 8, "new2": -12}))
    assert {s.was.id: s.now.content for s in found} == {"1": "new2", "2": "new1"}
    # Texts that are all alike are told apart by the little that differs.
    angles = {f"{what}{n}": n * 0.3 + 0.003 for n in range(300) for what in ("old", "new")}
    old, new = ([make(f"{n}", f"{what}{n}") for n in range(300)] for what in ("old", "new"))
    found = plan_sync(old, new, make_vectors(angles))
    assert [s.now.content for s in found] == [f"new{n}" for n in range(300)]
    assert all(s.now.content == f"new{s.was.id}" for s in found)


def test_the_same_file_and_heading_are_preferred():
    """A little nearer elsewhere does not outweigh the place."""
    old = [make("1", "old", "a.md", "Deploy")]
    new = [make("2", "far", "b.md", "Other"), make("3", "near", "a.md", "Deploy")]
    found = match(old, new, **{"Deploy\nold": 0, "Other\nfar": 5, "Deploy\nnear": 12})
    assert found == {("edited", "1", "a.md"), ("added", None, "b.md")}


def test_ids_of_the_caller_are_neither_handed_on_nor_lost():
    """A document that was given an id is matched by it alone."""
    old = [make("a", "old", "a"), make("b", "same", "b")]
    new = [make("a", "far from it", "a"), make("c", "same", "c")]
    found = match(old, new, **{"old": 0, "far from it": 90, "same": 45})
    assert found == {("edited", "a", "a"), ("added", None, "c"), ("removed", "b", None)}


def test_retired_texts_come_back_after_living_ones():
    """What has just vanished is preferred to what was removed long ago."""
    old, new, retired = make("1", "same"), make("n", "same", "b.md"), make("0", "same")
    assert match([old], [new], [retired]) == {("moved", "1", "b.md")}
    assert match([], [new], [retired]) == {("restored", "0", "b.md")}
