"""Checks of the graph store."""

import time
from collections.abc import Iterator

from crabpath_retrievers.doctor.finding import Finding
from crabpath_retrievers.levels import compute_hub_level
from crabpath_retrievers.storage.migrations import SCHEMA_VERSION, read_schema_version
from crabpath_retrievers.storage.readonly import ReadOnlyStore

_DAY = 86_400.0
_READD = "forget these documents and add them again (`crabpath forget`, `crabpath add`)"
_REOPEN = "open the memory once, for example with `crabpath info`: it finishes the work"


def check_version(store: ReadOnlyStore) -> Iterator[Finding]:
    """Check that this release can read the schema; if not, nothing else is checked."""
    with store.open_reader() as connection:
        found = read_schema_version(connection)
    if found is None:
        yield Finding(
            "schema",
            "error",
            "the database contains no memory, or an incomplete one",
            "check the path or URL; if the first `crabpath add` was interrupted, run it again",
        )
    elif found > SCHEMA_VERSION:
        yield Finding(
            "schema",
            "error",
            f"the store has schema version {found}, but this release supports {SCHEMA_VERSION}",
            "upgrade crabpath-retrievers",
        )
    elif found < SCHEMA_VERSION:
        yield Finding(
            "schema",
            "error",
            "the store was written before the first release and its schema is not supported",
            "add the documents to a new store",
        )


def check_integrity(store: ReadOnlyStore) -> Iterator[Finding]:
    """Check that the database file is intact and has all tables."""
    if damage := store.checks.find_damage():
        yield Finding(
            "integrity",
            "error",
            f"the database file is damaged ({damage})",
            "restore it from a backup, or add the documents again to a new directory",
        )
    if missing := store.checks.find_missing_tables():
        yield Finding(
            "integrity",
            "error",
            f"the database lacks {', '.join(missing)}",
            "restore it from a backup, or add the documents again to a new directory",
        )


def check_references(store: ReadOnlyStore) -> Iterator[Finding]:
    """Check that no row refers to a missing node."""
    for table, count in store.checks.count_dangling_rows().items():
        yield Finding(
            "references", "error", f"{count} rows of {table} belong to no document", _READD
        )


def check_unfinished(store: ReadOnlyStore) -> Iterator[Finding]:
    """Check for an interrupted ingest."""
    staged, trash = store.checks.get_staged_ids(), store.catalog.get_index_deletions()
    count = sum(map(len, staged.values())) + len(trash)
    if count:
        message = f"an ingest was interrupted or is still running: {count} chunks are waiting"
        yield Finding("unfinished", "warning", message, _REOPEN)


def check_drift(store: ReadOnlyStore) -> Iterator[Finding]:
    """Check that indexes and counters of the graph store agree with its documents."""
    chunks, texts, meta = (
        store.checks.chunks(),
        store.checks.get_fulltext_keys(),
        store.checks.meta(),
    )
    if unread := sum(chunk.key not in texts for chunk in chunks):
        message = f"{unread} chunks are missing in the full-text index: no word finds them"
        yield Finding("full text", "error", message, _READD)
    counted = int(meta.get("nodes", 0))
    if counted != len(chunks):
        message = (
            f"the counter says {counted} chunks, there are {len(chunks)}: BM25 weights are wrong"
        )
        yield Finding("statistics", "warning", message, _READD)
    wrong = sum(compute_hub_level(chunk.id) != chunk.level for chunk in chunks)
    if wrong:
        message = f"{wrong} chunks have a level that does not match their id: regions are wrong"
        yield Finding("regions", "warning", message, _READD)
    if any(chunk.level for chunk in chunks) and not int(meta.get("hubs", 0)):
        message = "there are region hubs, but their counter is 0, so queries ignore them"
        fix = "add a few more documents: the next hub among them corrects the counter"
        yield Finding("regions", "warning", message, fix)


def check_orphans(store: ReadOnlyStore) -> Iterator[Finding]:
    """List isolated chunks, which only search finds."""
    if count := store.checks.count_isolated_chunks():
        yield Finding(
            "orphans",
            "info",
            f"{count} chunks have no text edges: only search finds them",
            "nothing needs to be done; titles, links and aliases in the documents would join them",
        )


def check_namespaces(store: ReadOnlyStore) -> Iterator[Finding]:
    """List frozen namespaces, which do not learn."""
    frozen = store.checks.get_frozen_namespaces()
    if frozen:
        shown = ", ".join(frozen[:5]) + (" …" if frozen[5:] else "")
        yield Finding(
            "namespaces",
            "info",
            f"{len(frozen)} namespaces are frozen and learn nothing: {shown}",
            "run `crabpath history unfreeze --namespace NAME` if one should learn again",
        )


def check_feedback(store: ReadOnlyStore) -> Iterator[Finding]:
    """Check for feedback that is waiting or was refused."""
    found = store.checks.count_open_feedback()
    if found.waiting:
        late = found.since is not None and time.time() - found.since > _DAY
        since = ", the oldest for more than a day" if late else ""
        yield Finding(
            "feedback",
            "warning" if late else "info",
            f"{found.waiting} feedback records wait to be applied{since}",
            "run `crabpath learn`",
        )
    if found.refused:
        yield Finding(
            "feedback",
            "info",
            f"{found.refused} feedback records were refused, each with a note that says why",
            "to read the note, send the same feedback again (`crabpath feedback ... --id ID`)",
        )


CHECKS = {
    "references": check_references,
    "unfinished": check_unfinished,
    "drift": check_drift,
    "orphans": check_orphans,
    "namespaces": check_namespaces,
    "feedback": check_feedback,
}
"""Checks by name; each needs an intact store of this release's schema."""
