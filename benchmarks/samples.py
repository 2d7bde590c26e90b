"""Draws the samples that figures were measured on from the official files, and checks them.

A sample is the first questions of a file, or those whose ids stand in samples.json. Its checksum is
over what the loader of the evaluation reads, whatever the ids, order, spaces and compression.
"""

import gzip
import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, TypedDict

from typing_extensions import NotRequired

from crabpath_lab.datasets import (
    Dataset,
    load_hotpotqa,
    load_multihoprag,
    load_musique,
)
from crabpath_retrievers import InvalidInputError

_FILE = Path(__file__).with_name("samples.json")
_LOADERS: dict[str, Callable[[Path], Dataset]] = {
    "hotpotqa": load_hotpotqa,
    "multihoprag": load_multihoprag,
    "musique": load_musique,
}
_HASH_DIGITS = 12
_MAX_LISTED = 3


class SampleCheck(TypedDict):
    """What a sample was found to hold."""

    questions: int
    documents: int
    checksum: str


class Sample(SampleCheck):
    """A sample as it should be, and how it is drawn."""

    format: Literal["hotpotqa", "multihoprag", "musique"]
    first: NotRequired[int]
    ids: NotRequired[str]


def read_samples() -> dict[str, Sample]:
    """Read how the samples are drawn, by name."""
    samples: dict[str, Sample] = json.loads(_FILE.read_text(encoding="utf-8"))
    return samples


def draw_sample(sample: Sample, source: Path, output: Path) -> SampleCheck:
    """Write a sample of an official file, and compute its checksum.

    Args:
        sample: How it is drawn.
        source: The official file, plain or gzipped; of MultiHop-RAG the folder.
        output: File to write, in the official format and gzipped; of MultiHop-RAG a folder.

    Raises:
        InvalidInputError: The file lacks questions of the sample.
    """
    kind = sample["format"]
    target = output
    if kind == "multihoprag":
        output.mkdir(parents=True, exist_ok=True)
        (output / "corpus.json").write_bytes(_read(_find(source, "corpus.json")))
        source, target = _find(source, "MultiHopRAG.json"), output / "MultiHopRAG.json"
    text = _read(source).decode()
    rows = [json.loads(line) for line in text.splitlines()] if kind == "musique" else None
    chosen = _choose(sample, rows if rows is not None else json.loads(text))
    lines = [json.dumps(row, ensure_ascii=False) for row in chosen]
    made = "\n".join(lines) if kind == "musique" else "[" + ",\n".join(lines) + "]"
    data = made.encode() if target.suffix != ".gz" else gzip.compress(made.encode(), mtime=0)
    target.write_bytes(data)
    return check_sample(_LOADERS[kind](output))


def check_sample(data: Dataset) -> SampleCheck:
    """Count questions and documents, and compute the checksum."""
    texts = {str(d.id): "".join(d.page_content.split()) for d in data.documents}
    gold = (
        [data.queries[query], *sorted(texts.get(document, "") for document in data.qrels[query])]
        for query in data.queries
    )
    content = [sorted(texts.values()), sorted(gold)]
    checksum = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return SampleCheck(questions=len(data.queries), documents=len(texts), checksum=checksum)


def _choose(sample: Sample, rows: list[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    if "ids" not in sample:
        return rows[: sample["first"]]
    wanted = sample["ids"].split()
    by_id = {_get_id(row): row for row in rows}
    missing = [name for name in wanted if name not in by_id]
    if missing:
        msg = (
            f"the file lacks {len(missing)} of {len(wanted)} questions of the sample, such as "
            f"{', '.join(missing[:_MAX_LISTED])}: see docs/research/reproduce.md"
        )
        raise InvalidInputError(msg)
    return [by_id[name] for name in wanted]


def _get_id(row: dict[str, Any]) -> str:
    """The id of a question; of MultiHop-RAG, which has none, a hash of its text."""
    given = row.get("_id", row.get("id"))
    if given is not None:
        return str(given)
    return hashlib.sha256(str(row["query"]).encode()).hexdigest()[:_HASH_DIGITS]


def _find(folder: Path, name: str) -> Path:
    packed = folder / f"{name}.gz"
    return packed if packed.exists() else folder / name


def _read(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data
