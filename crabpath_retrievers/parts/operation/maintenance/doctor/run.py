"""Runs all checks of the doctor, one after the other."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from shlex import quote
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.core.query import is_url
from crabpath_retrievers.errors import (
    ConfigurationError,
    CrabPathError,
    StoreError,
    StoreLockedError,
    StoreUnavailableError,
)
from crabpath_retrievers.parts.operation.maintenance.doctor import checks
from crabpath_retrievers.parts.operation.maintenance.doctor.checks import (
    Diagnosis,
    Finding,
    check_embedder,
)
from crabpath_retrievers.parts.operation.maintenance.doctor.vector_checks import (
    check_agreement,
    check_files,
    check_lock,
)
from crabpath_retrievers.storage.database import parse_url
from crabpath_retrievers.storage.store import ReadOnlyStore, find_database_file
from crabpath_retrievers.vectors.opening import (
    PGVECTOR,
    find_directory,
    is_pgvector,
    place_of,
    wrapped_store,
)

_BY_SEVERITY = ("error", "warning", "info")
_FIXES = (
    (StoreLockedError, "end the process that holds it, or wait until it is done"),
    (StoreUnavailableError, "start the database, or correct its path or URL"),
    (PermissionError, "run as the user who owns the memory, or give that user its permissions"),
)
_RESTORE = "restore the store from a backup, or add the documents again to a new directory"


def examine(location: str | Path, *, vectors: Any = None, embeddings: Any = None) -> Diagnosis:
    """Diagnose a memory. Nothing is created, migrated or written.

    Args:
        location: A directory or an SQLAlchemy URL.
        vectors: Directory of the vectors, URL of a Chroma server, a Chroma client, or
            ``"pgvector"``; None for the subdirectory ``vectors`` of the memory, or for the database
            where the memory has its vectors there.
        embeddings: The embedder to use with the memory; None for the default one.

    Raises:
        ConfigurationError: The location is empty.
    """
    where = place_of(location)
    return _Examination(where, vectors, embeddings).run()


class _Examination:
    """State of a diagnosis: checks made and findings so far."""

    def __init__(self, where: str, vectors: Any, embeddings: Any) -> None:
        """Prepare the diagnosis of the memory at ``where``."""
        self._where, self._embeddings = where, embeddings
        directory = not is_url(where)
        self._vectors = Path(where) / "vectors" if vectors is None and directory else vectors
        self._checked: list[str] = []
        self._findings: list[Finding] = []

    def run(self) -> Diagnosis:
        """Run every check that is possible."""
        file, there = find_database_file(self._where), True
        if file is not None:
            there = self._check("place", checks.check_location, file, self._directory)
            if file.parent.is_dir():
                self._check("permissions", checks.check_permissions, file.parent)
                self._check("disk", checks.check_disk, file.parent)
        if there:
            self._look_inside()
        ranked = sorted(self._findings, key=lambda finding: _BY_SEVERITY.index(finding.severity))
        return Diagnosis(_hide_password(self._where), tuple(self._checked), tuple(ranked))

    def _look_inside(self) -> None:
        try:
            opened = ReadOnlyStore(self._where)
        except (ConfigurationError, StoreError) as error:
            self._findings.append(Finding("place", "error", str(error), "correct the URL"))
            return
        with closing(opened) as store:
            if not self._check("schema", checks.check_version, store):
                return
            if not self._check("integrity", checks.check_integrity, store):
                return
            for name, check in checks.CHECKS.items():
                self._check(name, check, store)
            self._look_at_vectors(store)
            self._check("embedder", check_embedder, store, self._embeddings)

    def _look_at_vectors(self, store: ReadOnlyStore) -> None:
        meta = store.catalog.meta()
        if is_pgvector(self._vectors, meta):
            self._vectors = PGVECTOR
        wrapped = wrapped_store(meta)
        if wrapped is not None:
            message = f"the vectors are in the wrapped {wrapped} and were not checked"
            fix = (
                "open it with CrabPathRetriever.from_vectorstore(store, path=...): it takes over "
                "added, changed and removed documents"
            )
            self._findings.append(Finding("vectors", "info", message, fix))
            return
        if self._vectors is None:
            message = "the vectors were not checked: a database URL does not say where they are"
            fix = "give their directory or URL: --vectors, or CRABPATH_VECTORS"
            self._findings.append(Finding("vectors", "info", message, fix))
            return
        whole = True
        if self._directory is not None:
            self._check("in use", check_lock, self._directory)
            whole = self._check("files", check_files, self._directory, self._reindex_advice)
        if whole or not any(
            one.check == "vectors" and one.severity == "error" for one in self._findings
        ):
            self._check("vectors", check_agreement, store, self._vectors, self._reindex_advice)

    @property
    def _directory(self) -> Path | None:
        """Directory of the vectors; None if they are elsewhere."""
        return find_directory(self._vectors)

    @property
    def _reindex_advice(self) -> str:
        """The command that fills the index again."""
        inside = not is_url(self._where) and self._vectors == Path(self._where) / "vectors"
        named = isinstance(self._vectors, (str, Path)) and not inside
        option = f" --vectors {quote(str(self._vectors))}" if named else ""
        return f"run `crabpath reindex {quote(_hide_password(self._where))}{option}`"

    def _check(self, name: str, check: Callable[..., Iterator[Finding]], *given: Any) -> bool:
        """Run a check, and return whether it found nothing.

        An error that prevents the check is a finding, too.
        """
        before = len(self._findings)
        try:
            self._findings += check(*given)
            self._checked.append(name)
        except (CrabPathError, sa.exc.SQLAlchemyError, OSError) as error:
            fix = next((fix for kind, fix in _FIXES if isinstance(error, kind)), _RESTORE)
            self._findings.append(Finding(name, "error", _format_error(error), fix))
        return len(self._findings) == before


def _format_error(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _hide_password(where: str) -> str:
    """Return a location without its password."""
    if not is_url(where):
        return where
    try:
        return parse_url(where).render_as_string(hide_password=True)
    except ConfigurationError:
        return "a URL that cannot be read"
