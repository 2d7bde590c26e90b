"""What makes each kind of edge: links, names, names that texts share, neighbourhood, nearness."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langchain_text_splitters import CharacterTextSplitter

from crabpath_retrievers import EdgeKind
from crabpath_retrievers.ingest.chunking import find_references

LINK, MENTION, SHARED = EdgeKind.LINK, EdgeKind.MENTION, EdgeKind.SHARED_TERM


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("see [b](b.md)", ["docs/b.md"]),
        ('see [b](./b.md "Title")', ["docs/b.md"]),
        ("see [b](<../b.md>)", ["b.md"]),
        ("see [b](sub/b.md#part)", ["docs/sub/b.md"]),
        ("see [b](my%20file.md)", ["docs/my file.md"]),
        ("![picture](b.png)", ["docs/b.png"]),
        ("see [[Some Page]]", ["wiki:some page"]),
        ("see [[some page#Part|this]]", ["wiki:some page"]),
        ('<a class="x" href="b.html">b</a>', ["docs/b.html"]),
        ("<A HREF=b.html>b</A>", ["docs/b.html"]),
        ("at https://www.Example.org/a/.", ["example.org/a"]),
        ("at http://example.org/a?x=1", ["example.org/a?x=1"]),
        ("[b](https://x.org/B_(c))", ["x.org/B_(c)"]),
        ("(see https://x.org/B_(c))", ["x.org/B_(c)"]),
        ("[top](#top) [mail](mailto:a@b.org) [x](javascript:go())", []),
        ("[[]] [a]() a [b] c", []),
        pytest.param("[" * 50_000 + "](" * 5_000 + "<a " * 5_000, [], id="unclosed"),
    ],
)
def test_links_are_read_in_every_notation(text, targets):
    """One spelling per place, relative links resolved against the document's own path."""
    assert find_references(text, "docs/a.md") == tuple(targets)
    of_site = find_references("[b](../b) [c](/c)", "https://www.x.org/docs/a/")
    assert of_site == ("x.org/docs/b", "x.org/c")


def test_a_document_is_reached_by_path_url_and_title_whichever_came_first(linked, document):
    texts = ["[to b](b.md)", "[[bee: A]]", "https://x.org/b", '<a href="b.md">']
    sources = [document(f"see {t}", id=f"a{n}", source="d/a.txt") for n, t in enumerate(texts)]
    given = {"source": "./d/b.md", "title": "Bee: A", "url": "https://www.x.org/b/"}
    target = [document("target", id="b", **given)]
    changed = [document("target, changed", id="b", **given)]
    for batches in ([*sources, *target],), (sources, target), (target, sources, changed):
        edges = linked(*batches)
        assert edges(LINK) == {(f"a{n}", "b") for n in range(4)}
        assert edges(EdgeKind.LINKED_BY) == {("b", f"a{n}") for n in range(4)}


def test_equal_metadata_joins_documents(linked, document):
    """Documents with the same value under one of ``metadata_keys`` are linked both ways."""
    a, b = (document(f"text {i}", id=i, ticket=7, other="x") for i in "ab")
    c = document("text c", id="c", ticket=8, other="x")
    for batches in ([a, b, c],), ([b], [c], [a]):
        assert linked(*batches, metadata_keys=("ticket",))(LINK) == {("a", "b"), ("b", "a")}
    assert linked([a, b, c])(LINK) == set()


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


def test_names_are_matched_as_names(linked, document):
    """Whole words, any case for longer names, no qualifier needed, no numbers and letters."""
    readers = [document(text, id=text) for text in NAMED]
    titles = [document("-- text", id=t, title=t) for t in TITLES]
    clemens = next(title for title in titles if title.id == "Samuel Clemens")
    clemens.metadata["aliases"] = ["Mark Twain", "S. Clemens"]
    expected = {(text, title) for text, title in NAMED.items() if title}
    expected.add(("Tale of the Batman", "Batman"))
    for batches in (readers, titles), (titles, readers):
        edges = linked(*batches)
        assert edges(MENTION) == expected
        assert edges(EdgeKind.MENTIONED_BY) == {(title, text) for text, title in expected}


@pytest.mark.parametrize(
    ("title", "text", "mentioned"),
    [
        ("北京大学第一附属医院", "他在北京大学第一附属医院工作。", True),
        ("コンピュータサイエンス学科", "私はコンピュータサイエンス学科の学生です", True),
        ("京都", "東京都の人口は多い。", False),
        ("京都", "昨日京都へ行った", True),
        ("カラス", "窓はガラスでできている", False),
        ("กรุงเทพ", "ฉันอยู่กรุงเทพกับเพื่อน", True),
        ("ວຽງຈັນ", "ຂ້ອຍຢູ່ວຽງຈັນ", True),
        ("서울", "회의는 서울에서 열린다", True),
        ("서울", "남서울은 크다", False),
        ("القاهرة", "تقع القاهرة في مصر", True),
        ("दिल्ली", "मैं दिल्ली में रहता हूँ", True),
        ("Москва", "Он живёт в городе Москва", True),
        ("Bank", "Sie sitzt auf einer alten Bank im Park", False),
        ("Hamburg", "Er wohnt in Hamburg und arbeitet", True),
        ("Bank", "The Bank said that every bank must pay", False),
    ],
)
def test_names_of_every_script_are_found(linked, document, title, text, mentioned):
    """At any length, not within other words, and no common nouns; whichever came first."""
    batches = ([document(text, id="a")], [document("-- text", id="n", title=title)])
    for order in (batches, batches[::-1]):
        assert linked(*order)(MENTION) == ({("a", "n")} if mentioned else set())


