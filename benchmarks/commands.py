"""The benchmarks by name. Each prints Markdown or JSON; modules are imported when they are run."""

import json
import logging
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, cast

import typer

from crabpath_lab.output import (
    check_outputs,
    report_damaged_cache,
    write_json,
)
from crabpath_retrievers import MissingExtraError
from crabpath_retrievers.cli.commands import Program, take_place
from crabpath_retrievers.core.extras import EXTRAS, list_missing

Cache = Annotated[Path | None, typer.Option(help="Directory that keeps embeddings.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Where to write the figures.")
]
BeirFolder = Annotated[
    Path | None, typer.Option(help="HotpotQA folder in BEIR format; none: the shipped sample.")
]

HotpotQA = Annotated[Path | None, typer.Option(help="HotpotQA file or BEIR folder.")]
TwoWiki = Annotated[Path | None, typer.Option("--2wiki", help="2WikiMultihopQA file.")]
MultiHopRag = Annotated[Path | None, typer.Option(help="Folder of MultiHop-RAG.")]
Parts = Annotated[
    str,
    typer.Option(
        help="What to measure: grid, ablation, compression, endurance, routing, contamination, "
        "regions."
    ),
]
Noise = Annotated[
    str | None,
    typer.Option(help="Shares that are flipped; none: grid 0,0.1,0.2, contamination 0.2."),
]
Variants = Annotated[
    str | None, typer.Option(help="Regions: what is compared with the default; none: all.")
]
Orders = Annotated[
    int | None,
    typer.Option(help="Orders of the questions; none: grid and regions 3, contamination 5."),
]
ReportFolder = Annotated[
    Path | None, typer.Option(help="Directory for a report with tables and plots.")
]

app = typer.Typer(
    cls=Program, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)


@app.callback()
def check_packages() -> None:
    """Benchmarks and studies of CrabPath. Run them from a checkout, after make env."""
    if missing := list_missing((*EXTRAS["eval"], "psutil", "scipy", "sklearn")):
        msg = f"measuring needs {', '.join(missing)}: make env"
        raise MissingExtraError(msg)


# Studies


@app.command("learning")
def study_learning(  # noqa: PLR0913, PLR0917  each is an option of the command
    hotpotqa: HotpotQA = None,
    two_wiki: TwoWiki = None,
    multihoprag: MultiHopRag = None,
    part: Parts = "grid,ablation,compression,endurance",
    limit: Annotated[int | None, typer.Option(help="Most questions; the first ones.")] = None,
    feedback: Annotated[
        str, typer.Option(help="Grid and regions: kinds of feedback.")
    ] = "used,answer,outcome",
    noise: Noise = None,
    variants: Variants = None,
    orders: Orders = None,
    turns: Annotated[int, typer.Option(help="Endurance: length of the stream.")] = 10_000,
    cache: Cache = None,
    json_file: JsonFile = None,
    report: ReportFolder = None,
) -> None:
    """Measure what learning gives: whether it ever hurts, what adds to it, what it saves."""
    from benchmarks.learning.plan import LearningPlan, parse_shares
    from benchmarks.learning.report import render_learning, write_learning_report
    from benchmarks.learning.study import measure_learning
    from crabpath_lab.commands.evaluation import split_names

    given = {"hotpotqa": hotpotqa, "2wiki": two_wiki, "multihoprag": multihoprag}
    plan = LearningPlan(
        paths={name: path for name, path in given.items() if path is not None},
        parts=split_names(part),
        limit=limit,
        feedback=cast("Any", split_names(feedback)),
        variants=None if variants is None else split_names(variants),
        noise=None if noise is None else parse_shares(noise),
        orders=orders,
        turns=turns,
        cache=cache,
    )
    check_outputs(json_file, report)
    with report_damaged_cache(cache):
        # Written after every figure, so that an interrupted run leaves those that it has.
        figures = measure_learning(plan, partial(write_json, file=json_file))
    if report is not None:
        write_learning_report(figures, report)
    typer.echo(render_learning(figures))


