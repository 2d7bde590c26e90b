"""The embedder of a run."""

import pytest

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.evaluation.embedding import cached_embedder
from crabpath_retrievers.vectors.embedder import find_packaged_weights


def test_vectors_outlive_the_run_in_a_cache_directory(tmp_path, monkeypatch):
    """A second embedder on the same directory computes nothing."""
    texts = ["one text", "another text"]
    first = cached_embedder(cache=tmp_path / "made" / "cache")
    vectors, asked = first.embed_documents(texts), first.embed_query("a question")
    second = cached_embedder(cache=tmp_path / "made" / "cache")
    monkeypatch.setattr(second, "underlying_embeddings", None)
    assert second.embed_documents(texts) == vectors
    assert second.embed_query("a question") == asked


def test_models_do_not_share_their_vectors(tmp_path):
    """Another name is another key, although here it is the same model."""
    cached_embedder(cache=tmp_path).embed_query("text")
    cached_embedder(str(find_packaged_weights()), cache=tmp_path).embed_query("text")
    assert len(list(tmp_path.rglob("*"))) == 2


def test_a_model_that_is_not_there(tmp_path):
    """One sentence, whatever the library says."""
    with pytest.raises(InvalidInputError, match=r"cannot be loaded .* sentence-transformers model"):
        cached_embedder(str(tmp_path / "none"))


def test_a_cache_that_cannot_be_a_directory(tmp_path):
    """A file stands there."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match="give a writable directory"):
        cached_embedder(cache=tmp_path / "file")
