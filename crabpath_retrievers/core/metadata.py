"""Metadata of returned documents: the block added by an answer, and its removal."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.errors import InvalidInputError

METADATA_KEY = "crabpath"
"""Key of the block that describes how a document was found; documents have none of their own."""

_ADDED = "added"
_MAX_ASKED = 200  # characters of a question that is shown
_MARKS = re.compile(r'\A(?:Correction(?: of the answer to "[^"\n]*")?:\n)+')
_SHORTCUTS = ("id", "score")
_TURN = {"turn_id", "namespace", "id"}
_TITLES = {"correction": "Correction", "directive": "Instruction", "auto": "Earlier answer"}


def add_answer_metadata(own: Mapping[str, Any], block: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata of a returned document.

    The document's own metadata stays as it is. The block is added under ``crabpath``, and its id
    and score also at the top level unless the document has such keys.

    Args:
        own: Metadata with which the document was added.
        block: How it was found; has ``id`` and ``score``.
    """
    added = [name for name in _SHORTCUTS if name not in own]
    shortcuts = {name: block[name] for name in added}
    return {**shortcuts, **own, METADATA_KEY: {**block, _ADDED: added}}


def read_answer_block(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The block that an answer added; None if the metadata has none."""
    block = metadata.get(METADATA_KEY)
    return block if isinstance(block, Mapping) and block.keys() >= _TURN else None


def remove_answer_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata without the additions of an answer, so that returned documents can be added.

    Raises:
        InvalidInputError: Something else is under the key of the answer's block.
    """
    block = read_answer_block(metadata)
    if block is None and METADATA_KEY in metadata:
        msg = (
            f"a document has {format_value(metadata[METADATA_KEY])} under {METADATA_KEY!r} in its "
            "metadata, where answers say how they found it: give that key another name"
        )
        raise InvalidInputError(msg)
    block = block or {}
    added = [name for name in _SHORTCUTS if name in (block.get(_ADDED) or ())]
    ours = {METADATA_KEY, *(name for name in added if metadata.get(name) == block.get(name))}
    return {key: value for key, value in metadata.items() if key not in ours}


def mark_correction(text: str, question: str | None) -> str:
    """The text of a correction under a line that says what it corrects: hosts drop metadata.

    Such a line that the text begins with, as what was shown and then edited does, is replaced.

    Args:
        text: What it says.
        question: The question that it answers; None if unknown.
    """
    text = _MARKS.sub("", text)
    if question is None:
        return f"Correction:\n{text}"
    asked = " ".join(question.replace('"', "'").split())
    shown = asked if len(asked) <= _MAX_ASKED else f"{asked[:_MAX_ASKED]}…"
    return f'Correction of the answer to "{shown}":\n{text}'


def complete_note_metadata(
    own: Mapping[str, Any], samples: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Metadata of a returned note, with all keys that a template for documents may use.

    Args:
        own: Metadata of the note.
        samples: Metadata of documents. Keys that all of them have and the note lacks become empty
            strings; ``source`` and ``title`` are never empty.
    """
    known = list(samples)
    common = [key for key in (known[0] if known else ()) if all(key in other for other in known)]
    kind = own.get("note", "teaching")
    defaults = {"source": f"crabpath:{kind}", "title": _TITLES.get(kind, "Note")}
    blank = {key: "" for key in common if key not in (*_SHORTCUTS, METADATA_KEY)}
    return {**blank, **defaults, **own}
