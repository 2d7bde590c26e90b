"""Official formats are read as they are; broken files are told in one sentence."""

import gzip
import json

import pytest

from crabpath_lab import load_beir, load_hotpotqa, load_multihoprag, load_musique
from crabpath_retrievers.errors import InvalidInputError

ROW = {
    "_id": "q1",
    "question": "Who made A?",
    "answer": "secret answer",
    "supporting_facts": [["A", 0], ["B", 1]],
    "context": [["A", ["A is. ", "By B."]], ["B", ["B lives."]], ["C", "C in one string."]],
}


def texts(data):
    return {document.id: document.page_content for document in data.documents}


@pytest.mark.parametrize("name", ["train.json", "train.json.gz"])
@pytest.mark.parametrize("folder", [False, True])
def test_hotpotqa_contexts_are_pooled_and_gold_is_mapped(write, name, folder):
    """Two questions sharing a paragraph give one document for it."""
    second = {**ROW, "_id": "q2", "context": ROW["context"][:1], "supporting_facts": [["A", 0]]}
    path = write(name, [ROW, second])
    data = load_hotpotqa(path.parent if folder else path)
    text = texts(data)
    assert sorted(text.values()) == ["A\nA is. By B.", "B\nB lives.", "C\nC in one string."]
    assert {text[i][0] for i in data.qrels["q1"]} == {"A", "B"}
    assert {text[i][0] for i in data.qrels["q2"]} == {"A"}
    assert [text[i][0] for i in data.candidates["q1"]] == ["A", "B", "C"]
    assert [text[i][0] for i in data.candidates["q2"]] == ["A"]
    assert data.answers == {"q1": "secret answer", "q2": "secret answer"}


def test_gold_outside_the_context_is_a_miss_and_questions_without_gold_are_left_out(write):
    """A supporting title that no paragraph has stays in the qrels and finds no document."""
    outside = {**ROW, "supporting_facts": [["A", 0], ["Z", 0]]}
    data = load_hotpotqa(write("dev.json", [outside, {**ROW, "_id": "q2", "supporting_facts": []}]))
    assert data.unmapped_gold == {"q1": ("unmapped:Z",)}
    assert len(data.qrels["q1"]) == 2
    assert (list(data.queries), data.left_out, len(data.documents)) == (["q1"], 1, 3)


def test_musique_gold_is_told_apart_by_place(write):
    """Paragraphs with equal titles are different documents; only the supporting one is gold."""
    paragraphs = [
        {"title": "A", "paragraph_text": "first", "is_supporting": False},
        {"title": "A", "paragraph_text": "second", "is_supporting": True},
    ]
    row = {"id": "q", "question": "?", "paragraphs": paragraphs}
    data = load_musique(write("train.jsonl", [row, {**row, "id": "r", "answer": "B"}]))
    assert [texts(data)[i] for i in data.qrels["q"]] == ["A\nsecond"]
    assert data.answers == {"r": "B"}


@pytest.mark.parametrize(
    ("metadata", "answers"),
    [({"answer": "B"}, {"q": "B"}), ({"answer": 1}, {}), ({}, {}), (None, {}), ("B", {})],
)
def test_beir_answers_come_from_the_metadata_of_queries(write, metadata, answers):
    folder = write("corpus.jsonl", [{"_id": "d", "title": "", "text": "t"}]).parent
    write("queries.jsonl", [{"_id": "q", "text": "?", "metadata": metadata}])
    write("qrels/test.tsv", "q\td\t1\n")
    assert load_beir(folder).answers == answers


