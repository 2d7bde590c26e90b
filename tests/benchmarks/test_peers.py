"""CrabPath and other packages answer the same questions."""

import re
from dataclasses import replace

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from benchmarks.costs import SYSTEMS, measure_costs
from benchmarks.peer_sizes import measure_sizes
from benchmarks.peers import PARTS, measure_peers
from crabpath_lab import Dataset
from crabpath_retrievers import InvalidInputError

EMBEDDINGS = DeterministicFakeEmbedding(size=32)
SET = Dataset(
    "tools",
    tuple(Document(f"tool {name}", id=name) for name in ("hammer", "saw", "drill")),
    {"q1": "what drives a nail", "q2": "what drives a nail", "q3": "what cuts a board"},
    {"q1": frozenset({"drill"}), "q2": frozenset({"drill"}), "q3": frozenset({"saw"})},
)


def read_rows(lines):
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[1]: row[2:] for row in rows if len(row) > 2 and row[0] == SET.name}


def test_every_installed_system_answers_all_questions():
    lines = list(measure_peers(["cold"], [SET], EMBEDDINGS, ["CrabPath", "Chroma", "BM25"]))
    rows = read_rows(lines)
    assert list(rows) == ["CrabPath", "Chroma", "BM25"]
    assert {row[0] for row in rows.values()} == {"3"}


def test_learners_are_told_after_each_answer():
    lines = list(measure_peers(["streams"], [SET], EMBEDDINGS, ["CrabPath", "kNN vote"]))
    assert read_rows(lines)["kNN vote"][1].startswith("1.000")


def test_what_is_not_installed_is_left_out_with_the_line_that_brings_it(monkeypatch):
    package = PARTS["streams"]["kNN vote"]._replace(distributions=("no-such-distribution",))
    monkeypatch.setitem(PARTS["streams"], "kNN vote", package)
    lines = list(measure_peers(["streams"], [SET], EMBEDDINGS, ["kNN vote"]))
    assert "- kNN vote: left out; `pip install no-such-distribution` brings it" in lines
    assert read_rows(lines) == {}


@pytest.mark.parametrize(("parts", "names"), [(["warm"], None), (["cold"], ["Pinecone"])])
def test_what_is_unknown_is_refused_with_what_is_known(parts, names):
    with pytest.raises(InvalidInputError, match="choose among"):
        list(measure_peers(parts, [SET], EMBEDDINGS, names))


def test_a_report_is_made_of_each_trial():
    lines = list(measure_peers(["siblings"], [], EMBEDDINGS, ["kNN vote"]))
    (row,) = [line for line in lines if line.startswith("| kNN vote |")]
    assert re.fullmatch(r"\| kNN vote \| [\d.]+ \| [\d.]+ \(\d+ to \d+\) \| [\d.]+ \|", row)


@pytest.mark.slow
def test_passages_are_made_where_a_set_has_too_few():
    pages = tuple(
        Document(f"Chapter {n} tells how a {name} drives a nail into a board.", id=name)
        for n, name in enumerate(("hammer", "saw", "drill"))
    )
    lines = measure_sizes(replace(SET, documents=pages), EMBEDDINGS, [3, 30], ["Chroma"], 3)
    rows = [line.strip("| ").split(" | ") for line in lines if re.match(r"\| \d", line)]
    assert [(row[0], row[1]) for row in rows] == [("3", "Chroma"), ("30", "Chroma")]
    assert rows[0][-1] == "1.000"
    assert all(float(row[3].split()[0]) > 0 for row in rows)


@pytest.mark.slow
def test_costs_are_told_of_each_store_and_of_the_embedder():
    """Each passage takes space and time; a few questions less than the clock tells apart."""
    head, *rows = measure_costs(SET, DeterministicFakeEmbedding(size=384), limit=2)
    columns = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert len(head.splitlines()[0].split("|")) == len(columns[0]) + 2
    assert [row[0] for row in columns] == [*SYSTEMS, "the embedder, beside each of them"]
    numbers = [[float(cell.replace(",", "")) for cell in row[1:]] for row in columns]
    for disk, _, indexing, *_ in numbers[:-1]:
        assert min(disk, indexing) > 0
    assert numbers[-1][0] == 0
