"""Bulk ingest on Ray: its workers read, split, embed and find what to link; this process writes.

Workers open the store to read what it holds already, so it must be one that they reach: PostgreSQL,
or a directory where all of them run on this machine. What a killed worker was doing is done again
by another one; what a killed driver has published stays, and the same call goes on from there.
Needs the extra ``ray``.
"""

import json
import logging
import socket
from base64 import urlsafe_b64decode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from pydantic_core import from_json, to_json

from crabpath_retrievers import errors
from crabpath_retrievers.config import PrefixSettings
from crabpath_retrievers.core.extras import require_extra
from crabpath_retrievers.core.records import Node
from crabpath_retrievers.core.text import IndexedWords, format_value
from crabpath_retrievers.errors import (
    ConfigurationError,
    CrabPathError,
    InvalidInputError,
    ServiceError,
)
from crabpath_retrievers.ingest.chunking import Chunking, Part
from crabpath_retrievers.ingest.linkers import FoundPairs, PairLinker
from crabpath_retrievers.ingest.linking import PairFinder
from crabpath_retrievers.ingest.pipeline import ChunkEmbedder
from crabpath_retrievers.parts.bulk import FILES_AT_ONCE, PartMaker
from crabpath_retrievers.parts.source_files import SourceFile
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.catalog import RememberedLinks
from crabpath_retrievers.storage.store import find_database_file
from crabpath_retrievers.vectors.embedder import Embedder, Prefixes

if TYPE_CHECKING:
    from ray.data import Dataset

_PATIENCE = 5.0  # seconds until an address counts as one where nothing answers
_ROWS = 128  # of one part
_AHEAD = 2  # parts that wait for each worker
# Two workers for two cores leave room for the tasks that read a dataset.
_SHARE = 0.5


def require_ray() -> Any:
    """Import the module ``ray``.

    Raises:
        MissingExtraError: It is not installed.
    """
    require_extra("ray", "this")
    import ray
    import ray.data

    return ray


@contextmanager
def connect_ray(address: str) -> Iterator[None]:
    """Connect to a cluster, unless this process is connected, and leave it at the end.

    Args:
        address: ``host:port``, ``ray://host:port``, ``auto`` for the cluster of this machine, or
            ``local`` for one of its own that ends with the work.

    Raises:
        MissingExtraError: Ray is not installed.
        ServiceError: No cluster answers there.
    """
    ray = require_ray()
    # The caller's logging is left as it is.
    options: dict[str, Any] = {"configure_logging": False, "log_to_driver": False}
    if address == "local":
        options |= {"include_dashboard": False}
    else:
        _probe_server(address)
    mine = not ray.is_initialized()
    if mine:
        try:
            ray.init(address=address, **options)
        except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
            raise _build_unreachable_error(address) from error
    try:
        yield
    finally:
        if mine:  # else the caller goes on with it
            ray.shutdown()


def _probe_server(address: str) -> None:
    """Refuse an address where nothing listens, before Ray tries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address == "auto":
        return
    try:
        socket.create_connection((host or "127.0.0.1", int(port)), _PATIENCE).close()
    except (OSError, ValueError) as error:
        raise _build_unreachable_error(address) from error


def _build_unreachable_error(address: str) -> ServiceError:
    msg = (
        f"no Ray cluster answers at {address!r}: start one with `ray start --head`, give its "
        "host:port, or local for one on this machine"
    )
    return ServiceError(msg)


class Recipe(NamedTuple):
    """Data that a worker needs to make parts.

    Attributes:
        location: Directory or URL of the store.
        chunking: How documents are split.
        embeddings: The embedder, or its ``"provider:model"``; None for the default one.
        strict: Whether a vector that is all zero or not finite is refused.
        prefixes: What is written before texts.
    """

    location: str
    chunking: Chunking
    embeddings: Embeddings | str | None
    strict: bool
    prefixes: Prefixes


def open_for_worker(location: str) -> GraphStore:
    """Open the store of a driver in a worker.

    Raises:
        ConfigurationError: It is a directory of another machine.
    """
    file = find_database_file(location)
    if file is not None and not file.exists():
        msg = (
            f"the worker does not find {file}: on a cluster of several machines keep the memory "
            "in PostgreSQL"
        )
        raise ConfigurationError(msg)
    return GraphStore(location)


class _PartWorker:
    """Makes parts in a worker, of rows or of files."""

    def __init__(self, recipe: Recipe) -> None:
        self._store = open_for_worker(recipe.location)
        embedder = Embedder(recipe.embeddings, PrefixSettings(**recipe.prefixes._asdict()))
        embedder.identify()  # tells the size of its vectors
        chunks = ChunkEmbedder(embedder, recipe.strict)
        self._maker = PartMaker(self._store.catalog, recipe.chunking, chunks, self._store.language)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Build one part from a batch; an error that a user can correct is returned."""
        error, part, vectors = "", b"", b""
        try:
            # Bytes: Ray takes twenty times longer to send objects than it takes to make them.
            part, vectors = encode_part(self._make(batch))
        except CrabPathError as failure:
            error, part = type(failure).__name__, str(failure.args[0]).encode()
        row = {"part": part, "vectors": vectors, "error": error}
        return {name: np.array([value], dtype=object) for name, value in row.items()}

    def _make(self, batch: dict[str, Any]) -> Part:
        if "path" in batch:
            return self._maker.read_files(map(SourceFile, batch["path"], batch["source"]))
        names = list(batch)
        rows = zip(*(batch[name] for name in names), strict=True)
        return self._maker.make(parse_rows(dict(zip(names, row, strict=True)) for row in rows))


