"""Draws the samples that figures were measured on from the published files.

A sample is a whole file, its first questions, or those whose ids the table lists, in that order:
their random draw was not recorded. A question without an id goes by its number in the files, or by
a hash of its text.
"""

import csv
import gzip
import hashlib
import io
import json
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict

from typing_extensions import NotRequired

from crabpath_lab.datasets.beir import load_beir, write_beir
from crabpath_lab.datasets.dataset import Dataset, make_passage
from crabpath_lab.datasets.hotpotqa import load_hotpotqa
from crabpath_retrievers.errors import InvalidInputError

if TYPE_CHECKING:
    from langchain_core.documents import Document

_HASH_DIGITS = 12
_MAX_LISTED = 3
_MOST_OBSERVED = 600  # characters of an observation of tau-bench
_LONGEST, _SHORTEST = 800, 400  # characters of a chunk of Chroma's evaluation
_CUTS = ("\n\n", "\n", ". ", " ")  # where it ends, the best first


class PublishedFile(TypedDict):
    """A published file: its address and checksum, and which ``member`` of an archive is read.

    ``name`` and ``to`` are its names in a folder of official files and in a copied sample, where
    they are not the last part of the address.
    """

    url: str
    sha256: str
    name: NotRequired[str]
    to: NotRequired[str]
    member: NotRequired[str]


class PublishedSet(TypedDict):
    """A published data set, and the sample of it that figures were measured on.

    ``path`` is its place in a folder of data, ``format`` its name for ``crabpath eval``.
    """

    path: str
    format: NotRequired[str]
    licence: str
    files: list[PublishedFile]
    draw: str
    first: NotRequired[int]
    ids: NotRequired[str]
    questions: NotRequired[int]
    documents: NotRequired[int]
    checksum: NotRequired[str]


def name_file(file: PublishedFile) -> str:
    """Name a published file, as in a folder of official files."""
    return file.get("name") or PurePosixPath(file["url"]).name


def draw_sample(published: PublishedSet, files: Sequence[Path], target: Path) -> None:
    """Write the sample of a data set.

    Args:
        published: How it is drawn.
        files: The published files, in the order of the table.
        target: File or folder to write; its parent exists.

    Raises:
        InvalidInputError: A file is no archive, or lacks questions of the sample.
    """
    kind = published["draw"]
    if kind in _READERS:
        dataset = _READERS[kind](files)
        write_beir(dataset.choose(_choose_ids(published, list(dataset.queries))), target)
    elif kind == "copy":
        for file, path in zip(published["files"], files, strict=True):
            copy = target / file.get("to", name_file(file))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    elif kind == "tau_bench":
        _write_rows(map(_shorten_run, json.loads(files[0].read_bytes())), target)
    else:
        if kind == "multihoprag":
            target.mkdir()
            shutil.copyfile(files[0], target / "corpus.json")
            target /= "MultiHopRAG.json"
        rows = {_get_id(row): row for row in _read_rows(files[-1], published["files"][-1])}
        _write_rows((rows[name] for name in _choose_ids(published, list(rows))), target)


