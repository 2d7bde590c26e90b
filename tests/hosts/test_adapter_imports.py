"""Adapters import only public names of the package."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ADAPTERS = {"crabpath_retrievers", "crabpath_retrievers.integration"}
FILES = sorted((ROOT / "adapters").rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_adapters_import_public_names_only(path):
    """From ``crabpath_retrievers`` and ``crabpath_retrievers.integration``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = {
        node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None
    }
    internal = {name for name in modules if name.split(".")[0] == "crabpath_retrievers"}
    assert internal <= ADAPTERS