@app.command("attribution")
def study_attribution(
    hotpotqa: Annotated[Path | None, typer.Option(help="HotpotQA file with answers.")] = None,
    multihoprag: MultiHopRag = None,
    cache: Cache = None,
    json_file: JsonFile = None,
) -> None:
    """Measure whether gold answers are attributed to the gold documents that were returned."""
    from benchmarks.attribution.study import evaluate_attribution
    from benchmarks.attribution.tables import render_attribution

    given = {"hotpotqa": hotpotqa, "multihoprag": multihoprag}
    check_outputs(json_file)
    paths = {name: path for name, path in given.items() if path is not None}
    figures = evaluate_attribution(paths, cache=cache)
    write_json(figures, json_file)
    typer.echo(render_attribution(figures))


@app.command("episodes")
def study_episodes(
    tau_bench: Annotated[Path, typer.Option(help="Trajectories of tau-bench, JSON lines.")],
    cache: Cache = None,
    json_file: JsonFile = None,
) -> None:
    """Measure what the region MDP predicts of episodes: how they end, and what is done next."""
    from benchmarks.episodes.study import evaluate_episodes
    from benchmarks.episodes.tables import render_episodes

    check_outputs(json_file)
    with report_damaged_cache(cache):
        figures = evaluate_episodes(tau_bench, cache=cache)
    write_json(figures, json_file)
    typer.echo(render_episodes(figures))


@app.command("region-quality")
@take_place
def study_region_quality(
    store: Annotated[str, typer.Option("--store", "-s", help="Directory or database URL.")],
    level: Annotated[int | None, typer.Option(help="Of the regions; none: the finest.")] = None,
) -> None:
    """Compare the regions of a memory with k-means and with random regions of the same sizes."""
    from benchmarks.region_quality import measure_store

    _print_json(measure_store(store, level))


@app.command("sync")
def study_sync(
    docs: Annotated[Path, typer.Argument(help="A folder of Markdown files; it is copied.")],
    seeds: Annotated[int, typer.Option(help="How many edits are tried, each on its own.")] = 3,
    questions: Annotated[int, typer.Option(help="Turns that each namespace learns from.")] = 60,
) -> None:
    """Measure what is kept of what was learned when documents are edited and synced."""
    from benchmarks.sync_retention.study import measure_retention
    from crabpath_retrievers.vectors.embedder import load_default_embeddings

    embeddings = load_default_embeddings()
    _print_json([measure_retention(docs, seed, embeddings, questions) for seed in range(seeds)])


@app.command("corrections")
def study_corrections(
    k: Annotated[int, typer.Option(help="Documents per answer.")] = 4,
    embedder: Annotated[str, typer.Option(help="minilm, squeezed or e5.")] = "minilm",
    cache: Cache = None,
    *,
    held_out: Annotated[bool, typer.Option(help="The pages on which nothing was chosen.")] = False,
) -> None:
    """Measure whether corrections come to rewordings of their question, and to no other one."""
    from benchmarks.corrections import measure_corrections
    from benchmarks.no_harm import EMBEDDERS
    from crabpath_lab.embedding import cached_embedder

    model = cached_embedder(EMBEDDERS[embedder], cache)
    counts = measure_corrections(model, k, held_out=held_out)
    typer.echo(json.dumps(counts._asdict(), indent=2))


@app.command("poisoning")
def study_poisoning(
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Folders in BEIR format: streams of them instead of the attack."),
    ] = None,
    lies: Annotated[int, typer.Option(help="Lies of the attack.")] = 200,
    limit: Annotated[int, typer.Option(help="Most questions of each stream.")] = 600,
    passes: Annotated[int, typer.Option(help="How often the streams ask each question.")] = 1,
    cache: Cache = None,
) -> None:
    """Measure how far lying feedback of one name, nobody or 20 names moves others' answers."""
    from benchmarks.poisoning import measure_attack, measure_streams
    from crabpath_lab.datasets import load_beir
    from crabpath_lab.embedding import cached_embedder

    logging.disable(logging.ERROR)  # each lie that is bounded is one
    embeddings = cached_embedder(cache=cache)
    datasets = [load_beir(folder) for folder in data or ()]
    streams = measure_streams(datasets, embeddings, limit=limit, passes=passes)
    for row in streams if data else measure_attack(embeddings, lies=lies):
        typer.echo(json.dumps(row))


