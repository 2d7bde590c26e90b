"""The manual of SQLite with questions, as a data set: one page answers each.

Both are in the public domain; Debian has the pages (``apt-get install sqlite3-doc``).
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from crabpath_lab.datasets import Dataset, make_passage
from crabpath_lab.datasets.beir import write_beir
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.parts.file_formats import parse_html

_QUESTIONS = Path(__file__).with_name("sqlite_questions.json")
# Lists of what other pages say, histories and diagrams.
_LISTS = re.compile(
    r"(releaselog|syntax|session)/|doc_|news|oldnews|changes|chronology|keyword_index|sitemap|"
    r"index|requirements|pressrelease|books|capi3ref|fileformat2|"
    r"c3ref/(funclist|constlist|objlist|intro|experimental)"
)
_LONGEST, _SHORTEST = 9000, 150  # characters of a page


def write_manual(pages: Path, folder: Path) -> tuple[int, int]:
    """Write pages and questions as a BEIR folder; returns how many of each.

    Raises:
        InvalidInputError: The folder has no page that a question is about.
    """
    texts = dict(_read_pages(pages))
    asked = json.loads(_QUESTIONS.read_text("utf-8"))
    if missing := sorted(asked.keys() - texts.keys()):
        msg = f"{pages} has no {missing[0]}.html: install Debian's sqlite3-doc, or name its folder"
        raise InvalidInputError(msg)
    documents = tuple(make_passage(name, title, text) for name, (title, text) in texts.items())
    pairs = [(page, text) for page, questions in asked.items() for text in questions]
    queries = {str(number): text for number, (_, text) in enumerate(pairs)}
    qrels = {str(number): frozenset({page}) for number, (page, _) in enumerate(pairs)}
    write_beir(Dataset("sqlite", documents, queries, qrels), folder)
    return len(documents), len(queries)


def _read_pages(folder: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield name, title and text of each page that explains something."""
    for path in sorted(folder.rglob("*.html")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        if _LISTS.match(name):
            continue
        (page,) = parse_html(path.name, path.read_bytes())
        if len(page.page_content) >= _SHORTEST:
            yield name, (str(page.metadata["title"]), page.page_content[:_LONGEST])
