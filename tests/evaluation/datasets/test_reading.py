"""Broken files are told in one sentence that names the file and what to do."""

import gzip
import json

import pytest

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.evaluation.datasets import (
    load_beir,
    load_hotpotqa,
    load_multihoprag,
    load_musique,
)

ROW = {"_id": "q", "question": "?", "context": [["A", ["a"]]], "supporting_facts": [["A", 0]]}
MUSIQUE = {"id": "q", "question": "?", "paragraphs": []}
BEIR = {"corpus.jsonl": [{"_id": "d", "text": "t"}], "queries.jsonl": [{"_id": "a", "text": "a"}]}
WHOLE = json.dumps([ROW] * 50)
PACKED = gzip.compress(WHOLE.encode())
ONE_FILE = r"exactly one file .*: name the file itself"


def judged(row):
    return {**BEIR, "qrels/test.tsv": f"query-id\tcorpus-id\tscore\n{row}\n"}


SHAPES = [
    ({"data": []}, "Input should be a valid array"),
    ([1, 2], "0: Input should be"),
    ([{**ROW, "context": {"title": ["A"]}}], r"0\.context: Input should be a valid"),
    ([{k: v for k, v in ROW.items() if k != "supporting_facts"}], "Field required"),
    ("not JSON at all", "Invalid JSON"),
    ("", "Invalid JSON"),
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
        (load_hotpotqa, {"a.json": [ROW], "b.json.gz": [ROW]}, "", ONE_FILE),
        (
            load_musique,
            {"dev.jsonl": [MUSIQUE, {"id": "r", "question": "?"}]},
            "dev.jsonl",
            r"line 2 \(paragraphs: Field required\)",
        ),
        *(
            (load_beir, judged(row), "", r"test.tsv, line 2 is not a BEIR judgement")
            for row in ("a d 1", "a\td", "a\td\tyes", "a\tQ0\td\t1")
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
