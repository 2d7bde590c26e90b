"""`python -m benchmarks learning` as a user runs it: figures, report, and what is refused."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks.commands import app
from benchmarks.learning.ablation import VARIANTS_BY_FEEDBACK
from benchmarks.learning.answer_length import THRESHOLDS
from benchmarks.learning.contamination import FROZEN, VARIANTS
from benchmarks.learning.region_ablation import FEEDBACK_USED, REGION_ABLATIONS
from crabpath_retrievers import Settings

pytestmark = pytest.mark.slow

PNG = b"\x89PNG"
TINY = ("--limit", "4", "--orders", "2", "--noise", "0,0.2", "--turns", "12")


@pytest.fixture
def run(cache):
    """Runs the command; later options take the place of earlier ones."""

    def _run(*arguments):
        fixed = ("learning", "--cache", str(cache), *TINY)
        return CliRunner().invoke(app, [*fixed, *map(str, arguments)])

    return _run


@pytest.fixture
def measured(run, beir_folder, tmp_path):

    def _measured(parts, *options):
        file, folder = tmp_path / "out" / "figures.json", tmp_path / "report"
        options = (*options, "--json", file, "--report", folder)
        result = run("--hotpotqa", beir_folder, "--part", parts, *options)
        assert result.exit_code == 0, result.stderr
        return json.loads(file.read_text()), result.stdout, folder

    return _measured


def test_the_grid_has_a_cell_for_every_kind_and_noise(measured):
    """`answer` is left out where the data has no answers; every order stands in its cell."""
    figures, shown, folder = measured("grid")
    grid = figures["grid"]
    asked = [(cell["feedback"], cell["noise"]) for cell in grid["cells"]]
    assert asked == [("used", 0.0), ("used", 0.2), ("outcome", 0.0), ("outcome", 0.2)]
    assert grid["left_out"] == [{"dataset": "hotpotqa", "feedback": "answer"}]
    keys = {"learned", "frozen", "difference", "ci95", "p", "below"}
    for cell in grid["cells"]:
        assert [order["seed"] for order in cell["orders"]] == [0, 1]
        for metrics in (cell["metrics"], *(order["metrics"] for order in cell["orders"])):
            assert set(metrics) == {"full@5", "recall@5"}
            assert set(metrics["full@5"]) == keys
    assert grid["kinds"]["used"]["full@5"]["cells"] == 2
    assert set(figures) == {"embedding", "plan", "datasets", "grid", "wall_s"}
    assert "## Does it hurt?" in shown
    assert "`answer` was left out" in shown
    assert (folder / "grid.png").read_bytes().startswith(PNG)
    assert (folder / "report.md").read_text().startswith(shown.strip())


def test_the_ablation_has_a_row_for_every_variant(measured):
    """And one of the frozen twin; all are compared with `all`, which is compared with itself."""
    figures, shown, _ = measured("ablation", "--limit", "2")
    rows = figures["ablation"]["rows"]
    told = {
        kind: ["all", "frozen", *variants[1:]] for kind, variants in VARIANTS_BY_FEEDBACK.items()
    }
    for kind, variants in told.items():
        assert [row["variant"] for row in rows if row["feedback"] == kind] == variants
    for row in rows:
        assert list(row["parts"]) == ["first pass", "second half", "second pass"]
        assert set(row["parts"]["first pass"]) == {"mean", "difference", "ci95", "p"}
    assert rows[0]["parts"]["second pass"]["difference"] == 0
    assert "without policy_gradient" in shown


def test_compression_and_endurance(measured):
    figures, shown, folder = measured("compression,endurance")
    rows = figures["compression"]["rows"]
    assert list(dict.fromkeys(row["asked"] for row in rows)) == ["first", "again", "reworded"]
    assert {row["method"] for row in rows if row["asked"] == "first"} == {"learned"}
    dense = [row for row in rows if row["method"] == "dense"]
    assert [row["documents"] for row in dense] == [10.0, 10.0]
    learned = [r for r in rows if (r["method"], r["asked"]) == ("learned", "again")]
    assert tuple(row["confident"] for row in learned) == THRESHOLDS
    assert Settings().rank.min_probability in THRESHOLDS
    sizes = [row["documents"] for row in learned]
    assert sizes == sorted(sizes, reverse=True)
    (window,) = figures["endurance"]["windows"]
    assert window["turns"] == 12
    assert set(window) >= {"retrieve_ms", "record_ms", "unrecorded_ms", "frozen_ms", "ratio"}
    assert min(window["memory_mb"], window["store_mb"]) > 0
    assert figures["endurance"]["slopes"]["all"]["store_mb"] is None
    assert "## Shorter answers" in shown
    assert "## Endurance" in shown
    assert (folder / "endurance.png").read_bytes().startswith(PNG)


def test_calls_of_a_chat_model_fall_as_questions_repeat(measured):
    """Four questions, eight times: asked about until they succeeded, then hardly ever."""
    figures, shown, _ = measured("routing")
    rows = {(row["router"], row["feedback"]): row for row in figures["routing"]["rows"]}
    assert rows["policy alone", "used"]["windows"][0]["calls"] == 0
    asked = rows["chat model", "used"]
    assert asked["turns"] == 32
    assert 0 < asked["windows"][0]["calls"] < 0.5
    assert rows["chat model, no episodes", "used"]["windows"][0]["calls"] > 0.5
    assert asked["failures"] == 0
    assert 200 < asked["tokens_per_call"] < 1080
    assert "## Calls of a chat model" in shown


def test_contamination_and_regions(measured):
    """Another number of orders and other shares of noise are taken."""
    options = ("--limit", "3", "--orders", "1", "--noise", "0,0.4")
    figures, shown, folder = measured("contamination,regions", *options)
    assert len(figures["contamination"]["rows"]) == 2 * (len(VARIANTS) + 1)
    rows = figures["regions"]["rows"]
    named = [(k, v) for k in FEEDBACK_USED for v in REGION_ABLATIONS]
    assert [(row["feedback"], row["variant"]) for row in rows] == named
    assert all(list(r["parts"]) == ["first pass", "second half", "second pass"] for r in rows)
    assert rows[0]["parts"]["second pass"]["full@5"]["difference"] == 0  # with itself
    assert [of["noise"] for of in figures["contamination"]["ordered"]] == [0.0, 0.4]
    assert figures["plan"]["orders"] == {"contamination": 1, "regions": 1}
    for name in (*VARIANTS, FROZEN, "regions off", "## Contamination", "## Regions"):
        assert name in shown
    assert (folder / "contamination.png").read_bytes().startswith(PNG)