@pytest.mark.parametrize("load", [load_beir, load_hotpotqa])
@pytest.mark.parametrize("header", ["query-id\tcorpus-id\tscore\n", ""])
def test_beir_folders_are_read_and_unjudged_queries_left_out(write, load, header):
    """Scores of 0 are not relevant; hotpotqa reads its own BEIR form; empty entries are skipped."""
    rows = [{"_id": "d", "title": "", "text": "t"}, {"_id": "e", "title": "", "text": " "}]
    folder = write("corpus.jsonl.gz", rows).parent
    write("queries.jsonl", [{"_id": q, "text": q} for q in ("a", "b", "c")])
    write("qrels/test.tsv", f"{header}a\td\t1\nb\td\t0\nc\te\t2\n")
    data = load(folder)
    assert (data.queries, data.qrels) == ({"a": "a", "c": "c"}, {"a": {"d"}, "c": {"e"}})
    assert texts(data) == {"d": "t"}
    assert data.unmapped_gold == {"c": ("e",)}


def evidence(title, url=""):
    return {"title": title, "url": url, "fact": f"A fact of {title}.", "author": "?"}


def articles(write, *rows, **evidence_lists):
    """The data set with these articles, and one question per evidence list."""
    write("corpus.json", list(rows))
    questions = [
        {"query": f"{name}?", "answer": "yes", "question_type": "x", "evidence_list": given}
        for name, given in evidence_lists.items()
    ]
    return load_multihoprag(write("MultiHopRAG.json.gz", questions).parent)


def test_multihoprag_gold_is_the_titles_of_the_evidence(write):
    """Null queries are left out and counted; a title that names no article is a miss."""
    rows = [{"title": title, "body": f"Body of {title}"} for title in "AB"]
    data = articles(write, *rows, one=[evidence("A"), evidence("B"), evidence("Z")], null=[])
    assert texts(data) == {"a0": "A\nBody of A", "a1": "B\nBody of B"}
    assert data.qrels == {"q0": {"a0", "a1", "unmapped:Z"}}
    assert (data.left_out, data.split) == (1, True)
    assert data.answers == {"q0": "yes"}
    assert data.facts["q0"] == ("A fact of A.", "A fact of B.", "A fact of Z.")


def test_multihoprag_equal_titles_are_told_apart_by_address(write):
    rows = [{"title": "A", "body": n, "url": f"https://x/{n}"} for n in "12"]
    data = articles(write, *rows, one=[evidence("A", "https://x/2")], two=[evidence("A")])
    assert data.qrels == {"q0": {"a1"}, "q1": {"unmapped:A"}}
    assert data.documents[0].metadata == {"title": "A", "url": "https://x/1"}


def test_multihoprag_addresses_of_some_articles_only_are_dropped(write):
    """Known for cited articles alone, an address would tell which ones are gold."""
    rows = [{"title": "A", "body": "1", "url": "https://x/1"}, {"title": "B", "body": "2"}]
    data = articles(write, *rows, one=[evidence("A", "https://x/1")])
    assert [document.metadata for document in data.documents] == [{"title": "A"}, {"title": "B"}]
    assert data.qrels == {"q0": {"a0"}}


@pytest.fixture
def data(write):
    """Twenty questions with a gold paragraph each, and one that all share."""
    rows = [
        {
            "_id": f"q{n}",
            "question": f"{n}?",
            "answer": "",
            "supporting_facts": [[f"t{n}", 0]],
            "context": [[f"t{n}", ["text"]], ["shared", ["text"]]],
        }
        for n in range(20)
    ]
    return load_hotpotqa(write("dev.json", rows))


def test_a_limit_takes_the_first_questions_and_pools_their_paragraphs(data):
    fewer = data.sample(3)
    assert list(fewer.queries) == ["q0", "q1", "q2"]
    assert [d.metadata["title"] for d in fewer.documents] == ["t0", "shared", "t1", "t2"]
    assert fewer.unmapped_gold == {}


def test_a_seed_draws_the_questions_and_draws_the_same_again(data):
    """Another seed draws others; the order of the file is kept."""
    drawn = list(data.sample(5, seed=1).queries)
    assert drawn == list(data.sample(5, seed=1).queries)
    assert drawn != list(data.sample(5, seed=2).queries)
    assert drawn == sorted(drawn, key=list(data.queries).index)

    assert data.sample(100) == data.sample(100, seed=1) == data.sample(None) == data


