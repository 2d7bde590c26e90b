"""Passages and questions of the HotpotQA sample in ``examples``."""

import json
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

SAMPLE = Path(__file__).parents[2] / "examples" / "hotpotqa_sample"


def read_rows(name: str, count: int) -> list[dict[str, Any]]:
    lines = (SAMPLE / name).read_text(encoding="utf-8").splitlines()[:count]
    return [json.loads(line) for line in lines]


def read_passages(count: int) -> list[Document]:
    """The first passages, ten for each question."""
    return [
        Document(id=row["_id"], page_content=row["text"], metadata={"title": row["title"]})
        for row in read_rows("corpus.jsonl", count)
    ]


def read_questions(count: int) -> list[str]:
    return [row["text"] for row in read_rows("queries.jsonl", count)]
