"""Checks installed wheels, without pytest and without a checkout: ``python tests/installed.py``."""

import sys
import tempfile
from importlib.metadata import entry_points, version
from importlib.util import find_spec

from langchain_core.embeddings import DeterministicFakeEmbedding

import crabpath_retrievers
from crabpath_retrievers import CrabPathRetriever

assert version("crabpath-retrievers") == crabpath_retrievers.__version__
texts = ["Apples are red fruit.", "The sky is blue."]
with tempfile.TemporaryDirectory() as folder:
    retriever = CrabPathRetriever.from_texts(texts, DeterministicFakeEmbedding(size=8), path=folder)
    found = retriever.invoke("Which fruit is red?")
    turn_id = found[0].metadata["crabpath"]["turn_id"]
    assert retriever.record(turn_id, 1.0, used=[found[0].id]).status == "applied"
    retriever.memory.close()

if "--llama-index" in sys.argv:
    from llama_index.retrievers.crabpath import CrabPathReranker

    assert CrabPathReranker
    assert version("llama-index-retrievers-crabpath") == crabpath_retrievers.__version__
else:
    assert find_spec("llama_index") is None

sys.argv = ["crabpath", "--help"]
(program,) = entry_points(group="console_scripts", name="crabpath")
program.load()()
