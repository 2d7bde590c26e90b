"""Which texts are too broad, and where they are cut."""

import numpy as np
import pytest

from crabpath_retrievers.config.maintenance import MaintenanceSettings
from crabpath_retrievers.core.graph import Node
from crabpath_retrievers.maintenance.split import find_no_topics, is_broad, make_parts, split_text

RULES = MaintenanceSettings()
SENTENCES = [f"Sentence number {n} tells of topic {n // 10}." for n in range(30)]
PLAIN = " ".join(SENTENCES)
HEADED = "Intro.\n\n# Cats\n\n" + "Cats sleep. " * 30 + "\n\n# Dogs\n\n" + "Dogs bark. " * 30


def words(text):
    """A text without its setting."""
    return text.split()


def joined(parts):
    """All parts after another."""
    return [word for part in parts for word in words(part.text)]


def test_several_headings_are_broad():
    """One is not."""
    assert is_broad(HEADED, [], RULES)
    assert not is_broad(PLAIN, [], RULES)
    assert not is_broad(HEADED.replace("# Dogs", "Dogs"), [], RULES)


def test_questions_that_fall_apart_are_broad():
    """Four of them, that have nothing in common."""
    apart = list(np.eye(4, dtype=np.float32))
    assert is_broad(PLAIN, apart, RULES)
    assert not is_broad(PLAIN, apart[:3], RULES)
    assert not is_broad(PLAIN, [apart[0]] * 6, RULES)


@pytest.mark.parametrize("text", [HEADED, PLAIN, "word " * 900, "x" * 3000])
@pytest.mark.parametrize("size", [100, 400])
def test_every_word_once_and_in_order(text, size):
    """However it is cut."""
    found = split_text(text, size, find_no_topics)
    assert len(found) > 1
    assert "".join(joined(found)) == "".join(words(text))
    assert all(0 < len(part.text) <= size for part in found)


def test_headings_come_first():
    """Each part stands under its own; small sections stay together."""
    found = split_text(HEADED, 500, find_no_topics)
    assert [part.heading for part in found] == ["Cats", "Dogs"]
    assert found[0].text.startswith("Intro.")
    assert split_text("# A\n\nx\n\n# B\n\ny\n", 500, find_no_topics) == split_text(
        "# A\n\nx\n\n# B\n\ny\n", 5_000, find_no_topics
    )


def test_a_model_says_where_topics_begin():
    """Its numbers are taken as far as they can be meant."""
    found = split_text(PLAIN, 5_000, lambda _: [10, 20, 20, 99, -1])
    assert [part.text.split()[2] for part in found] == ["0", "10", "20"]
    assert joined(found) == words(PLAIN)


def test_parts_may_be_mentioned_by_their_headings():
    """By all of them; the first also by the names of the whole."""
    text = "# Cats\n\nx\n\n# Dogs\n\ny\n\n# Fish\n\n" + "Fish swim. " * 20
    whole = Node("pets", "pets", "pets.md", text, title="Pets", metadata={"aliases": ["Animals"]})
    first, *_, last = make_parts(whole, split_text(text, 150, find_no_topics))
    assert set(first.names) == {"cats", "dogs", "pets", "animals"}
    assert (set(last.names), last.title) == ({"fish"}, "Pets › Fish")
