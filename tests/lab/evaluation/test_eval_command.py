"""``crabpath eval`` as a user runs it: files, sentences, exit codes."""

import json
import sys

import pytest
from typer.testing import CliRunner

from crabpath_retrievers.cli import app

PNG = b"\x89PNG"
STREAM = ("--stream", "prequential", "--epochs", "2", "--dropped", "0.2")
LEARNED = ("beir", "--methods", "learned")


@pytest.fixture
def run(beir_folder, cache):
    """Runs the command; later options take the place of earlier ones."""

    def _run(name, *arguments, data=beir_folder):
        fixed = ("eval", name, "--data", str(data), "--cache", str(cache))
        return CliRunner().invoke(app, [*fixed, *map(str, arguments)])

    return _run


@pytest.mark.slow
def test_tables_json_and_report(run, tmp_path):
    json_file, folder = tmp_path / "out" / "figures.json", tmp_path / "report"
    result = run(
        *("beir", "--methods", "dense,cold", "--k", "1,3", "--limit", 8, "--seed", 7),
        *("--json", json_file, "--report", folder),
    )
    assert result.exit_code == 0, result.stderr
    figures = json.loads(json_file.read_text())
    assert figures["dataset"]["seed"] == 7
    cold = figures["methods"]["cold"]
    shown = f"{cold['full@3']:.3f}"
    report = (folder / "report.md").read_text()
    assert "| cold | " in result.stdout
    assert shown in result.stdout
    assert f"`cold`, ten bins: {cold['calibration']['ece']:.3f}" in result.stdout
    assert report.startswith(result.stdout.strip())
    for name in ("quality.png", "latency.png", "differences.png"):
        assert f"({name})" in report
        assert (folder / name).read_bytes().startswith(PNG)


def test_a_chat_model_and_what_it_costs(run, tmp_path):
    json_file = tmp_path / "figures.json"
    result = run(
        *("beir", "--methods", "cold", "--limit", 4, "--json", json_file),
        *("--router", "simulated:0.3", "--prices", "1,2"),
    )
    assert result.exit_code == 0, result.stderr
    methods = json.loads(json_file.read_text())["methods"]
    assert methods["cold"]["llm_calls"] == methods["cold"]["cost_usd"] == 0
    of = methods["routed"]
    assert of["llm_calls"] == 1
    cost = (of["llm_input_tokens"] + 2 * of["llm_output_tokens"]) / 1e6
    assert of["cost_usd"] == pytest.approx(cost, abs=1e-6)
    assert "`routed` is `cold` with the chat model simulated:0.3" in result.stdout


@pytest.fixture(scope="session")
def cross_encoder(tmp_path_factory):
    """A folder with a cross-encoder of two layers and random weights."""
    from sentence_transformers import CrossEncoder
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    made, folder = tmp_path_factory.mktemp("bert"), tmp_path_factory.mktemp("cross-encoder")
    (made / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefgh"]))
    BertTokenizerFast(str(made / "vocab.txt")).save_pretrained(made)
    shape = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(vocab_size=12, num_hidden_layers=2, num_labels=1, **shape)
    BertForSequenceClassification(config).save_pretrained(made)
    CrossEncoder(str(made), device="cpu").save(str(folder))
    return folder


def run_reranked(run, reranker, folder):
    """The methods of a run with a reranker, by name."""
    result = run(
        *("beir", "--methods", "hybrid,cold", "--k", "2", "--limit", 6),
        *("--reranker", reranker, "--json", folder / "figures.json"),
    )
    assert result.exit_code == 0, result.output
    figures = json.loads((folder / "figures.json").read_text())
    assert figures["dataset"]["reranker"] == str(reranker)
    assert list(figures["methods"]) == ["hybrid", "cold", "hybrid+reranker", "cold+reranker"]
    return figures["methods"]


def test_a_reranker_by_import_stands_beside_hybrid_with_the_same(run, tmp_path, monkeypatch):
    """One that prefers what was ranked last is seen to do so."""
    (tmp_path / "own_rerankers.py").write_text(
        "from langchain_core.cross_encoders import BaseCrossEncoder\n"
        "class Backwards(BaseCrossEncoder):\n"
        "    def score(self, text_pairs):\n"
        "        return list(range(len(text_pairs)))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    methods = run_reranked(run, "own_rerankers:Backwards", tmp_path)
    for name in ("cold", "hybrid"):
        assert methods[f"{name}+reranker"]["recall@2"] < methods[name]["recall@2"]


@pytest.mark.slow
def test_a_reranker_by_folder(run, cross_encoder, tmp_path):
    run_reranked(run, cross_encoder, tmp_path)


@pytest.mark.parametrize(
    "feedback",
    ["used", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("answer", "outcome"))],
)
def test_a_stream_is_reported_beside_its_frozen_twin(run, tmp_path, feedback, caplog):
    result = run(
        *("beir", "--methods", "cold,learned", "--k", "2,5", *STREAM, "--feedback", feedback),
        *("--noise", "0.1", "--json", tmp_path / "figures.json", "--report", tmp_path / "report"),
    )
    assert result.exit_code == 0, result.output
    figures = json.loads((tmp_path / "figures.json").read_text())
    stream = figures["methods"]["learned"]["stream"]
    assert {"checkpoints", "second_half", "frozen_second_half", "epochs"} <= set(stream)
    assert figures["dataset"]["stream"]["feedback"] == feedback
    assert "## Streams" in (tmp_path / "report" / "report.md").read_text()
    assert (tmp_path / "report" / "learning.png").stat().st_size > 1000
    assert "temporary" not in caplog.text  # there is no option to keep its memory


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("repair", "| learner | part | measure | clean | wrong | repaired | net recovery |"),
        ("transfer", "| knn | new questions | full@2 |"),
        ("drift", "knn (frozen) by quarters: moved, after, full@2"),
    ],
)
def test_every_kind_of_stream_is_reported(run, kind, shown):
    options = ("--stream", kind, "--shown", "4", "--feedback", "relevant", "--limit", "12")
    result = run("beir", "--methods", "knn", "--k", "2", *options)
    assert result.exit_code == 0, result.output
    assert shown in result.stdout
    assert "knn (frozen) by quarters: full@2" in result.stdout


