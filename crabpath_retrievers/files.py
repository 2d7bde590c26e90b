"""Reads text files as documents."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from langchain_core.documents import Document

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.ingest.chunking import is_markdown, make_title


def read_documents(paths: Iterable[Path]) -> tuple[list[Document], list[Path]]:
    """Read text files and directories; hidden files and folders are skipped.

    Args:
        paths: Files and directories.

    Returns:
        One document per text file, also for empty files, with its path as source; and the files
        that are not text.

    Raises:
        InvalidInputError: A path does not exist or cannot be read.
    """
    documents: list[Document] = []
    skipped: list[Path] = []
    for path in paths:
        if not path.exists():
            msg = f"{path} does not exist: give a text file or a directory"
            raise InvalidInputError(msg)
        for file in _list_files(path):
            text = decode_text(_read_bytes(file))
            if text is None:
                skipped.append(file)
            else:
                documents.append(make_document(file.as_posix(), text))
    return documents, skipped


def _list_files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for file in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if file.is_file() and not hidden:
            yield file


def _read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        msg = f"{file} cannot be read: {error.strerror}"
        raise InvalidInputError(msg) from error


def decode_text(data: bytes) -> str | None:
    """Decode the content of a file; None if it is not text."""
    if b"\x00" in data:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def make_document(source: str, text: str) -> Document:
    """Make a document from a file."""
    metadata = {"source": source}
    # The title of a Markdown file is its first heading, that of another file its name.
    if not is_markdown(source, metadata):
        metadata["title"] = make_title(source)
    return Document(page_content=text, metadata=metadata)
