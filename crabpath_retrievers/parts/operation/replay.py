"""Replays of logs: their questions are asked again, and what is known of them is learned."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.core.calls import describe_turn, limit_waiting, run, trace_retrieval
from crabpath_retrievers.core.feedback import Feedback
from crabpath_retrievers.core.processes import compute_ahead
from crabpath_retrievers.core.query import parse_namespace, parse_path, require_flags
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.memory.services import Services
from crabpath_retrievers.parts.operation.transfer.replay_file import (
    LineError,
    ReplayCheckpoint,
    ReplayLine,
    ReplayRecord,
    find_bad_lines,
    hash_lines,
    parse_line,
    read_lines,
)
from crabpath_retrievers.routing import SoftmaxRouter
from crabpath_retrievers.storage import Store
from crabpath_retrievers.storage.schema import contents, feedback, namespaces, nodes, turns
from crabpath_retrievers.storage.sql_tools import Queries, split_batches

if TYPE_CHECKING:
    from crabpath_retrievers.core.query import QueryOptions

_EMBEDDED = 256  # questions that are embedded in one call
_TOGETHER = 64  # lines of one transaction: other writers wait for half a second
_NAMING = ("relevant", "irrelevant")


class ReplayQueries(Queries):
    """Reads of replay: what was replayed, and documents by title."""

    def find_replayed(self, names: Sequence[str], namespace: str) -> set[str]:
        """Select the names that are ids of feedback or of hosts' runs in a namespace."""
        given = sa.select(feedback.c.id).where(feedback.c.namespace == namespace)
        asked = sa.select(turns.c.run_id).join(namespaces, namespaces.c.key == turns.c.namespace)
        rows = self._rows_in(given, feedback.c.id, names)
        own = asked.where(namespaces.c.name == namespace)
        return {name for (name,) in [*rows, *self._rows_in(own, turns.c.run_id, names)]}

    def find_titled(self, titles: Sequence[str]) -> dict[str, list[str]]:
        """Ids of the visible documents with these titles, by title; reads the whole corpus."""
        found: dict[str, list[str]] = {}
        if not titles:
            return found
        query = sa.select(nodes.c.title, contents.c.document).distinct()
        query = query.join(contents, contents.c.node == nodes.c.key).where(nodes.c.owner == 0)
        for title, document in self._rows_in(query, nodes.c.title, titles):
            found.setdefault(title, []).append(document)
        return found


class ReplayReport(NamedTuple):
    """Result of a replay, in numbers of lines.

    Attributes:
        asked: Asked in this run.
        learned: Learned from in this run.
        waiting: Their feedback waits to be learned from.
        before: Replayed in an earlier run, and skipped now.
        refused: Nothing was learned from them, each with the reason.
        bad: They cannot be replayed, each with the reason.
    """

    asked: int
    learned: int
    waiting: int
    before: int
    refused: tuple[LineError, ...]
    bad: tuple[LineError, ...]


class ReplayCheck(NamedTuple):
    """Result of a dry run, in numbers of lines.

    Attributes:
        readable: They can be replayed.
        matched: Of those, they name a relevant document that the memory has.
        unmatched: Of those, they name relevant documents, and the memory has none of them; each
            with the reason.
        bad: They cannot be replayed, each with the reason.
    """

    readable: int
    matched: int
    unmatched: tuple[LineError, ...]
    bad: tuple[LineError, ...]


class _Row(NamedTuple):
    """A line, with the digest of all lines up to it.

    ``past`` is None if the line cannot be replayed; ``why`` is the reason, or why nothing can be
    learned. The vector is None if the question is embedded when it is asked.
    """

    line: ReplayLine
    digest: str
    past: ReplayRecord | None
    why: str | None = None
    vector: Vector | None = None


_Result = tuple[tuple[str, ...], str | None]
"""As what a line counts, and why nothing was learned from it, if nothing was."""


