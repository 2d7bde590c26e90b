"""all-MiniLM-L6-v2, loaded once per process; each text is embedded once."""

import functools
from typing import Any

from langchain_core.embeddings import Embeddings

from crabpath_retrievers.vectors import embedder
from tests.seams import wrap_model

load = embedder.load_default_embeddings


@functools.cache
def shared() -> Embeddings:
    """The default model of the library, for all tests of this process."""
    model, known = load(), dict[str, list[float]]()

    def embed(plain: Any, texts: list[str], options: dict[str, Any]) -> list[list[float]]:
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        known.update(zip(missing, plain(missing, options) if missing else (), strict=True))
        return [list(known[text]) for text in texts]

    wrap_model(model, embed)
    return model