@app.command("fit-prior")
def fit_prior_files(
    hotpotqa: Annotated[Path, typer.Option(help="HotpotQA training file, distractor setting.")],
    two_wiki: Annotated[Path, typer.Option("--2wiki", help="2WikiMultihopQA training file.")],
    musique: Annotated[Path, typer.Option(help="MuSiQue training file.")],
    scifact: Annotated[Path, typer.Option(help="SciFact training questions, a BEIR folder.")],
    nfcorpus: Annotated[Path, typer.Option(help="NFCorpus training questions, a BEIR folder.")],
    write: Annotated[Path, typer.Option(help="Where to write the prior.")] = Path("prior.json"),
    cache: Cache = None,
) -> None:
    """Fit the ranker's prior on training files, never on development files."""
    from benchmarks.prior.fit_files import fit_files

    paths = {"hotpotqa": hotpotqa, "2wiki": two_wiki, "musique": musique}
    prior = fit_files(paths | {"scifact": scifact, "nfcorpus": nfcorpus}, cache)
    write_json(prior, write)
    _print_json(prior)


@app.command("soak")
def run_soak(
    only: Annotated[str | None, typer.Option(help="Names of checks, with commas.")] = None,
    minutes: Annotated[float, typer.Option(help="Most time for all of them together.")] = 15.0,
    runs: Annotated[int | None, typer.Option(help="So many runs of each, however long.")] = None,
    seed: Annotated[int | None, typer.Option(help="Repeats the random choices.")] = None,
    report: Annotated[Path | None, typer.Option(help="File for the table; JSON beside it.")] = None,
) -> None:
    """Break memories on purpose, and count what was lost; exit code 1 when anything was."""
    from benchmarks.soak.run import run_checks

    logging.disable(logging.ERROR)  # what is only said is no figure
    warnings.simplefilter("ignore")
    if not run_checks(only, minutes=minutes, seed=seed, runs=runs, report=report):
        raise typer.Exit(1)


@app.command("figures")
def refresh_figures(
    names: Annotated[list[str] | None, typer.Argument(help="Runs to measure again first.")] = None,
    data: Annotated[Path, typer.Option(help="Folder of the data sets.")] = Path(),
    output: Annotated[
        Path | None, typer.Option(help="What the command of the one run has written already.")
    ] = None,
    *,
    check: Annotated[bool, typer.Option(help="Write nothing; exit code 1 if a page is wrong.")] = (
        False
    ),
    fresh: Annotated[bool, typer.Option(help="Exit code 1 if a figure is old, too.")] = False,
) -> None:
    """Write the figures of docs/figures.json into the pages; name runs to measure them again."""
    from benchmarks.figures import list_old, measure_run, read_figures, update_pages

    for name in names or ():
        measure_run(name, data, output)
    faults, old = update_pages(check=check), list_old(read_figures())
    told = f"{len(old)} figures are older than their code: {', '.join(old)}"
    for line in (*faults, *([told] if old else ())):
        typer.echo(line, err=True)
    raise typer.Exit(1 if faults or (fresh and old) else 0)


@app.command("chart")
def draw_readme_chart(
    names: Annotated[list[str] | None, typer.Argument(help="Runs of docs/figures.json.")] = None,
    write: Annotated[Path, typer.Option(help="The SVG file.")] = Path("docs/assets/recall.svg"),
    metric: Annotated[str, typer.Option(help="The measure that is drawn.")] = "full@5",
) -> None:
    """Draw the chart of the README from the figures of evaluations."""
    from benchmarks.chart import draw_chart

    draw_chart(names or ["2wiki", "hotpotqa", "multihoprag"], write, metric)


@app.command("house")
def measure_code() -> None:
    """Count what the package consists of, where tests reach into it, and four ways through it."""
    from benchmarks.house import measure_house, render_house
    from benchmarks.passages import measure_ways, render_ways

    typer.echo(render_house(measure_house()))
    typer.echo(f"\n{render_ways(measure_ways())}")


