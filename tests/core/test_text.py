"""Words and names, cut the same way everywhere; words as codes of what a text holds of a query."""

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crabpath_retrievers.core.text import (
    QueryInformation,
    encode_terms,
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
# Characters whose compatibility form is longer than themselves.
AWKWARD = ("ﷺ", "ﱞ", "½", "²", "①", "Ⅷ", "e\u0301", "İstanbul", "ß" * 64, "ŉ", "ͺ", "ﬁn", "हिन्दी")


def awkward(test):
    for text in AWKWARD:
        test = example(text)(test)
    return test


@awkward
@given(TEXT)
def test_any_text(text):
    """Both ways of cutting agree; words stand in order where they say; case does not matter."""
    found, words = tokenise(text), list(split_words(text))
    assert found == [word.token for word in words]
    assert all(token and not any(c.isspace() for c in token) for token in found)
    assert all(len(token) <= 64 for token in found)
    assert tokenise(text.casefold()) == found
    assert normalise(normalise(text)) == normalise(text)
    assert tokenise(f"{text}\n{text[::-1]}") == found + tokenise(text[::-1])
    assert all(0 <= word.start < word.end <= len(text) for word in words)
    # Only words out of one character, such as ½, share their place.
    assert all(a.end <= b.start or a[2:] == b[2:] for a, b in pairwise(words))
    for word in words:
        assert word.token in tokenise(text[word.start : word.end])


@awkward
@given(SPACED)
def test_names_are_distinct_and_in_their_stored_form(text):
    """A name that is stored and cut again is the same name; each comes once."""
    assert tokenise(normalise_name(text)) == tokenise(text)
    found = list_mention_names(text, (text[::-1], text[1:]))
    assert len(found) == len(set(found))
    assert all(is_specific_name(name) and normalise_name(name) == name for name in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The quick-brown fox_1 runs.", ["the", "quick", "brown", "fox_1", "runs"]),
        ("Café CAFÉ cafe\u0301", ["cafe", "cafe", "cafe"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("東京タワー", ["東", "京", "タ", "ワ", "ー"]),
        ("서울 지하철 0ꭰ", [*map(normalise, "서울지하철"), "0Ꭰ"]),
        ("ﬁnal Ⅷ", ["final", "viii"]),
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
        ("It", ("Go", "", "42 7"), ()),
        ("x" * 250, (), ("x" * 64,)),
    ],
)
def test_names_of_a_document(title, aliases, expected):
    """Title and aliases, with and without qualifier; numbers and scraps are no names."""
    assert list_mention_names(title, aliases) == expected


WORDS = ("crab", "path", "sea", "graph", "日", "überall")


@given(st.lists(st.sets(st.sampled_from(WORDS)), max_size=6), st.sets(st.sampled_from(WORDS)))
def test_words_of_a_query_that_a_text_holds(texts, asked):
    """One row a text, one column a word; these words have codes of their own, of two bytes."""
    information = QueryInformation.from_idf(dict.fromkeys(sorted(asked), 1.5))
    found = information.find_words([encode_terms([*text, *text]) for text in texts])
    expected = [[float(word in text) for word in information.words] for text in texts]
    assert found.shape == (len(texts), len(asked))
    assert found.tolist() == expected
    assert [len(encode_terms([*text, *text])) for text in texts] == [2 * len(t) for t in texts]
    assert information.total == pytest.approx(1.5 * len(asked))
    assert len(QueryInformation.from_idf({f"w{i}": 1.0 for i in range(300)}).words) == 255


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_korean_nouns_are_found_with_their_particles(form):
    """Each syllable is a token; endings of sentences, which any verb has, are none."""
    page = set(tokenise(unicodedata.normalize(form, "데이터베이스 백업은 매일 밤 실행된다")))
    for word in ("백업", "백업을", "실행", "실행합니까?", "데이터베이스"):
        assert len(set(tokenise(word)) & page) >= 2
    assert tokenise("합니다") == tokenise(unicodedata.normalize("NFD", "합니까?")) == []
    assert tokenise("LG전자")[0] == "lg"
