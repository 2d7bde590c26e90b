"""Questions with paragraphs of their own, in official files.

HotpotQA (Yang et al. 2018), distractor setting; 2WikiMultihopQA (Ho et al. 2020); MuSiQue
(Trivedi et al. 2022): JSON lines, twenty paragraphs a question.
"""

from pathlib import Path

from pydantic import BaseModel, Field, TypeAdapter

from crabpath_lab.datasets.beir import is_beir_folder, load_beir
from crabpath_lab.datasets.dataset import ContextQuestion, Dataset, pool_questions
from crabpath_lab.datasets.files import (
    find_file,
    read_json,
    read_json_lines,
)


class _Row(BaseModel):
    id: str = Field(alias="_id")
    question: str
    # Some mirrors hold a paragraph as one string instead of its sentences.
    context: list[tuple[str, list[str] | str]]
    supporting_facts: list[tuple[str, int]]
    answer: str | None = None


_ROWS = TypeAdapter(list[_Row])


def load_hotpotqa(path: Path) -> Dataset:
    """Load official HotpotQA distractor or 2WikiMultihopQA JSON, all contexts pooled.

    A file, a folder with it, or one with the BEIR form of the data set; another one raises
    InvalidInputError.
    """
    if is_beir_folder(path):
        return load_beir(path)
    file = find_file(path, ".json")
    rows = read_json(file, _ROWS, "JSON of HotpotQA's distractor setting")
    return pool_questions(file.parent.name or file.stem, map(_parse_question, rows))


def _parse_question(row: _Row) -> ContextQuestion:
    gold = {title for title, _ in row.supporting_facts}
    titles = [title for title, _ in row.context]
    return ContextQuestion(
        row.id,
        row.question,
        [(title, text if isinstance(text, str) else "".join(text)) for title, text in row.context],
        {place for place, title in enumerate(titles) if title in gold},
        tuple(sorted(gold.difference(titles))),
        row.answer,
    )


class _Paragraph(BaseModel):
    title: str
    paragraph_text: str
    is_supporting: bool


class _MusiqueRow(BaseModel):
    id: str
    question: str
    paragraphs: list[_Paragraph]
    answer: str | None = None


_MUSIQUE_ROW = TypeAdapter(_MusiqueRow)


def load_musique(path: Path) -> Dataset:
    """Load official MuSiQue JSONL, all paragraphs pooled; InvalidInputError for other files."""
    file = find_file(path, ".jsonl")
    rows = read_json_lines(file, _MUSIQUE_ROW, "MuSiQue JSON lines")
    return pool_questions(file.parent.name or file.stem, map(_parse_musique, rows))


def _parse_musique(row: _MusiqueRow) -> ContextQuestion:
    return ContextQuestion(
        row.id,
        row.question,
        [(paragraph.title, paragraph.paragraph_text) for paragraph in row.paragraphs],
        {place for place, paragraph in enumerate(row.paragraphs) if paragraph.is_supporting},
        answer=row.answer,
    )