def compute_checksum(data: Dataset) -> str:
    """Compute the checksum of texts, questions and gold, without ids, spaces and compression."""
    texts = {str(d.id): "".join(d.page_content.split()) for d in data.documents}
    gold = (
        [data.queries[query], *sorted(texts.get(document, "") for document in data.qrels[query])]
        for query in data.queries
    )
    content = [sorted(texts.values()), sorted(gold)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _choose_ids(published: PublishedSet, known: Sequence[str]) -> Sequence[str]:
    if "ids" not in published:
        return known[: published.get("first")]
    wanted = published["ids"].split()
    if missing := sorted({*wanted} - {*known}):
        msg = (
            f"the file lacks {len(missing)} of {len(wanted)} questions of the sample, such as "
            f"{', '.join(missing[:_MAX_LISTED])}: give the official file, whole and unchanged"
        )
        raise InvalidInputError(msg)
    return wanted


def _get_id(row: Mapping[str, Any]) -> str:
    given = row.get("_id", row.get("id"))
    if given is not None:
        return str(given)
    return hashlib.sha256(str(row["query"]).encode()).hexdigest()[:_HASH_DIGITS]


def _read_rows(path: Path, file: PublishedFile) -> list[dict[str, Any]]:
    """Read the questions of a JSON or JSON-lines file, which may be in an archive."""
    member = file.get("member", "")
    if member:
        with _open_archive(path) as archive:
            names = [name for name in archive.namelist() if PurePosixPath(name).name == member]
            data = archive.read(names[0]) if names else b"[]"
    else:
        data = path.read_bytes()
    lines = member.endswith(".jsonl")
    rows: list[dict[str, Any]] = _parse_lines(data) if lines else json.loads(data)
    return rows


def _parse_lines(data: bytes) -> list[Any]:
    return [json.loads(line) for line in data.splitlines()]


def _open_archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        msg = f"{path} is no zip archive ({error}): give the official file"
        raise InvalidInputError(msg) from error


def _write_rows(rows: Iterable[Any], target: Path) -> None:
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    one_a_line = ".jsonl" in target.suffixes
    data = ("\n".join([*lines, ""]) if one_a_line else "[" + ",\n".join(lines) + "]").encode()
    target.write_bytes(gzip.compress(data, mtime=0) if target.suffix == ".gz" else data)


def _shorten_run(run: Mapping[str, Any]) -> dict[str, Any]:
    """Shorten a run of tau-bench to its steps after the user's first words."""
    steps: list[dict[str, str]] = []
    for message in run["traj"][2:]:
        text = (message.get("content") or "")[:_MOST_OBSERVED]
        if message["role"] == "tool":
            steps[-1]["observation"] = text
            continue
        action, arguments = "user" if message["role"] == "user" else "respond", ""
        if calls := message.get("tool_calls"):
            action, arguments = calls[0]["function"]["name"], calls[0]["function"]["arguments"]
        steps.append({"action": action, "arguments": arguments, "observation": text})
    task = {name: run[name] for name in ("task_id", "trial", "reward")}
    return {**task, "instruction": run["info"]["task"]["instruction"], "steps": steps}


def _read_archive(files: Sequence[Path]) -> Dataset:
    """Read the training questions of an archive with one BEIR folder."""
    with TemporaryDirectory() as place, _open_archive(files[0]) as archive:
        archive.extractall(place)
        (corpus,) = Path(place).rglob("corpus.jsonl")
        return load_beir(corpus.parent, part="train")


def _read_cosqa(files: Sequence[Path]) -> Dataset:
    codes, asked = (json.loads(path.read_bytes()) for path in files)
    return Dataset(
        "cosqa",
        tuple(make_passage(str(number), "", code) for code, number in codes.items()),
        {row["idx"]: row["doc"] for row in asked},
        {row["idx"]: frozenset({str(row["retrieval_idx"])}) for row in asked},
    )


def _read_stackfaq(files: Sequence[Path]) -> Dataset:
    """Read the answers of threads; the first paraphrases of all are asked first."""
    documents: list[Document] = []
    answers: list[frozenset[str]] = []
    phrased: list[list[str]] = []
    for number, thread in enumerate(json.loads(files[0].read_bytes())["root"]["qapair"]):
        given = thread["answer"] if isinstance(thread["answer"], list) else [thread["answer"]]
        own = {f"t{number}_a{place}": text for place, text in enumerate(given)}
        documents += [make_passage(name, thread["question"], text) for name, text in own.items()]
        answers.append(frozenset(own))
        phrased.append([text for text in thread["rephr"] if text not in {None, "*"}])
    asked = {
        (number, place): text
        for place, texts in enumerate(zip_longest(*phrased))
        for number, text in enumerate(texts)
        if text is not None
    }
    return Dataset(
        "stackfaq",
        tuple(documents),
        {f"t{number}_q{place}": text for (number, place), text in asked.items()},
        {f"t{number}_q{place}": answers[number] for number, place in asked},
    )


def _read_ultratool(files: Sequence[Path]) -> Dataset:
    rows = _parse_lines(files[0].read_bytes())
    tools = {name: text for row in rows for name, text in map(_describe_tool, row["tools"])}
    return Dataset(
        "ultratool",
        tuple(make_passage(name, name, text) for name, text in tools.items()),
        {str(number): row["question"].strip() for number, row in enumerate(rows)},
        {
            str(number): frozenset(tool["name"] for tool in row["tools"])
            for number, row in enumerate(rows)
        },
    )


def _describe_tool(tool: Mapping[str, Any]) -> tuple[str, str]:
    given = tool["arguments"].get("properties", {}).items()
    arguments = "; ".join(f"{name}: {of.get('description', '')}" for name, of in given)
    return tool["name"], f"{tool['description']} {arguments}"


def _read_squad(files: Sequence[Path], *, titled: bool = True, by_title: bool = False) -> Dataset:
    """Read paragraphs and questions of files in SQuAD's format.

    ``by_title`` makes one question of equal ones under a title, and says the title with it: the
    documents of the title belong to the question.
    """
    documents: list[Document] = []
    own: dict[str, list[str]] = {}
    asked: dict[tuple[str, str], str] = {}
    gold: dict[tuple[str, str], set[str]] = {}
    for entry in chain.from_iterable(json.loads(file.read_bytes())["data"] for file in files):
        title = entry.get("title", "")
        for paragraph in entry["paragraphs"]:
            name = f"p{len(documents)}"
            documents.append(make_passage(name, title if titled else "", paragraph["context"]))
            own.setdefault(title, []).append(name)
            for qa in paragraph["qas"]:
                question = qa["question"].strip()
                key = (title, question if by_title else qa["id"])
                asked[key] = f"{title}: {question}" if by_title else question
                gold.setdefault(key, set()).add(name)
    numbers = {key: str(number) for number, key in enumerate(asked)}
    return Dataset(
        "squad",
        tuple(documents),
        {numbers[key]: text for key, text in asked.items()},
        {numbers[key]: frozenset(found) for key, found in gold.items()},
        candidates={numbers[key]: tuple(own[key[0]]) for key in asked} if by_title else {},
    )


def _read_chroma_chunks(files: Sequence[Path]) -> Dataset:
    """Read texts as chunks; a question's answers are the chunks that overlap its references."""
    documents: list[Document] = []
    places: list[tuple[str, int, int]] = []
    for path in files[1:]:
        text, end = path.read_bytes().decode(), 0
        for number, chunk in enumerate(_cut_text(text)):
            start = text.index(chunk, end)
            end = start + len(chunk)
            places.append((path.stem, start, end))
            documents.append(make_passage(f"{path.stem}:{number}", "", chunk))
    rows = list(csv.DictReader(io.StringIO(files[0].read_bytes().decode(), newline="")))
    gold = {
        f"q{number}": frozenset(
            str(document.id)
            for document, (corpus, start, end) in zip(documents, places, strict=True)
            for reference in references
            if corpus == row["corpus_id"]
            and start < reference["end_index"]
            and reference["start_index"] < end
        )
        for number, row in enumerate(rows)
        for references in [json.loads(row["references"])]
    }
    asked = {f"q{number}": row["question"] for number, row in enumerate(rows)}
    return Dataset("chroma_chunks", tuple(documents), asked, gold)


def _cut_text(text: str) -> Iterator[str]:
    """Cut a text into chunks at a paragraph, line, sentence or word, in their second half."""
    while text:
        end, cut = len(text), ""
        if end > _LONGEST:
            found = ((text.rfind(cut, 0, _LONGEST), cut) for cut in _CUTS)
            end, cut = next((one for one in found if one[0] >= _SHORTEST), (_LONGEST, ""))
        if chunk := text[: end + len(cut)].strip():
            yield chunk
        text = text[end + len(cut) :]


_READERS: Mapping[str, Callable[[Sequence[Path]], Dataset]] = MappingProxyType(
    {
        "hotpotqa": lambda files: load_hotpotqa(files[0]),
        "beir_train": _read_archive,
        "cosqa": _read_cosqa,
        "stackfaq": _read_stackfaq,
        "ultratool": _read_ultratool,
        "squad": _read_squad,
        "untitled_squad": partial(_read_squad, titled=False),
        "policyqa": partial(_read_squad, by_title=True),
        "chroma_chunks": _read_chroma_chunks,
    }
)
