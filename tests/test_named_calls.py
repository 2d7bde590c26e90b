"""What errors and docstrings tell a reader to call, set or read exists."""

import ast
import builtins
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import crabpath_retrievers
from crabpath_retrievers import CrabPath, CrabPathRetriever, EdgeKind, Settings

ROOT = Path(__file__).parents[1]
FILES = [
    path
    for place in ("crabpath_retrievers", "adapters", "graphs")
    for path in (ROOT / place).rglob("*.py")
    if "versions" not in path.parts  # upgrades speak of what was
]
FOREIGN = {  # of Python, LangChain, LangGraph, LlamaIndex, Chroma, LangSmith, Ray and models
    *("with", "Command", "stream_mode", "OPENAI_BASE_URL", "InMemoryStore", "Memory"),
    *("instrument_tags", "memory_blocks", "from_defaults", "GraphCallbackHandler", "list_runs"),
    *("gen_ai", "operation", "create_retrieval_chain", "MultiQueryRetriever", "CloudClient"),
    *("with_config", "with_fallbacks", "with_retry", "grangercausalitytests", "ssr_ftest"),
    *(
        "read_parquet",
        "max_seq_id",
        "embeddings_queue",
        "langchain_milvus",
        "ts_rank",
        "DIRECTORY_OR_URL",
    ),
}
FILE = re.compile(r"\.(md|jsonl?|gz|bin|pickle|toml|svg|py|sqlite|npz)$|NAME|\.gz")
NAME = re.compile(r"[~.]*([A-Za-z_]\w*(?:\.\w+)*)(?:\(.*\)|=.*)?", re.DOTALL)
ROOTS: dict[str, Any] = {"memory": CrabPath, "retriever": CrabPathRetriever}


def is_documentation(node: ast.AST) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def list_texts(node: ast.AST) -> list[str]:
    return [
        n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    ]


def find_names() -> set[str]:
    """Every name that code defines, reads or passes, and every text that is one word."""
    known = {*dir(builtins), *FOREIGN, *(kind.label for kind in EdgeKind)}
    for path in FILES:
        known.update(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [
                getattr(node, field, None) for field in ("name", "arg", "id", "attr", "module")
            ]
            known.update(
                part for name in names if isinstance(name, str) for part in name.split(".")
            )
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                known.update([node.value] if re.fullmatch(r"[\w-]+", node.value) else ())
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                known.update(str(node.value.value).split())
    return known


def list_documented() -> list[tuple[str, str]]:
    """What stands in double backticks in a docstring, with its place."""
    found = []
    for path in FILES:
        for node in filter(is_documentation, ast.walk(ast.parse(path.read_text("utf-8")))):
            place = f"{path.relative_to(ROOT)}:{node.lineno}"
            found += [(place, name) for name in re.findall(r"``([^`]+)``", node.value.value)]
            found += [(place, name) for name in re.findall(r":\w+:`~?([^`]+)`", node.value.value)]
    return found


def list_told() -> list[tuple[str, str]]:
    """What a message of an error names: calls, and names with a dot or an underscore."""
    found = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            targets = {getattr(t, "id", "") for t in getattr(node, "targets", ())}
            if not (isinstance(node, ast.Raise) or targets & {"msg", "message", "hint", "note"}):
                continue
            for text in list_texts(node):
                words = re.findall(
                    r"(?<![\w'/{@.:-])[A-Za-z_][\w.]*\w(?=\()|(?<![\w'/@.:-])[a-zA-Z]\w*(?:[._][A-Za-z]\w*)+",
                    text,
                )
                found += [(f"{path.relative_to(ROOT)}:{node.lineno}", word) for word in words]
    return found


def follow(owner: Any, parts: list[str]) -> str | None:
    """The first part that an owner lacks; None where all are there or nothing more is known."""
    for part in parts:
        fields = getattr(owner, "model_fields", {})
        hints = get_type_hints(owner) if isinstance(owner, type) and owner is not CrabPath else {}
        if owner is CrabPath and part in COMPONENTS:
            owner = COMPONENTS[part]
        elif part in fields:
            owner = fields[part].annotation
        elif hasattr(owner, part):
            owner = getattr(owner, part)
        elif part in hints:
            owner = None
        else:
            return part
        if not isinstance(owner, type):
            return None
    return None


COMPONENTS = {
    "graph": crabpath_retrievers.MemoryGraph,
    "learning": crabpath_retrievers.MemoryLearning,
    "maintenance": crabpath_retrievers.MemoryMaintenance,
    "namespaces": crabpath_retrievers.MemoryNamespaces,
    "regions": crabpath_retrievers.MemoryRegions,
    "transfer": crabpath_retrievers.MemoryTransfer,
    **dict.fromkeys(("store", "index", "embedder", "settings", "aio")),
}


def find_missing(told: list[tuple[str, str]]) -> list[str]:
    known, missing = find_names(), []
    public = {n: getattr(crabpath_retrievers, n) for n in crabpath_retrievers.__all__} | ROOTS
    for place, said in told:
        if not (match := NAME.fullmatch(said)) or FILE.search(said):
            continue
        first, *rest = match[1].split(".")
        unknown = [part for part in (first, *rest) if part not in known]
        owner = None if "llama_index" in place or "client.py" in place else public.get(first)
        if first == "settings" and rest and rest[0] in Settings.model_fields:
            owner = Settings
        if not unknown and isinstance(owner, type) and rest:
            lacks = follow(owner, rest)
            unknown = [lacks] if lacks else []
        missing += [f"{place}: {said} ({', '.join(unknown)})"] if unknown else []
    return missing


@pytest.mark.slow
def test_what_docstrings_name_exists():
    assert not find_missing(list_documented())


@pytest.mark.slow
def test_what_errors_name_exists():
    told = list_told()
    assert len(told) > 50
    assert not find_missing(told)


@pytest.mark.slow
def test_what_does_not_exist_is_noticed():
    """The look-up itself can fail: a call, a setting, a member of a class."""
    for said in ("assign_region()", "settings.links.similar", "memory.regions.name", "blame_at"):
        assert find_missing([("here", said)]), said
    assert not find_missing(
        [("here", "memory.regions.assign"), ("here", "settings.links.max_owners")]
    )
