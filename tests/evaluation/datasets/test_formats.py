"""Official formats are read as they are, plain or zipped, from a file or its folder."""

import pytest

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.evaluation.datasets import (
    load_beir,
    load_hotpotqa,
    load_multihoprag,
    load_musique,
)
from crabpath_retrievers.evaluation.datasets.dataset import ContextQuestion, pool_questions

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
def data():
    """Twenty questions with a gold paragraph each, and one that all share."""
    questions = (
        ContextQuestion(f"q{n}", f"{n}?", [(f"t{n}", "text"), ("shared", "text")], {0})
        for n in range(20)
    )
    return pool_questions("made up", questions)


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


def test_one_id_for_two_questions_is_refused():
    """One of them would silently take the place of the other."""
    question = ContextQuestion("q", "?", [("t", "text")], {0})
    with pytest.raises(InvalidInputError, match="stands twice"):
        pool_questions("made up", [question, question])
