"""Which vanished text lives on in which new one, on vectors that a reader can compute."""

import numpy as np
import pytest

from crabpath_retrievers.core.graph import Node
from crabpath_retrievers.ingest.sync import plan_sync


def node(name, content, document="a.md", title="", **fields):
    """A section; its id says where it comes from."""
    return Node(name, document, document, content, title=title, **fields)


def turned(**degrees):
    """Unit vectors in the plane by text: ``turned(old=0, new=10)`` have cosine .985."""
    angles = {text: np.deg2rad(value) for text, value in degrees.items()}
    return {t: np.array([np.cos(a), np.sin(a)], np.float32) for t, a in angles.items()}


def told(sections):
    """Fate, old id and new document of each section."""
    return {
        (s.fate, s.was.id if s.was else None, s.now.document if s.now else None) for s in sections
    }


def test_a_reworded_section_keeps_its_id():
    """Above the threshold a text is a version of the old one, below it is another one."""
    (section,) = plan_sync([node("1", "old")], [node("2", "new")], turned(old=0, new=10))
    assert (section.fate, section.now.id, section.now.content) == ("edited", "1", "new")
    assert section.similarity == pytest.approx(np.cos(np.deg2rad(10)), abs=1e-3)
    far = plan_sync([node("1", "old")], [node("2", "new")], turned(old=0, new=24))
    assert told(far) == {("added", None, "a.md"), ("removed", "1", None)}


def test_equal_text_goes_before_near_vectors():
    """A moved text is itself, even where another one has a nearer vector by chance."""
    old = [node("1", "same"), node("2", "other")]
    new = [node("n", "same", "b.md"), node("m", "fresh", "a.md")]
    found = plan_sync(old, new, turned(same=0, fresh=0, other=5))
    assert told(found) == {("moved", "1", "b.md"), ("edited", "2", "a.md")}


def test_a_text_in_many_files_stays_with_its_file():
    """Of equal texts each goes where the other texts of its file went."""
    old = [node(f"{n}{kind}", text, f"{n}.md") for n in "ab" for kind, text in texts(n)]
    new = [node(f"new {n}{kind}", text, f"z{n}.md") for n in "ba" for kind, text in texts(n)]
    found = plan_sync(old, new, {})
    assert {(s.was.id, s.now.document) for s in found} == {
        ("al", "za.md"),
        ("ao", "za.md"),
        ("bl", "zb.md"),
        ("bo", "zb.md"),
    }


def texts(name):
    """A licence that every file has, and what only this one has."""
    return ("l", "the licence"), ("o", f"only in {name}")


def test_the_same_heading_decides_between_equal_texts():
    """Two equal texts of one file are told apart by their headings."""
    old = [node("1", "see below", title="Linux"), node("2", "see below", title="Windows")]
    new = [node("3", "see below", "b.md", "Windows"), node("4", "see below", "b.md", "Linux")]
    found = {s.was.id: s.now.title for s in plan_sync(old, new, {})}
    assert found == {"1": "Linux", "2": "Windows"}


def test_every_text_is_matched_once_and_as_many_as_can_be():
    """The nearest pair alone would leave two texts without a partner."""
    vectors = turned(old1=0, old2=20, new1=8, new2=-12)
    found = plan_sync(
        [node("1", "old1"), node("2", "old2")], [node("x", "new1"), node("y", "new2")], vectors
    )
    # old1 is nearer to new1 than to new2, but old2 has no other version than new1.
    assert {s.was.id: s.now.content for s in found} == {"1": "new2", "2": "new1"}


def test_the_same_file_and_heading_are_preferred():
    """A little nearer elsewhere does not outweigh the place."""
    old = [node("1", "old", "a.md", "Deploy")]
    new = [node("2", "far", "b.md", "Other"), node("3", "near", "a.md", "Deploy")]
    vectors = turned(**{"Deploy\nold": 0, "Other\nfar": 5, "Deploy\nnear": 12})
    found = plan_sync(old, new, vectors)
    assert told(found) == {("edited", "1", "a.md"), ("added", None, "b.md")}


def test_ids_of_the_caller_are_neither_handed_on_nor_lost():
    """A document that was given an id is told by it alone."""
    old, other = node("a", "old", "a"), node("b", "same", "b")
    new = [node("a", "far from it", "a"), node("c", "same", "c")]
    found = plan_sync([old, other], new, turned(**{"old": 0, "far from it": 90, "same": 45}))
    assert told(found) == {("edited", "a", "a"), ("added", None, "c"), ("removed", "b", None)}


def test_retired_texts_come_back_after_living_ones():
    """What has just vanished is preferred to what was removed long ago."""
    found = plan_sync(
        [node("1", "same")], [node("n", "same", "b.md")], {}, retired=[node("0", "same")]
    )
    assert told(found) == {("moved", "1", "b.md")}
    found = plan_sync([], [node("n", "same")], {}, retired=[node("0", "same")])
    assert told(found) == {("restored", "0", "a.md")}


def test_a_thousand_templates_are_matched_each_to_itself():
    """Texts that are all alike are told apart by the little that differs."""
    angles = np.linspace(0, 90, 1000)
    old = [node(f"{n}", f"old{n}") for n in range(1000)]
    new = [node(f"n{n}", f"new{n}") for n in range(1000)]
    vectors = turned(**{f"old{n}": a for n, a in enumerate(angles)})
    vectors |= turned(**{f"new{n}": a + 0.001 for n, a in enumerate(angles)})
    found = plan_sync(old, new, vectors)
    assert len(found) == 1000
    assert all(s.now.content == f"new{s.was.id}" for s in found)
