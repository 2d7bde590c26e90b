"""When a document was valid, how old it is, and what a newer version of it replaces."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any

import numpy as np

from crabpath_retrievers.config import DateSettings
from crabpath_retrievers.core.dates import parse_date
from crabpath_retrievers.core.graph import Candidate, Node, stack_vectors, stretch_cosine
from crabpath_retrievers.core.text import Floats, format_value
from crabpath_retrievers.rerank.features import FEATURES, Evidence, Matrix

_log = logging.getLogger(__name__)
_DAY = 86_400.0  # seconds
_VERSION_SIMILARITY = 0.85  # least similarity of two versions of a text
_MOST_VERSIONS = 20  # candidates near a returned document whose dates are read
_YEARS = re.compile(r"\b((?:19|20)\d{2})(?:-\d{2}){0,2}\b")
_SEPARATORS = re.compile(r"[\s()\[\],.:;_\u2013\u2014]+|(?<=\w)-(?=\w)")
_NOT_SAID = [  # columns of what a title, a link or an age says, and not the text or feedback
    FEATURES.index(name)
    for name in (
        *("document", "name", "exact", "mention", "likely_mention", "mentioned_by", "link"),
        *("linked_by", "shared_term", "bridge", "pagerank", "far", "agreement", "recency"),
    )
]
_AHEAD = 0.3  # log-odds from which a text is the better answer, and no former version


def has_date(metadata: Mapping[str, Any], settings: DateSettings) -> bool:
    """Whether metadata may say from when a document is valid."""
    return any(metadata.get(key) for key in settings.begin)


def _read_first(
    metadata: Mapping[str, Any], keys: Sequence[str], *, last: bool = False
) -> datetime | None:
    """The first date that metadata has; a value that is no date is logged and counts as none."""
    for key in keys:
        if (value := metadata.get(key)) in (None, ""):
            continue
        if (found := parse_date(value, last=last)) is not None:
            return found
        _warn_once(key, format_value(value))
    return None


@lru_cache(maxsize=1024)
def _warn_once(key: str, shown: str) -> None:
    _log.warning("metadata %r is no date: %s (write it as 2024-05-31)", key, shown)


def _read_span(
    metadata: Mapping[str, Any], settings: DateSettings
) -> tuple[datetime | None, datetime | None]:
    """From when, and until when, a document is valid; the last day counts whole."""
    end = _read_first(metadata, settings.end, last=True)
    return _read_first(metadata, settings.begin), end


def date_candidates(
    pool: Sequence[Candidate],
    nodes: Mapping[str, Node],
    settings: DateSettings,
    *,
    as_of: datetime | None,
    recency: float | None,
) -> list[Candidate]:
    """The candidates that were valid at a moment, with their age at it.

    Args:
        pool: The candidates.
        nodes: Their contents by id.
        settings: Keys of metadata.
        as_of: The moment; None for now, and for keeping what is not valid yet or any more.
        recency: Half-life, in days; None leaves the age out. What has no date, or one in the
            future, counts as one half-life old.
    """
    moment = as_of or datetime.now(timezone.utc)
    kept = []
    for hit in pool:
        metadata = nodes[hit.head.id].metadata if hit.head.id in nodes else {}
        begin, end = _read_span(metadata, settings)
        if as_of and ((begin and begin > moment) or (end and end < moment)):
            continue
        if recency:
            known = begin if begin and begin <= moment else None
            days = (moment - known).total_seconds() / _DAY if known else recency
            hit = hit._replace(recency=0.5 ** (days / recency))  # noqa: PLW2901
        kept.append(hit)
    return kept


def find_versions(dated: Sequence[str], evidence: Evidence) -> list[tuple[int, int]]:
    """Pairs of a document and another candidate that may be a version of it.

    Both are near each other, and the candidate has every word of the query that the document has:
    what the question names is not different in them.

    Args:
        dated: Ids of candidates.
        evidence: The candidates.

    Returns:
        Indices into the pool, nearest first; at most twenty pairs.
    """
    pool = evidence.pool
    places = {hit.head.id: place for place, hit in enumerate(pool)}
    own = [places[node] for node in dated if node in places]
    vectors = stack_vectors([hit.head.vector for hit in pool])
    near = stretch_cosine(vectors[own] @ vectors.T, evidence.stretch)
    present = evidence.term_weights > 0
    lacks = (present[own][:, None] & ~present[None]).any(axis=2)
    near = np.where(lacks | (near < _VERSION_SIMILARITY), -1.0, near)
    near[np.arange(len(own)), own] = -1.0
    pairs = [(float(near[i, j]), i, j) for i, j in np.argwhere(near > 0).tolist()]
    return [(own[i], j) for _, i, j in sorted(pairs, key=lambda pair: -pair[0])[:_MOST_VERSIONS]]


def choose_newest(
    pairs: Sequence[tuple[int, int]],
    nodes: Sequence[Node | None],
    settings: DateSettings,
    as_of: datetime | None,
    asked: str,
) -> dict[int, int]:
    """The newest later version by the index of each older one.

    A version has the title of the other, but for the year of its own date in it, another text, and
    a later date. It is valid at the moment, and the question does not name the older date.

    Args:
        pairs: Indices of candidates near each other.
        nodes: Contents of the candidates; None where unknown.
        settings: Keys of metadata.
        as_of: The moment of the question; None for now.
        asked: The question.
    """
    moment = as_of or datetime.now(timezone.utc)
    newest: dict[int, tuple[datetime, int]] = {}
    for old, new in pairs:
        first, later = nodes[old], nodes[new]
        if first is None or later is None or first.content == later.content:
            continue
        before, _ = _read_span(first.metadata, settings)
        after, end = _read_span(later.metadata, settings)
        if not (before and after and before < after <= moment) or (end and end < moment):
            continue
        name = _shorten(first.title, before)
        if name and name == _shorten(later.title, after) and not _names(asked, before, after):
            newest[old] = max((after, new), newest.get(old, (after, new)))
    return {old: new for old, (_, new) in newest.items()}


def _shorten(title: str, dated: datetime) -> str:
    """The title without separators, and without the year of the document's own date."""

    def drop(found: re.Match[str]) -> str:
        return "" if abs(int(found[1]) - dated.year) <= 1 else found[0]

    return _SEPARATORS.sub("", _YEARS.sub(drop, title)).casefold()


