"""Texts of others in a prompt: as data on one line, in which no tag can stand."""

import json
from typing import Any

_ESCAPED = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>\x85\u2028\u2029"}


def quoted(value: Any) -> str:
    """As JSON on one line, in which no tag can stand."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_ESCAPED)
