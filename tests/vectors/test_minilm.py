"""The packaged model gives the vectors of sentence-transformers, and takes its place."""

import json
from pathlib import Path

import minilm
import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_huggingface import HuggingFaceEmbeddings

from crabpath_minilm import MiniLMEmbeddings
from crabpath_retrievers import CrabPath

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).parent / "minilm.json"
ODD = [
    *("", " ", "\n", "x", "naïve café, “quotes” … 🦀", "e\u0301 and é", "\x00bad\x07", "a\u200bb"),
    *("Größe über 3 µm", "東京は日本の首都です。", "Привет, как дела?", "مرحبا بالعالم", "नमस्ते"),
    *(
        "한국어 문장입니다",
        "ไทย",
        "İSTANBUL",
        "[CLS] [MASK] [PAD] [SEP]",
        "def f(x):\n\treturn x**2",
    ),
    *("crab " * 253, "crab " * 254, "crab " * 255, "crab " * 4000, "a" * 5000),
]
"""Texts without words, of other scripts, of special tokens, and around the limit of tokens."""


def read_texts():
    """The odd texts, questions, paragraphs and pages of documentation."""
    sample = ROOT / "examples" / "hotpotqa_sample"
    rows = [json.loads(row) for row in (sample / "corpus.jsonl").read_text().splitlines()]
    asked = [json.loads(row)["text"] for row in (sample / "queries.jsonl").read_text().splitlines()]
    pages = [page.read_text() for page in sorted((ROOT / "docs" / "how-to").glob("*.md"))]
    return [*ODD, *asked, *(f"{row['title']}\n{row['text']}" for row in rows[:400]), *pages]


@pytest.mark.slow
def test_vectors_are_those_that_sentence_transformers_gave():
    """Recorded by this file as a program; every fourth number of each vector."""
    model = minilm.load()
    found = np.array(model.embed_documents(ODD))
    assert found[:, ::4] == pytest.approx(np.array(json.loads(RECORD.read_text())), abs=1e-5)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1, abs=1e-6)
    asked = np.array([model.embed_query(text) for text in ODD])
    assert asked == pytest.approx(found, abs=1e-6), "alone and in a batch"
    assert model.embed_documents([]) == []


@pytest.mark.slow
def test_vectors_are_those_of_sentence_transformers_on_many_texts():
    texts = read_texts()[::5]
    assert len(texts) > 100
    theirs, ours = (np.array(m.embed_documents(texts)) for m in (load_theirs(), minilm.load()))
    assert np.abs(theirs - ours).max() < 1e-5


def load_theirs():
    """The same model by sentence-transformers."""
    options = {"normalize_embeddings": True}
    return HuggingFaceEmbeddings(model_name=str(minilm.find_folder()), encode_kwargs=options)


@pytest.mark.slow
def test_a_memory_opens_with_either(tmp_path):
    """In both directions, and finds the same."""
    texts = ["Crabs walk sideways.", "Interest rates rose in March.", "A cake needs butter."]
    documents = [Document(text, id=text[0]) for text in [*texts, "Bread needs flour."]]
    theirs, ours = load_theirs(), MiniLMEmbeddings()
    for name, first, then in (("a", theirs, ours), ("b", ours, theirs)):
        with CrabPath.open(tmp_path / name, embeddings=first) as memory:
            memory.add_documents(documents[:3])
        with CrabPath.open(tmp_path / name, embeddings=then) as memory:
            memory.add_documents(documents[3:])
            found = memory.retrieve("baking", k=2).documents
            assert {one.node.document for one in found} == {"A", "B"}


if __name__ == "__main__":
    vectors = np.array(load_theirs().embed_documents(ODD))[:, ::4]
    rows = (json.dumps([round(float(number), 6) for number in row]) for row in vectors)
    RECORD.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
