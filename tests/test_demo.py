"""The demo and the bench's parts run on the shipped sample."""

import json

import pytest
from typer.testing import CliRunner

from crabpath_retrievers.cli import app
from crabpath_retrievers.evaluation.datasets.sample import load_sample


@pytest.mark.slow
def test_the_demo_shows_that_the_graph_finds_more():
    """Both gold passages among five: more often than plain Chroma, at the same embedder and k."""
    result = CliRunner().invoke(app, ["demo", "--json"])
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert shown["full@5"]["crabpath"] >= shown["full@5"]["plain_chroma"] + 0.2
    assert shown["route"]["documents"]


def test_the_sample_is_what_its_readme_says():
    """Sixty questions over six hundred passages; every gold passage is among them."""
    data = load_sample()
    ids = {document.id for document in data.documents}
    assert (len(data.documents), len(data.queries)) == (600, 60)
    assert all(gold <= ids and len(gold) == 2 for gold in data.qrels.values())