def test_one_id_for_two_questions_is_refused(write):
    """One of them would silently take the place of the other."""
    with pytest.raises(InvalidInputError, match="stands twice"):
        load_hotpotqa(write("dev.json", [ROW, ROW]))


QUESTION = {"_id": "q", "question": "?", "context": [["A", ["a"]]], "supporting_facts": [["A", 0]]}
MUSIQUE = {"id": "q", "question": "?", "paragraphs": []}
BEIR = {"corpus.jsonl": [{"_id": "d", "text": "t"}], "queries.jsonl": [{"_id": "a", "text": "a"}]}
WHOLE = json.dumps([QUESTION] * 50)
PACKED = gzip.compress(WHOLE.encode())
ONE_FILE = r"exactly one file .*: name the file itself"


def judged(row):
    return {**BEIR, "qrels/test.tsv": f"query-id\tcorpus-id\tscore\n{row}\n"}


SHAPES = [
    ({"data": []}, "input should be a valid array"),
    ([1, 2], r"\[0\]: input should be"),
    ([{**QUESTION, "context": {"title": ["A"]}}], r"\[0\].context: input should be a valid"),
    ([{k: v for k, v in QUESTION.items() if k != "supporting_facts"}], "field required"),
    ("not JSON at all", "invalid JSON"),
    ("", "invalid JSON"),
    *(
        (WHOLE[: int(len(WHOLE) * kept)], "is not .* give the official file")
        for kept in (0.5, 0.99)
    ),
]
ZIPPED = [
    *(
        (PACKED[: int(len(PACKED) * kept)], r"dev.json.gz is truncated .* download")
        for kept in (0.5, 0.99)
    ),
    (WHOLE.encode(), "is truncated or damaged"),  # some browsers unpack what they save
]


@pytest.mark.parametrize(
    ("load", "files", "place", "says"),
    [
        (load_hotpotqa, {}, "none.json", r"none.json does not exist: give .* plain or \.gz"),
        *((load_hotpotqa, {"dev.json": content}, "dev.json", says) for content, says in SHAPES),
        *((load_hotpotqa, {"dev.json.gz": data}, "dev.json.gz", says) for data, says in ZIPPED),
        (load_hotpotqa, {}, "", ONE_FILE),
        (load_hotpotqa, {"a.json": [QUESTION], "b.json.gz": [QUESTION]}, "", ONE_FILE),
        (
            load_musique,
            {"dev.jsonl": [MUSIQUE, {"id": "r", "question": "?"}]},
            "dev.jsonl",
            r"line 2 \(paragraphs: field required\)",
        ),
        *(
            (load_beir, judged(row), "", r"test.tsv, line 2 is not a BEIR judgement")
            for row in ("a d 1", "a\td", "a\td\tyes", "a\tQ0\td\t1")
        ),
        (
            load_beir,
            {**BEIR, "qrels/test.tsv": '{"query-id": "a", "corpus-id": "d", "score": 1}'},
            "",
            r"test.tsv, line 1 is not a BEIR judgement",
        ),
        (
            load_beir,
            {**judged("a\td\t1"), "corpus.jsonl": BEIR["corpus.jsonl"] * 2},
            "",
            "the document id 'd' stands twice",
        ),
        (load_beir, {**BEIR, "qrels/test.tsv": b"\xff\xfe\x00"}, "", "damaged"),
        (load_beir, {"corpus.jsonl/x": ""}, "", "cannot be read"),
        (
            load_multihoprag,
            {"MultiHopRAG.json": []},
            "MultiHopRAG.json",
            "give the folder with corpus.json and",
        ),
    ],
)
def test_what_is_broken_is_told(write, tmp_path, load, files, place, says):
    for name, content in files.items():
        if isinstance(content, bytes):
            write(name, "")
            (tmp_path / name).write_bytes(content)
        else:
            write(name, content)
    with pytest.raises(InvalidInputError, match=says):
        load(tmp_path / place)
