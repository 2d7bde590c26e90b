"""Fixtures for tests of evaluation and benchmarks: a small real sample, embedded once."""

import gzip
import json
from dataclasses import replace

import pytest

from crabpath_lab import cached_embedder, load_sample

QUERIES, FILLING = 12, 60


@pytest.fixture(scope="session")
def cached(cache):
    """all-MiniLM-L6-v2, every text once."""
    return cached_embedder(cache=cache)


@pytest.fixture(scope="session")
def small():
    """Twelve HotpotQA questions over their paragraphs and sixty others."""
    data = load_sample().head(QUERIES)
    wanted = {document for gold in data.qrels.values() for document in gold}
    others = [d for d in data.documents if d.id not in wanted][:FILLING]
    return replace(
        data, documents=tuple(d for d in data.documents if d.id in wanted or d in others)
    )


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """A directory of embeddings that all tests share."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def beir_folder(small, tmp_path_factory):
    """The small sample as a BEIR folder."""
    folder = tmp_path_factory.mktemp("beir") / "small"
    (folder / "qrels").mkdir(parents=True)
    corpus = [
        {"_id": d.id, "title": d.metadata["title"], "text": d.page_content.split("\n", 1)[1]}
        for d in small.documents
    ]
    queries = [{"_id": query, "text": text} for query, text in small.queries.items()]
    judged = [f"{query}\t{d}\t1" for query, gold in small.qrels.items() for d in sorted(gold)]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "qrels" / "test.tsv").write_text("\n".join(["q\td\tscore", *judged]))
    return folder


@pytest.fixture
def write(tmp_path):
    """Writes JSON, JSON lines or text to a file of this name, zipped when it ends so."""

    def _write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        plain = name.removesuffix(".gz")
        if isinstance(content, str):
            text = content
        elif plain.endswith(".jsonl"):
            text = "\n".join(json.dumps(row) for row in content)
        else:
            text = json.dumps(content)
        path.write_bytes(gzip.compress(text.encode()) if name != plain else text.encode())
        return path

    return _write
