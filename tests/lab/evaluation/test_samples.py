"""Samples are drawn from official files, and recognised whatever the file looks like."""

import gzip
import json

import pytest
from typer.testing import CliRunner

from benchmarks import samples
from benchmarks.commands import app
from benchmarks.samples import check_sample, draw_sample, read_samples
from crabpath_lab import load_hotpotqa
from crabpath_retrievers import InvalidInputError


def rows(*names, space=""):
    return [
        {
            "_id": name,
            "question": f"Who is {name}?",
            "answer": "x",
            "type": "bridge",
            "context": [
                [f"Page {name}", [f"{name} is.{space}", " It ends."]],
                ["Other", ["Text."]],
            ],
            "supporting_facts": [[f"Page {name}", 0]],
        }
        for name in names
    ]


def test_a_sample_is_drawn_by_ids_or_from_the_start(tmp_path):
    official, output = tmp_path / "dev.json", tmp_path / "sample.json.gz"
    official.write_text(json.dumps(rows("a", "b", "c")))
    by_ids = {"format": "hotpotqa", "ids": "c a"}
    found = draw_sample(by_ids, official, output)
    assert (found["questions"], found["documents"]) == (2, 3)
    assert set(load_hotpotqa(output).queries) == {"a", "c"}
    first = draw_sample({"format": "hotpotqa", "first": 2}, official, tmp_path / "first.json")
    assert first["checksum"] != found["checksum"]
    # From a sample the same sample is drawn.
    assert draw_sample(by_ids, output, tmp_path / "again.json.gz") == found

    packed = tmp_path / "other.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(rows("b", "a", "c", space=" ")).encode()))
    assert draw_sample(by_ids, packed, tmp_path / "other.json") == found
    with pytest.raises(InvalidInputError, match=r"lacks 1 of 2 questions .* such as z"):
        draw_sample({"format": "hotpotqa", "ids": "a z"}, official, tmp_path / "none.json")


def test_the_command_says_whether_it_is_what_was_measured(tmp_path, monkeypatch):
    official, output = tmp_path / "dev.json", tmp_path / "sample.json.gz"
    official.write_text(json.dumps(rows("a")))
    known = {"mine": {"format": "hotpotqa", "first": 1, **check_sample(load_hotpotqa(official))}}
    monkeypatch.setattr(samples, "read_samples", lambda: known)
    arguments = ["sample", "mine", "--source", str(official), "--output", str(output)]
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "as measured")
    known["mine"]["checksum"] = "0"
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, "differs from what was measured" in done.stdout) == (1, True)
    assert CliRunner().invoke(app, ["sample", "list"]).stdout.startswith("mine: 1 questions")
    assert CliRunner().invoke(app, ["sample", "yours"]).exit_code == 2


def test_every_listed_sample_is_drawn_somehow():
    for name, sample in read_samples().items():
        ids = sample.get("ids", "").split()
        assert len(ids) == len(set(ids)), name
        left_out = 71 if name == "multihoprag" else 0  # null queries
        assert len(ids) or sample["first"] == sample["questions"] + left_out
        assert not ids or len(ids) == sample["questions"] + left_out
        assert len(sample["checksum"]) == 64