def require_dataset(dataset: object) -> None:
    """Refuse an object that is no dataset of Ray.

    Raises:
        InvalidInputError: The object is no dataset.
        MissingExtraError: Ray is not installed.
    """
    if not isinstance(dataset, require_ray().data.Dataset):
        msg = (
            "dataset must be a dataset of Ray with the column text, such as "
            f"ray.data.read_parquet(...), not {format_value(dataset)}"
        )
        raise InvalidInputError(msg)


def list_rows_of_files(files: Sequence[SourceFile]) -> "Dataset":
    """Make a dataset of files, cut into parts."""
    ray = require_ray()
    rows = [{"path": file.path, "source": file.source} for file in files]
    blocks = max(1, -(-len(rows) // FILES_AT_ONCE))
    dataset: Dataset = ray.data.from_items(rows, override_num_blocks=blocks)
    return dataset


def make_parts(dataset: "Dataset", recipe: Recipe) -> Iterator[Part]:
    """Make parts of a dataset on the cluster, in its order.

    Args:
        dataset: Rows of files, or with the columns that :func:`parse_rows` reads.
        recipe: What workers need to split and embed.

    Raises:
        InvalidInputError: A row cannot be used, or a shard cannot be read.
        ServiceError: The cluster failed.
    """
    ray = require_ray()
    resources = ray.cluster_resources()
    gpus = int(resources.get("GPU", 0))
    workers = gpus or count_workers()
    parts = dataset.map_batches(
        _PartWorker,
        fn_constructor_args=(recipe,),
        batch_size=_ROWS,
        batch_format="numpy",
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=_SHARE,
        num_gpus=1 if gpus else None,
    )
    parts.context.execution_options.preserve_order = True
    parts.context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)  # else it prints its plans
    with _translate_ray_errors():
        for row in parts.iter_rows():
            if row["error"]:
                raise getattr(errors, row["error"])(row["part"].decode())
            yield decode_part(row["part"], row["vectors"])


def count_workers() -> int:
    """Number of workers: one for each core of the cluster."""
    return max(1, int(require_ray().cluster_resources().get("CPU", 1)))


@contextmanager
def _translate_ray_errors() -> Iterator[None]:
    ray = require_ray()
    try:
        yield
    except CrabPathError:
        raise
    except ray.exceptions.RayTaskError as error:
        reason = str(error.cause or error).strip().splitlines()[-1]
        msg = (
            f"a shard cannot be read or a worker failed ({reason}): mend it and run the same "
            "ingest again, which goes on where it stopped"
        )
        raise InvalidInputError(msg) from error
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0]
        msg = f"Ray failed ({reason}): run the same ingest again, which goes on where it stopped"
        raise ServiceError(msg) from error


class _FindingWorker:
    """Finds pairs in a worker."""

    def __init__(self, location: str, linkers: tuple[PairLinker, ...], before: int) -> None:
        store = open_for_worker(location)
        links = RememberedLinks(store, store.fulltext)
        self._finder = PairFinder(links, linkers, before)

    def run(self, keys: list[int]) -> list[FoundPairs]:
        """Find the pairs of some chunks."""
        return self._finder.find(keys)


