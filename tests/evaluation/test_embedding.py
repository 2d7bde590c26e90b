"""The embedder of a run."""

from crabpath_retrievers.evaluation.embedding import cached_embedder
from crabpath_retrievers.vectors.embedder import find_packaged_weights


def test_vectors_outlive_the_run_in_a_cache_directory(tmp_path, monkeypatch):
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
