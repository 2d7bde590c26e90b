"""A run from data to figures, on the shipped sample."""

import json
from dataclasses import replace

import pytest

from crabpath_lab import EvaluationPlan, evaluate


@pytest.fixture(scope="module")
def plan(beir_folder, cache):
    return EvaluationPlan(dataset="hotpotqa", data=beir_folder, ks=(2, 5), limit=12, cache=cache)


@pytest.fixture(scope="module")
def figures(plan):
    return evaluate(plan)


@pytest.mark.slow
def test_the_record_has_its_form(figures, small):
    assert json.loads(json.dumps(figures)) == figures
    dataset = {"name": "hotpotqa", "queries": 12, "documents": len(small.documents)}
    assert dataset.items() <= figures["dataset"].items()
    assert list(figures["methods"]) == ["dense", "lexical", "hybrid", "cold"]
    expected = {"recall@2", "recall@5", "full@2", "full@5", "mrr@10", "ndcg@10"}
    expected |= {f"{name}_ci95" for name in expected}
    expected |= {"documents_returned", "context_tokens", "latency_ms", "indexing_s", "cost_usd"}
    llm = ("calls", "cached_calls", "failures", "input_tokens", "output_tokens")
    expected |= {f"llm_{name}" for name in llm}
    for name, of in figures["methods"].items():
        assert set(of) == expected | ({"calibration"} if name == "cold" else set())
        assert of["documents_returned"] <= 5
        assert of["llm_calls"] == 0
        assert 0 < of["latency_ms"]["p50"] <= of["latency_ms"]["p95"]
    assert figures["wall_s"] > 0
    assert figures["peak_memory_mb"] > 50


def test_calibration_counts_the_documents_that_a_caller_gets(figures):
    cold = figures["methods"]["cold"]
    assert sum(count for count, _, _ in cold["calibration"]["bins"]) == 12 * 5
    assert 0 <= cold["calibration"]["ece"] <= 1


def test_cold_is_compared_with_every_other_method_at_every_k(figures):
    rows = {(row["b"], row["metric"]): row for row in figures["comparisons"]}
    metrics = ("full@2", "recall@2", "full@5", "recall@5", "ndcg@10")
    assert set(rows) == {(b, m) for b in ("dense", "lexical", "hybrid") for m in metrics}
    for (other, metric), row in rows.items():
        means = [figures["methods"][name][metric] for name in ("cold", other)]
        assert row["a"] == "cold"
        assert row["difference"] == pytest.approx(means[0] - means[1], abs=2e-4)
        if row["ci95"]:
            assert row["ci95"][0] <= row["difference"] <= row["ci95"][1]
            assert 0 < row["p"] <= 1


def test_a_closed_setting_searches_a_questions_own_paragraphs_only(write):
    """The better match stands among the paragraphs of the other question."""
    texts = {
        "q0": ("The Seine flows through Paris.", "Apples are red."),
        "q1": ("It is a river in France.", "Pears are green."),
    }
    asked = {"question": "Which river flows through Paris?", "supporting_facts": [["Own", 0]]}
    rows = [
        {"_id": query, **asked, "context": [["Own", [own]], ["Other", [other]]]}
        for query, (own, other) in texts.items()
    ]
    file = write("dev.json", rows)
    closed = EvaluationPlan(dataset="hotpotqa", data=file, ks=(1,), setting="closed")
    found = evaluate(closed)
    assert found["dataset"]["setting"] == "closed"
    assert {of["full@1"] for of in found["methods"].values()} == {1.0}
    pooled = evaluate(replace(closed, setting="pooled", methods=("dense",)))
    assert pooled["methods"]["dense"]["full@1"] == 0.5


@pytest.fixture
def news(write):
    """Two long articles, each about one thing at its end, and a question that needs both."""
    filling = " ".join(f"Sentence {n} says nothing of interest." for n in range(120))
    facts = {"A": "The mayor of Springfield resigned.", "B": "The mayor of Shelbyville stayed."}
    write("corpus.json", [{"title": t, "body": f"{filling} {f}"} for t, f in facts.items()])
    question = "Did the mayor of Springfield resign while the mayor of Shelbyville stayed?"
    evidence = [{"title": t, "fact": f} for t, f in facts.items()]
    null = {"query": "What?", "evidence_list": []}
    rows = [{"query": question, "evidence_list": evidence}, null]
    return write("MultiHopRAG.json", rows).parent


def test_chunks_are_collapsed_to_documents(news):
    found = evaluate(EvaluationPlan(dataset="multihoprag", data=news, ks=(2,)))
    assert (found["dataset"]["documents"], found["dataset"]["questions_left_out"]) == (2, 1)
    for of in found["methods"].values():
        assert (of["full@2"], of["documents_returned"]) == (1.0, 2.0)
        assert of["context_tokens"] < 2 * 1200 / 4


def test_chunk_level_uses_the_measures_of_the_data_set(news):
    """Each fact in a chunk of its own at ranks 1 and 2: (1 + 1/2) / 2."""
    found = evaluate(EvaluationPlan(dataset="multihoprag", data=news, ks=(2,), level="chunk"))
    for of in found["methods"].values():
        assert (of["hits@4"], of["map@10"], of["mrr@10"]) == (1.0, 0.75, 1.0)
    metrics = {row["metric"] for row in found["comparisons"]}
    assert metrics == {"hits@4", "hits@10", "map@10", "mrr@10"}
