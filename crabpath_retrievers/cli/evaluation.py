"""``crabpath eval``: it needs the ``eval`` extra and a data set with labels."""

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from crabpath_retrievers.evaluation.requirements import require_eval_extra
from crabpath_retrievers.vectors.embedder import DEFAULT_MODEL


def run_evaluation(  # noqa: PLR0913, PLR0917  each is an option of the command
    dataset: Annotated[
        str, typer.Argument(help="hotpotqa, multihoprag, 2wiki, musique, hipporag, beir.")
    ],
    data: Annotated[Path, typer.Option(help="Its official file or folder, plain or .gz.")],
    methods: Annotated[str, typer.Option(help="Which to compare.")] = "dense,lexical,hybrid,cold",
    k: Annotated[str, typer.Option("--k", "-k", help="Cut-offs.")] = "2,5,10",
    limit: Annotated[int | None, typer.Option(help="Most questions; the first ones.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Draws the questions of --limit, and the resamples.")
    ] = None,
    embedding: Annotated[
        str | None, typer.Option(help="A sentence-transformers model; none: all-MiniLM-L6-v2.")
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="Directory that keeps embeddings.")] = None,
    setting: Annotated[
        str, typer.Option(help="pooled, or closed: a question's own paragraphs only.")
    ] = "pooled",
    level: Annotated[
        str, typer.Option(help="document, or chunk: the measures of MultiHop-RAG itself.")
    ] = "document",
    stream: Annotated[
        str | None, typer.Option(help="prequential: retrieve, score, then learn.")
    ] = None,
    feedback: Annotated[str, typer.Option(help="used, answer, outcome or followed.")] = "used",
    noise: Annotated[float, typer.Option(help="Share of the feedback that is flipped.")] = 0.0,
    epochs: Annotated[int, typer.Option(help="Passes over the questions.")] = 1,
    dropped: Annotated[
        float, typer.Option(help="Share of a question's words that later passes leave out.")
    ] = 0.0,
    router: Annotated[
        str | None, typer.Option(help="Chat model, provider:name; adds the method routed.")
    ] = None,
    price: Annotated[
        str, typer.Option("--prices", help="Its US dollars per million tokens: input,output.")
    ] = "0,0",
    write: Annotated[
        Path | None, typer.Option("--json", help="Where to write the figures.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Directory for a report with tables and plots.")
    ] = None,
) -> None:
    """Measure retrieval on a data set with labels; see docs/research/evaluation.md."""
    require_eval_extra()
    from crabpath_retrievers.evaluation.plan import (
        EvaluationPlan,
        parse_cutoffs,
        parse_prices,
        split_names,
    )
    from crabpath_retrievers.evaluation.reporting.report import evaluate_and_write

    plan = EvaluationPlan(
        dataset=dataset,
        data=data,
        methods=split_names(methods),
        ks=parse_cutoffs(k),
        limit=limit,
        seed=seed,
        embedding=embedding or DEFAULT_MODEL,
        cache=cache,
        setting=setting,
        level=level,
        stream=stream,
        feedback=cast("Any", feedback),
        noise=noise,
        epochs=epochs,
        dropped=dropped,
        router=router,
        prices=parse_prices(price),
    )
    typer.echo(evaluate_and_write(plan, json_file=write, folder=report))
