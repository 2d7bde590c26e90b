"""Joins the chunks of a document to its text again.

Neighbouring chunks share some text, and a text that repeats is one chunk. Where two chunks do not
say themselves how one follows the other, the first one keeps it: ``Node.then``, ``Node.overlap``.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from crabpath_retrievers.core.records import Node

_PARAGRAPH = "\n\n"
_MISSING = "\n\n[…]\n\n"
_SHARED = range(100, 9, -1)  # characters; fewer may be equal by chance
_LEAST = 1000  # characters of two chunks: shorter texts would have been one
_LEFT_OUT = 100  # characters at most that a splitter leaves out between two chunks
_BACK = 10  # lengths of a piece to look back for it, where the text repeats
_VISIBLE = re.compile(r"\S|\Z")


def join_chunks(chunks: Sequence[Node]) -> str:
    """Join chunks of a document, in order, to its text; "[…]" stands for parts that are missing.

    The text has the words of the document in their order; where two chunks meet, and at the ends,
    white space may differ. Of documents that were added before the chunks kept how they follow each
    other, a text that repeats stands there once.
    """
    parts = [_MISSING.lstrip() * bool(chunk.position) + chunk.content for chunk in chunks[:1]]
    for before, after in pairwise(chunks):
        then, overlap = _find_joint(before, after)
        parts += [then, after.content[overlap:]]
    return "".join((*parts, *((chunk.then or "").rstrip() for chunk in chunks[-1:])))


def find_joints(text: str, pieces: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Find how pieces of a text follow each other, where they do not say it themselves.

    Args:
        pieces: Its pieces in order; one that repeats is no piece of its own.

    Returns:
        By piece, the text between it and the next one, and the number of characters at the
        beginning of the next one that are not new.
    """
    if not any("\r" in piece for piece in pieces):  # those of Markdown have none
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    joints: dict[str, tuple[str, int]] = {}
    seen: set[str] = set()
    last, then, done = "", "", 0
    for piece in pieces:
        if (place := _find_place(text, piece, done)) is None:
            return joints
        start, end, head = place
        between, end = text[done:start], max(done, end)
        if piece in seen:
            then += between + text[max(done, start) : end]
        else:
            joint = (then + between, head + max(0, done - start))
            if last and not _is_plain(joint, last, piece):
                joints[last] = joint
            last, then = piece, ""
            seen.add(piece)
        done = end
    if then:
        joints[last] = (then + _PARAGRAPH, 0)
    return joints


def _find_place(text: str, piece: str, done: int) -> tuple[int, int, int] | None:
    """Find where a piece begins in a text of which all before ``done`` is in earlier pieces.

    Returns:
        Where it begins and ends, the last place that leaves no text out if there is any; and how
        many characters of the piece come before it, which are the header of a table. None if the
        piece is not there.
    """
    found = _VISIBLE.search(text, done)
    begin = len(text) if found is None else found.start()
    head = piece.find("\n", piece.find("\n") + 1) + 1  # after two lines; 0 if there are fewer
    places: list[tuple[int, int, int]] = []
    for size in (0, head):
        rest = piece[size:]
        start = text.rfind(rest, max(0, done - _BACK * len(rest)), begin + len(rest))
        if start >= 0 and rest and text.find(piece[:size], 0, done) >= 0:
            places.append((start, start + len(rest), size))
    if not places:  # rows of a table lose the space around them
        lines = [re.escape(line.strip()) for line in piece.split("\n")]
        last = begin + _LEFT_OUT + 2 * len(piece)
        if near := re.compile(r"[ \t]*\n[ \t]*".join(lines)).search(text, begin, last):
            places.append((*near.span(), 0))
    return max(places, key=lambda place: place[0] - place[2], default=None)


def _find_joint(before: Node, after: Node) -> tuple[str, int]:
    """Return the text between two chunks, and how much of the second one the first one has."""
    if after.position != before.position + 1:
        return (before.then or "").rstrip() + _MISSING, 0
    if before.then is not None:
        return before.then, before.overlap
    own, other = dict(before.metadata), dict(after.metadata)
    start, following = own.pop("start_index", None), other.pop("start_index", None)
    if own != other:  # other pages
        return _PARAGRAPH, 0
    if isinstance(start, int) and isinstance(following, int):  # chunks of LangChain's splitters
        shared = start + len(before.content) - following
        is_next = shared >= 0 and before.content.endswith(after.content[:shared])
        return ("", shared) if following and is_next else (_PARAGRAPH, 0)
    shared = _count_shared(before.content, after.content)
    return ("" if shared else _PARAGRAPH, shared)


def _is_plain(joint: tuple[str, int], before: str, after: str) -> bool:
    """Whether the texts of two chunks say how one follows the other."""
    then, overlap = joint
    shared = _count_shared(before, after)
    return overlap == shared and (not then if shared else then.isspace())


def _count_shared(before: str, after: str) -> int:
    """Count the characters at the end of a text with which the next one begins."""
    if len(before) + len(after) < _LEAST:
        return 0
    return next((size for size in _SHARED if before.endswith(after[:size])), 0)