@contextmanager
def open_finders(
    location: str,
) -> Iterator[Callable[[PairFinder, Iterable[list[int]]], Iterator[list[FoundPairs]]]]:
    """Open finders of pairs on the cluster, for the store at ``location``.

    The workers of a finder end with it.
    """
    ray = require_ray()
    workers: list[Any] = []

    def find_all(finder: PairFinder, parts: Iterable[list[int]]) -> Iterator[list[FoundPairs]]:
        if not workers:
            kind = ray.remote(num_cpus=_SHARE, max_restarts=-1, max_task_retries=-1)(_FindingWorker)
            given = (location, finder.linkers, finder.before)
            workers.extend(kind.remote(*given) for _ in range(count_workers()))
        return _run_in_order(ray, workers, parts)

    try:
        yield find_all
    finally:
        for worker in workers:
            with suppress(Exception):  # it may be gone
                ray.kill(worker)


def _run_in_order(
    ray: Any, workers: Sequence[Any], parts: Iterable[list[int]]
) -> Iterator[list[FoundPairs]]:
    """Give the ``parts`` to the workers in turn, some ahead, and yield the results in order."""
    waiting: deque[Any] = deque()
    with _translate_ray_errors():
        for number, part in enumerate(parts):
            waiting.append(workers[number % len(workers)].run.remote(part))
            if len(waiting) > _AHEAD * len(workers):
                yield ray.get(waiting.popleft())
        while waiting:
            yield ray.get(waiting.popleft())


_VECTOR = np.dtype("<f4")


def encode_part(part: Part) -> tuple[bytes, bytes]:
    """Encode a part as JSON, and its new vectors as bytes, for the process that writes it."""
    new = [node.vector for node in part.nodes if node.vector is not None]
    data = {
        "nodes": [
            {**{name: getattr(node, name) for name in _PLAIN}, "embedded": node.vector is not None}
            for node in part.nodes
        ],
        **{name: getattr(part, name) for name in _NUMBERS},
        "words": {digest: tuple(words) for digest, words in part.words.items()},
        "named": sorted(part.named),
    }
    vectors = np.asarray(new, dtype=_VECTOR).tobytes()
    return to_json(data, bytes_mode="base64"), vectors


def decode_part(data: bytes, packed: bytes) -> Part:
    """Decode a part from both results of :func:`encode_part`."""
    read = from_json(data)
    count = sum(node["embedded"] for node in read["nodes"])
    vectors = iter(np.frombuffer(packed, dtype=_VECTOR).reshape(count, -1) if count else ())
    nodes = []
    for row in read["nodes"]:
        vector = next(vectors) if row.pop("embedded") else None
        nodes.append(Node(**{**row, **{n: tuple(row[n]) for n in _LISTS}}, vector=vector))
    words = {
        digest: IndexedWords(tokens, urlsafe_b64decode(terms))
        for digest, (tokens, terms) in read["words"].items()
    }
    numbers = {name: read[name] for name in _NUMBERS}
    return Part(nodes, words, set(read["named"]), **numbers)


_PLAIN = tuple(each.name for each in fields(Node) if each.name != "vector")


_LISTS = ("names", "addresses", "references")


_NUMBERS = ("documents", "blank", "repeated", "embedded", "files", "skipped", "left_out")


def parse_rows(rows: Iterable[Mapping[str, Any]]) -> list[Document]:
    """Parse rows with a ``text`` and, where present, ``metadata`` and ``id``, to documents.

    Raises:
        InvalidInputError: A row has no text, or its metadata are no mapping.
    """
    return [_to_document(row) for row in rows]


def _to_document(row: Mapping[str, Any]) -> Document:
    text, metadata, name = row.get("text"), row.get("metadata"), row.get("id")
    if isinstance(metadata, str):
        metadata = _parse_metadata(metadata)
    if not isinstance(text, str) or not (metadata is None or isinstance(metadata, Mapping)):
        given = format_value({key: value for key, value in row.items() if key != "text"})
        msg = (
            "a row of the dataset needs a text in the column text, and in metadata, if there is "
            f"one, a mapping or its JSON, not {given}"
        )
        raise InvalidInputError(msg)
    # A column of structs has every key in every row.
    own = {key: value for key, value in (metadata or {}).items() if value is not None}
    return Document(page_content=text, metadata=own, id=None if name is None else str(name))


def _parse_metadata(text: str) -> object:
    with suppress(ValueError):
        return json.loads(text)
    return text
