"""Citations in an answer: [1], [2, 3], ids and titles.

A returned document as attribution reads it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from crabpath_retrievers.core.records import Node, Turn
from crabpath_retrievers.core.text import normalise_name, prepend_title


@dataclass(frozen=True, slots=True)
class Passage:
    """A document that the chain was given.

    Attributes:
        id: Its id, as in the turn.
        content: Its text; may be empty.
        title: Its title; empty if it has none.
        linked: Ids of the documents with an edge to it on the walk.
    """

    id: str
    content: str
    title: str = ""
    linked: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Title and content."""
        return prepend_title(self.title, self.content)


def to_passages(turn: Turn, nodes: Mapping[str, Node]) -> list[Passage]:
    """Return the documents of a turn in the order in which they were shown.

    Args:
        turn: The turn with its returned documents and their paths.
        nodes: Contents by id; a document that was forgotten, or that the memory never had, keeps
            its position, without text.
    """
    returned = {item.node: item for item in turn.returned}
    result = []
    for name in turn.shown.values() or returned:
        item, node = returned.get(name), nodes.get(name)
        edges = () if item is None else (*item.path, *((item.support,) if item.support else ()))
        linked = tuple(dict.fromkeys(e.source for e in edges if e.target == name))
        content, title = (node.content, node.title) if node else ("", "")
        result.append(Passage(name, content, title, linked))
    return result


_BRACKETS = re.compile(r"\[([^\[\]]{1,300})\]|【([^【】]{1,300})】")
_SOURCES = re.compile(r"\b(?:sources?|references?|citations?)\s*:([^\n]{1,500})", re.IGNORECASE)
_SEPARATOR = re.compile(r"[,;]")
_LABEL = re.compile(r"(?:doc|document|source|passage|ref|reference)\b|[\s#^:.]", re.IGNORECASE)
_POSITIONS = re.compile(r"(\d{1,9})(?:\s*[-–—]\s*(\d{1,9}))?")
_MAX_CITATIONS = 2_000  # distinct citations that are read
_MIN_BARE_ID_CHARS = 6  # shorter ids may be words; in brackets every id counts


def find_citations(answer: str, documents: Sequence[Passage]) -> frozenset[str]:
    """Find the ids of the documents that an answer cites.

    In brackets, or after "Sources:", numbers are positions in ``documents``, counted from 1, and a
    whole id or title counts. Elsewhere an id counts only if it cannot be an ordinary word.
    Citations that match no document are ignored.

    Args:
        answer: The chain's answer.
        documents: The documents in the order in which they were returned.
    """
    ids = {document.id for document in documents}
    titles = {
        normalise_name(document.title): document.id for document in documents if document.title
    }
    titles.pop("", None)
    cited_ids = set(_find_bare_ids(answer, ids))
    for part in dict.fromkeys(_split_citations(answer)):
        positions = _parse_positions(part, len(documents))
        if positions:
            cited_ids.update(documents[position - 1].id for position in positions)
        elif part in ids:
            cited_ids.add(part)
        elif titles and (document_id := titles.get(normalise_name(part))):
            cited_ids.add(document_id)
    return frozenset(cited_ids)


def _split_citations(answer: str) -> Iterator[str]:
    """Split the text in brackets and after "Sources:": each whole, and by its commas."""
    insides = [m[1] or m[2] for m in _BRACKETS.finditer(answer)]
    insides += [m[1] for m in _SOURCES.finditer(answer)]
    for inside in [*dict.fromkeys(insides)][:_MAX_CITATIONS]:
        for part in (inside, *_SEPARATOR.split(inside)):
            yield part.split("†")[0].strip(" \t.()\"'")  # some models write 【1†source】


def _parse_positions(part: str, count: int) -> range:
    """Parse a number or a range into positions from 1 to ``count``."""
    match = _POSITIONS.fullmatch(_LABEL.sub("", part))
    if match is None:
        return range(0)
    first, last = int(match[1]), int(match[2] or match[1])
    return range(max(1, first), min(last, count) + 1)


def _find_bare_ids(answer: str, ids: Iterable[str]) -> Iterator[str]:
    """Find ids in running text that are too long and too unusual to be words."""
    distinctive = [
        i for i in ids if len(i) >= _MIN_BARE_ID_CHARS and not i.replace(" ", "").isalpha()
    ]
    if distinctive:
        # Longest first: one id may be a prefix of another.
        alternatives = "|".join(map(re.escape, sorted(distinctive, key=len, reverse=True)))
        for match in re.finditer(rf"(?<![\w-])(?:{alternatives})(?![\w-])", answer):
            yield match.group()
