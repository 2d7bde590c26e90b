"""Runs commands in a folder of the test, as a user does."""

import json

import pytest
from typer.testing import CliRunner

from crabpath_retrievers.cli import app


@pytest.fixture
def cli(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


@pytest.fixture
def read(cli):
    """The JSON that a command printed."""

    def run(*arguments):
        result = cli(*arguments, "--json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    return run
