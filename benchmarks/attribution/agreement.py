"""Precision, recall and F1 of chosen documents, question by question, by scikit-learn."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import precision_recall_fscore_support

from crabpath_lab.statistics import bootstrap_interval
from crabpath_retrievers.core.text import Floats

Flags = NDArray[np.bool_]


def measure_agreement(
    gold: Sequence[Flags], support: Sequence[Floats], *, seed: int = 0
) -> dict[str, Any]:
    """Means over questions with 95 % intervals and the number of questions of each.

    A document is chosen when its support is above 0. Precision is of the questions with a chosen
    document, recall of those with a gold one, F1 of those with either; choosing nothing where
    there is gold counts 0 in recall and F1. ``credited`` is precision with every document
    weighted by its support: the share of all credit that goes to gold.

    Args:
        gold: Which returned documents are gold, one array of shape ``[k]`` per question.
        support: Support of each in [0, 1], of the same shapes.
        seed: Of the resampling.
    """
    rows = [_score_question(g, s) for g, s in zip(gold, support, strict=True)]
    found: dict[str, Any] = {
        "questions": len(rows),
        "attributed": sum(bool(s.any()) for s in support),
    }
    for name in ("precision", "recall", "f1", "credited"):
        values = [row[name] for row in rows if not np.isnan(row[name])]
        found[name] = {
            "mean": round(float(np.mean(values)), 4) if values else None,
            "ci95": bootstrap_interval(values, seed=seed) if values else None,
            "n": len(values),
        }
    return found


def _score_question(gold: Flags, support: Floats) -> dict[str, float]:
    chosen = support > 0
    precision, recall, f1 = _precision_recall_f1(gold, chosen)
    credited = _precision_recall_f1(gold, chosen, support)[0] if chosen.any() else np.nan
    return {"precision": precision, "recall": recall, "f1": f1, "credited": credited}


def _precision_recall_f1(
    gold: Flags, chosen: Flags, weights: Floats | None = None
) -> tuple[float, ...]:
    """NaN where there is nothing to divide by."""
    found = precision_recall_fscore_support(
        gold, chosen, average="binary", sample_weight=weights, zero_division=np.nan
    )
    return tuple(float(value) for value in found[:3])
