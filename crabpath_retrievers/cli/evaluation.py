"""``crabpath eval``: it needs the ``eval`` extra and a data set with labels."""

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from crabpath_retrievers.evaluation.requirements import require_eval_extra
from crabpath_retrievers.vectors.embedder import DEFAULT_MODEL

DataSet = Annotated[
    str, typer.Argument(help="hotpotqa, multihoprag, 2wiki, musique, hipporag or beir.")
]
Data = Annotated[Path, typer.Option(help="Its official file or folder, plain or .gz.")]
Methods = Annotated[str, typer.Option(help="Which to compare.")]
Cutoffs = Annotated[str, typer.Option("--k", "-k", help="Cut-offs.")]
Limit = Annotated[int | None, typer.Option(help="Most questions; the first ones.")]
Seed = Annotated[
    int | None, typer.Option(help="Draws the questions of --limit, and the resamples.")
]
Embedding = Annotated[
    str, typer.Option(help="A sentence-transformers model.", show_default="all-MiniLM-L6-v2")
]
Cache = Annotated[Path | None, typer.Option(help="Directory that keeps embeddings.")]
Setting = Annotated[str, typer.Option(help="pooled, or closed: a question's own paragraphs only.")]
Level = Annotated[
    str, typer.Option(help="document, or chunk: the measures of MultiHop-RAG itself.")
]
Stream = Annotated[
    str | None,
    typer.Option(
        help="Retrieve, score, then learn: prequential; repair: a fifth of the feedback is wrong "
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


def run_evaluation(  # noqa: PLR0913, PLR0917  each is an option of the command
    dataset: DataSet,
    data: Data,
    methods: Methods = "dense,lexical,hybrid,cold",
    k: Cutoffs = "2,5,10",
    limit: Limit = None,
    seed: Seed = None,
    embedding: Embedding = DEFAULT_MODEL,
    cache: Cache = None,
    setting: Setting = "pooled",
    level: Level = "document",
    stream: Stream = None,
    feedback: FeedbackKind = "used",
    shown: Shown = None,
    noise: Noise = 0.0,
    epochs: Epochs = 1,
    dropped: Dropped = 0.0,
    router: Router = None,
    reranker: Reranker = None,
    price: Prices = "0,0",
    write: JsonFile = None,
    report: Report = None,
) -> None:
    """Measure retrieval on a data set with labels; see docs/research/evaluation.md."""
    require_eval_extra()
    from crabpath_retrievers.evaluation import plan as plans
    from crabpath_retrievers.evaluation.reporting.report import evaluate_and_write

    plan = plans.EvaluationPlan(
        dataset=dataset,
        data=data,
        methods=plans.split_names(methods),
        ks=plans.parse_cutoffs(k),
        limit=limit,
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
        router=router,
        reranker=reranker,
        prices=plans.parse_prices(price),
    )
    typer.echo(evaluate_and_write(plan, json_file=write, folder=report))
