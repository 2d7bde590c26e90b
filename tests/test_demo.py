"""The demo and the bench's parts run on the shipped sample."""

import json

import pytest
from typer.testing import CliRunner

from crabpath_retrievers import CrabPath
from crabpath_retrievers.cli import app
from crabpath_retrievers.evaluation.datasets.sample import load_sample


@pytest.mark.slow
def test_the_demo_shows_that_the_graph_finds_more(tmp_path):
    """Both gold passages among five: more often than plain Chroma, at the same embedder and k."""
    result = CliRunner().invoke(app, ["demo", "--json", "--store", str(tmp_path / "demo")])
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert shown["full@5"]["crabpath"] >= shown["full@5"]["plain_chroma"] + 0.2
    assert shown["route"]["documents"]
    with CrabPath.open(tmp_path / "demo", create=False) as memory:
        assert memory.turns(limit=1)


def test_the_sample_is_what_its_readme_says():
    """Sixty questions over six hundred passages; every gold passage is among them."""
    data = load_sample()
    ids = {document.id for document in data.documents}
    assert (len(data.documents), len(data.queries)) == (600, 60)
    assert all(gold <= ids and len(gold) == 2 for gold in data.qrels.values())
