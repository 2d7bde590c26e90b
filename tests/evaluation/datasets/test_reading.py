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


def test_a_missing_file_is_named(tmp_path):
    """The sentence says what to give."""
    with pytest.raises(InvalidInputError, match=r"none.json does not exist: give .* plain or \.gz"):
        load_hotpotqa(tmp_path / "none.json")


@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_a_truncated_file_is_told(write, kept):
    """A download that stopped halfway, plain and zipped."""
    whole = write("whole.json", [ROW] * 50).read_bytes()
    cut = write("plain.json", whole[: int(len(whole) * kept)].decode())
    with pytest.raises(InvalidInputError, match=r"plain.json is not .* give the official file"):
        load_hotpotqa(cut)
    packed = gzip.compress(whole)
    cut = cut.with_name("packed.json.gz")
    cut.write_bytes(packed[: int(len(packed) * kept)])
    with pytest.raises(InvalidInputError, match=r"packed.json.gz is truncated .* download it"):
        load_hotpotqa(cut)


def test_a_file_that_is_not_zipped_but_says_so(tmp_path):
    """Some browsers unpack what they save."""
    path = tmp_path / "dev.json.gz"
    path.write_text(json.dumps([ROW]))
    with pytest.raises(InvalidInputError, match="is truncated or damaged"):
        load_hotpotqa(path)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ({"data": []}, "Input should be a valid array"),
        ([1, 2], "0: Input should be"),
        ([{**ROW, "context": {"title": ["A"]}}], r"0\.context: Input should be a valid"),
        ([{k: v for k, v in ROW.items() if k != "supporting_facts"}], "Field required"),
        ("not JSON at all", "Invalid JSON"),
        ("", "Invalid JSON"),
    ],
)
def test_json_of_another_shape_is_told_with_its_place(write, content, what):
    """The place of the first thing that does not fit."""
    with pytest.raises(InvalidInputError, match=what):
        load_hotpotqa(write("dev.json", content))


def test_lines_are_numbered(write):
    """The second line lacks its paragraphs."""
    row = {"id": "q", "question": "?", "paragraphs": []}
    with pytest.raises(InvalidInputError, match=r"line 2 \(paragraphs: Field required\)"):
        load_musique(write("dev.jsonl", [row, {"id": "r", "question": "?"}]))


@pytest.mark.parametrize("judgement", ["a d 1", "a\td", "a\td\tyes", "a\tQ0\td\t1"])
def test_judgements_that_are_not_beir(write, judgement):
    """Three columns with tabs between, the last a whole number."""
    folder = write("corpus.jsonl", [{"_id": "d", "text": "t"}]).parent
    write("queries.jsonl", [{"_id": "a", "text": "a"}])
    write("qrels/test.tsv", f"query-id\tcorpus-id\tscore\n{judgement}\n")
    with pytest.raises(InvalidInputError, match=r"test.tsv, line 2 is not a BEIR judgement"):
        load_beir(folder)


@pytest.mark.parametrize("names", [(), ("a.json", "b.json.gz")])
def test_a_folder_with_none_or_several_files(write, tmp_path, names):
    """The sentence lists what is there."""
    for name in names:
        write(name, [ROW])
    with pytest.raises(InvalidInputError, match=r"exactly one file .*: name the file itself"):
        load_hotpotqa(tmp_path)


def test_multihoprag_wants_its_folder(write):
    """Two files belong together."""
    with pytest.raises(InvalidInputError, match=r"give the folder with corpus.json and"):
        load_multihoprag(write("MultiHopRAG.json", []))


def test_a_directory_in_place_of_a_file(tmp_path):
    """What the system says about it is passed on."""
    (tmp_path / "corpus.jsonl").mkdir()
    with pytest.raises(InvalidInputError, match="cannot be read"):
        load_beir(tmp_path)


def test_text_that_is_not_utf8(write, tmp_path):
    """Told as damage, not as a decoding error."""
    write("corpus.jsonl", [{"_id": "d", "text": "t"}])
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInputError, match="damaged"):
        load_beir(tmp_path)
