"""``crabpath eval`` and ``crabpath experiment``, which need the ``eval`` extra."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from crabpath_lab.output import check_outputs, report_damaged_cache, write_json
from crabpath_retrievers.core.extras import require_extra
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.vectors.embedder import DEFAULT_MODEL

if TYPE_CHECKING:
    from crabpath_lab.plan import EvaluationPlan

DataSet = Annotated[
    str, typer.Argument(help="sample, hotpotqa, multihoprag, 2wiki, musique, hipporag or beir.")
]
Data = Annotated[
    Path | None,
    typer.Option(help="Its official file or folder, plain or .gz; sample has its own."),
]
Methods = Annotated[str, typer.Option(help="Which to compare; module:attribute for your own.")]
Learners = Annotated[
    str,
    typer.Option(help="Of a stream: learned, knn, beta, average, cache, or module:attribute."),
]
Cutoffs = Annotated[str, typer.Option("--k", "-k", help="Cut-offs.")]
Limit = Annotated[int | None, typer.Option(help="Most questions; the first ones.")]
Seed = Annotated[
    int | None, typer.Option(help="Draws the questions of --limit, and the resamples.")
]
Embedding = Annotated[
    str,
    typer.Option(
        help="A sentence-transformers model, or module:attribute.", show_default="all-MiniLM-L6-v2"
    ),
]
Cache = Annotated[Path | None, typer.Option(help="Directory that keeps embeddings.")]
Setting = Annotated[str, typer.Option(help="pooled, or closed: a question's own paragraphs only.")]
Level = Annotated[
    str, typer.Option(help="document, or chunk: the measures of MultiHop-RAG itself.")
]
Stream = Annotated[
    str | None,
    typer.Option(
        help="Retrieve, score, then learn: prequential; repair: 20% of the feedback is wrong "
        "and corrected later; transfer: new questions only; drift: relevance moves half way."
    ),
]
FeedbackKind = Annotated[str, typer.Option(help="used, relevant, answer, outcome or followed.")]
Shown = Annotated[
    int | None,
    typer.Option(help="Documents of a stream's answers, which feedback is about; the largest --k."),
]
Noise = Annotated[float, typer.Option(help="Share of the feedback that is flipped.")]
Epochs = Annotated[int, typer.Option(help="Passes over the questions.")]
Dropped = Annotated[
    float, typer.Option(help="Share of a question's words that later passes leave out.")
]
Explored = Annotated[
    float, typer.Option(help="Share of a stream's places for documents that were seldom shown.")
]
PassiveRate = Annotated[
    float, typer.Option(help="Of a stream: learning.passive_rate; the CrabPath paper has 0.06.")
]
SkipPenalty = Annotated[
    float, typer.Option(help="Of a stream: learning.skip_penalty; the v2 specification has 0.02.")
]
Split = Annotated[bool, typer.Option(help="Cut passages into chunks, as long pages are.")]
Router = Annotated[
    str | None, typer.Option(help="Chat model, provider:name; adds the method routed.")
]
Reranker = Annotated[
    str | None,
    typer.Option(
        help="Cross-encoder or compressor, a sentence-transformers folder or module:attribute; "
        "adds the methods hybrid+reranker and cold+reranker."
    ),
]
Prices = Annotated[
    str, typer.Option("--prices", help="Its US dollars per million tokens: input,output.")
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Where to write the figures.")]
Report = Annotated[Path | None, typer.Option(help="Directory for a report with tables and plots.")]
Experiments = Annotated[
    str, typer.Argument(metavar="NAME", help="One or several, with commas; all for all.")
]
Seeds = Annotated[int, typer.Option(help="How often each is run; one decides nothing.")]
Listed = Annotated[bool, typer.Option("--list", help="Print their names, and what each shows.")]


def run_evaluation(  # noqa: PLR0913, PLR0917  each is an option of the command
    dataset: DataSet,
    data: Data = None,
    methods: Methods = "dense,lexical,hybrid,cold",
    learners: Learners = "",
    k: Cutoffs = "2,5,10",
    limit: Limit = None,
    seed: Seed = None,
    embedding: Embedding = DEFAULT_MODEL,
    cache: Cache = None,
    split: Split = False,
    setting: Setting = "pooled",
    level: Level = "document",
    stream: Stream = None,
    feedback: FeedbackKind = "used",
    shown: Shown = None,
    noise: Noise = 0.0,
    epochs: Epochs = 1,
    dropped: Dropped = 0.0,
    explored: Explored = 0.0,
    passive_rate: PassiveRate = 0.0,
    skip_penalty: SkipPenalty = 0.0,
    router: Router = None,
    reranker: Reranker = None,
    price: Prices = "0,0",
    write: JsonFile = None,
    report: Report = None,
) -> None:
    """Measure retrieval on a data set with labels; see docs/research/evaluation.md."""
    require_extra("eval", "measuring")
    from crabpath_lab.plan import EvaluationPlan

    plan = EvaluationPlan(
        dataset=dataset,
        data=data,
        methods=split_names(methods),
        learners=split_names(learners),
        ks=parse_cutoffs(k),
        limit=limit,
        split=split,
        seed=seed,
        embedding=embedding,
        cache=cache,
        setting=setting,
        level=level,
        stream=cast("Any", stream),
        feedback=cast("Any", feedback),
        shown=shown,
        noise=noise,
        epochs=epochs,
        dropped=dropped,
        explored=explored,
        passive_rate=passive_rate,
        skip_penalty=skip_penalty,
        router=router,
        reranker=reranker,
        prices=parse_prices(price),
    )
    typer.echo(evaluate_and_write(plan, json_file=write, folder=report))


def run_experiments(
    names: Experiments = "",
    seeds: Seeds = 10,
    embedding: Embedding = DEFAULT_MODEL,
    cache: Cache = None,
    report: Report = None,
    listed: Listed = False,
) -> None:
    """Try what the papers claim, judged by intervals over seeds; see docs/experiments."""
    require_extra("eval", "an experiment")
    from crabpath_lab.experiments import EXPERIMENTS, run_and_write, select_experiments

    if listed:
        typer.echo("\n".join(f"{name}: {of.title}" for name, of in EXPERIMENTS.items()))
        return
    wanted = select_experiments(names)
    with report_damaged_cache(cache):
        typer.echo(run_and_write(wanted, seeds, embedding=embedding, folder=report, cache=cache))


def split_names(text: str) -> tuple[str, ...]:
    """Split comma-separated names; repeated names count once."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def parse_prices(text: str) -> tuple[float, float]:
    """Parse two comma-separated prices, of input and of output, or raise InvalidInputError."""
    try:
        given, taken = map(float, text.split(","))
    except ValueError:
        given = taken = -1.0
    if not (0 <= given < float("inf") and 0 <= taken < float("inf")):
        msg = f"--prices takes US dollars per million tokens, such as 0.15,0.6, not {text!r}"
        raise InvalidInputError(msg)
    return given, taken


def parse_cutoffs(text: str) -> tuple[int, ...]:
    """Parse comma-separated whole numbers of at least 1; sorted, each once."""
    given = split_names(text)
    wrong = [part for part in given if not part.isdecimal() or int(part) < 1]
    if wrong or not given:
        what = repr(wrong[0]) if wrong else "nothing"
        msg = f"--k takes whole numbers of at least 1, such as 2,5,10, not {what}"
        raise InvalidInputError(msg)
    return tuple(sorted({int(part) for part in given}))


def evaluate_and_write(
    plan: "EvaluationPlan", *, json_file: Path | None = None, folder: Path | None = None
) -> str:
    """Run an evaluation and write its figures and report; returns the tables, as Markdown.

    ``json_file`` gets all figures, ``folder`` the file ``report.md`` and its plots. A plan, data or
    place that cannot be used raises InvalidInputError.
    """
    from crabpath_lab.evaluation import evaluate
    from crabpath_lab.reporting.report import render_summary, write_report

    check_outputs(json_file, folder)
    with report_damaged_cache(plan.cache):
        figures = evaluate(plan)
    write_json(figures, json_file)
    if folder is not None:
        write_report(figures, folder)
    return render_summary(figures)
