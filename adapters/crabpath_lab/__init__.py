"""The laboratory: data sets, methods, scores, learning streams, trials and reports."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from crabpath_retrievers import __version__ as _base_version
from crabpath_retrievers.core.extras import require_extra, require_same_version

if TYPE_CHECKING:
    from crabpath_lab.datasets import (
        Dataset,
        load_beir,
        load_hipporag,
        load_hotpotqa,
        load_multihoprag,
        load_musique,
    )
    from crabpath_lab.datasets.sample import load_sample
    from crabpath_lab.embedding import cached_embedder
    from crabpath_lab.evaluation import evaluate
    from crabpath_lab.methods import METHODS, EvaluationCorpus
    from crabpath_lab.plan import EvaluationPlan
    from crabpath_lab.published import fetch_set, read_published_sets
    from crabpath_lab.simulated_model import load_chat_model

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "Dataset",
    "EvaluationCorpus",
    "EvaluationPlan",
    "cached_embedder",
    "evaluate",
    "fetch_set",
    "load_beir",
    "load_chat_model",
    "load_hipporag",
    "load_hotpotqa",
    "load_multihoprag",
    "load_musique",
    "load_sample",
    "read_published_sets",
]

require_same_version(__name__, __version__, _base_version)

# Imported at first use: trials and the shadow need none of what an evaluation needs.
_MODULES = {
    "datasets": "Dataset load_beir load_hipporag load_hotpotqa load_multihoprag load_musique",
    "datasets.sample": "load_sample",
    "embedding": "cached_embedder",
    "evaluation": "evaluate",
    "methods": "METHODS EvaluationCorpus",
    "plan": "EvaluationPlan",
    "published": "fetch_set read_published_sets",
    "simulated_model": "load_chat_model",
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names.split()}


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    try:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    except ModuleNotFoundError:
        require_extra("eval", f"{__name__}.{name}")
        raise
