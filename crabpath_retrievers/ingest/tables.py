"""Tables: as Markdown, and split so that every part has the header."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time
from itertools import chain
from zlib import crc32

from markdown_it import MarkdownIt

_WIDEST = 500  # characters of a header that is repeated; rows of wider tables name their columns


def split_with_header(
    text: str, size: int, split_text: Callable[[str], Iterable[str]]
) -> Iterator[str]:
    """Split a Markdown text by size; every part of a table begins with its header.

    Where a table is cut depends on its rows, so that a new row changes the part that it is in.

    Args:
        text: The text.
        size: Characters of a piece, at most; a header may be added to a longer row.
        split_text: Splits what is no table.
    """
    if len(text) <= size or "|" not in text:
        yield from split_text(text)
        return
    lines, done = text.splitlines(keepends=True), 0
    parsed = MarkdownIt().enable("table").disable("inline").parse(text)
    tables = [token.map for token in parsed if token.type == "table_open" and token.map]
    for start, end in tables:
        header = "".join(lines[start : start + 2])
        if start < done or len(header) > size // 2:  # within a list; or too wide to be repeated
            continue
        before = "".join(lines[done:start])
        if before.strip() and len(before) > size // 4:
            yield from split_text(before)
            before = ""
        for part in _group_rows(lines[start + 2 : end], size - len(header), split_text):
            yield f"{before}{header}{part}".strip()
            before = ""
        done = end
    if rest := "".join(lines[done:]).strip():
        yield from split_text(rest)


def _group_rows(
    rows: Sequence[str], size: int, split_text: Callable[[str], Iterable[str]]
) -> Iterator[str]:
    """Yield groups of rows of at most so many characters, more than half of it where possible."""
    begin = 0
    while begin < len(rows):
        used, end, cuts = 0, begin, list[int]()
        while end < len(rows) and used + len(rows[end]) <= size:
            used += len(rows[end])
            end += 1
            if used > size // 2:
                cuts.append(end)
        if end == begin:
            yield from split_text(rows[begin])
            end += 1
        elif end < len(rows):
            # The same rows are cut at the same place, wherever the group begins.
            end = min(cuts or [end], key=lambda cut: crc32(rows[cut - 1].encode()))
            yield "".join(rows[begin:end])
        else:
            yield "".join(rows[begin:])
        begin = end


def format_table(rows: Iterable[Sequence[object]]) -> str:
    """A table as Markdown, without empty columns.

    Its first row is the header, unless that has numbers alone.
    """
    lines = [cells for row in rows if any(cells := [_to_cell(value) for value in row])]
    if not lines:
        return ""
    used = sorted({place for cells in lines for place, cell in enumerate(cells) if cell})
    width = len(used)
    filled = [[cells[place] if place < len(cells) else "" for place in used] for cells in lines]
    head = filled[0]
    if all(_is_number(cell) for cell in head if cell):
        head = [f"column {number}" for number in range(1, width + 1)]
        filled.insert(0, head)
    if sum(map(len, head)) > _WIDEST:
        named = (
            "\n".join(f"{name}: {cell}" for name, cell in zip(head, cells, strict=True) if cell)
            for cells in filled[1:]
        )
        return "\n\n".join(named)
    ruled = chain(filled[:1], [["---"] * width], filled[1:])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in ruled)


def _to_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    return " ".join(str(value).replace("|", "\\|").split())


def _is_number(cell: str) -> bool:
    try:
        float(cell.replace(",", "."))
    except ValueError:
        return False
    return True