@app.command("peers")
def compare_peers(
    data: Annotated[list[Path] | None, typer.Option(help="Folders in BEIR format.")] = None,
    parts: Annotated[str, typer.Option(help="cold, streams or siblings.")] = "cold,streams",
    systems: Annotated[str | None, typer.Option(help="Names, with commas; none: all.")] = None,
    limit: Annotated[int, typer.Option(help="Most questions of a set; the first ones.")] = 300,
    cache: Cache = None,
) -> None:
    """Ask other packages and CrabPath the same questions, cold and with feedback."""
    from benchmarks.peers import measure_peers
    from crabpath_lab.commands.evaluation import split_names
    from crabpath_lab.datasets import load_beir
    from crabpath_lab.embedding import cached_embedder

    datasets = [load_beir(folder).sample(limit) for folder in data or ()]
    names = None if systems is None else split_names(systems)
    for line in measure_peers(split_names(parts), datasets, cached_embedder(cache=cache), names):
        typer.echo(line)


@app.command("peer-sizes")
def compare_sizes(
    data: BeirFolder = None,
    sizes: Annotated[str, typer.Option(help="Numbers of passages.")] = "3000,20000,100000",
    systems: Annotated[str, typer.Option()] = "CrabPath,Chroma,EnsembleRetriever",
    limit: Annotated[int, typer.Option(help="Questions.")] = 120,
    cache: Cache = None,
) -> None:
    """Time indexing and questions of plain retrievers and CrabPath on ever more passages."""
    from benchmarks.peer_sizes import measure_sizes
    from crabpath_lab.commands.evaluation import split_names
    from crabpath_lab.embedding import cached_embedder

    counts = sorted(map(int, split_names(sizes)))
    given = _load_hotpotqa(data), cached_embedder(cache=cache), counts
    for line in measure_sizes(*given, split_names(systems), limit):
        typer.echo(line)


@app.command("costs")
def measure_money(
    data: BeirFolder = None,
    limit: Annotated[int, typer.Option(help="Questions.")] = 200,
) -> None:
    """Print bytes, processor time and money per passage and query, beside plain stores."""
    from benchmarks.costs import measure_costs
    from crabpath_retrievers.vectors.embedder import load_default_embeddings

    for line in measure_costs(_load_hotpotqa(data), load_default_embeddings(), limit):
        typer.echo(line)


# Speed


@app.command("speed")
def time_retrieval(
    data: BeirFolder = None,
    limit: Annotated[int, typer.Option(help="Queries that are timed.")] = 100,
    nodes: Annotated[int, typer.Option(help="Size of the synthetic store; 0 skips it.")] = 20_000,
) -> None:
    """Print size, speed and quality as one table, beside plain Chroma in one run."""
    from benchmarks.speed.table import measure_table

    dataset = _load_hotpotqa(data)
    with TemporaryDirectory(prefix="crabpath-bench-", ignore_cleanup_errors=True) as folder:
        for line in measure_table(dataset, Path(folder), limit=limit, nodes=nodes):
            typer.echo(line)


@app.command("profile")
def profile_stages(
    data: BeirFolder = None,
    limit: Annotated[int, typer.Option(help="Calls of each kind.")] = 60,
) -> None:
    """Print the processor time of a query, a feedback and an addition by stage."""
    from benchmarks.speed.stages import measure_profile, render_profile

    dataset = _load_hotpotqa(data)
    with TemporaryDirectory(prefix="crabpath-bench-", ignore_cleanup_errors=True) as folder:
        typer.echo(render_profile(measure_profile(dataset, Path(folder), limit=limit)))


@app.command("learned-latency")
def time_learned(
    data: Annotated[Path, typer.Option(help="A folder in BEIR format.")],
    taught: Annotated[int | None, typer.Option(help="Questions that teach; none: all.")] = None,
    asked: Annotated[int, typer.Option(help="Questions that are timed.")] = 200,
    cache: Cache = None,
) -> None:
    """Compare how long a query takes in a taught namespace and in an untaught one."""
    from benchmarks.learning.learned_latency import measure_learned_latency
    from crabpath_lab.datasets import load_beir
    from crabpath_lab.embedding import cached_embedder

    embeddings = cached_embedder(cache=cache)
    _print_json(measure_learned_latency(load_beir(data), embeddings, taught=taught, asked=asked))


