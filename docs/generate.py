"""The parts of the reference that are made from the code: what it is called, takes and says.

``python docs/generate.py`` writes them into the pages; ``--check`` says which pages are old.
A page holds a part between ``<!-- api: NAME -->`` and ``<!-- end of api -->``.
"""

import argparse
import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import griffe
import typer
from griffe import DocstringSectionKind as Section
from pydantic_core import PydanticUndefined
from typer.cli import get_docs_for_click
from typer.main import get_command

from crabpath_retrievers import RouterSettings, Settings
from crabpath_retrievers.cli import app
from crabpath_retrievers.config.base import ValidatedSettings, describe_values

ROOT = Path(__file__).parent.parent
_REFERENCE = ROOT / "docs" / "reference"
_PACKAGES = (
    "crabpath_retrievers",
    "crabpath_server",
    "crabpath_lab",
    "langgraph_crabpath",
    "llama_index.retrievers.crabpath",
)
_LINE = 100  # characters of a signature on one line
_LONGEST_DEFAULT = 40  # characters that fit into a cell
_PART = re.compile(r"(<!-- api: (\S+)((?: \w+=\S+)*) -->\n).*?(<!-- end of api -->)", re.DOTALL)
_ROLE = re.compile(r":[a-z]+:`~?(?:[\w.]*\.)?([^`]+)`")
_LITERAL = re.compile(r"::\n\n((?:(?: {4}.*)?\n)+)")
_ART = re.compile(
    r"^((?:[^\n]+\n├──|=====+ ).*(?:\n.+)*)", re.MULTILINE
)  # a tree, or a table with rules
_TITLES = {Section.raises: "Raises", Section.warns: "Warns", Section.yields: "Yields"}


