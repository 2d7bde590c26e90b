"""Takes front matter out of texts, and tells texts that are HTML in its code."""

import re
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

_MOST_VALUES, _LONGEST_VALUE = 100, 300  # of a list in front matter; characters
# As in Pandoc, a block begins right below its first line; else that line is a horizontal rule.
_FRONT = re.compile(
    r"\A\ufeff?(?:---[ \t]*\r?\n(?=\S)(?P<yaml>.{0,16384}?)^(?:---|\.\.\.)"
    r"|\+\+\+[ \t]*\r?\n(?P<toml>.{0,16384}?)^\+\+\+)[ \t]*(?:\r?\n|\Z)",
    re.DOTALL | re.MULTILINE,
)
_PAGE = r"!doctype\s+html|html|head|body"
_PART = r"div|p|table|tr|ul|ol|span|section|article|main|nav|header|h[1-6]"
_TAGS = {
    is_markdown: re.compile(rf"\s*(?:<\?xml[^>]*>\s*)?<(?:{names})\b[^>]*>", re.IGNORECASE)
    for is_markdown, names in ((True, _PAGE), (False, f"{_PAGE}|{_PART}"))
}


def begins_with_tags(text: str, *, is_markdown: bool) -> bool:
    """Whether a text is HTML in its code, as far as its beginning shows.

    A text in Markdown may begin with the tag of a part of a page.
    """
    return _TAGS[is_markdown].match(text) is not None


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Title, aliases, tags, date and day in the front matter of a text, and the text below it.

    A block that is neither YAML nor TOML with keys, or above 16 KiB, is text.
    """
    block = _FRONT.match(text)
    if block is None:
        return {}, text
    found = _parse_yaml(block["yaml"]) if block["toml"] is None else _parse_toml(block["toml"])
    if not isinstance(found, Mapping):
        return {}, text
    values = {str(key).lower(): value for key, value in found.items()}
    facts: dict[str, Any] = {key: _to_line(values.get(key)) for key in ("title", "date")}
    facts["aliases"] = _to_list(values.get("aliases") or values.get("alias"))
    facts["tags"] = _to_list(values.get("tags") or values.get("keywords"))
    facts["day"] = find_day(facts["date"])
    return {key: value for key, value in facts.items() if value}, text[block.end() :]


def find_day(date: str) -> int | None:
    """The day of a date in ISO 8601 as a number that filters compare, such as 20240131.

    Returns:
        None for any other date.
    """
    try:
        return int(datetime.fromisoformat(date[:10]).strftime("%Y%m%d"))
    except ValueError:
        return None


def _parse_yaml(block: str) -> object:
    import yaml

    try:
        # All scalars stay text: "no" is a tag, and a date is no object.
        return yaml.load(block, yaml.BaseLoader) if block.strip() else {}  # noqa: S506
    except Exception:  # of a broken or too deep block
        return None


def _parse_toml(block: str) -> object:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(block.replace("\r\n", "\n"))
    except Exception:  # as above
        return None


def _to_line(value: object) -> str:
    """A scalar as text on one line; empty for anything else."""
    if value is None or isinstance(value, (Mapping, list)) or value in ("null", "~"):
        return ""
    return " ".join(str(value).split())[:_LONGEST_VALUE]


def _to_list(value: object) -> list[str]:
    """Scalars of a list, or of a text with commas or, for tags of Jekyll, spaces."""
    if isinstance(value, str):
        value = value.split("," if "," in value else None)
    lines = map(_to_line, value[:_MOST_VALUES]) if isinstance(value, list) else ()
    return [line for line in lines if line]
