"""When a document was valid, how old it is, and which version of it a question asks for."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from crabpath_retrievers.config import DateSettings
from crabpath_retrievers.core.metadata import parse_date
from crabpath_retrievers.core.records import Candidate, Node, stack_vectors, stretch_cosine
from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.rerank import Evidence

_DatedText: TypeAlias = tuple[Node, datetime, datetime | None]  # valid from when, until when
_log = logging.getLogger(__name__)
_DAY = 86_400.0  # seconds
_VERSION_SIMILARITY = 0.85  # least similarity of two versions of a text
_MOST_VERSIONS = 120  # candidates near returned documents whose dates are read
_YEARS = re.compile(r"\b((?:19|20)\d{2})(?:-\d{2}){0,2}\b")
_DIGITS = re.compile(r"\d+")
_LONGEST_QUESTION = 2_000  # characters of a question that are read for a moment
_BEFORE = frozenset({"before", "vor", "avant", "antes", "prima"})
_SINCE = frozenset({"since", "after", "seit", "nach", "ab", "depuis", "desde"})
_PREPOSITIONS = (
    frozenset(
        (
            "in",
            "by",
            "until",
            "till",
            "during",
            "year",
            "im",
            "jahr",
            "bis",
            "en",
            "nel",
            "w",
            "v",
            "i",
        )
    )
    | _BEFORE
    | _SINCE
)
_NOW = frozenset(
    (
        "now",
        "currently",
        "today",
        "still",
        "jetzt",
        "heute",
        "aktuell",
        "noch",
        "maintenant",
        "ahora",
        "hoy",
    )
)
_YEAR = 4  # digits
_SEPARATORS = re.compile(r"[\s()\[\],.:;_\u2013\u2014]+|(?<=\w)-(?=\w)")


def _read_first(
    metadata: Mapping[str, Any], keys: Sequence[str], *, last: bool = False
) -> datetime | None:
    """Read the first date among ``keys`` of metadata; None without one.

    A value that is no date is logged and ignored. ``last`` takes the end of a day, month or year,
    instead of its begin.
    """
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
    """Read from when, and until when, a document is valid; the last day counts whole.

    Either is None if the metadata do not say it.
    """
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
    """Select the candidates that were valid at a moment, with their age at it.

    Args:
        as_of: The moment; None for now, and for keeping what is not valid yet or any more.
        recency: Half-life, in days; None leaves the age out. A document without a date, or with a
            future one, counts as one half-life old.
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
    """Find pairs of a document and another candidate that may be a version of it.

    The two are near each other, and the candidate has every word of the query that the document
    has: they do not differ in what the question names.

    Args:
        dated: Ids of candidates that have a date.

    Returns:
        Indices into the pool, nearest pair first, with at most 120 other candidates.
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
    nearest = near.max(axis=0, initial=-1.0)
    read = {*np.argsort(-nearest, kind="stable")[:_MOST_VERSIONS].tolist()}
    pairs = [(float(near[i, j]), i, j) for i, j in np.argwhere(near > 0).tolist() if j in read]
    return [(own[i], j) for _, i, j in sorted(pairs, key=lambda pair: -pair[0])]


class Version(NamedTuple):
    """The version of a text that answers a question better than another version."""

    place: int
    """Index into the pool."""
    is_newer: bool
    """Whether it is the later one of both; else the other was not valid yet."""


def choose_versions(
    pairs: Sequence[tuple[int, int]],
    nodes: Sequence[Node | None],
    settings: DateSettings,
    as_of: datetime | None,
    asked: str,
) -> dict[int, Version]:
    """Choose the version valid at the moment of a question, by the index of each other version.

    Versions have equal titles, except for the year of their own dates in them, and different texts
    and dates. The latest version that was valid at the moment is the right one. Empty if the
    question names several years.

    Args:
        pairs: Indices of candidates near each other.
        nodes: Contents of the candidates; None where unknown.
        as_of: The moment; None for the one that the question names, or now. A year that both texts
            contain is their topic and no moment.
    """
    now = datetime.now(timezone.utc)
    named = [] if as_of else find_moments(asked)
    if len(named) > 1:
        return {}
    texts = _read_dates({*chain(*pairs)}, nodes, settings)
    best: dict[bool, dict[int, tuple[datetime, int, bool]]] = {True: {}, False: {}}
    valid_then = set[int]()
    for one, other in pairs:
        if not (one in texts and other in texts and _are_versions(texts[one], texts[other])):
            continue
        (first, own, _), (second, begin, end) = texts[one], texts[other]
        is_then = bool(named) and not _share_year(named[0], (first, second), own)
        for then in {is_then, False}:
            moment = min(named[0], now) if then else as_of or now
            if then and own <= moment:
                valid_then.add(one)
            if begin <= moment and not (end and end < moment) and not begin < own <= moment:
                found = (begin, other, begin > own)
                best[then][one] = max(found, best[then].get(one, found))
    # Where no version was valid then, the moment is no matter of these texts.
    chosen = {one: best[False][one] for one in best[False].keys() - valid_then} | best[True]
    return {one: Version(other, is_newer) for one, (_, other, is_newer) in chosen.items()}


def _read_dates(
    places: Iterable[int], nodes: Sequence[Node | None], settings: DateSettings
) -> dict[int, _DatedText]:
    """Select the known texts at these places that say from when they are valid, by place."""
    found = dict[int, _DatedText]()
    for place in places:
        if node := nodes[place]:
            begin, end = _read_span(node.metadata, settings)
            if begin:
                found[place] = node, begin, end
    return found


def _are_versions(one: _DatedText, other: _DatedText) -> bool:
    """Whether two texts differ in date and content, and have one title apart from the year."""
    (first, own, _), (second, begin, _) = one, other
    name = _shorten(first.title, own) if own != begin and first.content != second.content else ""
    return bool(name) and name == _shorten(second.title, begin)


def find_moments(asked: str) -> list[datetime]:
    """Find the last moments of the years, months and days that a question names, one a year.

    "Before 2022" ends with 2021; "since 2022" names no moment. A year alone counts after a
    preposition or at the end of the question, or if several years are named: "a trip of 2020
    kilometres", "room 2020" and "Tokyo 2020: …" name none. Nor does a question about now.
    """
    words = [
        word.strip("()[]?!,;:\"'\u201e\u201c\u201d") for word in asked[:_LONGEST_QUESTION].split()
    ]
    found: dict[int, datetime | None] = {}
    bare = set[int]()
    if not _NOW.isdisjoint(word.casefold() for word in words):
        return []
    for place, word in enumerate(words):
        if _YEARS.search(word):
            spans = (range(max(0, place - before), place + 1) for before in (2, 1, 0))
            for span in spans:
                text = " ".join(words[i] for i in span).rstrip(".")
                if moment := parse_date(text, last=True):
                    sign = words[span[0] - 1].casefold() if span[0] else ""
                    is_last = place == len(words) - 1 and not sign[-1:].isdigit()
                    if len(text) == _YEAR and not (is_last or sign in _PREPOSITIONS):
                        bare.add(moment.year)
                    if sign in _BEFORE and (begin := parse_date(text)):
                        moment = begin - timedelta(microseconds=1)
                    found.setdefault(moment.year, None if sign in _SINCE else moment)
                    break
    several = len(found) > 1
    return [moment for year, moment in found.items() if moment and (several or year not in bare)]


def _share_year(moment: datetime, texts: Sequence[Node], own: datetime) -> bool:
    """Whether all texts contain the year of a moment, and the date ``own`` is of another year."""
    year = str(moment.year)
    return own.year != moment.year and all(
        year in _DIGITS.findall(f"{node.title} {node.content}") for node in texts
    )


def _shorten(title: str, dated: datetime) -> str:
    """Remove separators, and the year of the date ``dated`` or one beside it, from a title."""

    def drop(found: re.Match[str]) -> str:
        return "" if abs(int(found[1]) - dated.year) <= 1 else found[0]

    return _SEPARATORS.sub("", _YEARS.sub(drop, title)).casefold()
