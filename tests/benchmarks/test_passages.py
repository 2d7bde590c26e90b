"""Frames that only open, check, time or pass on are told from those that work."""

import ast

import pytest

from benchmarks.passages import is_passage

PASSING = [
    "return self.inner.find(text, k=self.k)",
    "yield from perform(find, lambda: text)",
    "if not self.is_open:\n    raise ValueError\nreturn self.services",
    "with open_reader() as connection:\n    return read(connection)",
    "try:\n    begun = perf_counter()\n    return find(text)\nfinally:\n    close()",
    "return self.version == version",
]
WORKING = [
    "return find(text.lower())",
    "first = find(text)\nreturn rank(first)",
    "for text in texts:\n    find(text)",
    "return [find(text)]",
    "return score + 1",
    "self.known = text",
    "if text:\n    find(text)",
]


@pytest.mark.parametrize(
    ("body", "passes"), [*((b, True) for b in PASSING), *((b, False) for b in WORKING)]
)
def test_a_passage_has_one_call_and_no_work(body, passes):
    assert is_passage(ast.parse(body).body) is passes
