"""Attribution of gold answers to the documents that were returned, compared with gold documents."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attribution.agreement import Flags, measure_agreement
from crabpath_lab.datasets import Dataset, load_hotpotqa, load_multihoprag
from crabpath_lab.embedding import cached_embedder
from crabpath_retrievers import CrabPath, InvalidInputError
from crabpath_retrievers.core.calls import bar
from crabpath_retrievers.core.text import Floats, normalise_name
from crabpath_retrievers.parts.attribution import attribute_turn
from crabpath_retrievers.retrieval.pipeline import Answer
from crabpath_retrievers.vectors.embedder import DEFAULT_MODEL

_LOADERS = {"hotpotqa": (load_hotpotqa, 5), "multihoprag": (load_multihoprag, 10)}
_POLAR = ("yes", "no")


@dataclass(frozen=True, slots=True)
class AttributedAnswer:
    """A question with the support that answers give to the documents returned for it.

    Attributes:
        answer: The documents returned.
        support: Support by the gold answer, in [0, 1], by node id.
        foreign: Support by the gold answer of another question; ideally empty.
    """

    answer: Answer
    support: dict[str, float]
    foreign: dict[str, float]


def evaluate_attribution(
    paths: Mapping[str, Path], *, cache: Path | None = None, seed: int = 0
) -> dict[str, Any]:
    """Precision, recall and F1 of attribution, by data set and kind of answer.

    Args:
        paths: File or folder by data set: ``hotpotqa``, ``multihoprag``.
        cache: Directory that keeps embeddings between runs.
        seed: Seed of the bootstrap.

    Raises:
        InvalidInputError: No data set is given, or one cannot be read or has no answers.
    """
    if not paths:
        msg = "there is nothing to measure: give --hotpotqa or --multihoprag, or both"
        raise InvalidInputError(msg)
    datasets = {name: _load(name, path) for name, path in paths.items()}
    found = {}
    for name, dataset in datasets.items():
        k = _LOADERS[name][1]
        asked = _attribute_answers(dataset, k, cache)
        found[name] = {
            "file": paths[name].resolve().name,
            "documents": len(dataset.documents),
            "k": k,
            **_figures_by_kind(dataset, asked, seed),
        }
    return {"embedding": DEFAULT_MODEL, "seed": seed, "datasets": found}


def _load(name: str, path: Path) -> Dataset:
    dataset = _LOADERS[name][0](path)
    if not dataset.answers:
        msg = f"{path} holds no answers to attribute: give the official file with answers"
        raise InvalidInputError(msg)
    return dataset


def _attribute_answers(dataset: Dataset, k: int, cache: Path | None) -> dict[str, AttributedAnswer]:
    """Ask every question, then attribute its gold answer; nothing is learned in between."""
    found = {}
    foreign = _foreign_answers(dataset.answers)
    with CrabPath.open(embeddings=cached_embedder(cache=cache)) as memory:
        memory.add_documents(dataset.documents, split=dataset.split)
        with bar(len(dataset.answers), description="asking and attributing") as advance:
            for query, own in dataset.answers.items():
                given = memory.retrieve(
                    dataset.queries[query], k=k, one_per_document=dataset.split, record=False
                )
                found[query] = AttributedAnswer(
                    given,
                    attribute_turn(memory.store, given.turn, own),
                    attribute_turn(memory.store, given.turn, foreign[query]),
                )
                advance(1)
    return found


def _foreign_answers(answers: Mapping[str, str]) -> dict[str, str]:
    """By query id, the answer of the next question that is not yes or no; else empty."""
    telling = [query for query in answers if not _is_polar(answers[query])]
    after = dict(zip(telling, [*telling[1:], *telling[:1]], strict=True))
    found = {}
    for query, own in answers.items():
        other = answers[after.get(query, telling[0])] if telling else ""
        found[query] = other if normalise_name(other) != normalise_name(own) else ""
    return found


def _is_polar(answer: str) -> bool:
    return normalise_name(answer) in _POLAR


def _figures_by_kind(
    dataset: Dataset, asked: Mapping[str, AttributedAnswer], seed: int
) -> dict[str, Any]:
    kinds: dict[str, list[str]] = {"all": list(asked), "yes/no": [], "other": []}
    for query in asked:
        kinds["yes/no" if _is_polar(dataset.answers[query]) else "other"].append(query)
    found = {}
    for kind, queries in kinds.items():
        rows = [_compare_with_gold(asked[q], dataset.qrels[q]) for q in queries]
        found[kind] = {
            **measure_agreement([gold for gold, _ in rows], [s for _, s in rows], seed=seed),
            "foreign": sum(bool(asked[q].foreign) for q in queries),
        }
    return found


def _compare_with_gold(asked: AttributedAnswer, relevant: frozenset[str]) -> tuple[Flags, Floats]:
    """Which returned documents are gold, and the support of each; both of shape ``[k]``."""
    nodes = [item.node for item in asked.answer.documents]
    gold = np.array([node.document in relevant for node in nodes], dtype=bool)
    return gold, np.array([asked.support.get(node.id, 0.0) for node in nodes])
