"""Features of (query, node, path), each against a worked number."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crabpath_retrievers import EdgeKind
from crabpath_retrievers.core.records import (
    LEARNED_KINDS,
    TYPED_KINDS,
    Candidate,
    NodeHead,
    Tier,
    WalkEdge,
)
from crabpath_retrievers.core.text import QueryInformation, encode_terms
from crabpath_retrievers.rerank import (
    FEATURES,
    SOURCE_FEATURES,
    Evidence,
    compute_features,
    compute_node_features,
    pagerank,
)

EVEN = np.zeros(3)  # every node is as likely a source as any other
ASKED = QueryInformation.from_idf({"crab": 30.0, "path": 15.0, "sea": 5.0})
HIDDEN = 99


def make_head(key, mentions=0, text=""):
    vector = np.array([1, 0], dtype=np.float32)
    return NodeHead(key, f"n{key}", f"Node {key}", mentions, vector, encode_terms(text.split()))


def make_arrival(target, kind, strength, hop, source=HIDDEN):
    """A pointer of this kind, from a node that is no candidate unless told."""
    return WalkEdge(make_head(source), target, kind, 0.5, 0.0, Tier.HABITUAL, strength, hop)


def compute_matrix(hits, *arrivals, inhibition=None, sources=EVEN, asked=ASKED):
    return compute_features(Evidence.from_pool(hits, arrivals, inhibition or {}, asked), sources)


def compute_row(hit, *arrivals, **options):
    """The features of one hit that are not zero, by name; alone, it has all of the PageRank."""
    values = compute_matrix([hit], *arrivals, **options)[0]
    found = {name: value for name, value in zip(FEATURES, values, strict=True) if value}
    assert found.pop("pagerank", 0.0) == (1.0 if arrivals else 0.0)
    return found


@pytest.mark.parametrize(
    "kind",
    [
        k
        for k in EdgeKind
        if k not in (EdgeKind.STOP, EdgeKind.SHARED_TERM, EdgeKind.INHIBITS, *TYPED_KINDS)
        and k != EdgeKind.CO_USED
    ],
)
def test_every_kind_of_pointer_counts_in_one_column(kind):
    features = compute_row(Candidate(make_head(1), 0), make_arrival(make_head(1), kind, 0.4, 1))
    assert features == {"bias": 1, "learned" if kind in LEARNED_KINDS else kind.label: 0.4}


def test_co_use_counts_as_far_as_its_source_is_likely_to_answer():
    """It passes no PageRank: documents of one question lift each other for no other one."""
    likely, unlikely, with_likely, with_unlikely = (
        Candidate(make_head(key), similarity)
        for key, similarity in ((1, 0.9), (2, 0.4), (3, 0), (4, 0))
    )
    edges = [
        make_arrival(target.head, EdgeKind.CO_USED, 0.8, 1, source=source.head.key)
        for source, target in ((likely, with_likely), (unlikely, with_unlikely))
    ]
    hits = [likely, unlikely, with_likely, with_unlikely]
    sources = np.array([4.0, 0.0, 0.0])
    matrix = compute_matrix(hits, *edges, sources=sources)
    learned = matrix[:, FEATURES.index("learned")]
    assert learned == pytest.approx([0, 0, 0.5, 0.5 * np.exp(-2)])
    for name in ("pagerank", "bridge"):
        column = FEATURES.index(name)
        assert matrix[0, column] >= matrix[2, column] == matrix[3, column]


LINKS = [make_arrival(make_head(1), EdgeKind.LINK, strength, 1) for strength in (0.2, 0.5, 0.3)]
FAR = [
    make_arrival(make_head(1), EdgeKind.LINK, 0.3, 2),
    make_arrival(make_head(1), EdgeKind.MENTION, 0.2, 3),
]
NAMED = make_arrival(make_head(1, mentions=3), EdgeKind.MENTION, 0.4, 1)


@pytest.mark.parametrize(
    ("hit", "arrivals", "expected"),
    [
        pytest.param(
            Candidate(make_head(1), 0.6, lexical=1.0, name=0.7, exact=1.0, hint=1.0),
            [],
            {"bias": 1, "similarity": 0.6, "name": 0.7, "exact": 1, "hint": 1, "agreement": 1},
            id="a search hit has its scores",
        ),
        # 30 + 5 nats in units of 10.
        pytest.param(
            Candidate(make_head(1, text="sea crab sand"), 0),
            [],
            {"bias": 1, "information": pytest.approx(3.5)},
            id="information is the idf of the words of the query",
        ),
        pytest.param(
            Candidate(make_head(1), 0),
            LINKS,
            {"bias": 1, "link": 0.5},
            id="the strongest of a kind",
        ),
        pytest.param(
            Candidate(make_head(1), 0), FAR, {"bias": 1, "far": 0.3}, id="further out: far"
        ),
        # A name with 3 mentions has rarity 1/√(1 + 3) = .5.
        pytest.param(
            Candidate(make_head(1, mentions=3), 0),
            [NAMED],
            {"bias": 1, "mention": 0.2},
            id="a rare name says more",
        ),
        pytest.param(
            Candidate(make_head(1, text="crab"), 0),
            [make_arrival(make_head(1), EdgeKind.LINK, 1, 1)],
            {"bias": 1, "information": pytest.approx(3.0), "link": 1},
            id="a hidden source builds no bridge",
        ),
    ],
)
def test_features_of_one_hit(hit, arrivals, expected):
    assert compute_row(hit, *arrivals) == expected


@pytest.mark.parametrize(
    ("moved", "trained"), [(0.05, 0.0), (-0.1, 0.0), (0.3, 0.08), (-0.3, -0.08)]
)
def test_what_feedback_moved_counts_beyond_what_chance_moves(moved, trained):
    """Beyond 0.1, times the energy of its source: 0.2 / 0.5 here."""
    node, link = make_head(1), EdgeKind.LINK
    come = WalkEdge(make_head(HIDDEN), node, link, 0.5, 0.0, Tier.HABITUAL, 0.2, 1, change=moved)
    found = compute_row(Candidate(make_head(1), 0.0), come)
    assert found.get("trained", 0.0) == pytest.approx(trained)


def test_a_pointer_counts_as_much_as_its_source_is_likely():
    """With 10 per unit of similarity, a source .1 behind the best is e^-1 times as likely."""
    hits = [
        Candidate(make_head(1), 0.5),
        Candidate(make_head(2), 0.4),
        Candidate(make_head(3), 0.0),
    ]
    mention = make_arrival(make_head(3), EdgeKind.MENTION, 0.4, 1, source=2)
    features = compute_matrix(hits, mention, sources=np.array([10.0, 0.0, 0.0]))[2]
    assert features[FEATURES.index("likely_mention")] == pytest.approx(np.exp(-1))


def test_a_shared_term_says_less_to_a_query_that_asks_for_much():
    """50 nats are typical, 25 count double; 200 leave a quarter, and so do few: 2.5 / 12.5."""
    hits = [Candidate(make_head(1, mentions=1), 0.5), Candidate(make_head(2), 0.5)]
    shared = make_arrival(make_head(2), EdgeKind.SHARED_TERM, 0.35, 1, source=1)
    column = FEATURES.index("shared_term")
    for nats, expected in ((50.0, 1.0), (200.0, 0.25), (25.0, 2.0), (2.5, 0.2)):
        asked = QueryInformation.from_idf({"crab": nats})
        assert compute_matrix(hits, shared, asked=asked)[1, column] == pytest.approx(expected)


SENTENCE = QueryInformation.from_idf({f"word{number}": 1.0 for number in range(10)})


def compute_column(name, cosines, *, named=0, asked=SENTENCE):
    heads = [make_head(key, mentions=int(key < named)) for key in range(len(cosines))]
    hits = [Candidate(head, cosine) for head, cosine in zip(heads, cosines, strict=True)]
    shared = make_arrival(heads[-1], EdgeKind.SHARED_TERM, 0.4, 1, source=0)
    return compute_matrix(hits, shared, asked=asked)[:, FEATURES.index(name)]


def test_contrast_places_a_cosine_between_the_twentieth_and_the_highest():
    """30 cosines from .00 to .58: the twentieth is .20; nearly equal ones tell little."""
    cosines = np.arange(0.0, 0.60, 0.02)
    contrast = compute_column("contrast", cosines)
    assert contrast[[10, 29]] == pytest.approx([0.0, 1.0])
    assert compute_column("contrast", 0.8 + cosines / 10)[29] == pytest.approx(0.038 / 0.3)


def test_a_source_of_many_edges_says_less_of_each():
    """Three edges of a kind count whole, six half each."""
    hits = [Candidate(make_head(key), 0.5) for key in range(7)]
    for kind, name in ((EdgeKind.MENTION, "mention"), (EdgeKind.SHARED_TERM, "shared_term")):
        values = []
        for count in (3, 6):
            edges = [
                make_arrival(make_head(n), kind, 0.4, 1, source=0) for n in range(1, count + 1)
            ]
            asked = QueryInformation.from_idf({f"word{n}": 2.0 for n in range(25)})
            values.append(compute_matrix(hits, *edges, asked=asked)[1, FEATURES.index(name)])
        assert values[1] == pytest.approx(values[0] / 2)


def test_a_term_shared_with_a_long_text_says_less():
    """Of 60 distinct words as much as of few, of 120 half."""
    asked = QueryInformation.from_idf({f"word{n}": 2.0 for n in range(25)})
    values = []
    for length in (10, 60, 120):
        text = " ".join(f"term{n}" for n in range(length))
        heads = [make_head(0), make_head(1, text=text)]
        edge = make_arrival(heads[1], EdgeKind.SHARED_TERM, 0.4, 1, source=0)
        hits = [Candidate(head, 0.5) for head in heads]
        values.append(compute_matrix(hits, edge, asked=asked)[1, FEATURES.index("shared_term")])
    assert values == pytest.approx([values[0], values[0], values[0] / 2])


def test_a_word_that_many_candidates_have_bridges_little():
    """One of a hundred has it, ten, all."""
    asked = QueryInformation.from_idf({"crab": 20.0})
    gains = []
    for having in (1, 30, 100):
        heads = [make_head(n, text="crab" if 0 < n <= having else "sea") for n in range(101)]
        link = make_arrival(heads[1], EdgeKind.LINK, 1, 1, source=0)
        hits = [Candidate(head, 0.5) for head in heads]
        gains.append(compute_matrix(hits, link, asked=asked)[1, FEATURES.index("bridge")])
    assert gains[0] > 1.5 * gains[1] > 0
    assert gains[2] < 0.02


def test_contrast_is_for_queries_that_one_text_answers():
    """Half a sentence counts half, 20 words too; one of 20 candidates is half of a tenth."""
    cosines = np.linspace(0.2, 0.6, 20)
    for words, left in ((3, 0.5), (6, 1.0), (15, 1.0), (20, 0.5), (25, 0.0), (40, 0.0)):
        asked = QueryInformation.from_idf({f"word{number}": 1.0 for number in range(words)})
        column = compute_column("contrast", cosines, asked=asked)
        assert column.max() == pytest.approx(left)
    for named, left in ((1, 0.5), (2, 0.0), (9, 0.0)):
        assert compute_column("contrast", cosines, named=named).max() == pytest.approx(left)


def test_terms_are_shared_by_chance_where_texts_never_name_each_other():
    cosines = np.full(20, 0.5)
    asked = QueryInformation.from_idf({"crab": 50.0})
    for named, expected in ((0, 0.0), (1, 0.5), (2, 1.0)):
        column = compute_column("shared_term", cosines, named=named, asked=asked)
        assert column[-1] == pytest.approx(expected)


def test_a_bridge_adds_what_its_source_lacks():
    """The source holds "crab" (30 of 50 nats); "path" (15) is new, "crab" is not."""
    hits = [Candidate(make_head(1, text="crab"), 0), Candidate(make_head(2, text="crab path"), 0)]
    link = make_arrival(make_head(2), EdgeKind.LINK, 0.6, 1, source=1)
    features = compute_matrix(hits, link)
    assert features[:, FEATURES.index("bridge")] == pytest.approx([0.0, 0.3])


def test_pagerank_reaches_what_nobody_likely_points_at_directly():
    hits = [
        Candidate(make_head(1), 0.9),
        Candidate(make_head(2), 0.0),
        Candidate(make_head(3), 0.0),
    ]
    first = make_arrival(make_head(2), EdgeKind.MENTION, 0.5, 1, source=1)
    second = make_arrival(make_head(3), EdgeKind.MENTION, 0.3, 2, source=2)
    features = compute_matrix(hits, first, second, sources=np.array([100.0, 0.0, 0.0]))
    assert features[:, FEATURES.index("pagerank")] == pytest.approx([1.0, 0.5, 0.25])


def test_inhibition_and_arrivals_reach_their_own_row_only():
    hits = [Candidate(make_head(1), 0), Candidate(make_head(2), 0)]
    arrivals = [
        make_arrival(make_head(2), EdgeKind.LINK, 0.4, 1),
        make_arrival(make_head(9), EdgeKind.LINK, 0.9, 1),
    ]
    matrix = compute_matrix(
        hits, *arrivals, inhibition={1: (make_head(1), 0.3), 9: (make_head(9), 0.9)}
    )
    columns = [FEATURES.index("link"), FEATURES.index("inhibition")]
    assert matrix[:, columns].tolist() == [[0, 0.3], [0.4, 0]]


def test_a_query_without_known_words_can_be_ranked():
    nothing = QueryInformation.from_idf({})
    link = make_arrival(make_head(2), EdgeKind.SHARED_TERM, 0.4, 1, source=1)
    matrix = compute_matrix(
        [Candidate(make_head(1), 0.2), Candidate(make_head(2), 0.1)], link, asked=nothing
    )
    assert np.isfinite(matrix).all()
    assert not matrix[:, FEATURES.index("shared_term")].any()


def test_what_a_node_says_itself_needs_no_pointer():
    """Its columns are the same with and without the graph; those of the graph stay 0."""
    hits = [
        Candidate(make_head(1, text="sea crab"), 0.6, name=0.7, hint=1.0),
        Candidate(make_head(2), 0.1, exact=1.0),
    ]
    inhibition = {1: (make_head(1), 0.3)}
    evidence = Evidence.from_pool(
        hits, [make_arrival(make_head(2), EdgeKind.LINK, 0.4, 1)], inhibition, ASKED
    )
    own, whole = compute_node_features(evidence), compute_features(evidence, EVEN)
    said = [FEATURES.index(name) for name in ("bias", "exact", "hint", *SOURCE_FEATURES)]
    assert own[:, said].tolist() == whole[:, said].tolist()
    assert not np.delete(own, said, axis=1).any()


def test_no_hits_give_an_empty_matrix():
    assert compute_matrix([]).shape == (0, len(FEATURES))


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from([0.3, 0.6])), max_size=20
    ),
    st.lists(st.floats(0.01, 1), min_size=6, max_size=6),
)
def test_pagerank_solves_the_whole_system(pointers, restart):
    """Parallel pointers add up; the full matrix gives the same."""
    weights = np.zeros((6, 6))
    for source, target, weight in pointers:
        weights[source, target] += weight
    steps = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
    expected = np.linalg.solve(np.eye(6) - 0.5 * steps.T, np.array(restart))
    rows = np.array(pointers, dtype=np.float64).reshape(-1, 3)
    ends = rows[:, :2].astype(np.intp)
    found = pagerank(ends[:, 0], ends[:, 1], rows[:, 2], np.array(restart), 0.5)
    assert found == pytest.approx(expected / expected.max())


def test_one_page_answers_what_asks_long_texts_for_little():
    """There BM25 counts, and what other texts mention or share does not."""
    mention = make_arrival(make_head(2), EdgeKind.MENTION, 0.5, 1, source=1)
    for words, nats, plain in ((240, 8.0, 1.0), (240, 30.0, 0.5), (60, 8.0, 0.0), (240, 50.0, 0.0)):
        text = " ".join(f"word{number}" for number in range(words))
        hits = [Candidate(make_head(key, 1, text), 0.5, 0.5) for key in (1, 2)]
        asked = QueryInformation.from_idf({"crab": nats})
        matrix = compute_matrix(hits, mention, asked=asked)
        assert matrix[1, FEATURES.index("lexical")] == pytest.approx(0.5 * plain, abs=0.02)
        named = matrix[1, FEATURES.index("likely_mention")]
        assert named == pytest.approx(1.0 - plain, abs=0.02)