@app.command("warm-start")
def study_warm_start(
    data: Annotated[Path, typer.Option(help="A BEIR folder with qrels/train.tsv.")],
    taught: Annotated[int | None, typer.Option(help="Questions that teach; none: all.")] = None,
    asked: Annotated[int | None, typer.Option(help="Questions that are scored; none: all.")] = 600,
    cache: Cache = None,
) -> None:
    """Replay the training questions with what is relevant, then ask the test questions."""
    from benchmarks.warm_start import measure_warm_start
    from crabpath_lab.embedding import cached_embedder

    embeddings = None if cache is None else cached_embedder(cache=cache)
    _print_json(measure_warm_start(data, embeddings, taught=taught, asked=asked))


@app.command("scale")
def time_workers(
    documents: Annotated[int, typer.Option(help="Synthetic documents; 0 skips them.")] = 3000,
    seconds: Annotated[float, typer.Option(help="How long each rate is measured.")] = 8.0,
    ingested: Annotated[
        int, typer.Option(help="Documents of the bulk ingest; 0 skips it.")
    ] = 20_000,
    embedded: Annotated[
        int, typer.Option(help="Of these, documents that are also added with MiniLM.")
    ] = 0,
    data: BeirFolder = None,
) -> None:
    """Measure queries and feedback a second of one and four workers on servers; bulk ingest."""
    from benchmarks.bulk import measure_bulk
    from benchmarks.scale import measure_scale

    if documents:
        for line in measure_scale(documents=documents, seconds=seconds):
            typer.echo(line)
    if ingested:
        for line in measure_bulk(_load_hotpotqa(data).documents, ingested, embedded):
            typer.echo(line)


@app.command("load")
def apply_load(
    minutes: Annotated[float, typer.Option(help="How long.")] = 10.0,
    clients: Annotated[int, typer.Option(help="Threads that ask, rate and add.")] = 64,
    processes: Annotated[int, typer.Option(help="Processes that they are in.")] = 4,
    documents: Annotated[int, typer.Option(help="Documents at first.")] = 3000,
) -> None:
    """Ask (90 %), rate (9 %) and add (1 %) from many clients, and look for what was lost."""
    from benchmarks.load import Load, measure_load

    for line in measure_load(Load(minutes * 60, clients, processes, documents)):
        typer.echo(line)


@app.command("replica")
def time_replica(
    documents: Annotated[int, typer.Option(help="Synthetic documents.")] = 3000,
    questions: Annotated[int, typer.Option(help="Questions, asked on both in turns.")] = 200,
) -> None:
    """Measure queries that read a streaming standby, and when it has what another process adds."""
    from benchmarks.replica import measure_replica

    for line in measure_replica(documents=documents, questions=questions):
        typer.echo(line)


@app.command("serve")
def measure_server(
    minutes: Annotated[float, typer.Option(help="How long the clients ask.")] = 10.0,
    clients: Annotated[int, typer.Option(help="Clients, each with a token of its own.")] = 64,
    documents: Annotated[int, typer.Option(help="Documents of the memory.")] = 3000,
    *,
    rolling: Annotated[
        bool, typer.Option(help="Two workers behind a proxy, both restarted at half time.")
    ] = False,
) -> None:
    """Measure what HTTP adds to a question, and many clients of one server, or of two."""
    from benchmarks.rolling import show_restarts
    from benchmarks.serve import ServeLoad, measure_serving

    measure = show_restarts if rolling else measure_serving
    for line in measure(ServeLoad(minutes * 60, clients, documents)):
        typer.echo(line)


@app.command("serve-memory")
def measure_worker_memory(
    requests: Annotated[int, typer.Option(help="Requests of all kinds.")] = 20_000,
    feedbacks: Annotated[int, typer.Option(help="How many of them are feedback.")] = 5_000,
) -> None:
    """Measure what a worker holds after long work, and after a restart."""
    from benchmarks.serve_memory import measure_growth

    measure_growth(requests, feedbacks, report=typer.echo)