def render_pages() -> Iterator[tuple[Path, str]]:
    """Each page with a part that is made from the code, and its text as it has to be."""
    packages = griffe.GriffeLoader(
        search_paths=[ROOT, ROOT / "adapters", ROOT / "adapters" / "llama_index"],
        docstring_parser="google",
        docstring_options={"warn_unknown_params": False},
        store_source=False,
    )
    for package in _PACKAGES:
        packages.load(package)
    packages.resolve_aliases(external=False)
    for page in sorted(_REFERENCE.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        new = _PART.sub(lambda found: _render_part(packages, found), text)
        yield page, new


def _render_part(packages: griffe.GriffeLoader, found: re.Match[str]) -> str:
    begin, name, options, end = found.groups()
    if name in _WHOLE:
        return f"{begin}\n{_WHOLE[name]().strip()}\n\n{end}"
    chosen = dict(option.split("=") for option in options.split())
    thing = packages.modules_collection[name]
    only = chosen["members"].split(",") if "members" in chosen else None
    if thing.is_module:
        members = (_render(member, "###") for member in _list_members(thing, only))
        lines = [*_render_docstring(thing), *chain.from_iterable(members)]
    else:
        lines = [*_render(thing, "###", only)]
    return begin + "\n" + "\n".join(lines).strip() + "\n\n" + end


def _list_members(thing: Any, only: list[str] | None = None) -> list[Any]:
    """Public members with a docstring, in the order of the source; of a module, its exports."""
    if thing.is_module and thing.exports is not None:
        names = [str(name) for name in thing.exports]
    else:
        names = [name for name in thing.members if not name.startswith("_")]
    names = only if only is not None else names
    members = [thing.members[name] for name in names]
    return [member for member in members if _is_described(thing, member)]


def _is_described(thing: Any, member: Any) -> bool:
    imported = member.is_alias and thing.is_module and thing.exports is None
    return not imported and not member.is_module and (member.docstring is not None)


def _render(thing: Any, heading: str, only: list[str] | None = None) -> Iterator[str]:
    """A class with its members, a function or an attribute, under a heading."""
    owner = f"{thing.parent.name}." if thing.parent.is_class else ""
    yield f"{heading} `{owner}{thing.name}`\n"
    if thing.is_attribute:
        yield f"```python\n{thing.name}{_describe_type(thing)}\n```\n"
        yield from _render_docstring(thing)
        return
    yield f"```python\n{_render_signature(thing)}\n```\n"
    yield from _render_docstring(thing)
    if thing.is_class:
        members = _list_members(thing, only)
        fields = [member for member in members if member.is_attribute]
        if fields:
            yield "**Fields**\n"
            yield from (_render_field(field) for field in fields)
            yield ""
        for member in members:
            if not member.is_attribute:
                yield from _render(member, "####")


def _render_field(field: Any) -> str:
    meaning = " ".join(_clean(field.docstring.value).split())
    if "property" in field.labels:
        return f"- `{field.name}: {field.annotation}`: {meaning}"
    return f"- `{field.name}{_describe_type(field)}`: {meaning}"


def _describe_type(field: Any) -> str:
    value = str(field.value) if field.value is not None else ""
    default = f" = {value}" if value and len(value) <= _LONGEST_DEFAULT else ""
    kind = f": {field.annotation}" if field.annotation is not None else ""
    return kind + default


def _render_signature(thing: Any) -> str:
    """The call, on one line or with one argument a line."""
    arguments, kind = [], ""
    for parameter in thing.parameters:
        if parameter.name in {"self", "cls"}:
            continue
        stars = {"variadic positional": "*", "variadic keyword": "**"}
        before = stars.get(parameter.kind.value, "")
        if parameter.kind.value == "keyword-only" and kind not in {"keyword-only", "*"}:
            arguments.append("*")
        if kind == "positional-only" and parameter.kind.value != kind:
            arguments.append("/")
        kind = "*" if before == "*" else parameter.kind.value
        annotation = f": {parameter.annotation}" if parameter.annotation is not None else ""
        equals = " = " if annotation else "="
        has_default = parameter.default is not None and not before
        default = f"{equals}{parameter.default}" if has_default else ""
        arguments.append(f"{before}{parameter.name}{annotation}{default}")
    head, tail = thing.name, ""
    if thing.is_class:
        bases = [str(base) for base in thing.bases if str(base) not in {"Any", "object"}]
        head = f"class {thing.name}({', '.join(bases)})" if bases and not arguments else head
        if not arguments:
            return head if bases else f"class {thing.name}"
    else:
        head = ("async " if "async" in thing.labels else "") + "def " + thing.name
        tail = f" -> {thing.returns}" if thing.returns is not None else ""
    line = f"{head}({', '.join(arguments)}){tail}"
    if len(line) <= _LINE:
        return line
    return f"{head}(\n" + "".join(f"    {argument},\n" for argument in arguments) + f"){tail}"


def _render_docstring(thing: Any) -> Iterator[str]:
    if thing.docstring is None:
        return
    for section in thing.docstring.parsed:
        if section.kind is Section.text:
            yield _clean(section.value) + "\n"
        elif section.kind in {Section.parameters, Section.attributes}:
            title = "Arguments" if section.kind is Section.parameters else "Fields"
            yield f"**{title}**\n"
            for item in section.value:
                yield f"- `{item.name}`: {_clean(item.description, indent='  ')}"
                yield from _render_keys(thing, item)
            yield ""
        elif section.kind is Section.returns:
            yield "**Returns**\n"
            yield from (_clean(item.description) + "\n" for item in section.value)
        elif section.kind in _TITLES:
            yield f"**{_TITLES[section.kind]}**\n"
            for item in section.value:
                yield f"- `{item.annotation}`: {_clean(item.description, indent='  ')}"
            yield ""
        elif section.kind is Section.admonition:
            yield f"**{section.title}**\n"
            yield _clean(section.value.description) + "\n"
        else:
            message = f"{thing.path}: docs/generate.py cannot show a section {section.kind.value!r}"
            raise SystemExit(message)


def _render_keys(thing: Any, item: Any) -> Iterator[str]:
    """The keys of ``**options: Unpack[...]``, unless the docstring says where they stand."""
    annotation = str(item.annotation or "")
    if not annotation.startswith("Unpack[") or item.description.startswith(("As for", "As of")):
        return
    keys = thing.module.resolve(annotation.removeprefix("Unpack[").removesuffix("]"))
    options = thing.modules_collection[keys]
    options = options.final_target if options.is_alias else options
    fields: dict[str, Any] = {}  # a key that is declared again has its last meaning
    for base in [*reversed(options.mro()), options]:
        fields |= base.members
    for member in fields.values():
        if member.is_attribute and member.docstring is not None:
            yield "  " + _render_field(member)


def _clean(text: str, indent: str = "") -> str:
    """Markdown of a docstring: roles are names in code, literal blocks are fenced."""

    def fence(found: re.Match[str]) -> str:
        return f":\n\n```python\n{textwrap.dedent(found[1]).strip()}\n```\n\n"

    text = _ROLE.sub(r"`\1`", text.strip() + "\n").replace("``", "`")
    text = _ART.sub(r"```text\n\1\n```", _LITERAL.sub(fence, text).replace("\n:\n", "\n"))
    return text.strip().replace("\n", "\n" + indent)


def render_settings() -> str:
    """All settings by group: name, values, default, meaning."""
    groups = {
        name: field.annotation
        for name, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, ValidatedSettings)
    }
    parts = _render_group("Settings", Settings, leave_out=groups)
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
    about = _clean((inspect.getdoc(group) or "").split("\n\n")[0])
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
                found[name] = " ".join(_clean(str(text.value.value)).split())  # type: ignore[attr-defined]
    return found


def render_command_line() -> str:
    """The help of all commands."""
    command = get_command(app)
    with typer.Context(command, info_name="crabpath") as context:
        text = get_docs_for_click(obj=command, ctx=context, name="crabpath")
    return str(text).partition("\n")[2]


_WHOLE = {"settings": render_settings, "commands": render_command_line}


def main() -> None:
    """Write the pages, or say which are not what the code says now."""
    options = argparse.ArgumentParser(description=main.__doc__)
    options.add_argument("--check", action="store_true", help="write nothing")
    check = options.parse_args().check
    old = [
        (page, text) for page, text in render_pages() if page.read_text(encoding="utf-8") != text
    ]
    for page, text in old:
        if not check:
            page.write_text(text, encoding="utf-8")
    if check and old:
        names = ", ".join(str(page.relative_to(ROOT)) for page, _ in old)
        sys.exit(f"not what the code says now: {names}. Run `make reference`.")


if __name__ == "__main__":
    main()
