"""Dates as people write them."""

import re
from contextlib import suppress
from datetime import date, datetime, timedelta, timezone
from email.utils import parsedate_to_datetime

from crabpath_retrievers.core.text import is_number, normalise, to_plain

_LATEST = 253_402_300_800.0  # seconds from 1970 to the year 10000; larger numbers are milliseconds
_LONGEST = 64  # characters of a date
_DAYS = range(19_000_101, 29_991_232)  # whole numbers that are written days, such as 20240531
_PARTIAL = re.compile(r"(\d{4})(?:[-/.](\d{1,2})(?:[-/.](\d{1,2}))?)?Z?")
_GERMAN = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
_SLASHED = re.compile(r"(\d{1,2})([/-])(\d{1,2})\2(\d{4})")
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b")
_DAY_FORMS = ("%d %B %Y", "%d %b %Y", "%B %d, %Y", "%b %d, %Y", "%B %d %Y", "%b %d %Y", "%Y%m%d")
_MONTH_FORMS = ("%B %Y", "%b %Y")
_MOMENT = timedelta(microseconds=1)
# "31. Mai 2024", "1er mai 2024", "31 de mayo de 2024", "mai 2024"; normalised.
_NAMED = re.compile(
    r"(?:(\d{1,2})(?:\.|er|o)? ?)?(?:de |d['\u2019])?"
    r"([^\W\d_]{3,12})\.?,? (?:del? )?(\d{4})(?: ?г\.?)?"
)
# How the names of January to December begin in European languages; the longest beginning counts.
_MONTHS = (
    "jan gen ene ian sty leden ledna tam oca янв ιαν",
    "feb fev lut unor hel sub фев φεβ",
    "mar maa brez мар μαρ",
    "apr avr abr kwi dub huh nis апр απρ",
    "may mai maj mag mei kvet tou маи мая μαι",
    "jun juin giu cze cerven cervna kes haz iun июн ιουν",
    "jul juil lug lip cervenec cervence hei tem iul июл ιουλ",
    "aug aou ago sie srp elo agu авг αυγ",
    "sep set sze wrz zari syy eyl сен σεπ",
    "oct okt ott out paz rij lok eki окт οκτ",
    "nov listopad marras kas ноя νοε",
    "dec dez des dic gru prosin jou ara дек δεκ",
)
_MONTH_OF = {begin: n for n, names in enumerate(_MONTHS, 1) for begin in names.split()}


def parse_date(value: object, *, last: bool = False) -> datetime | None:
    """The moment that a value of metadata states; None where it states none without doubt.

    Args:
        value: A date; seconds or milliseconds since 1970; a number such as 20240531; or a text: ISO
            8601 or a part of it, an RFC 2822 date, "31.05.2024", "31 May 2024", "May 31st, 2024",
            "31 de mayo de 2024", "31/05/2024", "31-05-2024". "05/06/2024" is in doubt. A time
            without a zone is in UTC.
        last: Take the last moment of a day, month or year; otherwise it is the first.
    """
    value = to_plain(value)
    try:
        if isinstance(value, datetime):
            return value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        if isinstance(value, date):
            return _bound(value.year, value.month, value.day, last=last)
        if is_number(value):
            seconds = float(value)  # type: ignore[arg-type]
            if 0 <= seconds <= 9999 or int(seconds) in _DAYS:  # noqa: PLR2004  a year or a day
                return _parse_text(str(int(seconds)), last=last)
            return datetime.fromtimestamp(
                seconds / 1000 if abs(seconds) > _LATEST else seconds, timezone.utc
            )
        if isinstance(value, str) and len(value) <= _LONGEST:
            return _parse_text(" ".join(value.split()), last=last)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def _parse_text(text: str, *, last: bool) -> datetime | None:
    if day := _parse_day(text):
        return _bound(*day, last=last)
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        with suppress(ValueError, TypeError, IndexError):
            return parse_date(read(re.sub(r"Z$", "+00:00", text)))
    return None


def _parse_day(text: str) -> tuple[int, int | None, int | None] | None:
    """Year, month and day of a text without a time; None where it is none, or in doubt."""
    if found := _PARTIAL.fullmatch(text):
        year, month, day = (int(part) if part else None for part in found.groups())
        return (year, month, day) if year else None
    if found := _GERMAN.fullmatch(text):
        return int(found[3]), int(found[2]), int(found[1])
    if found := _SLASHED.fullmatch(text):
        month, day = sorted((int(found[1]), int(found[3])))
        in_doubt = day <= 12 and month != day  # noqa: PLR2004  months of a year
        return None if in_doubt else (int(found[4]), month, day)
    for form in (*_DAY_FORMS, *_MONTH_FORMS):
        with suppress(ValueError):
            written = datetime.strptime(_ORDINAL.sub("", text), form)  # noqa: DTZ007  a day
            return written.year, written.month, written.day if form in _DAY_FORMS else None
    return _parse_named(normalise(text))


def _parse_named(text: str) -> tuple[int, int, int | None] | None:
    """Year, month and day of a normalised text with the name of a month in any known language."""
    if found := _NAMED.fullmatch(text):
        for size in range(len(found[2]), 2, -1):
            if month := _MONTH_OF.get(found[2][:size]):
                return int(found[3]), month, int(found[1]) if found[1] else None
    return None


def _bound(year: int, month: int | None, day: int | None, *, last: bool) -> datetime:
    """The first or last moment of a year, a month or a day."""
    begin = datetime(year, month or 1, day or 1, tzinfo=timezone.utc)
    if not last:
        return begin
    if day:
        return begin + timedelta(days=1) - _MOMENT
    next_month = datetime(
        year + (month or 12) // 12, (month or 12) % 12 + 1, 1, tzinfo=timezone.utc
    )
    return next_month - _MOMENT