def test_a_single_method_has_no_comparison_and_a_cache_may_be_damaged(run, tmp_path):
    """A run that was killed left half a vector behind."""
    report, cache = tmp_path / "report", tmp_path / "cache"
    given = ("beir", "--methods", "lexical", "--limit", 1, "--cache", cache, "--report", report)
    result = run(*given)
    assert result.exit_code == 0, result.stderr
    assert "Differences" not in result.stdout
    assert not (report / "differences.png").exists()
    for path in cache.rglob("*"):
        path.write_text("[0.1, 0.")
    result = run(*given)
    assert result.exit_code == 2
    assert "was written in part: delete the directory" in " ".join(result.stderr.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("squad",), "there is no data set 'squad': choose among"),
        (("beir", "--methods", "dense,magic"), "there is no method 'magic': choose among"),
        (("beir", "--methods", ""), "no method is named"),
        (("beir", "--router", "nobody:none"), "the chat model 'nobody:none' cannot be used"),
        (("beir", "--reranker", "./none"), "the reranker './none' cannot be used"),
        (("beir", "--reranker", "json:dumps"), "the reranker 'json:dumps' cannot be used"),
        (("beir", "--prices", "cheap"), "--prices takes US dollars per million tokens"),
        *(
            (("beir", "--k", k), "--k takes whole numbers of at least 1")
            for k in ("0", "-2", "5,²", "five")
        ),
        (("beir", "--setting", "open"), "no --setting 'open': choose among pooled, closed"),
        (("beir", "--level", "word"), "no --level 'word': choose among document, chunk"),
        (("beir", "--seed", "-1"), "--seed must be at least 0"),
        (("beir", "--k", "1000"), "--k 1000 is beyond the corpus"),
        *((("beir", "--limit", n), "--limit must be at least 1") for n in ("0", "-5")),
        (("beir", "--limit", "many"), "integer"),
        (("beir", "--setting", "closed"), "--setting closed needs the official JSON"),
        (("beir", "--level", "chunk"), "--level chunk is for multihoprag"),
        (("musique",), "does not hold exactly one file of the data set"),
        (("multihoprag",), "corpus.json does not exist"),
        (("beir", "--json", "."), "is a directory"),
        (("beir", "--report", __file__), "cannot hold the report"),
        (("beir", "--cache", __file__, "--limit", "1"), "cannot keep embeddings"),
        (("beir", "--embedding", "./none", "--limit", "1"), "cannot be loaded"),
        (("beir", "--methods", "cold,learned"), "--stream prequential"),
        (("beir", "--methods", "cold", "--stream", "prequential"), "a stream needs a learner"),
        ((*LEARNED, "--stream", "sideways"), "sideways"),
        ((*LEARNED, *STREAM, "--feedback", "applause"), "applause"),
        ((*LEARNED, *STREAM, "--noise", "0.9"), "--noise"),
        ((*LEARNED, *STREAM, "--epochs", "0"), "--epochs"),
        ((*LEARNED, *STREAM, "--shown", "2"), "--shown must be at least 10"),
        ((*LEARNED, *STREAM, "--limit", "3"), "a stream needs at least 4 questions"),
        ((*LEARNED, *STREAM, "--dropped", "1"), "--dropped"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(run, arguments, sentence):
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_a_file_without_questions(run, write):
    row = {"_id": "q", "question": "?", "context": [["A", ["a"]]], "supporting_facts": []}
    for rows in ([], [row]):
        result = run("hotpotqa", data=write("test.json", rows))
        assert result.exit_code == 2
        assert "holds no question with relevant documents" in " ".join(result.stderr.split())


def test_a_missing_extra_is_named(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    result = run("beir")
    assert result.exit_code == 1
    assert "pip install 'crabpath-retrievers[eval]'" in " ".join(result.stderr.split())
