"""The manual of SQLite with questions, as a data set: one page answers each.

Both are in the public domain; Debian has the pages (``apt-get install sqlite3-doc``).
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.ingest.parsers import parse_html

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
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    lines = [{"_id": name, "title": title, "text": text} for name, (title, text) in texts.items()]
    pairs = [(page, text) for page, questions in asked.items() for text in questions]
    queries = [{"_id": str(number), "text": text} for number, (_, text) in enumerate(pairs)]
    for name, rows in (("corpus", lines), ("queries", queries)):
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(text, "utf-8")
    judged = [f"{number}\t{page}\t1\n" for number, (page, _) in enumerate(pairs)]
    header = "query-id\tcorpus-id\tscore\n"
    (folder / "qrels" / "test.tsv").write_text(header + "".join(judged), "utf-8")
    return len(lines), len(queries)


def _read_pages(folder: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield name, title and text of each page that explains something."""
    for path in sorted(folder.rglob("*.html")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        if _LISTS.match(name):
            continue
        (page,) = parse_html(path.name, path.read_bytes())
        if len(page.page_content) >= _SHORTEST:
            yield name, (str(page.metadata["title"]), page.page_content[:_LONGEST])