class Replay:
    """Replays lines into one namespace, and counts what they led to."""

    def __init__(self, services: Services, namespace: str, k: int) -> None:
        """Keep the services and the namespace to replay into; ``k`` is the documents a question."""
        self._services, self._k = services, k
        self._namespace = parse_namespace(namespace)
        self._counts = Counter[str]()
        self._refused: list[LineError] = []
        self._bad: list[LineError] = []

    def check(self, sessions: str | Path) -> ReplayCheck:
        """Check a file for a replay; nothing is written."""
        path, readable, matched = parse_path("sessions", sessions), 0, 0
        unmatched, bad = list[LineError](), list[LineError]()
        for part in split_batches(hash_lines(read_lines(path)), _EMBEDDED):
            for row in self._match([_parse(*line) for line in part]):
                if row.past is None:
                    bad.append(LineError(row.line.number, str(row.why)))
                    continue
                readable += 1
                if row.why is not None:
                    unmatched.append(LineError(row.line.number, row.why))
                else:
                    matched += bool(row.past.said and row.past.said.get("relevant"))
        return ReplayCheck(readable, matched, tuple(unmatched), tuple(bad))

    def run(
        self, sessions: str | Path, checkpoint: str | Path | None, *, skip_bad: bool
    ) -> ReplayReport:
        """Replay the lines of a file that were not replayed before.

        Arguments and errors are those of :meth:`MemoryLearning.replay`.
        """
        require_flags(skip_bad=skip_bad)
        path = parse_path("sessions", sessions)
        progress_file = None if checkpoint is None else parse_path("checkpoint", checkpoint)
        bad = None if skip_bad else next(iter(find_bad_lines(path)), None)
        if bad is not None:
            msg = f"line {bad.line} of {path}: {bad.why}; nothing was learned"
            raise InvalidInputError(msg)
        done = ReplayCheckpoint()
        if progress_file is not None:
            done = self._read_checkpoint(progress_file, path)
        for rows in self._prepare(path, done):
            for part in split_batches(rows, _TOGETHER):
                self._add_part(part)
                if progress_file is not None:
                    self._services.store.flush()
                    asked = [row.line for row in part if row.past and not row.why]
                    name = asked[-1].name(self._namespace) if asked else done.name
                    done = ReplayCheckpoint(part[-1].line.number, part[-1].digest, name)
                    done.write(progress_file)
        return ReplayReport(
            self._counts["asked"],
            self._counts["learned"],
            self._counts["waiting"],
            self._counts["before"],
            tuple(self._refused),
            tuple(self._bad),
        )

    def _read_checkpoint(self, file: Path, sessions: Path) -> ReplayCheckpoint:
        """Read the progress that was saved in ``file`` for the file ``sessions``.

        Raises:
            InvalidInputError: The checkpoint belongs to something else.
        """
        done = ReplayCheckpoint.load(file)
        digests = (
            digest for line, digest in hash_lines(read_lines(sessions)) if line.number == done.line
        )
        same = not done.line or next(digests, None) == done.digest
        if not (same and (not done.name or self._find_known(self._services.store, [done.name]))):
            msg = (
                f"the checkpoint {file} belongs to other sessions, another memory or another "
                "namespace: delete it to begin anew; no line is learned from twice"
            )
            raise InvalidInputError(msg)
        return done

    def _find_known(self, store: Store, names: Sequence[str]) -> set[str]:
        """Select the names of the lines that were replayed before."""
        return ReplayQueries(store).find_replayed(names, self._namespace)

    def _prepare(self, sessions: Path, done: ReplayCheckpoint) -> Iterator[list[_Row]]:
        """Yield the lines after the checkpoint ``done`` in parts.

        While a part is used, the next one is embedded.
        """
        lines = self._pass_over(hash_lines(read_lines(sessions)), done)
        parts = ([_parse(*line) for line in part] for part in split_batches(lines, _EMBEDDED))
        return compute_ahead(self._embed, parts, "crabpath-replay")

    def _pass_over(
        self, lines: Iterable[tuple[ReplayLine, str]], done: ReplayCheckpoint
    ) -> Iterator[tuple[ReplayLine, str]]:
        """Yield the lines after the checkpoint ``done``, and count those before it."""
        for line, digest in lines:
            if line.number <= done.line:
                self._counts["before"] += 1
            else:
                yield line, digest

    def _embed(self, rows: Sequence[_Row]) -> list[_Row]:
        """Embed the questions of rows, unless they were asked before."""
        rows = self._match(rows)
        names = {row.line.number: row.line.name(self._namespace) for row in rows}
        known = self._find_known(self._services.store, [*names.values()])
        asked = {
            row.line.number: row.past.query
            for row in rows
            if row.past and not row.why and names[row.line.number] not in known
        }
        try:
            vectors = self._services.embedder.queries([*asked.values()])
        except InvalidInputError:  # one has no vector: each is embedded when it is asked
            return rows
        found = dict(zip(asked, vectors, strict=True))
        return [row._replace(vector=found.get(row.line.number)) for row in rows]

    def _match(self, rows: Sequence[_Row]) -> list[_Row]:
        """Replace titles in rows by ids of documents.

        A row names relevant documents, or else irrelevant ones. If the memory has none of them, the
        row gets a reason not to be learned from: its outcome is not about the documents that the
        memory has.
        """
        store = self._services.store
        named = {name for row in rows for field in _NAMING for name in _get_names(row, field)}
        chunks = store.catalog.find_chunks(ids=named, documents=named, sources=named)
        known = {name for chunk in chunks for name in (chunk.id, chunk.document, chunk.source)}
        rest = sorted(named - known)
        known |= store.learned.keys(rest, store.walk.get_clock(self._namespace).key).keys()
        titled = ReplayQueries(store).find_titled([name for name in rest if name not in known])
        return [self._match_row(row, known, titled) for row in rows]

    def _match_row(self, row: _Row, known: set[str], titled: dict[str, list[str]]) -> _Row:
        if row.past is None or row.past.said is None:
            return row
        said: dict[str, Any] = dict(row.past.said)
        for field in _NAMING:
            names = _get_names(row, field)
            if any(name in titled for name in names):
                # A title of several documents names none.
                said[field] = [
                    titled[name][0] if len(titled.get(name, ())) == 1 else name for name in names
                ]
        named = _get_names(row, "relevant") or _get_names(row, "irrelevant")
        why = None
        if named and not any(name in known or len(titled.get(name, ())) == 1 for name in named):
            several = next((name for name in named if name in titled), None)
            why = f"the memory has no document with the id, source or title {named[0]!r:.100}"
            if several is not None:
                count = len(titled[several])
                why = f"{count} documents have the title {several!r:.100}: give their ids"
        if why is None:
            try:
                Feedback(None, **said)
            except InvalidInputError as error:  # two names are of one document
                why = str(error)
        return row._replace(past=row.past._replace(said=said), why=why)

    def _add_part(self, rows: Sequence[_Row]) -> None:
        """Replay lines; in one transaction if they wait for nothing but the store."""
        services, retrieval = self._services, self._services.retrieval
        slow = type(retrieval.router) is not SoftmaxRouter or retrieval.reranker is not None
        for waits, group in groupby(rows, lambda row: slow or _is_embedded_later(row)):
            given = list(group)
            if waits:
                for row in given:
                    self._count([row], self._add_rows(services.store, [row]))
                continue
            add = partial(self._add_rows, rows=given)
            vectors = [row.vector for row in given if row.vector is not None]
            try:
                with (
                    limit_waiting(services.settings.time_limit),
                    retrieval.search_ahead(self._namespace, vectors, self._k),
                ):
                    results = services.store.apply_together(add)
            except BaseException:
                retrieval.models.reopen()  # it knows what was not committed
                services.store.walk.forget_corpus()
                raise
            self._count(given, results)
            services.recorder.catch_up()

    def _count(self, rows: Sequence[_Row], results: Sequence[_Result]) -> None:
        for row, (counted, why) in zip(rows, results, strict=True):
            self._counts.update(counted)
            if why is not None:
                refused = self._bad if row.past is None else self._refused
                refused.append(LineError(row.line.number, why))

    def _add_rows(self, store: Store, rows: Sequence[_Row]) -> list[_Result]:
        names = [row.line.name(self._namespace) for row in rows]
        known = self._find_known(store, names)
        return [
            ((), row.why)
            if row.past is None or row.why is not None
            else self._add(store, row.past, name, row.vector, known=name in known)
            for row, name in zip(rows, names, strict=True)
        ]

    def _add(
        self, store: Store, past: ReplayRecord, name: str, vector: Vector | None, *, known: bool
    ) -> _Result:
        """Replay the line ``past`` under the id ``name``.

        ``vector`` is that of the question, None to embed it. ``known`` says that the id was used
        before: a line that was asked and interrupted is then learned from without being asked
        again.

        Returns:
            What to count; and the reason if its feedback was refused, else None.
        """
        turn: str | None = None
        counted: tuple[str, ...] = ()
        if known:
            if store.history.get_feedback_state(name, self._namespace) is not None:
                return (("before",), None)
            asked = store.turns.find(name, namespace=self._namespace)
            turn = None if asked is None else asked.turn.id
            if past.said is None:
                return (("before",), None)
        if turn is None:
            turn, counted = self._ask(store, past, name, vector), ("asked",)
        if past.said is None:
            return counted, None
        given = Feedback(turn, feedback_id=name, namespace=self._namespace, **past.said)
        with limit_waiting(self._services.settings.time_limit):
            receipt = self._services.recorder.record(given, store)
        status = "learned" if receipt.status == "applied" else receipt.status
        why = str(receipt.note) if status == "refused" else None
        return counted if why else (*counted, status), why

    def _ask(self, store: Store, past: ReplayRecord, name: str, vector: Vector | None) -> str:
        """Ask the question of the line ``past``; return the id of the turn.

        ``name`` is recorded as the id of the run; ``vector`` None embeds the question.
        """
        services = self._services
        options: QueryOptions = {
            "k": self._k,
            "namespace": self._namespace,
            "task_type": past.task_type,
            "run_id": name,
        }
        if vector is not None:
            options["vector"] = vector
        with trace_retrieval(services, past.query, options) as span:
            retrieval = replace(services.retrieval, store=store)
            turn = run(retrieval.steps(past.query, options)).turn
            describe_turn(span, turn)
            return turn.id


def _parse(line: ReplayLine, digest: str) -> _Row:
    try:
        return _Row(line, digest, parse_line(line))
    except InvalidInputError as error:
        return _Row(line, digest, None, str(error))


def _get_names(row: _Row, field: str) -> Sequence[str]:
    said = row.past.said if row.past else None
    names = said.get(field) if said else None
    return (names,) if isinstance(names, str) else names or ()


def _is_embedded_later(row: _Row) -> bool:
    """Whether a text of a row is embedded while it is added, which may take long."""
    if row.past is None or row.why is not None:
        return False
    return bool(row.past.said and row.past.said.get("correction"))
