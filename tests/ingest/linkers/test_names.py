"""``mention`` and ``shared_term``: a text names another document, or what another one names."""

import pytest

from crabpath_retrievers.core.graph import EdgeKind

MENTION, BACK, SHARED = EdgeKind.MENTION, EdgeKind.MENTIONED_BY, EdgeKind.SHARED_TERM

NAMED = {
    "It stars Tim Burton.": "Tim Burton",
    "It stars TIM BURTON!": "Tim Burton",
    "it stars tim burton": "Tim Burton",  # two words are a name in any case
    "It stars Tim Burtons.": None,
    "It stars Tim and Burton.": None,
    "He lives in Ulmen.": None,
    "a film about batman": None,  # one lower-case word is a word
    "a film about Batman": "Batman",
    "about Ed Wood, the director": "Ed Wood (film)",
    "about Ed Wood (film)": "Ed Wood (film)",
    "in São Paulo": "Sao Paulo",
    "它在東京附近": "東京",
    "In 1984 it rained.": None,
    "Plan A was dropped.": None,
    "call Max_Batch here": "max_batch",
    "the O'Brien case": "O'Brien",
    "by Mark Twain": "Samuel Clemens",  # an alias
}
TITLES = [*filter(None, dict.fromkeys(NAMED.values())), "Ulm", "1984", "A", "Tale of the Batman"]


def test_names_are_matched_as_names(open_memory, joined, document):
    """Whole words, any case for longer names, no qualifier needed, no numbers and letters."""
    readers = [document(text, id=text) for text in NAMED]
    titles = [document("-- text", id=t, title=t) for t in TITLES]
    clemens = next(title for title in titles if title.id == "Samuel Clemens")
    clemens.metadata["aliases"] = ["Mark Twain", "S. Clemens"]
    expected = {(text, title) for text, title in NAMED.items() if title}
    expected.add(("Tale of the Batman", "Batman"))
    for batches in (readers, titles), (titles, readers):
        memory = open_memory()
        for batch in batches:
            memory.add_documents(batch)
        assert joined(memory, MENTION) == expected
        assert joined(memory, BACK) == {(title, text) for text, title in expected}
    priors = memory.settings.links.priors
    assert priors[MENTION] > priors[BACK] > 0


def test_mentions_are_counted_for_rarity(memory, document):
    """A node knows how many others name it, also after they were changed and removed."""
    memory.add_documents([document("A town.", id="n", title="Ulm")])
    memory.add_documents([document(f"{i} in Ulm", id=i) for i in ("a", "b", "c")])
    assert memory.store.walk.get_nodes(["n"])[0].mentions == 3
    memory.add_documents([document("elsewhere", id="a")])
    memory.forget("b")
    assert memory.store.walk.get_nodes(["n"])[0].mentions == 1
    memory.add_documents([document("A city.", id="n", title="Ulm")])
    assert memory.store.walk.get_nodes(["n"])[0].mentions == 1


def test_names_longer_than_the_bound_are_not_looked_up(linked, document):
    title = "one two three four"
    batches = ([document("text", id="n", title=title)], [document(f"see {title}", id="a")])
    assert linked(MENTION, *batches, max_name_words=4) == {("a", "n")}
    assert linked(MENTION, *batches, max_name_words=3) == set()
    assert linked(MENTION, *batches[::-1], max_name_words=3) == set()


PAIRS = [
    ("it was Tim Burton", "then Tim Burton left", True),
    ("When Max Ernst came", "then Max Ernst left", True),
    ("it was Joe Walsh", "a joe walsh", False),  # not as a name
    ("it was Uma Hill", "Uma, not Hill", False),
    ("it was Kim", "then Kim left", False),  # one word is too common
    ("they met Ann-Marie", "then Ann-Marie left", True),
    ("error E1234 seen", "what is e1234", True),
    ("call max_batch_size", "set max_batch_size=5", True),
    ("call maxBatchSize", "set maxBatchSize", True),
    ("a plain word", "a plain word", False),
    ("it was “José Díaz”", "then Jose Diaz left", True),
]


def test_shared_names_join_two_texts(open_memory, joined, document):
    """Names and identifiers of texts and titles, also of documents of one source."""
    first = [document(text, id=f"a{n}", source="rows.csv") for n, (text, _, _) in enumerate(PAIRS)]
    second = [document(text, id=f"b{n}", source="rows.csv") for n, (_, text, _) in enumerate(PAIRS)]
    first.append(document("it was wet", id="a", title="Rain over Lake Como"))
    second.append(document("we saw Lake Como", id="b"))
    pairs = {("a", "b"), *((f"a{n}", f"b{n}") for n, pair in enumerate(PAIRS) if pair[2])}
    for batches in (first, second), (second, first):
        memory = open_memory()
        for batch in batches:
            memory.add_documents(batch)
        assert joined(memory, SHARED) == pairs | {(b, a) for a, b in pairs}


@pytest.mark.parametrize(("terms", "partners"), [(1, {"c"}), (2, {"b", "c"})])
def test_the_number_of_terms_is_bounded(linked, document, terms, partners):
    """Only so many terms of a chunk are searched, of equally rare ones the first in order."""
    first = [document("Tim Burton", id="b"), document("Ann Blyth", id="c")]
    last = [document("Tim Burton and Ann Blyth", id="a")]
    found = linked(SHARED, first, last, max_terms_per_chunk=terms)
    assert found == {("a", p) for p in partners} | {(p, "a") for p in partners}