@app.command("million")
def time_growth(
    folder: Annotated[Path, typer.Argument(help="Keeps passages and vectors between runs.")],
    data: Annotated[
        list[Path], typer.Option(help="Folders in BEIR format; questions are of the first.")
    ],
    vectors: Annotated[str, typer.Option(help="pgvector, chroma or chroma-server.")] = "pgvector",
    sizes: Annotated[str, typer.Option(help="Passages.")] = "5000,100000,300000,1000000",
    embedded: Annotated[int, typer.Option(help="Most real passages.")] = 100_000,
) -> None:
    """Measure one memory that grows to a million passages: real texts, vectors and indexes."""
    from benchmarks.million.corpus import load_corpus
    from benchmarks.million.measure import Questions, measure_growth
    from crabpath_lab.commands.evaluation import split_names

    corpus, texts, asked = load_corpus(folder, data, embedded)
    counts = sorted(map(int, split_names(sizes)))
    for line in measure_growth(corpus, Questions(texts, asked), vectors, counts):
        typer.echo(line)


@app.command("no-harm")
def study_no_harm(
    data: Annotated[Path, typer.Option(help="Folder of the data sets.")],
    datasets: Annotated[str, typer.Option(help="Names, with commas; all for all.")] = "all",
    embedders: Annotated[
        str, typer.Option(help="minilm, squeezed, e5, random.")
    ] = "minilm,squeezed,e5",
    limit: Annotated[int | None, typer.Option(help="Most questions of each data set.")] = None,
    cache: Cache = None,
) -> None:
    """Compare cold retrieval with the better of dense and hybrid search; exit code 1 if below."""
    from benchmarks.no_harm import DATA, HEADER, compare_cold, render_comparison
    from crabpath_lab.commands.evaluation import split_names

    names = tuple(DATA) if datasets == "all" else split_names(datasets)
    typer.echo(HEADER)
    below = 0
    for row in compare_cold(data, names, split_names(embedders), limit=limit, cache=cache):
        typer.echo(render_comparison(row))
        below += row.is_below
    raise typer.Exit(1 if below else 0)


@app.command("twins")
def study_twins(
    members: Annotated[str, typer.Option(help="Texts of a family, with commas.")] = "100,500,2000",
    families: Annotated[str, typer.Option(help="Names, with commas; all for all.")] = "all",
    embedders: Annotated[str, typer.Option(help="minilm, squeezed, e5.")] = "minilm,squeezed,e5",
    questions: Annotated[int, typer.Option(help="Questions of a family.")] = 100,
    cache: Cache = None,
) -> None:
    """Compare cold retrieval with plain searches on near twins; exit code 1 if below the best."""
    from benchmarks.no_harm import HEADER, compare_twins, render_comparison
    from benchmarks.twins import FAMILIES
    from crabpath_lab.commands.evaluation import split_names

    names = tuple(FAMILIES) if families == "all" else split_names(families)
    typer.echo(HEADER)
    below = 0
    for size in map(int, split_names(members)):
        given = (size, questions)
        for row in compare_twins(names, split_names(embedders), given, cache=cache):
            typer.echo(render_comparison(row))
            below += row.difference < 0
    raise typer.Exit(1 if below else 0)


@app.command("siblings")
def study_siblings(
    members: Annotated[str, typer.Option(help="Numbers of products, with commas.")] = "20,100,1000",
    embedders: Annotated[str, typer.Option(help="minilm, squeezed, e5.")] = "minilm",
    cache: Cache = None,
) -> None:
    """Count right first answers before and after true reports on some of many alike products."""
    from benchmarks.no_harm import EMBEDDERS
    from benchmarks.siblings import measure_siblings
    from crabpath_lab.commands.evaluation import split_names
    from crabpath_lab.embedding import cached_embedder

    typer.echo("| embedder | products | titles | reports | questions | frozen | learned |")
    typer.echo("|---|---|---|---|---|---|---|")
    below = 0
    for name in split_names(embedders):
        model = cached_embedder(EMBEDDERS[name], cache)
        for size in map(int, split_names(members)):
            for titled in (False, True):
                for row in measure_siblings(size, (1, 5, size), model, titled=titled):
                    shown = (name, size, titled, *row)
                    typer.echo(f"| {' | '.join(map(str, shown))} |")
                    below += row.learned < row.frozen
    raise typer.Exit(1 if below else 0)


