"""Adopting in four steps: the files and commands of the page, one after the other."""

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from crabpath_retrievers.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "adopt.md"
VARYING = re.compile(r"\d+\.\d+ *")  # times and probabilities
HASH = re.compile(r"sha256 (\w{16})")


def mask(text):
    return HASH.sub("sha256", VARYING.sub("# ", text)).split()


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a line in a folder, in this process, which has loaded the model already."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run_stage(words, given):
        if words[0] == "python":
            runpy.run_path(words[1], run_name="__main__")
            return capsys.readouterr().out
        if words[0] == "crabpath":
            arguments = [word for word in words[1:] if word != "2>/dev/null"]
            done = CliRunner().invoke(app, arguments, input=given)
            assert done.exit_code == 0, done.stderr
            return done.stdout
        done = subprocess.run(words, input=given, capture_output=True, text=True, check=True)
        return done.stdout

    def run_line(line):
        printed = ""
        for stage in line.split(" | "):
            printed = run_stage(shlex.split(stage), printed)
        return printed

    yield run_line
    sys.modules.pop("handbook", None)


@pytest.mark.slow
def test_all_steps_print_what_the_page_shows_and_leave_the_store_as_it_was(run, tmp_path):
    printed, hashes = "", []
    for token in MarkdownIt().parse(PAGE.read_text(encoding="utf-8")):
        if token.type != "fence":
            continue
        if token.info == "text":
            hashes += HASH.findall(printed)
            assert mask(printed) == mask(token.content)
            printed = ""
        elif token.content.startswith("cat > "):
            subprocess.run(["/bin/bash", "-ec", token.content], check=True)
        elif token.info == "sh":
            printed += "".join(map(run, token.content.splitlines()))
        else:
            name = re.fullmatch(r'python title="(\w+\.py)"', token.info)[1]
            (tmp_path / name).write_text(token.content, encoding="utf-8")
    assert printed == ""
    before, after = hashes
    assert before == after
    left = {each.name for each in tmp_path.iterdir()} - {"__pycache__"}
    assert left == {"chroma", "handbook.py", "shadow.py", "trial.py", "switch.py"}
