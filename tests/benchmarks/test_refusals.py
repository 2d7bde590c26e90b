"""What the commands refuse: in one sentence that says what to do, with exit code 2."""

import pytest
from typer.testing import CliRunner

from benchmarks.commands import app

NOISE, ORDERS = "--noise takes numbers from 0 to 0.5", "--orders must be at least 1"
REFUSED = {
    "attribution": [
        ((), "there is nothing to measure: give --hotpotqa or --multihoprag"),
        (("--hotpotqa", "none.json"), "does not exist"),
        (("--multihoprag", __file__), "is not a folder"),
        (("--hotpotqa", "none.json", "--json", "."), "is a directory"),
    ],
    "learning": [
        ((), "there is nothing to measure: give --hotpotqa, --2wiki or --multihoprag"),
        (("--2wiki", "none.json"), "does not exist"),
        (("--hotpotqa", "none.json"), "does not exist"),
        (("--multihoprag", __file__), "is not a folder"),
        (("--hotpotqa", "SAMPLE", "--limit", "0"), "--limit must be at least 1"),
        (("--hotpotqa", "x", "--part", "grid,magic"), "there is no --part 'magic'"),
        (("--hotpotqa", "x", "--part", ""), "--part names nothing"),
        (("--hotpotqa", "x", "--feedback", "applause"), "there is no --feedback 'applause'"),
        *((("--hotpotqa", "x", "--noise", given), NOISE) for given in ("0,0.9", "nan", "")),
        (("--hotpotqa", "x", "--noise", "much"), "not 'much'"),
        (("--hotpotqa", "x", "--part", "contamination", "--noise", "0.6"), "from 0 to 0.5"),
        (("--hotpotqa", "x", "--orders", "0"), ORDERS),
        (("--hotpotqa", "x", "--part", "regions", "--orders", "-1"), ORDERS),
        (("--hotpotqa", "x", "--turns", "0"), "--turns must be at least 1"),
        (("--hotpotqa", "x", "--json", "."), "is a directory"),
        (("--hotpotqa", "x", "--report", __file__), "cannot hold the report"),
    ],
    "region-quality": [(("--store", "none"), "there is no memory")],
    "soak": [(("--only", "nothing"), "nothing")],
}


@pytest.mark.parametrize(
    ("command", "arguments", "sentence"),
    [(command, *row) for command, rows in REFUSED.items() for row in rows],
)
def test_bad_input_is_one_sentence(
    command, arguments, sentence, beir_folder, tmp_path, monkeypatch
):
    """Before anything is measured or made."""
    monkeypatch.chdir(tmp_path)
    given = [str(beir_folder) if one == "SAMPLE" else one for one in arguments]
    result = CliRunner().invoke(app, [command, *given])
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
    assert not list(tmp_path.iterdir())
