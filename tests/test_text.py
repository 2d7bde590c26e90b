"""Words and names, cut the same way everywhere."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crabpath_retrievers.core.text import (
    is_specific_name,
    list_mention_names,
    normalise,
    normalise_name,
    split_words,
    tokenise,
)

TEXT = st.text(max_size=120) | st.text("aB9_ .-éÉßİﬁ漢字カ한글ﷺ½²①Ⅷ\u0301", max_size=80)
# Scripts whose compatibility forms stay inside their script: Latin, Greek, Cyrillic.
SPACED = st.text(st.characters(max_codepoint=0x52F), max_size=120)
AWKWARD = ("ﷺ", "ﱞ", "½", "²", "①", "Ⅷ", "e\u0301", "İstanbul", "ß" * 64, "ŉ", "ͺ", "ﬁn", "हिन्दी")


def awkward(test):
    """Try the characters whose compatibility form is longer than themselves first."""
    for text in AWKWARD:
        test = example(text)(test)
    return test


@awkward
@given(TEXT)
def test_words_and_tokens_agree(text):
    """Both ways of cutting a text give the same tokens, none of them empty or with space."""
    found = tokenise(text)
    assert found == [word.token for word in split_words(text)]
    assert all(token and not any(c.isspace() for c in token) for token in found)
    assert all(len(token) <= 64 for token in found)


@awkward
@given(SPACED)
def test_cutting_again_changes_nothing(text):
    """A name that is stored and cut again is the same name."""
    assert tokenise(normalise_name(text)) == tokenise(text)


@awkward
@given(TEXT)
def test_case_does_not_matter(text):
    """Case folding is the same for a text and its folded form."""
    assert tokenise(text.casefold()) == tokenise(text)


@given(TEXT)
def test_words_stand_where_they_say(text):
    """Positions increase; only words out of one character, such as ½, share their place."""
    found = list(split_words(text))
    assert all(0 <= word.start < word.end <= len(text) for word in found)
    assert all(a.end <= b.start or a[2:] == b[2:] for a, b in pairwise(found))
    for word in found:
        assert word.token in tokenise(text[word.start : word.end])


@given(st.lists(TEXT, max_size=4))
def test_tokens_of_parts_are_tokens_of_the_whole(parts):
    """A line break separates words and nothing else."""
    assert tokenise("\n".join(parts)) == [token for part in parts for token in tokenise(part)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The quick-brown fox_1 runs.", ["the", "quick", "brown", "fox_1", "runs"]),
        ("Café CAFÉ cafe\u0301", ["cafe", "cafe", "cafe"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("東京タワー", ["東", "京", "タ", "ワ", "ー"]),
        ("東京 Tower", ["東", "京", "tower"]),
        ("ﬁnal Ⅷ", ["final", "viii"]),
        ("Привет МИР", ["привет", "мир"]),
        ("a" * 70 + " b", ["a" * 64, "b"]),
        ("…!? —", []),
        ("", []),
    ],
)
def test_what_becomes_of_a_text(text, expected):
    """Accents and case go, scripts without spaces become single characters, signs separate."""
    assert tokenise(text) == expected


def test_a_word_knows_its_surface():
    """Capitals and digits begin names; positions are those of the text."""
    found = [(w.token, w.capitalised, w.start, w.end) for w in split_words("the Élan of 3M")]
    assert found == [
        ("the", False, 0, 3),
        ("elan", True, 4, 8),
        ("of", False, 9, 11),
        ("3m", True, 12, 14),
    ]


@pytest.mark.parametrize(
    ("title", "aliases", "expected"),
    [
        ("Ada Lovelace", (), ("ada lovelace",)),
        ("Mercury (planet)", (), ("mercury planet", "mercury")),
        ("水星（惑星）", (), ("水 星 惑 星", "水 星")),
        ("Ada Lovelace", ("Ada", "ADA!"), ("ada lovelace", "ada")),
        ("1984", (), ()),
        ("It", ("Go", "", "42 7"), ()),
        ("x" * 250, (), ("x" * 64,)),
    ],
)
def test_names_of_a_document(title, aliases, expected):
    """Title and aliases, with and without qualifier; numbers and scraps are no names."""
    assert list_mention_names(title, aliases) == expected


@given(SPACED, st.lists(SPACED, max_size=3))
def test_names_are_distinct_and_telling(title, aliases):
    """Every name is in its stored form already, can point at a document, and comes once."""
    found = list_mention_names(title, aliases)
    assert len(found) == len(set(found))
    assert all(is_specific_name(name) and normalise_name(name) == name for name in found)


@given(TEXT)
def test_normalising_twice_changes_nothing(text):
    """The normal form is its own normal form."""
    once = normalise(text)
    assert normalise(once) == once


def test_hangul_and_cherokee_are_written_in_words():
    """Only scripts without spaces are cut into characters."""
    assert tokenise("서울 지하철 0ꭰ") == [*map(normalise_name, ("서울", "지하철")), "0Ꭰ"]
    assert tokenise("東京 駅") == ["東", "京", "駅"]
