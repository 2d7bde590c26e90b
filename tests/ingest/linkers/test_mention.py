"""``mention``: a text names another document's title or alias."""

import pytest

from crabpath_retrievers.core.graph import EdgeKind

MENTION, BACK = EdgeKind.MENTION, EdgeKind.MENTIONED_BY


def test_a_named_title_is_an_edge_and_a_weaker_one_back(in_any_order, fresh, document):
    """The text that names a title points at it, whichever came first; the edge back is weaker."""
    a = document("He was born near the old wall in Ulm.", id="a")
    b = document("A town.", id="b", title="Ulm")
    assert in_any_order(MENTION, a, b) == {("a", "b")}
    assert in_any_order(BACK, a, b) == {("b", "a")}
    links = fresh().settings.links
    assert links.priors[MENTION] > links.priors[BACK] > 0


@pytest.mark.parametrize(
    ("text", "title", "named"),
    [
        ("It stars Tim Burton.", "Tim Burton", True),
        ("It stars TIM BURTON!", "Tim Burton", True),
        ("it stars tim burton", "Tim Burton", True),  # two words are a name in any case
        ("It stars Tim Burtons.", "Tim Burton", False),
        ("It stars Tim and Burton.", "Tim Burton", False),
        ("He lives in Ulmen.", "Ulm", False),
        ("a film about batman", "Batman", False),  # one lower-case word is a word
        ("a film about Batman", "Batman", True),
        ("about Ed Wood, the director", "Ed Wood (film)", True),
        ("about Ed Wood (film)", "Ed Wood (film)", True),
        ("in São Paulo", "Sao Paulo", True),
        ("它在東京附近", "東京", True),
        ("In 1984 it rained.", "1984", False),
        ("Plan A was dropped.", "A", False),
        ("call Max_Batch here", "max_batch", True),
        ("the O'Brien case", "O'Brien", True),
    ],
)
def test_names_are_matched_as_names(in_any_order, document, text, title, named):
    """Whole words, any case for longer names, no qualifier needed, no numbers and letters."""
    found = in_any_order(MENTION, document(text, id="a"), document("-- text", id="b", title=title))
    assert found == ({("a", "b")} if named else set())


def test_aliases_are_names(in_any_order, document):
    """Other names given in the metadata count like the title."""
    b = document("A person.", id="b", title="Samuel Clemens", aliases=["Mark Twain", "S. Clemens"])
    assert in_any_order(MENTION, document("by Mark Twain", id="a"), b) == {("a", "b")}


def test_titles_name_other_documents_too(in_any_order, document):
    """A title that contains another title mentions it."""
    a = document("It was torn down.", id="a", title="Fall of the Berlin Wall")
    b = document("It stood long.", id="b", title="Berlin Wall")
    assert in_any_order(MENTION, a, b) == {("a", "b")}


def test_a_document_does_not_mention_itself(memory, document, joined):
    """Neither its own title nor the sections that carry it count."""
    text = "# Red Barn\nThe Red Barn.\n## History\nOf the Red Barn.\n"
    memory.add_documents([document(text, source="barn.md")])
    assert joined(memory, MENTION) == set()
    (head, section) = memory.store.walk.get_nodes(memory.store.catalog.all_ids())
    assert (head.mentions, section.mentions) == (0, 0)


def test_a_name_that_many_carry_means_nobody(linked, document):
    """Above ``max_owners`` a name is too common; up to it all its owners are meant."""
    owners = [document(f"{i}", id=f"o{i}", title="John Smith") for i in "123"]
    reader = [document("by John Smith", id="r")]
    for batches in ((owners, reader), (reader, owners)):
        assert linked(MENTION, *batches) == {("r", "o1"), ("r", "o2"), ("r", "o3")}
        assert linked(MENTION, *batches, max_owners=2) == set()


def test_a_name_that_many_texts_say_is_bounded(linked, document):
    """A named document gets ``max_mentions`` edges at most, and links back ``max_back_links``."""
    named = [document("A town.", id="n", title="Ulm")]
    readers = [document(f"{i} in Ulm", id=f"r{i}") for i in "abcdef"]
    for batches in ((named, readers), (readers, named), (named, *([r] for r in readers))):
        bounds = {"max_mentions": 4, "max_back_links": 2}
        assert len(linked(MENTION, *batches, **bounds)) == 4
        assert len(linked(BACK, *batches, **bounds)) == 2


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
    """A title of more than ``max_name_words`` words is not found by look-up."""
    title = "one two three four"
    batches = ([document("text", id="n", title=title)], [document(f"see {title}", id="a")])
    assert linked(MENTION, *batches, max_name_words=4) == {("a", "n")}
    assert linked(MENTION, *batches, max_name_words=3) == set()
    assert linked(MENTION, *batches[::-1], max_name_words=3) == set()