def _names(asked: str, before: datetime, after: datetime) -> bool:
    """Whether a question names the date of the older of two documents rather than the newer's."""

    def count(moment: datetime) -> int:
        if f"{moment:%Y}" not in numbers:
            return 0
        months = (f"{moment:%B}", f"{moment:%Y-%m}", f"{moment:%m/%Y}")
        return 1 + any(month.casefold() in asked.casefold() for month in months)

    numbers = re.findall(r"\d+", asked)
    return count(before) > count(after)


def keep_near_equal(
    newer: Mapping[int, int],
    among: Sequence[int],
    odds: Callable[[Matrix], Floats],
    matrix: Matrix,
) -> dict[int, int]:
    """The versions whose older text is no better answer, by what it says and what was learned.

    Near-equal records, such as tickets of one title, are no versions of each other: the question
    tells which is meant. And feedback that prefers the older one counts.

    Args:
        newer: The newer version, by the index of each older one.
        among: Indices of the candidates that may be returned.
        odds: Log-odds of relevance for features.
        matrix: Features of the candidates.
    """
    if not newer:
        return {}
    said = matrix.copy()
    said[:, _NOT_SAID] = 0.0
    found = odds(said)
    allowed = set(among)
    return {
        old: new
        for old, new in newer.items()
        if new in allowed and found[old] - found[new] <= _AHEAD
    }


def put_newer_first(order: Sequence[int], newer: Mapping[int, int]) -> list[int]:
    """The order with the newer version of each text before the older ones.

    Args:
        order: Indices of candidates, best first.
        newer: The newer version, by the index of each older one.
    """
    placed: dict[int, None] = {}
    for index in order:
        if (version := newer.get(index)) is not None:
            placed.setdefault(version)
        placed.setdefault(index)
    return [*placed]
