"""The commands that measure. They need the ``eval`` extra and data sets with labels."""

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from crabpath_retrievers.cli.options import handled
from crabpath_retrievers.evaluation.extra import require_eval_extra
from crabpath_retrievers.seeds.embedder import MODEL


@handled
def evaluate(  # noqa: PLR0913, PLR0917  each is an option of the command
    dataset: Annotated[str, typer.Argument(help="hotpotqa, multihoprag, 2wiki, musique or beir.")],
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
    """Measure retrieval on a data set with labels; see docs/evaluation.md."""
    require_eval_extra()
    from crabpath_retrievers.evaluation.plan import Plan, cut_offs, names, prices
    from crabpath_retrievers.evaluation.reporting.writing import evaluate_and_write

    plan = Plan(
        dataset=dataset,
        data=data,
        methods=names(methods),
        ks=cut_offs(k),
        limit=limit,
        seed=seed,
        embedding=embedding or MODEL,
        cache=cache,
        setting=setting,
        level=level,
        stream=stream,
        feedback=cast("Any", feedback),
        noise=noise,
        epochs=epochs,
        dropped=dropped,
        router=router,
        prices=prices(price),
    )
    typer.echo(evaluate_and_write(plan, json_file=write, folder=report))


@handled
def eval_attribution(
    hotpotqa: Annotated[Path | None, typer.Option(help="HotpotQA file with answers.")] = None,
    multihoprag: Annotated[Path | None, typer.Option(help="Folder of MultiHop-RAG.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Directory that keeps embeddings.")] = None,
    write: Annotated[
        Path | None, typer.Option("--json", help="Where to write the figures.")
    ] = None,
) -> None:
    """Measure whether gold answers are attributed to the gold documents that were returned."""
    require_eval_extra()
    from crabpath_retrievers.evaluation.reporting.writing import attribute_and_write

    given = {"hotpotqa": hotpotqa, "multihoprag": multihoprag}
    paths = {name: path for name, path in given.items() if path is not None}
    typer.echo(attribute_and_write(paths, cache=cache, json_file=write))


@handled
def eval_episodes(
    tau_bench: Annotated[Path, typer.Option(help="Trajectories of tau-bench, JSON lines.")],
    cache: Annotated[Path | None, typer.Option(help="Directory that keeps embeddings.")] = None,
    write: Annotated[
        Path | None, typer.Option("--json", help="Where to write the figures.")
    ] = None,
) -> None:
    """Measure what the region MDP foretells: how episodes end, and what is done next."""
    require_eval_extra()
    from crabpath_retrievers.evaluation.reporting.writing import foretell_and_write

    typer.echo(foretell_and_write(tau_bench, cache=cache, json_file=write))


@handled
def eval_learning(  # noqa: PLR0913, PLR0917  each is an option of the command
    hotpotqa: Annotated[Path | None, typer.Option(help="HotpotQA file or BEIR folder.")] = None,
    two_wiki: Annotated[Path | None, typer.Option("--2wiki", help="2WikiMultihopQA file.")] = None,
    multihoprag: Annotated[Path | None, typer.Option(help="Folder of MultiHop-RAG.")] = None,
    part: Annotated[
        str,
        typer.Option(
            help="What to measure: grid, ablation, compression, endurance, routing, contamination, "
            "regions."
        ),
    ] = "grid,ablation,compression,endurance",
    limit: Annotated[int | None, typer.Option(help="Most questions; the first ones.")] = None,
    feedback: Annotated[
        str, typer.Option(help="Grid and regions: what is told.")
    ] = "used,answer,outcome",
    noise: Annotated[
        str | None,
        typer.Option(help="Shares that are flipped; none: grid 0,0.1,0.2, contamination 0.2."),
    ] = None,
    variants: Annotated[
        str | None, typer.Option(help="Regions: what is compared with the default; none: all.")
    ] = None,
    orders: Annotated[
        int | None,
        typer.Option(help="Orders of the questions; none: grid and regions 3, contamination 5."),
    ] = None,
    turns: Annotated[int, typer.Option(help="Endurance: length of the stream.")] = 10_000,
    cache: Annotated[Path | None, typer.Option(help="Directory that keeps embeddings.")] = None,
    write: Annotated[
        Path | None, typer.Option("--json", help="Where to write the figures.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Directory for a report with tables and plots.")
    ] = None,
) -> None:
    """Measure what learning gives: whether it ever hurts, what adds to it, what it saves."""
    require_eval_extra()
    from crabpath_retrievers.evaluation.learning.plan import LearningPlan, shares
    from crabpath_retrievers.evaluation.plan import names
    from crabpath_retrievers.evaluation.reporting.writing import measure_learning_and_write

    given = {"hotpotqa": hotpotqa, "2wiki": two_wiki, "multihoprag": multihoprag}
    plan = LearningPlan(
        paths={name: path for name, path in given.items() if path is not None},
        parts=names(part),
        limit=limit,
        feedback=cast("Any", names(feedback)),
        variants=None if variants is None else names(variants),
        noise=None if noise is None else shares(noise),
        orders=orders,
        turns=turns,
        cache=cache,
    )
    typer.echo(measure_learning_and_write(plan, json_file=write, folder=report))