@app.command("sibling-words")
def study_sibling_words(
    background: Annotated[
        Path | None, typer.Option(help="BEIR folder, among whose documents the pages are.")
    ] = None,
    embedders: Annotated[str, typer.Option(help="minilm, squeezed, e5.")] = "minilm",
    cache: Cache = None,
) -> None:
    """Count right first answers about pages that a common word tells from a reported one."""
    from benchmarks.no_harm import EMBEDDERS
    from benchmarks.siblings import OTHER_FORMS, WORDS, measure_words
    from crabpath_lab.commands.evaluation import split_names
    from crabpath_lab.datasets import load_beir
    from crabpath_lab.embedding import cached_embedder

    documents = () if background is None else load_beir(background).documents
    families = [*((name, False) for name in WORDS), *((name, True) for name in OTHER_FORMS)]
    typer.echo(
        "| embedder | words | other forms | frozen | learned | other question: frozen | learned |"
    )
    typer.echo("|---|---|---|---|---|---|---|")
    for name in split_names(embedders):
        model = cached_embedder(EMBEDDERS[name], cache)
        for family, forms in families:
            same, other = measure_words(family, model, documents, forms=forms)
            shown = (name, family, forms, same.frozen, same.learned, other.frozen, other.learned)
            typer.echo(f"| {' | '.join(map(str, shown))} |")


@app.command("kinds")
def study_kinds(
    embedders: Annotated[str, typer.Option(help="minilm, squeezed, e5.")] = "minilm",
    cache: Cache = None,
) -> None:
    """Count right first answers about products never judged, after reports on others."""
    from benchmarks.kinds import measure_kinds
    from benchmarks.no_harm import EMBEDDERS
    from crabpath_lab.commands.evaluation import split_names
    from crabpath_lab.embedding import cached_embedder

    typer.echo("| embedder | titles | products taught | questions | same words | other words |")
    typer.echo("|---|---|---|---|---|---|")
    for name in split_names(embedders):
        model = cached_embedder(EMBEDDERS[name], cache)
        for titled in (False, True):
            for row in measure_kinds(model, titled=titled):
                typer.echo(f"| {' | '.join(map(str, (name, titled, *row)))} |")


@app.command("routes")
def study_routes(
    rounds: Annotated[int, typer.Option(help="How often each question is asked.")] = 10,
    cache: Cache = None,
    *,
    ablation: Annotated[bool, typer.Option(help="Also without the policy gradient.")] = False,
) -> None:
    """Count routes to used documents that become reflexes, and what else moves with them."""
    from benchmarks.routes import chain_corpus, measure_routes, sample_corpus
    from crabpath_lab.embedding import cached_embedder
    from crabpath_retrievers.config import LearningSettings

    variants = {"all": LearningSettings()}
    if ablation:
        variants["without gradient"] = LearningSettings(policy_gradient=False)
    embeddings = cached_embedder(cache=cache)
    for corpus in (chain_corpus(), sample_corpus()):
        for row in measure_routes(corpus, embeddings, variants, rounds=rounds):
            typer.echo(json.dumps(row._asdict()))


@app.command("paraphrases")
def study_paraphrases(
    data: Annotated[Path, typer.Option(help="A folder in BEIR format, such as manuals.")],
    embedder: Annotated[str, typer.Option(help="minilm, squeezed or e5.")] = "minilm",
    cache: Cache = None,
) -> None:
    """Count right first answers in phrasings of a need that was taught in another one."""
    from benchmarks.no_harm import EMBEDDERS
    from benchmarks.paraphrases import measure_paraphrases
    from crabpath_lab.datasets.beir import load_beir
    from crabpath_lab.embedding import cached_embedder

    model = cached_embedder(EMBEDDERS[embedder], cache)
    _print_json(measure_paraphrases(load_beir(data), model)._asdict())


