"""CrabPath beside other packages: the same questions, documents and vectors, answered by each.

Cold: what each finds before anybody said what was right. Streams: each answer is scored, and then
its system is told which of the ten documents it showed were right. Siblings: one true report on
one page among many alike, and how many of the other first answers are lost by it.
"""

import importlib.metadata
import math
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from benchmarks.peer_packages import COLD, LEARNERS, SHOWN, Corpus, Package, Peer
from benchmarks.siblings import generate_products
from crabpath_lab.datasets import Dataset
from crabpath_lab.statistics import bootstrap_interval, compare_paired
from crabpath_retrievers.errors import InvalidInputError

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


class PeerFigures(NamedTuple):
    """Scores of a system, one value for each question, in the order in which they were asked.

    Attributes:
        name: The system.
        recall: Share of the right documents among the first five.
        ndcg: Normalized gain of the ten shown.
    """

    name: str
    recall: list[float]
    ndcg: list[float]


class SiblingTrials(NamedTuple):
    """First answers that are right, before a report and after it, one value for each trial.

    Attributes:
        name: The system.
        before: Right first answers before the report.
        after: Those after it.
        lost: Questions answered rightly before, and no longer after.
    """

    name: str
    before: list[int]
    after: list[int]
    lost: list[int]


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
    for given, known in ((parts, PARTS), (names or (), {**COLD, **LEARNERS})):
        if unknown := [name for name in given if name not in known]:
            msg = f"there is no {unknown[0]!r}: choose among {', '.join(known)}"
            raise InvalidInputError(msg)
    for part in parts:
        yield f"\n## {part}\n"
        ready = list[str]()
        for name, package in PARTS[part].items():
            versions = {one: _read_version(one) for one in package.distributions}
            if names is not None and name not in names:
                continue
            if None in versions.values():
                yield f"- {name}: left out; `pip install {' '.join(versions)}` brings it"
            else:
                yield f"- {name}: {', '.join(f'{a} {b}' for a, b in versions.items())}"
                ready.append(name)
        yield f"\n{SIBLINGS_HEADER if part == 'siblings' else ANSWERS_HEADER}"
        if part == "siblings":
            yield from map(render_trials, measure_reports(embeddings, ready))
        for dataset in datasets if part != "siblings" else ():
            yield from render_answers(
                dataset.name, measure_answers(part, dataset, embeddings, ready)
            )


def _read_version(distribution: str) -> str | None:
    """The installed version; None without one."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def measure_answers(
    part: str, dataset: Dataset, embeddings: Embeddings, names: Sequence[str]
) -> Iterator[PeerFigures]:
    """Yield the scores of each system: cold ones are told nothing, the others after each answer."""
    for name in names:
        found = PeerFigures(name, [], [])
        with open_peer(PARTS[part][name], dataset.documents, embeddings) as peer:
            for query, text in dataset.queries.items():
                gold = dataset.qrels[query]
                shown = peer.ask(text)[:SHOWN]
                found.recall.append(len(gold.intersection(shown[:_K])) / len(gold))
                found.ndcg.append(compute_ndcg(shown, gold))
                if part == "streams":
                    peer.tell([document for document in shown if document in gold])
        yield found


def measure_reports(
    embeddings: Embeddings, names: Sequence[str], *, seed: int = 0
) -> Iterator[SiblingTrials]:
    """Yield what one true report does to the other first answers, each trial on a new memory."""
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
        found = SiblingTrials(name, [], [], [])
        for page in reported:
            with open_peer(LEARNERS[name], documents, embeddings) as peer:
                before = {asked for asked, text in asks.items() if peer.ask(text)[:1] == [asked]}
                shown = peer.ask(asks[page])[:SHOWN]
                peer.tell([document for document in shown if document == page])
                after = {asked for asked, text in asks.items() if peer.ask(text)[:1] == [asked]}
            found.before.append(len(before))
            found.after.append(len(after))
            found.lost.append(len(before - after - {page}))
        yield found


@contextmanager
def open_peer(
    package: Package, documents: tuple[Document, ...], embeddings: Embeddings
) -> Iterator[Peer]:
    """Open a system over documents, in a folder that is deleted afterwards."""
    with (
        TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True) as folder,
        ExitStack() as stack,
    ):
        yield package.open(Corpus(documents, embeddings, Path(folder), stack))


def compute_ndcg(shown: Sequence[str], gold: Collection[str]) -> float:
    """Normalized gain of the documents that were shown, each of the right ones worth the same."""
    gain = sum(1 / math.log2(place + 2) for place, name in enumerate(shown) if name in gold)
    return gain / sum(1 / math.log2(place + 2) for place in range(min(len(gold), SHOWN)))


ANSWERS_HEADER = (
    "| data | system | questions | recall@5 | second half | nDCG@10 | CrabPath less it |\n"
    "|---|---|---|---|---|---|---|"
)
SIBLINGS_HEADER = (
    "| system | right before | right after one report, least to most | others lost |\n"
    "|---|---|---|---|"
)


def render_answers(data: str, rows: Iterable[PeerFigures]) -> Iterator[str]:
    """Rows of a Markdown table, with differences to CrabPath where it stands above."""
    ours: PeerFigures | None = None
    for row in rows:
        ours = row if row.name == _OURS else ours
        half = len(row.recall) // 2
        less = "" if ours is None or ours is row else _render_difference(ours.recall, row.recall)
        yield (
            f"| {data} | {row.name} | {len(row.recall)} | {_render_mean(row.recall)} | "
            f"{np.mean(row.recall[half:]):.3f} | {np.mean(row.ndcg):.3f} | {less} |"
        )


def render_trials(row: SiblingTrials) -> str:
    """A row of a Markdown table: means over the trials."""
    return (
        f"| {row.name} | {np.mean(row.before):.1f} | {np.mean(row.after):.1f} "
        f"({min(row.after)} to {max(row.after)}) | {np.mean(row.lost):.1f} |"
    )


def _render_mean(values: Sequence[float]) -> str:
    ends = bootstrap_interval(values)
    return f"{np.mean(values):.3f}" + ("" if ends is None else f" ({ends[0]:.3f} to {ends[1]:.3f})")


def _render_difference(ours: Sequence[float], theirs: Sequence[float]) -> str:
    found = compare_paired(ours, theirs)
    ends = found["ci95"]
    bounds = "" if ends is None else f" ({ends[0]:+.3f} to {ends[1]:+.3f})"
    return f"{found['difference']:+.3f}{bounds}"
