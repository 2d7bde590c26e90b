"""CrabPath beside other packages: the same questions, documents and vectors, answered by each.

Cold: what each finds before anybody said what was right. Streams: each answer is scored, and then
its system is told which of the ten documents it showed were right. Siblings: one true report on
one page among many alike, and how many of the other first answers are lost by it.
"""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from benchmarks.peer_packages import (
    COLD,
    LEARNERS,
    SHOWN,
    Corpus,
    Package,
    Peer,
    list_ready,
    require_known,
)
from benchmarks.siblings import generate_products
from crabpath_lab.datasets import Dataset
from crabpath_lab.scoring.measures import score_rankings
from crabpath_lab.statistics import bootstrap_interval, compare_paired

PARTS: Mapping[str, Mapping[str, Package]] = {
    "cold": COLD,
    "streams": LEARNERS,
    "siblings": LEARNERS,
}
_K = 5  # cut-off of recall
_OURS = "CrabPath"
_KINDS = {
    "warranty": (
        "The {name} comes with a guarantee. Defects of material are repaired for {number} months.",
        "How long is the warranty of the {name}?",
    ),
    "weight": (
        "The {name} weighs {number} grams without its cord and its packaging.",
        "How heavy is the {name}?",
    ),
    "charging": (
        "An empty {name} is full after {number} minutes at the mains. A green lamp tells so.",
        "How long does the {name} take to charge?",
    ),
}
_PRODUCTS, _TRIALS = 40, 4  # a trial reports one product of each kind


def measure_peers(
    parts: Sequence[str],
    datasets: Sequence[Dataset],
    embeddings: Embeddings,
    names: Collection[str] | None,
) -> Iterator[str]:
    """Yield Markdown for each part: versions, what is not installed, and a table.

    Raises:
        InvalidInputError: There is no such part, or no such system.
    """
    require_known(parts, PARTS)
    require_known(names or (), {**COLD, **LEARNERS})
    for part in parts:
        yield f"\n## {part}\n"
        chosen = [name for name in PARTS[part] if names is None or name in names]
        ready = yield from list_ready(PARTS[part], chosen)
        if part == "siblings":
            yield f"\n{SIBLINGS_HEADER}"
            yield from measure_reports(embeddings, ready)
        else:
            yield f"\n{ANSWERS_HEADER}"
            for dataset in datasets:
                yield from measure_answers(part, dataset, embeddings, ready)


def measure_answers(
    part: str, dataset: Dataset, embeddings: Embeddings, names: Sequence[str]
) -> Iterator[str]:
    """Yield a row for each system: cold ones are told nothing, the others after each answer."""
    qrels = {query: dataset.qrels[query] for query in dataset.queries}
    ours: list[float] | None = None
    for name in names:
        shown = dict[str, list[str]]()
        with open_peer(PARTS[part][name], dataset.documents, embeddings) as peer:
            for query, text in dataset.queries.items():
                shown[query] = peer.ask(text)[:SHOWN]
                if part == "streams":
                    peer.tell([found for found in shown[query] if found in qrels[query]])
        scores = score_rankings(qrels, shown, [_K])
        recall, gain = scores[f"recall@{_K}"], scores[f"ndcg@{SHOWN}"]
        less = "" if ours is None else _render_difference(ours, recall)
        ours = recall if name == _OURS else ours
        ends = bootstrap_interval(recall)
        bounds = "" if ends is None else f" ({ends[0]:.3f} to {ends[1]:.3f})"
        yield (
            f"| {dataset.name} | {name} | {len(recall)} | {np.mean(recall):.3f}{bounds} | "
            f"{np.mean(recall[len(recall) // 2 :]):.3f} | {np.mean(gain):.3f} | {less} |"
        )


def measure_reports(
    embeddings: Embeddings, names: Sequence[str], *, seed: int = 0
) -> Iterator[str]:
    """Yield a row for each system: means over trials, each on a new memory.

    A trial counts the first answers that are right before one true report and after it, and the
    other ones that the report loses.
    """
    rng = random.Random(seed)  # noqa: S311  reproducible data
    products = list(generate_products(_PRODUCTS, seed))
    asks = {
        f"{name}: {kind}": _KINDS[kind][1].format(name=name) for kind in _KINDS for name in products
    }
    documents = tuple(
        Document(text.format(name=name, number=rng.randrange(6, 900)), id=f"{name}: {kind}")
        for name in products
        for kind, (text, _) in _KINDS.items()
    )
    reported = [f"{name}: {kind}" for name in rng.sample(products, _TRIALS) for kind in _KINDS]
    for name in names:
        trials = list[tuple[int, int, int]]()
        for page in reported:
            with open_peer(LEARNERS[name], documents, embeddings) as peer:
                before = {asked for asked, text in asks.items() if peer.ask(text)[:1] == [asked]}
                shown = peer.ask(asks[page])[:SHOWN]
                peer.tell([document for document in shown if document == page])
                after = {asked for asked, text in asks.items() if peer.ask(text)[:1] == [asked]}
            trials.append((len(before), len(after), len(before - after - {page})))
        first, then, lost = zip(*trials, strict=True)
        yield (
            f"| {name} | {np.mean(first):.1f} | {np.mean(then):.1f} "
            f"({min(then)} to {max(then)}) | {np.mean(lost):.1f} |"
        )


@contextmanager
def open_peer(
    package: Package, documents: tuple[Document, ...], embeddings: Embeddings
) -> Iterator[Peer]:
    """Open a system over documents, in a folder that is deleted afterwards."""
    with ExitStack() as stack:
        folder = TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True)
        place = Path(stack.enter_context(folder))
        yield package.open(Corpus(documents, embeddings, place, stack))


ANSWERS_HEADER = (
    "| data | system | questions | recall@5 | second half | nDCG@10 | CrabPath less it |\n"
    "|---|---|---|---|---|---|---|"
)
SIBLINGS_HEADER = (
    "| system | right before | right after one report, least to most | others lost |\n"
    "|---|---|---|---|"
)


def _render_difference(ours: Sequence[float], theirs: Sequence[float]) -> str:
    found = compare_paired(ours, theirs)
    ends = found["ci95"]
    bounds = "" if ends is None else f" ({ends[0]:+.3f} to {ends[1]:+.3f})"
    return f"{found['difference']:+.3f}{bounds}"
