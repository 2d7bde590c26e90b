"""Every public method of the two main classes has an example that runs, and typed options."""

import ast
import inspect
import textwrap
from types import CodeType
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, CrabPathRetriever

FAKE = DeterministicFakeEmbedding(size=16)
PYDANTIC = {"model_config", "model_fields", "model_post_init"}


def list_methods():
    for kind in (CrabPath, CrabPathRetriever):
        for name, member in vars(kind).items():
            function = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if inspect.isfunction(function) and not name.startswith("_") and name not in PYDANTIC:
                yield f"{kind.__name__}.{name}", function


METHODS = dict(list_methods())
ON_RAY = {"CrabPath.add_dataset", "CrabPathRetriever.from_dataset"}  # tests/ingest/test_ray.py


def compile_example(docstring) -> CodeType:
    example = textwrap.dedent(docstring.partition("Example::")[2])
    assert example.strip(), "no example"
    return compile(example, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("name", sorted(ON_RAY))
def test_its_example_on_a_cluster_can_be_read(name):
    compile_example(METHODS[name].__doc__)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in METHODS if name not in ON_RAY])
async def test_its_example_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\nText.")
    store = InMemoryVectorStore(FAKE)
    documents = [
        Document("Run `ship it` to deploy.", id="deploy"),
        Document("Run `ship back` to roll back.", id="rollback"),
    ]
    store.add_documents(documents)
    given = {
        "documents": documents,
        "embeddings": FAKE,
        "store": store,
        "CrabPath": CrabPath,
        "CrabPathRetriever": CrabPathRetriever,
    }
    with CrabPathRetriever.from_documents(documents, FAKE, path="./memory") as kept:
        kept.memory.store.flush()
    monkeypatch.setattr(
        "crabpath_retrievers.vectors.embedder.load_default_embeddings", lambda: FAKE
    )
    with CrabPathRetriever.from_documents(documents, FAKE) as retriever:
        given |= {"retriever": retriever, "memory": retriever.memory}
        running = eval(compile_example(METHODS[name].__doc__), given)  # noqa: S307  our own text
        if running is not None:
            await running


@pytest.mark.parametrize("name", METHODS)
def test_its_options_are_typed(name):
    hints = inspect.get_annotations(METHODS[name], eval_str=False)
    assert [key for key, hint in hints.items() if hint is Any or hint == "Any"] == []
