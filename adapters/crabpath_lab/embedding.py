"""The embedder of a run: any sentence-transformers model, every text embedded once."""

import re
from pathlib import Path

from langchain_core.embeddings import Embeddings
from langchain_core.stores import InMemoryByteStore

from crabpath_lab.output import make_folder
from crabpath_retrievers.core.extras import load_attribute, require_extra
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.vectors.embedder import DEFAULT_MODEL, load_default_embeddings


def cached_embedder(name: str = DEFAULT_MODEL, cache: Path | None = None) -> Embeddings:
    """Make an embedder that computes the vector of each text once.

    The model is one of sentence-transformers, by hub name or directory, or ``module:attribute``,
    which makes one; the directory ``cache`` keeps vectors between runs. What cannot be loaded or
    used raises InvalidInputError.
    """
    require_extra("eval", "an embedder with a cache", "langchain_classic")
    from langchain_classic.embeddings import CacheBackedEmbeddings
    from langchain_classic.storage import LocalFileStore

    stored: Embeddings = CacheBackedEmbeddings.from_bytes_store(
        load_default_embeddings() if name == DEFAULT_MODEL else _load_model(name),
        InMemoryByteStore()
        if cache is None
        else LocalFileStore(str(make_folder(cache, "keep embeddings"))),
        # The default shares its cache with fit-prior.
        namespace="minilm"
        if name == DEFAULT_MODEL
        else re.sub(r"[^\w.-]", "_", name, flags=re.ASCII),
        query_embedding_cache=True,
        key_encoder="sha256",
    )
    return stored


def _load_model(name: str) -> Embeddings:
    from langchain_huggingface import HuggingFaceEmbeddings

    try:
        made: Embeddings | None = load_attribute(name)
        if made is not None:
            return made
        return HuggingFaceEmbeddings(model_name=name, encode_kwargs={"normalize_embeddings": True})
    except Exception as error:
        msg = (
            f"the embedding model {name!r} cannot be loaded ({type(error).__name__}): "
            "give the name or the directory of a sentence-transformers model, or module:attribute"
        )
        raise InvalidInputError(msg) from error
