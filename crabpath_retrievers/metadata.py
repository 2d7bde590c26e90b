"""Metadata of documents: what an answer adds to it, and how that is told from their own."""

from collections.abc import Iterable, Mapping
from typing import Any

CRABPATH = "crabpath"
"""Key of how a document was found."""

ORIGINAL = "original"
"""Key in there of what the document itself has under ``crabpath``, if it has something."""

_ADDED = "added"
_OURS = ("id", "score")
_TURN = {"turn_id", "namespace", "id"}
_TITLES = {"correction": "Correction", "directive": "Instruction", "auto": "Earlier answer"}


def returned_metadata(own: Mapping[str, Any], block: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata of a returned document.

    Its own comes back as it is, save under ``crabpath``: there stands the block, with the
    document's own value, if any, under ``original``. Id and score of the block stand beside it
    where the document has no such keys.

    Args:
        own: What the document was added with.
        block: How it was found; with ``id`` and ``score``.
    """
    added = [name for name in _OURS if name not in own]
    told = {**block, _ADDED: added}
    if CRABPATH in own:
        told[ORIGINAL] = own[CRABPATH]
    return {**{name: block[name] for name in added}, **own, CRABPATH: told}


def block_of(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """How a document was found; None where no answer of a memory says so."""
    block = metadata.get(CRABPATH)
    return block if isinstance(block, Mapping) and block.keys() >= _TURN else None


def own_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata without what an answer added to it, so that returned documents can be added."""
    block = block_of(metadata)
    if block is None:
        return dict(metadata)
    added = block.get(_ADDED)
    ours = [CRABPATH, *(added if isinstance(added, (list, tuple)) else ())]
    own = {key: value for key, value in metadata.items() if key not in ours}
    return {**own, CRABPATH: block[ORIGINAL]} if ORIGINAL in block else own


def note_metadata(own: Mapping[str, Any], beside: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Metadata of a returned note, such that no template for documents lacks a key.

    Args:
        own: Of the note itself.
        beside: Metadata of documents. Keys that all of them have and the note has not are empty
            texts, but ``source`` and ``title`` always say something.
    """
    given = list(beside)
    common = [key for key in (given[0] if given else ()) if all(key in other for other in given)]
    kind = own.get("note", "teaching")
    said = {"source": f"crabpath:{kind}", "title": _TITLES.get(kind, "Note")}
    blank = {key: "" for key in common if key not in (*_OURS, CRABPATH)}
    return {**blank, **said, **own}
