"""Pages that the documentation site generates from the code, and links out of docs/."""

import ast
import inspect
import posixpath
import re
from itertools import pairwise
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic_core import PydanticUndefined
from typer.cli import get_docs_for_click
from typer.main import get_command

from crabpath_retrievers import RouterSettings, Settings
from crabpath_retrievers.cli import app
from crabpath_retrievers.config.base import ValidatedSettings, describe_values

_ABOUT_SETTINGS = """`Settings(walk=WalkSettings(max_hops=2))`, or a copy of others:
`settings.replace(walk=settings.walk.replace(max_hops=2))`. All settings are frozen, and validated
when they are made.
"""
_LONGEST_DEFAULT = 40  # characters that fit into a cell
_LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are generated."""
    pages = {
        "reference/settings.md": render_settings(),
        "reference/command-line.md": render_command_line(),
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Links to files outside docs/ lead to the repository; without its address they are text."""
    folder = posixpath.dirname(page.file.src_uri)

    def rewrite(match: re.Match[str]) -> str:
        text, target = match.groups()
        path = posixpath.normpath(posixpath.join("docs", folder, target))
        if path.startswith("docs/"):
            return match.group(0)
        return f"[{text}]({config.repo_url}blob/main/{path})" if config.repo_url else text

    return _LINK.sub(rewrite, markdown)


def render_settings() -> str:
    """All settings by group: name, values, default, meaning."""
    groups = {
        name: field.annotation
        for name, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, ValidatedSettings)
    }
    parts = [
        "# Settings\n",
        _ABOUT_SETTINGS,
        *_render_group("Settings", Settings, leave_out=groups),
    ]
    for name, group in groups.items():
        parts += _render_group(f"{name}: {group.__name__}", group)
    return "\n".join(parts + _render_group("RouterSettings", RouterSettings))


def _render_group(title: str, group: type[ValidatedSettings], leave_out: Any = ()) -> list[str]:
    meanings = _read_field_docstrings(group)
    rows = [
        f"| `{name}` | {describe_values(field)} | {_render_default(group, name)} | "
        f"{meanings.get(name, '')} |"
        for name, field in group.model_fields.items()
        if name not in leave_out
    ]
    about = inspect.cleandoc(group.__doc__ or "").split("\n\n")[0]
    head = "| setting | values | default | meaning |\n|---|---|---|---|"
    return [f"## {title}\n", about + "\n", head, *rows, ""]


def _render_default(group: type[ValidatedSettings], name: str) -> str:
    field = group.model_fields[name]
    if field.default is PydanticUndefined and field.default_factory is None:
        return "required"
    text = str(field.get_default(call_default_factory=True))
    return f"`{text}`" if len(text) <= _LONGEST_DEFAULT else "see the class"


def _read_field_docstrings(group: type[ValidatedSettings]) -> dict[str, str]:
    """The docstring below each field of a class, on one line."""
    found: dict[str, str] = {}
    for base in reversed(group.__mro__):
        if not issubclass(base, ValidatedSettings) or base is ValidatedSettings:
            continue
        body = ast.parse(inspect.getsource(base)).body[0].body  # type: ignore[attr-defined]
        for field, text in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                name = field.target.id  # type: ignore[union-attr]
                found[name] = " ".join(str(text.value.value).split()).replace("``", "`")  # type: ignore[attr-defined]
    return found


def render_command_line() -> str:
    """The help of all commands."""
    command = get_command(app)
    with typer.Context(command, info_name="crabpath") as context:
        text = get_docs_for_click(obj=command, ctx=context, name="crabpath", title="Command line")
    return str(text)
