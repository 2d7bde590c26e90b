"""The files of HippoRAG's experiments: a corpus of its own, gold named by title and text."""

import pytest

from crabpath_lab import load_hipporag
from crabpath_retrievers.errors import InvalidInputError

CORPUS = [
    {"title": "A", "text": "A is. By B.", "idx": 0},
    {"title": "B", "text": "B lives."},
    {"title": "B", "text": "Another B."},
    {"title": "C", "text": "Nobody's context."},
]
WIKI = {
    "_id": "q1",
    "question": "Who made A?",
    "context": [["A", ["A is.", "By B."]], ["B", ["B  lives."]], ["C", ["?"]]],
    "supporting_facts": [["A", 0], ["B", 0]],
}
MUSIQUE = {
    "id": "q2",
    "question": "Which B?",
    "paragraphs": [
        {"title": "B", "paragraph_text": "Another B.", "is_supporting": True},
        {"title": "A", "paragraph_text": "A is. By B.", "is_supporting": False},
    ],
}


def read(write, *rows):
    write("2wiki_corpus.json", CORPUS)
    return load_hipporag(write("2wiki.json", list(rows)).parent)


def test_the_whole_corpus_is_searched_and_gold_is_found_by_title_and_text(write):
    data = read(write, WIKI, MUSIQUE)
    texts = {document.id: document.page_content for document in data.documents}
    assert (data.name, len(texts)) == ("2wiki", 4)
    assert {texts[i] for i in data.qrels["q1"]} == {"A\nA is. By B.", "B\nB lives."}
    assert {texts[i] for i in data.qrels["q2"]} == {"B\nAnother B."}
    assert not data.unmapped_gold


def test_gold_that_the_corpus_lacks_is_a_miss_and_questions_without_gold_are_left_out(write):
    lost = {**WIKI, "context": [["B", ["Of unknown text."]]]}
    data = read(write, lost, {**MUSIQUE, "paragraphs": []})
    assert data.unmapped_gold == {"q1": ("unmapped:B",)}
    assert (list(data.queries), data.left_out) == (["q1"], 1)


def test_a_folder_without_one_corpus_is_refused(write):
    folder = write("2wiki.json", [WIKI]).parent
    with pytest.raises(
        InvalidInputError, match=r"exactly one file .*none that ends in _corpus\.json"
    ):
        load_hipporag(folder)
