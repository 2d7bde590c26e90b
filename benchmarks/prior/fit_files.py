"""``python -m benchmarks fit-prior``: fit the prior on training files, with provenance."""

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.prior.conditional_logit import (
    HAND_WEIGHTS,
    TrainingQuery,
    collect_candidates,
    cross_validate,
    fit_contrast,
    fit_ranker,
    make_hand_ranker,
    measure_ranker,
)
from benchmarks.prior.document_weight import choose_document_weight, collect_chunks, join_passages
from crabpath_lab.datasets import (
    Dataset,
    load_beir,
    load_hotpotqa,
    load_musique,
)
from crabpath_lab.embedding import cached_embedder
from crabpath_retrievers import InvalidInputError
from crabpath_retrievers.rerank import FEATURES, SOURCE_FEATURES
from crabpath_retrievers.vectors.embedder import DEFAULT_MODEL

_LOADERS: Mapping[str, Callable[[Path], Dataset]] = {
    "hotpotqa": load_hotpotqa,
    "2wiki": load_hotpotqa,
    "musique": load_musique,
}
# Corpora whose texts do not name each other, and how many of their questions are used.
_UNLINKED: Mapping[str, int] = {"scifact": 250, "nfcorpus": 150}
_DOCUMENTS = 1100  # of such a corpus: one weight needs no more
_MAX_GOLD = 25  # more right answers say little about an order
# 2Wiki names what it asks for: there joined passages are found whatever the weight.
_JOINED = ("hotpotqa", "musique")


def fit_files(paths: Mapping[str, Path], cache: Path | None = None) -> dict[str, Any]:
    """Fit the prior.

    Args:
        paths: Training file by data set: ``hotpotqa``, ``2wiki`` and ``musique``; folders in BEIR
            form for ``scifact`` and ``nfcorpus``.
        cache: Directory that keeps embeddings between runs.

    Returns:
        ``{"weights": {feature: log-odds}, "sources": {...}, "provenance": {...}}``.

    Raises:
        InvalidInputError: A file is missing, unreadable, or a development file.
    """
    for path in paths.values():
        if "dev" in path.name or "test" in path.name:
            msg = f"{path.name} is not a training file: the prior is fitted on training files only"
            raise InvalidInputError(msg)
    embeddings = cached_embedder(cache=cache)
    datasets = {name: load(paths[name]) for name, load in _LOADERS.items()}
    found: dict[str, list[TrainingQuery]] = {
        name: collect_candidates(dataset, embeddings, name=name)
        for name, dataset in datasets.items()
    }
    everything = [ranking for part in found.values() for ranking in part]
    unlinked = {
        name: collect_candidates(draw_corpus(load_beir(paths[name]), count), embeddings, name=name)
        for name, count in _UNLINKED.items()
    }
    sentences = [ranking for part in unlinked.values() for ranking in part]
    multi_hop = fit_ranker(everything)
    found |= unlinked
    ranker, alone, hand = (
        fit_contrast(multi_hop, sentences),
        make_hand_ranker(similarity=1.0),
        make_hand_ranker(**HAND_WEIGHTS),
    )
    long = choose_document_weight(
        ranker,
        [collect_chunks(join_passages(datasets[name], embeddings), embeddings) for name in _JOINED],
    )
    weights = dict(zip(FEATURES, ranker.weights.tolist(), strict=True))
    return {
        "weights": weights | {"document": long["weight"]},
        "sources": dict(zip(SOURCE_FEATURES, ranker.sources.tolist(), strict=True)),
        "provenance": {
            "command": "python -m benchmarks fit-prior",
            "embedder": DEFAULT_MODEL,
            "files": {name: _describe_file(path, found[name]) for name, path in paths.items()},
            "similarity alone": {name: measure_ranker(part, alone) for name, part in found.items()},
            "weights by hand": {name: measure_ranker(part, hand) for name, part in found.items()},
            "without contrast": {
                name: measure_ranker(part, multi_hop) for name, part in unlinked.items()
            },
            "fitted": {name: measure_ranker(part, ranker) for name, part in found.items()},
            "held-out fifths": cross_validate(everything),
            "joined passages": {"data": _JOINED, **long},
        },
    }


def draw_corpus(dataset: Dataset, questions: int, documents: int = _DOCUMENTS) -> Dataset:
    """Some of its questions, their relevant documents, and others up to a number of documents."""
    qrels = {query: gold for query, gold in dataset.qrels.items() if len(gold) <= _MAX_GOLD}
    asked = {query: dataset.queries[query] for query in qrels}
    fewer = replace(dataset, queries=asked, qrels=qrels).sample(questions, seed=0)
    gold = frozenset().union(*fewer.qrels.values())
    kept = [document for document in fewer.documents if document.id in gold]
    others = [document for document in fewer.documents if document.id not in gold]
    random.Random(0).shuffle(others)  # noqa: S311  no secret
    return replace(fewer, documents=(*kept, *others[: max(0, documents - len(kept))]))


def _describe_file(path: Path, found: list[TrainingQuery]) -> dict[str, Any]:
    files = sorted(part for part in path.rglob("*") if part.is_file()) if path.is_dir() else [path]
    digest = hashlib.sha256(b"".join(part.read_bytes() for part in files)).hexdigest()
    return {"name": path.name, "sha256": digest, "queries": len(found)}