@app.command("versions")
def study_versions(cache: Cache = None) -> None:
    """Measure which of two dated versions that contradict each other stands first."""
    from benchmarks.no_harm import EMBEDDERS
    from benchmarks.versions import measure_versions
    from crabpath_lab.embedding import cached_embedder

    made = {name: cached_embedder(model, cache) for name, model in EMBEDDERS.items()}
    _print_json({name: measure_versions(model)._asdict() for name, model in made.items()})


@app.command("small-talk")
def study_small_talk(
    data: Annotated[Path, typer.Option(help="Folder of the data sets.")],
    datasets: Annotated[str, typer.Option(help="Names, with commas.")] = "manuals,stackfaq,chunks",
    embedder: Annotated[str, typer.Option(help="minilm, squeezed or e5.")] = "minilm",
    limit: Annotated[int, typer.Option(help="Most questions of each data set.")] = 300,
    cache: Cache = None,
) -> None:
    """Measure what a least score does to small talk and to real questions."""
    from benchmarks.small_talk import measure_thresholds
    from crabpath_lab.commands.evaluation import split_names

    typer.echo(
        "| data | min_score | small talk without a document | questions without one "
        "| right documents lost |"
    )
    typer.echo("|---|---|---|---|---|")
    names = split_names(datasets)
    for row in measure_thresholds(data, names, embedder=embedder, limit=limit, cache=cache):
        typer.echo(f"| {row[0]} | {row[1]} | {row[2]:.2f} | {row[3]:.3f} | {row[4]:.3f} |")


@app.command("sqlite-manual")
def make_sqlite_manual(
    folder: Annotated[Path, typer.Argument(help="New folder of the data set.")],
    pages: Annotated[
        Path, typer.Option(help="Folder of the pages, from Debian's sqlite3-doc.")
    ] = Path("/usr/share/doc/sqlite3"),
) -> None:
    """Write the manual of SQLite with 171 questions as a data set."""
    from benchmarks.sqlite_manual import write_manual

    count, asked = write_manual(pages, folder)
    typer.echo(f"{count} pages, {asked} questions")


@app.command("hosts")
def time_hosts() -> None:
    """Measure what each host framework adds to a call, and a hundred calls at once."""
    from benchmarks.speed.hosts import measure_hosts

    _print_json(measure_hosts(_load_hotpotqa(None)))


@app.command("health")
def study_health(
    nodes: Annotated[int, typer.Option(help="Document chunks.")] = 100_000,
    degree: Annotated[int, typer.Option(help="Edges of the text per chunk.")] = 10,
    learned: Annotated[
        int, typer.Option(help="Learned weights, and twice as many pairs.")
    ] = 50_000,
    rounds: Annotated[int, typer.Option(help="Measurements after the first one.")] = 9,
) -> None:
    """Measure how long a health report of a large memory takes."""
    from benchmarks.speed.health import time_health

    _print_measured(
        partial(time_health, nodes=nodes, degree=degree, learned=learned, rounds=rounds)
    )


@app.command("maintenance")
def time_maintenance(
    nodes: Annotated[int, typer.Option(help="Document chunks, ten edges each.")] = 100_000,
    learned: Annotated[int, typer.Option(help="Learned weights.")] = 50_000,
    turns: Annotated[int, typer.Option(help="Turns on record; 5,000 stay.")] = 8_000,
) -> None:
    """Measure how long maintenance of a large memory takes, beside queries and after a kill."""
    from benchmarks.speed.maintenance import measure_maintenance

    _print_measured(partial(measure_maintenance, nodes=nodes, learned=learned, turns=turns))


def _load_hotpotqa(folder: Path | None) -> Any:
    """HotpotQA from a folder in BEIR format, or the shipped sample."""
    from crabpath_lab.datasets import load_beir
    from crabpath_lab.datasets.sample import load_sample

    return load_beir(folder, "HotpotQA") if folder else load_sample()


def _print_measured(measure: Callable[[Path], Any]) -> None:
    """Run a benchmark that needs a temporary folder, and print its figures."""
    with TemporaryDirectory(prefix="crabpath-bench-", ignore_cleanup_errors=True) as folder:
        _print_json(measure(Path(folder)))


def _print_json(figures: Any) -> None:
    typer.echo(json.dumps(figures, indent=2))
