"""Bulk ingest: of files, in this process or on Ray, or of a dataset of Ray."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from langchain_core.documents import Document

from crabpath_retrievers.core.extras import load_part
from crabpath_retrievers.core.query import parse_path
from crabpath_retrievers.core.text import IndexedWords
from crabpath_retrievers.errors import ConfigurationError, InvalidInputError
from crabpath_retrievers.ingest.chunking import Chunking, Part, make_embedding_text
from crabpath_retrievers.ingest.linking import FindAll, find_here
from crabpath_retrievers.ingest.pipeline import (
    ChunkEmbedder,
    IngestReport,
    Progress,
    describe_chunk,
    show_progress,
)
from crabpath_retrievers.memory.services import Services
from crabpath_retrievers.parts.source_files import KnownRoots, SourceFile, list_files, read_source
from crabpath_retrievers.storage.read.catalog import Catalog
from crabpath_retrievers.storage.sql_tools import split_batches

if TYPE_CHECKING:
    from ray.data import Dataset

    from crabpath_retrievers.parts.ray import Recipe


FILES_AT_ONCE = 32
"""Files of a part."""

_RAY = "crabpath_retrievers.parts.ray"


@dataclass(frozen=True, slots=True)
class BulkReport:
    """The result and the bill of a bulk ingest.

    Attributes:
        chunks: Numbers of chunks; without ids.
        documents: Number of documents with text.
        seconds: How long it took.
        embedded_tokens: Estimated tokens of the texts that were embedded.
        skipped: Why files, and parts of files, were not read, by source and place.
        llm_tokens: Tokens of language models: none is asked.
    """

    chunks: IngestReport
    documents: int
    seconds: float
    embedded_tokens: int
    skipped: dict[str, str] = field(default_factory=dict)
    llm_tokens: Literal[0] = 0

    @property
    def rate(self) -> float:
        """Documents a second."""
        return self.documents / self.seconds if self.seconds else 0.0


def ingest_files(
    services: Services,
    paths: Iterable[str | os.PathLike[str]],
    chunking: Chunking,
    *,
    ray: str | None,
    progress: Progress | None,
    linking: Progress | None,
) -> BulkReport:
    """Ingest files; arguments and errors as ``CrabPath.ingest``."""
    begun = perf_counter()
    _require_own_index(services)
    known = KnownRoots(services.store)
    files = list_files((parse_path("what to ingest", path) for path in paths), known.choose)
    if not files:
        msg = "there are no files to ingest: give files or directories with files"
        raise InvalidInputError(msg)
    find_all: FindAll = find_here
    with ExitStack() as stack:
        if ray is None:
            parts = _read_parts(services, files, chunking)
        else:
            on_ray = load_part(_RAY)
            stack.enter_context(on_ray.connect_ray(ray))
            dataset = on_ray.list_rows_of_files(files)
            parts = on_ray.make_parts(dataset, _make_recipe(services, chunking))
            find_all = stack.enter_context(on_ray.open_finders(services.store.location))
        services.identity.verify()
        known.remember()
        with show_progress(progress, len(files)) as advance:
            found = services.ingest.add(
                parts,
                cleanup="incremental",
                in_bulk=True,
                advance=advance,
                find_all=find_all,
                linking=linking,
            )
    return _make_report(services, *found, perf_counter() - begun)


def ingest_dataset(
    services: Services, dataset: "Dataset", chunking: Chunking, *, linking: Progress | None
) -> BulkReport:
    """Ingest a dataset of Ray; arguments and errors as ``CrabPath.add_dataset``."""
    on_ray, begun = load_part(_RAY), perf_counter()
    _require_own_index(services)
    on_ray.require_dataset(dataset)
    services.identity.verify()
    parts = on_ray.make_parts(dataset, _make_recipe(services, chunking))
    with on_ray.open_finders(services.store.location) as find_all:
        found = services.ingest.add(parts, in_bulk=True, find_all=find_all, linking=linking)
    return _make_report(services, *found, perf_counter() - begun)


def _make_recipe(services: Services, chunking: Chunking) -> "Recipe":
    embedder, strict = services.embedder, services.ingest.embedder.strict
    recipe: Recipe = load_part(_RAY).Recipe(
        services.store.location, chunking, embedder.source, strict, embedder.prefixes
    )
    return recipe


def _read_parts(
    services: Services, files: Sequence[SourceFile], chunking: Chunking
) -> Iterator[Part]:
    """Read, split and embed files in this process, as parts of some files each."""
    maker = PartMaker(
        services.store.catalog, chunking, services.ingest.embedder, services.store.language
    )
    return map(maker.read_files, split_batches(files, FILES_AT_ONCE))


class PartMaker(NamedTuple):
    """Makes parts of documents and files.

    ``language`` is that of all texts; None to detect that of each.
    """

    catalog: Catalog
    chunking: Chunking
    embedder: ChunkEmbedder
    language: str | None

    def make(self, given: Sequence[Document], skipped: Mapping[str, str] | None = None) -> Part:
        """Split and embed documents; chunks that the store holds unchanged are not embedded again.

        ``skipped`` says why other documents could not be read; None if there are none.
        """
        part = Part.of(self.chunking, self.chunking.clean(given))
        nodes = part.nodes
        stored = self.catalog.find_chunks(documents={node.document for node in nodes})
        held = {(chunk.document, chunk.digest) for chunk in stored}
        new = [node for node in nodes if (node.document, node.digest) not in held]
        texts = [make_embedding_text(node) for node in new if node.vector is None]
        embedded, left_out = self.embedder.embed(new)
        found = {node.id: node for node in embedded}
        lost = {node.id for node in left_out}
        return replace(
            part,
            nodes=[found.get(node.id, node) for node in nodes if node.id not in lost],
            words={
                node.digest: IndexedWords.from_text(node.title, node.content, self.language)
                for node in embedded
            },
            embedded=sum(map(len, texts)),
            skipped=dict(skipped or {}),
            left_out=[describe_chunk(node) for node in left_out],
        )

    def read_files(self, files: Iterable[SourceFile]) -> Part:
        """Read, split and embed files; those that cannot be read are left out, with the reason."""
        documents: list[Document] = []
        skipped: dict[str, str] = {}
        listed = list(files)
        for file in listed:
            found, bad = read_source(file)
            documents += found
            skipped |= bad
        return replace(self.make(documents, skipped), files=len(listed))


def _require_own_index(services: Services) -> None:
    if services.index.foreign:
        msg = (
            "this memory wraps a vector store of yours, which it must not write to: add the "
            "documents there, then call refresh"
        )
        raise ConfigurationError(msg)


def _make_report(
    services: Services, chunks: IngestReport, total: Part, seconds: float
) -> BulkReport:
    tokens = round(total.embedded / services.settings.rank.characters_per_token)
    return BulkReport(chunks, total.documents, seconds, tokens, total.skipped)
