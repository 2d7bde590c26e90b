"""Official formats are read as they are; labels stay in the qrels."""

import gzip
import json

import pytest

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.evaluation.datasets import beir, hotpotqa, musique

ROW = {
    "_id": "q1",
    "question": "Who made A?",
    "answer": "secret answer",
    "supporting_facts": [["A", 0], ["B", 1]],
    "context": [["A", ["A is. ", "By B."]], ["B", ["B lives."]], ["C", "C in one string."]],
}


def write(path, text):
    """A file, zipped when its name ends so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["train.json", "train.json.gz"])
def test_hotpotqa_contexts_are_pooled_and_gold_is_mapped(tmp_path, name):
    """Two questions sharing a paragraph give one document for it."""
    second = {**ROW, "_id": "q2", "context": ROW["context"][:1], "supporting_facts": [["A", 0]]}
    data = hotpotqa(write(tmp_path / name, json.dumps([ROW, second])))
    texts = {d.id: d.page_content for d in data.documents}
    assert sorted(texts.values()) == ["A\nA is. By B.", "B\nB lives.", "C\nC in one string."]
    assert {texts[i][0] for i in data.qrels["q1"]} == {"A", "B"}
    assert {texts[i][0] for i in data.qrels["q2"]} == {"A"}


def test_musique_gold_is_told_apart_by_place(tmp_path):
    """Paragraphs with equal titles are different documents; only the supporting one is gold."""
    paragraphs = [
        {"title": "A", "paragraph_text": "first", "is_supporting": False},
        {"title": "A", "paragraph_text": "second", "is_supporting": True},
    ]
    row = {"id": "q", "question": "?", "paragraphs": paragraphs}
    data = musique(write(tmp_path / "train.jsonl", json.dumps(row)))
    texts = {d.id: d.page_content for d in data.documents}
    assert [texts[i] for i in data.qrels["q"]] == ["A\nsecond"]


def test_beir_folders_are_read_and_unjudged_queries_left_out(tmp_path):
    """Scores of 0 are not relevant."""
    write(tmp_path / "corpus.jsonl.gz", json.dumps({"_id": "d", "title": "", "text": "t"}))
    queries = [json.dumps({"_id": q, "text": q}) for q in ("a", "b")]
    write(tmp_path / "queries.jsonl", "\n".join(queries))
    write(tmp_path / "qrels/test.tsv", "query-id\tcorpus-id\tscore\na\td\t1\nb\td\t0\n")
    data = beir(tmp_path)
    assert (data.queries, data.qrels) == ({"a": "a"}, {"a": {"d"}})
    assert data.documents[0].page_content == "t"


def test_no_label_reaches_a_document(tmp_path):
    """Permuting the labels changes the qrels and not one byte of what is indexed."""
    other = {**ROW, "supporting_facts": [["C", 0]], "answer": "another"}
    first = hotpotqa(write(tmp_path / "a.json", json.dumps([ROW])))
    second = hotpotqa(write(tmp_path / "b.json", json.dumps([other])))
    assert first.documents == second.documents
    assert first.qrels != second.qrels
    assert "secret answer" not in str(first.documents)


def test_a_missing_file_is_named(tmp_path):
    """The sentence says what to give."""
    with pytest.raises(InvalidInputError, match=r"plain or \.gz"):
        hotpotqa(tmp_path / "none.json")
