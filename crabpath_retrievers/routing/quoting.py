"""Quoting untrusted text in a prompt."""

import json
from typing import Any

_ESCAPED = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>\x85\u2028\u2029"}


def quote_as_json(value: Any) -> str:
    """The value as JSON on one line without angle brackets, so that it contains no tag."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_ESCAPED)