def test_mentions_are_counted_for_rarity(memory, document):
    """A node knows how many others name it, also after they were changed and removed."""
    memory.add_documents([document("A town.", id="n", title="Ulm")])
    memory.add_documents([document(f"{i} in Ulm", id=i) for i in ("a", "b", "c")])
    assert memory.store.walk.get_nodes(["n"])[0].mentions == 3
    memory.add_documents([document("elsewhere", id="a")])
    memory.forget("b")
    memory.add_documents([document("A city.", id="n", title="Ulm")])
    assert memory.store.walk.get_nodes(["n"])[0].mentions == 1


def test_names_longer_than_the_bound_are_not_looked_up(linked, document):
    title = "one two three four"
    batches = ([document("text", id="n", title=title)], [document(f"see {title}", id="a")])
    assert linked(*batches, max_name_words=4)(MENTION) == {("a", "n")}
    assert linked(*batches, max_name_words=3)(MENTION) == set()
    assert linked(*batches[::-1], max_name_words=3)(MENTION) == set()


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


def test_shared_names_join_two_texts(linked, document):
    """Names and identifiers of texts and titles, also of documents of one source."""
    first = [document(text, id=f"a{n}", source="rows.csv") for n, (text, _, _) in enumerate(PAIRS)]
    second = [document(text, id=f"b{n}", source="rows.csv") for n, (_, text, _) in enumerate(PAIRS)]
    first.append(document("it was wet", id="a", title="Rain over Lake Como"))
    second.append(document("we saw Lake Como", id="b"))
    pairs = {("a", "b"), *((f"a{n}", f"b{n}") for n, pair in enumerate(PAIRS) if pair[2])}
    for batches in (first, second), (second, first):
        assert linked(*batches)(SHARED) == pairs | {(b, a) for a, b in pairs}


def test_the_number_of_terms_is_bounded(linked, document):
    """A list of names has the first 64 in order, whichever text came first."""
    names = [f"x{number:03} is" for number in range(80)]
    long, others = document(" ".join(names), id="a"), [document(n, id=n) for n in names]
    for batches in ([long], others), (others, [long]):
        found = linked(*batches)(SHARED)
        assert found == {p for n in names[:64] for p in (("a", n), (n, "a"))}


LINES = CharacterTextSplitter(separator="\n", chunk_size=1, chunk_overlap=0)
VERSION = st.lists(st.sampled_from("abcdefg"), min_size=1, unique=True)


def test_chunks_that_come_with_ids_are_joined_by_source(memory, document, chained):
    """Chunks that the caller split and numbered are neighbours in the order in which they came."""
    pages = [document(text, id=f"id{text}", source="book.pdf") for text in "abcd"]
    memory.add_documents(pages[:2])
    memory.add_documents(pages[2:])
    assert chained(memory, "abcd")
    memory.add_documents([document("c2", id="idc", source="book.pdf")])
    assert chained(memory, ["a", "b", "c2", "d"])
    memory.forget("idb")
    assert chained(memory, ["a", "c2", "d"])


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(versions=(["a", "b"], ["a", "c", "d", "b"]))
@given(versions=st.tuples(VERSION, VERSION))
def test_the_chain_follows_every_change(memory, document, chained, versions):
    """However chunks are inserted, moved and removed, the edges are those of the last version."""
    memory.add_documents([document("z", source="of its own")])
    for version in versions:
        whole = document("\n".join(version), source="s")
        memory.add_documents([whole], splitter=LINES, cleanup="incremental")
        assert chained(memory, version)


def test_near_texts_are_joined_if_that_is_asked(linked, document):
    """Each new node to its ``similar_neighbours`` nearest; edges back come on top."""
    texts = ["red apples grow on old trees", "taxes were due by noon"]
    far = [document(text, id=text) for text in texts]
    near = [document(f"{texts[0]} {i}", id=f"d{i}") for i in range(6)]
    assert linked(near)(EdgeKind.SIMILAR) == set()
    itself = linked(far[:1], similar_neighbours=5, min_similarity=-1.0)
    assert itself(EdgeKind.SIMILAR) == set()
    assert linked(far, similar_neighbours=5, min_similarity=0.6)(EdgeKind.SIMILAR) == set()
    edges = linked(near[:5], near[5:], similar_neighbours=1, min_similarity=0.0)
    assert len({pair for pair in edges(EdgeKind.SIMILAR) if pair[0] == "d5"}) == 1
