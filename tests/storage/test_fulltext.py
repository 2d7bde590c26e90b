"""Full text matches alike on both databases: the reference is the list of tokens itself."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from crabpath_retrievers.core.text import list_name_words
from tests.seams import make_change

ACUTE = "\N{COMBINING ACUTE ACCENT}"
LIGATURE = "\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM}"  # 18 plain characters
TEXTS = {
    "accents": "Crème brûlée in São Paulo, by Jose" + ACUTE,
    "chinese": "東京は日本の首都です。",
    "underscore": "call max_batch_size() or maxBatchSize or __init__",
    "hindi": "हिन्दी भाषा और राजभाषा",
    "quotes": """He said "don't" — O'Brien's `rm -rf \\ /` & (a|b) <-> 'c':1""",
    "odd": "½ cup ⑴ ﷺ ﬁnance Ⅷ ＦＵＬＬ ŉ İstanbul STRASSE straße",
    "greek": "ΣΊΣΥΦΟΣ σίσυφος",
    "emoji": "rocket 🚀 to 👩‍🚀 moon",
    "adlam": "𞤀𞤣𞤤𞤢𞤥 \N{GEORGIAN MTAVRULI CAPITAL LETTER AN}",
}


def contains(text: str, phrase: list[str]) -> bool:
    """Whether the tokens of the text hold the phrase side by side."""
    found = list_name_words(text)
    return any(found[i : i + len(phrase)] == phrase for i in range(len(found)))


@pytest.fixture
def texts(graph, make) -> dict[str, int]:
    """Keys of the sample texts by name."""
    keys = graph.publish(*(make(name, text) for name, text in TEXTS.items()))
    return dict(zip(TEXTS, keys, strict=True))


def test_every_word_finds_its_own_text(store, texts):
    """Each token of each text, searched alone, finds exactly the texts that hold it."""
    for token in {t for text in TEXTS.values() for t in list_name_words(text)}:
        expected = {texts[name] for name, text in TEXTS.items() if token in list_name_words(text)}
        assert set(store.fulltext.find_phrases([[token]], 20)[0]) == expected
        assert {key for key, _ in store.fulltext.search({token: 1.0}, 20, 5.0)} == expected


@pytest.mark.slow
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=4), data=st.data())
@example(texts=["ab'c\\d:1", 'x"y"', "%_& | ! <->"], data=None)
@example(texts=["A#0", "a 0"], data=None)
@example(texts=list(TEXTS.values()), data=None)
def test_any_phrase_of_any_text_finds_it(store, graph, make, texts, data):
    """Whatever the characters, a phrase finds the texts whose tokens hold it and no others."""
    store.apply([make_change("remove_documents", tuple(store.catalog.all_ids()))])
    clean = [t.replace("\x00", "").encode("utf-8", "replace").decode() for t in texts]
    keys = graph.publish(*(make(str(i), text) for i, text in enumerate(clean)))
    words = list_name_words(clean[0])
    start = data.draw(st.integers(0, max(0, len(words) - 1))) if data else 0
    phrase = words[start : start + 3]
    expected = {k for k, text in zip(keys, clean, strict=True) if phrase and contains(text, phrase)}
    assert set(store.fulltext.find_phrases([phrase], 10)[0]) == expected


def test_search_ranks_rare_words_and_short_texts_higher(store, graph, make):
    """Both databases put the text with the rarer word first, and the shorter of two equals."""
    rare, short, long = graph.publish(
        make("1", "common words with kiwi"),
        make("2", "common words"),
        make("3", "common words " + "and many more of them " * 20),
    )
    found = store.fulltext.search({"kiwi": 3.0, "common": 0.5}, 10, 30.0)
    assert [key for key, _ in found] == [rare, short, long]
    assert all(score >= 0 for _, score in found)
    assert store.fulltext.search({"kiwi": 3.0, "common": 0.5}, 1, 30.0) == found[:1]
    assert store.fulltext.search({}, 10, 30.0) == []


def test_titles_are_searched_with_the_text(store, graph, make):
    """A word of the title finds the node, and counts once where the text repeats the title."""
    graph.publish(make("1", "plain text", title="Kiwi"), make("2", "Kiwi plain", title="Kiwi"))
    assert len(store.fulltext.find_phrases([["kiwi"]], 5)[0]) == 2
    assert store.walk.read_facts("a", ["kiwi"])[1:4] == ({"kiwi": 2}, 2, 2.5)  # (3 + 2 tokens) / 2


@pytest.mark.parametrize("word", ["word{}", "{}"], ids=["letters", "digits"])
def test_long_texts_are_searched_to_their_end(store, graph, make, word):
    """A text of 50,000 characters is found by its first word and by its last."""
    text = " ".join(word.format(number) for number in range(10_000))[:50_000]
    (key,) = graph.publish(make("long", text))
    first, *_, last = list_name_words(text)
    assert store.fulltext.find_phrases([[first], [last]], 5) == [[key], [key]]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(" ".join(f"token{i}" for i in range(90_000)), marks=pytest.mark.slow, id="MB"),
        pytest.param("A1b2" * 5000 + " " + LIGATURE * 500, id="base64"),
    ],
)
def test_texts_beyond_the_limits_of_a_database_are_stored(store, graph, make, text):
    """A megabyte of distinct words, and words without an end: their beginning is searchable."""
    (key,) = graph.publish(make("huge", text))
    assert store.fulltext.find_phrases([list_name_words(text[:20_000])[:1]], 5)[0] == [key]


def test_words_whose_postings_are_remembered_find_what_the_database_finds(store, graph, make):
    """Also where equally good texts compete for the last place, and after a text was added."""
    words = ["kiwi", "fig", "pear", "common"]
    texts = [" ".join(words[n % 4 :] * (1 + n % 3)) + f" text {n} " * (n % 5) for n in range(30)]
    graph.publish(*(make(f"{n:02}", text) for n, text in enumerate(texts)))

    def search_both(limit):
        facts = store.walk.read_facts("default", [*words, "text"])
        idf = {word: 1.0 + place for place, word in enumerate(facts.frequencies)}
        # SQLite weighs terms by its own statistics.
        own = [store.walk.search_words(idf, limit, facts) for _ in range(2)]
        assert own[0] == own[1]
        theirs = dict(store.fulltext.search(idf, limit, facts.mean_length))
        assert dict(own[0]) == pytest.approx(theirs)
        return own[0]

    for limit in (1, 3, 7, 29, 100):
        before = search_both(limit)
    graph.publish(make("new", "kiwi fig pear"))
    assert len(search_both(100)) == len(before) + 1
