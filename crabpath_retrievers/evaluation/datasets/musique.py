"""MuSiQue (Trivedi et al. 2022): JSON lines, twenty paragraphs a question."""

from pathlib import Path

from pydantic import BaseModel, TypeAdapter

from crabpath_retrievers.evaluation.datasets.dataset import ContextQuestion, Dataset, pool_questions
from crabpath_retrievers.evaluation.datasets.files import find_file, read_json_lines


class _Paragraph(BaseModel):
    title: str
    paragraph_text: str
    is_supporting: bool


class _Row(BaseModel):
    id: str
    question: str
    paragraphs: list[_Paragraph]
    answer: str | None = None


_ROW = TypeAdapter(_Row)


def load_musique(path: Path) -> Dataset:
    """Official MuSiQue JSONL, all paragraphs pooled; another file raises InvalidInputError."""
    file = find_file(path, ".jsonl")
    rows = read_json_lines(file, _ROW, "MuSiQue JSON lines")
    return pool_questions(file.parent.name or file.stem, map(_parse_question, rows))


def _parse_question(row: _Row) -> ContextQuestion:
    return ContextQuestion(
        row.id,
        row.question,
        [(paragraph.title, paragraph.paragraph_text) for paragraph in row.paragraphs],
        {place for place, paragraph in enumerate(row.paragraphs) if paragraph.is_supporting},
        answer=row.answer,
    )
