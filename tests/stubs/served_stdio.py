"""``crabpath mcp`` with the small embedder of the tests."""

import sys

from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers.cli import app
from crabpath_retrievers.vectors import embedder

if __name__ == "__main__":
    embedder.load_default_embeddings = lambda: DeterministicFakeEmbedding(size=16)
    app(["mcp", *sys.argv[1:]])
