"""Report of a run as Markdown: questions, quality, cost."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scipy.stats import false_discovery_control

from crabpath_lab.reporting.plots import write_plots
from crabpath_lab.reporting.tables import (
    STREAM_NOTE,
    Figures,
    explain_few,
    format_interval,
    metric_names,
    render_streams,
    render_table,
    stream_figures,
)

_NAMED = 10  # most missing documents that are named
_PROTOCOL = """\
Every method got the same chunks, embedder, questions and depth; labels met an answer only after it
was given. Intervals are 95 % BCa bootstraps over questions (9,999 resamples)."""
_TEST_NOTE = """\
Differences are paired by question; p is a two-sided permutation test of the mean difference, q the
same under control of the false discovery rate (Benjamini & Hochberg) over this table."""
_COST_NOTE = """\
Milliseconds per question do not contain the embedding of the question, which is the same for all
methods. Indexing contains the embedding of chunks that were not cached. Tokens are characters of
the returned texts over 4; of a document that was cut, the chunk that was found first counts. LLM
calls, calls that a cache answered, LLM tokens and dollars are per question."""


def write_report(figures: Figures, folder: Path) -> None:
    """Write ``report.md`` and its plots into a directory that exists."""
    shown = [f"![{title}]({name})" for name, title in write_plots(figures, folder).items()]
    text = "\n\n".join([render_summary(figures), *shown])
    (folder / "report.md").write_text(text + "\n", encoding="utf-8")


def render_summary(figures: Figures) -> str:
    """Render the tables of a run."""
    dataset = figures["dataset"]
    parts = [
        f"# {dataset['name']}: {dataset['queries']} questions",
        _render_facts(figures),
        _PROTOCOL,
    ]
    parts += ["## Quality", _render_quality(figures)]
    if figures["comparisons"]:
        parts += ["## Differences", _render_differences(figures["comparisons"]), _TEST_NOTE]
        parts += explain_few(figures["comparisons"])
    if stream_figures(figures):
        parts += ["## Streams", render_streams(figures), STREAM_NOTE]
    parts += ["## Cost", _render_costs(figures), _COST_NOTE]
    return "\n\n".join(parts)


def _render_facts(figures: Figures) -> str:
    dataset = figures["dataset"]
    drawn = "the first" if dataset["seed"] is None else f"drawn with seed {dataset['seed']}"
    origin = dataset["file"] or "the packaged sample"
    lines = [
        f"{dataset['documents']} documents from {origin}; {dataset['setting']} setting,",
        f"{dataset['level']} level; embedding {figures['embedding']}.",
        f"{dataset['questions_left_out']} questions without any gold were left out;",
        f"{dataset['unmapped_gold']} gold documents are not in the corpus and count as misses.",
        f"Wall time {figures['wall_s']} s, peak memory {figures['peak_memory_mb']} MiB.",
    ]
    for name, of in figures["methods"].items():
        if "calibration" in of:
            lines.append(
                f"Calibration error of `{name}`, ten bins: {of['calibration']['ece']:.3f}."
            )
    if dataset["router"] is not None:
        lines.append(f"`routed` is `cold` with the chat model {dataset['router']}.")
    if dataset["reranker"] is not None:
        lines.append(f"`+reranker`: the best candidates in the order of {dataset['reranker']}.")
    if dataset["unmapped_gold_ids"]:
        lines.append(f"Gold that is missing: {', '.join(dataset['unmapped_gold_ids'][:_NAMED])}.")
    if dataset["limit"] is not None:
        lines.append(f"At most {dataset['limit']} questions were asked, {drawn}.")
    return "\n".join(lines)


def _render_quality(figures: Figures) -> str:
    metrics = metric_names(figures)
    rows = (
        [name, *(format_interval(of[metric], of[f"{metric}_ci95"]) for metric in metrics)]
        for name, of in figures["methods"].items()
    )
    return render_table(["method", *metrics], rows)


def _render_differences(comparisons: Sequence[Mapping[str, Any]]) -> str:
    # Equal runs are not tested; they are certainly no discovery.
    tested = [1.0 if row["p"] is None else row["p"] for row in comparisons]
    rows = (
        [
            f"{row['a']} − {row['b']}",
            row["metric"],
            format_interval(row["difference"], row["ci95"], sign="+"),
            "–" if row["p"] is None else f"{row['p']:.4f}",
            f"{q:.4f}",
        ]
        for row, q in zip(comparisons, false_discovery_control(tested), strict=True)
    )
    return render_table(["methods", "measure", "difference", "p", "q"], rows)


def _render_costs(figures: Figures) -> str:
    names = ("documents_returned", "context_tokens", "indexing_s", "llm_calls", "llm_cached_calls")
    rows = (
        [
            *(name, of["latency_ms"]["p50"], of["latency_ms"]["p95"]),
            *(of[figure] for figure in names),
            *(round(of["llm_input_tokens"] + of["llm_output_tokens"], 1), of["cost_usd"]),
        ]
        for name, of in figures["methods"].items()
    )
    head = ["method", "ms p50", "ms p95", "documents", "tokens", "indexing s"]
    return render_table([*head, "LLM calls", "cached", "LLM tokens", "US $"], rows)
