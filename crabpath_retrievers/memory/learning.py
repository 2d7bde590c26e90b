"""``memory.learning``: feedback that waits or was given, its undo, replays, and anchored nodes."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from typing_extensions import Unpack

from crabpath_retrievers.core.calls import (
    AsyncView,
    count_records,
    limit_waiting,
    off_loop,
    run,
    trace_memory,
)
from crabpath_retrievers.core.extras import load_part
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE, Receipt, RewardSource
from crabpath_retrievers.core.query import (
    QueryOptions,
    parse_namespace,
    parse_text,
    parse_texts,
    require_count,
    require_flags,
)
from crabpath_retrievers.core.records import Authority
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.learning.recorder import LearningTally
from crabpath_retrievers.learning.undo import UNDONE_NOTE
from crabpath_retrievers.memory.notes import resolve_nodes
from crabpath_retrievers.memory.services import MemoryPart
from crabpath_retrievers.rerank import Evidence
from crabpath_retrievers.storage.read.history import FeedbackFilter
from crabpath_retrievers.storage.read.learned import NamespaceRecord
from crabpath_retrievers.storage.write.history import set_frozen
from crabpath_retrievers.storage.write.learned import drop_said
from crabpath_retrievers.storage.write.weights import set_authority

if TYPE_CHECKING:
    from crabpath_retrievers.parts.listing import FeedbackRecord
    from crabpath_retrievers.parts.operation.lift import Lift, LiftGrouping, ShadowLift
    from crabpath_retrievers.parts.operation.replay import ReplayCheck, ReplayReport
    from crabpath_retrievers.parts.operation.snapshots import Snapshot
    from crabpath_retrievers.parts.operation.uses import DocumentUse, Precedent


_LISTING = "crabpath_retrievers.parts.listing"
_LIFT = "crabpath_retrievers.parts.operation.lift"
_REPLAY = "crabpath_retrievers.parts.operation.replay"
_SNAPSHOTS = "crabpath_retrievers.parts.operation.snapshots"
_USES = "crabpath_retrievers.parts.operation.uses"


class MemoryLearning(MemoryPart):
    """Learn from waiting feedback, list and undo feedback, replay sessions, anchor nodes."""

    @trace_memory("update_memory", lambda tally: count_records(sum(tally)))
    def learn_waiting(self) -> LearningTally:
        """Learn from waiting feedback, and index what other processes have learned.

        For memories whose ``settings.learning.apply`` leaves learning to others, and after a store
        was away. What another process has learned, such as ``crabpath learn``, is read from the
        graph store until this process has indexed it.

        Returns:
            How much was applied, refused, or cannot be learned from.

        Raises:
            StoreError: A store failed; the rest stays waiting.
        """
        return self._services.recorder.learn_waiting()

    def feedback(
        self,
        *,
        user: str | None = None,
        source: RewardSource | None = None,
        namespace: str | None = None,
        turn_id: str | UUID | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> "list[FeedbackRecord]":
        """List the recorded feedback with its status, newest first.

        Args:
            user: Only feedback of this user; None for any.
            source: Only feedback of this source: ``human``, ``self``, ``harvested`` or ``teacher``.
                None for any.
            namespace: Only feedback of this namespace; None for all.
            turn_id: Only feedback about this turn, by its id or that of the host's run; None for
                any.
            before: Only feedback older than this one: the last one of the list before; None for the
                newest.
            limit: How many at most, at least 1.

        Raises:
            InvalidInputError: An argument cannot be used.
            NotFoundError: There is no feedback ``before``.
        """
        with limit_waiting(self._services.settings.time_limit):
            limit = require_count("limit", limit)
            giver = FeedbackFilter.of(user=user, source=source, namespace=namespace)
            turn = None if turn_id is None else parse_text("turn_id", turn_id)
            place = None if before is None else parse_text("before", before)
            reads = load_part(_LISTING).ListQueries(self._services.store)
            given: list[FeedbackRecord]
            given = reads.list_feedback(giver, limit, turn=turn, before=place)
        return given

    def precedents(self, turn_id: str | UUID, *, namespace: str | None = None) -> "list[Precedent]":
        """List verdicts on past questions like that of a turn: the past uses of its documents.

        Only those that were given before the turn and are not undone, among the newest 500.

        Args:
            turn_id: The turn, by its id or that of the host's run.
            namespace: The namespace of the turn; None looks in all.

        Returns:
            The most alike question first; none where the memory stores no vectors of turns.

        Raises:
            InvalidInputError: An argument cannot be used.
            NotFoundError: There is no such turn.

        Example::

            memory.learning.precedents(answer.turn.id)
        """
        scope = None if namespace is None else parse_namespace(namespace)
        services = self._services
        log = services.store.turns
        with limit_waiting(services.settings.time_limit):
            name = log.get(parse_text("turn_id", turn_id), namespace=scope).id
            found = log.find(name, namespace=scope)
            if found is None or found.vector is None:
                return []
            alike = services.episodes.near(services.store, found.vector, found.state.clock)
            reads = load_part(_USES).UseQueries(services.store)
            past: list[Precedent] = reads.find_precedents(found.turn, alike)
        return past

    def usage(
        self, *, namespace: str = DEFAULT_NAMESPACE, least: bool = False, limit: int = 10
    ) -> "list[DocumentUse]":
        """List the chunks and notes that feedback of a namespace found most useful.

        These were used at least as often as not; ``least`` lists the others.

        Args:
            namespace: The namespace whose feedback counts.
            least: List the least useful instead: what was more often returned without use.
            limit: How many at most, at least 1.

        Raises:
            InvalidInputError: An argument cannot be used.

        Example::

            memory.learning.usage(limit=5)
        """
        limit = require_count("limit", limit)
        require_flags(least=least)
        store, name = self._services.store, parse_namespace(namespace)
        with limit_waiting(self._services.settings.time_limit):
            key = store.walk.get_clock(name).key
            reads = load_part(_USES).UseQueries(store)
            ranked: list[DocumentUse] = reads.rank_by_use(key, limit, least=least)
        return ranked

    def lift(
        self, *, namespace: str | None = None, by: "LiftGrouping" = "namespace"
    ) -> "list[Lift]":
        """Measure the gain of learning: returned documents against the ranking before any lesson.

        Each turn after the first lesson records both. Those count whose feedback names
        ``relevant`` documents: what is ``used`` was chosen from what was shown, which would favour
        what answered. With ``settings.learning.trial_share`` both rankings draft the answers of
        that share of the turns, and then ``used`` counts, too, in rows of their own. Not measured
        are turns in which a reranker or a budget of tokens chose.

        Args:
            namespace: Only turns of this namespace; None for all.
            by: One row for each ``namespace``, ``source`` of feedback or ``week``.

        Returns:
            Rows in order of groups and labels; none without such feedback.

        Raises:
            InvalidInputError: An argument cannot be used.

        Example::

            memory.learning.lift(by="week")
        """
        scope = None if namespace is None else parse_namespace(namespace)
        with limit_waiting(self._services.settings.time_limit):
            found: list[Lift] = load_part(_LIFT).measure_lift(self._services.store, scope, by)
        return found

    def shadow_lift(
        self, *, namespace: str | None = None, by: "LiftGrouping" = "namespace"
    ) -> "list[ShadowLift]":
        """Compare the ranks of used documents in a shadow and in the present retriever.

        Those count whose feedback says that they were used in a success, or are relevant. The bias
        is the opposite of that of :meth:`lift`: the labels depend on what the present retriever
        showed, and documents that only the memory would have shown are hardly ever labelled.

        Args:
            namespace: Only turns of this namespace; None for all.
            by: One row for each ``namespace``, ``source`` of feedback or ``week``.

        Returns:
            Rows in order of their groups; none without such feedback.

        Raises:
            InvalidInputError: An argument cannot be used.

        Example::

            memory.learning.shadow_lift()
        """
        scope = None if namespace is None else parse_namespace(namespace)
        with limit_waiting(self._services.settings.time_limit):
            self._services.settle_shadows()
            found: list[ShadowLift] = load_part(_LIFT).measure_shadow(
                self._services.store, scope, by
            )
        return found

    @trace_memory("update_memory", lambda receipts: count_records(len(receipts)))
    def undo_all(
        self,
        *,
        user: str | None = None,
        source: RewardSource | None = None,
        token: str | None = None,
        namespace: str | None = None,
    ) -> list[Receipt]:
        """Undo all feedback of one user, source or token, the latest first.

        Each feedback is undone as by ``CrabPath.undo``, in a transaction of its own; so are the
        notes that its corrections created. Of a ``token`` alone, the notes and corrections that it
        gave without an outcome are undone, too.

        Args:
            user: The user whose feedback is undone; None for any.
            source: Instead, or with ``user``: ``human``, ``self``, ``harvested`` or ``teacher``.
                None for any.
            token: Instead, or with them: id of the token of a server that gave it.
            namespace: Only feedback of this namespace; None for all.

        Returns:
            One receipt for each feedback, then for each note, with the id of the note.

        Raises:
            InvalidInputError: None of the three was given, or one cannot be used.
        """
        return self._services.history.undo_all(user, source, token, namespace)

    @trace_memory("delete_memory", count_records)
    def forget_feedback(
        self, *, user: str | None = None, token: str | None = None, namespace: str | None = None
    ) -> int:
        """Undo all feedback of a user or token, and delete its answers, corrections and users.

        Of a ``token`` alone, the notes and corrections that it gave without an outcome go, too.
        The questions stay: they belong to the namespace. ``CrabPath.forget(erase=True)`` then takes
        what was deleted out of the files.

        Args:
            user: The user whose feedback is deleted.
            token: Instead, or with ``user``: id of the token of a server that gave it.
            namespace: Only feedback of this namespace; None for all.

        Returns:
            The number of feedbacks and such notes.

        Raises:
            InvalidInputError: Neither was given, or an argument cannot be used.
        """
        if user is None and token is None:
            msg = "whose feedback is to be deleted: give user, token or both"
            raise InvalidInputError(msg)
        giver = FeedbackFilter.of(user=user, source=None, namespace=namespace, token=token)
        receipts = self.undo_all(user=user, token=token, namespace=namespace)
        notes = sum(receipt.note == UNDONE_NOTE for receipt in receipts)
        with limit_waiting(self._services.settings.time_limit):
            return self._services.store.write(drop_said, giver.where()) + notes

    def anchor(
        self,
        ids: Sequence[str] | str,
        authority: str = "constitutional",
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> int:
        """Set the authority of nodes: at equal relevance, higher authority ranks first.

        The weights of edges that lead to it decay more slowly. Documents keep their authority when
        they are updated. Learned weights do not change now.

        Args:
            ids: Ids of chunks or notes, or of whole documents.
            authority: ``overlay``, ``canonical`` or ``constitutional``, as for ``CrabPath.teach``.
            namespace: The namespace that may find the notes among them.

        Returns:
            How many nodes were set.

        Raises:
            InvalidInputError: There is no such authority.
            NotFoundError: An id does not exist in this namespace.
        """
        rank = Authority.of(authority)
        keys = resolve_nodes(self._services.store, parse_texts(ids), parse_namespace(namespace))
        self._services.store.write(set_authority, [*keys.values()], rank)
        return len(keys)

    def evidence(self, /, text: str, **options: Unpack[QueryOptions]) -> Evidence:
        """Compute all candidates of a query with their features, for fitting and analysis.

        No turn is recorded.

        Args:
            text: The question.
            options: Fields of :class:`~crabpath_retrievers.core.query.Query`.
        """
        return run(self._services.retrieval.evidence(text, options))

    def replay(
        self,
        sessions: str | Path,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        k: int = 4,
        checkpoint: str | Path | None = None,
        skip_bad: bool = False,
    ) -> "ReplayReport":
        """Ask the questions of a log again, in order, and learn from their recorded outcomes.

        Each line of the file is an object with ``query`` or ``question``, and optionally
        ``outcome`` in [-1, 1], ``relevant`` and ``irrelevant`` (ids, sources or titles of
        documents), ``used`` (ids), ``answer``, ``correction`` and ``task_type``; ``session`` and
        ``time`` are checked and otherwise ignored. A run that LangSmith exported is understood as
        well, and so are the rows of a file named ``.csv`` with these columns. A line without an
        outcome is a success where it names what is relevant, else it is only asked; nothing is
        learned from one of whose relevant documents the memory has none. No line is asked or
        learned from twice, however often the same file is replayed into a namespace, also after
        the process was killed; lines that were added to the file since are replayed.

        Args:
            sessions: The file.
            namespace: The namespace that learns.
            k: Documents to retrieve.
            checkpoint: A file that saves the progress; without it every line is looked up in the
                memory; None for no such file.
            skip_bad: Skip lines that cannot be replayed, and report them.

        Raises:
            InvalidInputError: A line cannot be replayed, and nothing was learned from any; or the
                checkpoint belongs to something else.
            StoreError: A store failed; replay the same file to go on.
        """
        replay = load_part(_REPLAY).Replay(self._services, namespace, k)
        report: ReplayReport = replay.run(sessions, checkpoint, skip_bad=skip_bad)
        return report

    def check_replay(
        self, sessions: str | Path, *, namespace: str = DEFAULT_NAMESPACE
    ) -> "ReplayCheck":
        """Count the lines of a file for :meth:`replay` that name documents of the memory.

        Nothing is asked and nothing written.

        Args:
            sessions: The file.
            namespace: The namespace that would learn; lines may name its notes.

        Raises:
            InvalidInputError: The file cannot be read.
        """
        found: ReplayCheck = load_part(_REPLAY).Replay(self._services, namespace, 1).check(sessions)
        return found


class AsyncMemoryLearning(AsyncView[MemoryLearning]):
    """``memory.aio.learning``: :class:`MemoryLearning`, awaited."""

    learn_waiting = off_loop(MemoryLearning.learn_waiting, slow=True)
    feedback = off_loop(MemoryLearning.feedback)
    forget_feedback = off_loop(MemoryLearning.forget_feedback)
    precedents = off_loop(MemoryLearning.precedents)
    usage = off_loop(MemoryLearning.usage)
    lift = off_loop(MemoryLearning.lift)
    shadow_lift = off_loop(MemoryLearning.shadow_lift)
    undo_all = off_loop(MemoryLearning.undo_all, slow=True)
    anchor = off_loop(MemoryLearning.anchor)
    evidence = off_loop(MemoryLearning.evidence)
    replay = off_loop(MemoryLearning.replay, slow=True)
    check_replay = off_loop(MemoryLearning.check_replay, slow=True)


class MemoryNamespaces(MemoryPart):
    """List namespaces; take, restore and delete their snapshots; freeze and unfreeze them."""

    def records(
        self, names: Sequence[str] | str | None = None, *, after: str = "", limit: int = 100
    ) -> list[NamespaceRecord]:
        """List the namespaces that have asked or learned something, in the order of their names.

        Args:
            names: Only these; None for all.
            after: Only names after this one, such as the last name of the page before.
            limit: How many at most, at least 1.

        Raises:
            InvalidInputError: An argument cannot be used.

        Example::

            for record in memory.namespaces.records():
                print(record.name, record.turns, record.frozen)
        """
        limit = require_count("limit", limit)
        wanted = None if names is None else [parse_namespace(name) for name in parse_texts(names)]
        last = "" if isinstance(after, str) and not after else parse_namespace(after)
        services = self._services
        with limit_waiting(services.settings.time_limit):
            services.store.flush()  # the first turn of a namespace creates it
            return services.store.learned.list_namespaces(wanted, last, limit)

    def snapshot(self, namespace: str = DEFAULT_NAMESPACE, name: str | None = None) -> str:
        """Save all that a namespace has learned up to now.

        Args:
            namespace: The namespace.
            name: A name to find the snapshot by; unique within the namespace; None for none.

        Returns:
            The id of the snapshot.

        Raises:
            NotFoundError: There is no such namespace.
            InvalidInputError: The name exists already or cannot be used.
        """
        taken: str = load_part(_SNAPSHOTS).take_snapshot(self._services.history, namespace, name)
        return taken

    def snapshots(self, namespace: str | None = DEFAULT_NAMESPACE) -> "list[Snapshot]":
        """List the snapshots of a namespace, newest first; None lists those of all namespaces."""
        scope = None if namespace is None else parse_namespace(namespace)
        found: list[Snapshot] = load_part(_SNAPSHOTS).list_snapshots(self._services.store, scope)
        return found

    def restore(self, snapshot: str, *, namespace: str | None = None) -> "Snapshot":
        """Reset what a namespace has learned to what it was at a snapshot.

        Documents do not change; documents deleted since are ignored. Feedback recorded after the
        snapshot stays applied and its turns consumed, so that it is not learned from again.
        Feedback undone after the snapshot counts again and cannot be undone a second time. Turns
        and the frozen state do not change. Notes created later are deleted; notes that were
        deleted with undone feedback come back; what ``forget`` deleted stays deleted.

        Args:
            snapshot: Its id, or its name within ``namespace``.
            namespace: Look only among snapshots of this namespace; with None ids are looked up in
                all namespaces, names in the default one.

        Raises:
            NotFoundError: There is no such snapshot.
        """
        part, history = load_part(_SNAPSHOTS), self._services.history
        restored: Snapshot = part.restore_snapshot(history, snapshot, namespace)
        return restored

    def delete_snapshot(self, snapshot: str, *, namespace: str | None = None) -> None:
        """Delete a snapshot, looked up as by :meth:`restore`.

        Raises:
            NotFoundError: There is no such snapshot.
        """
        load_part(_SNAPSHOTS).delete_snapshot(self._services.history, snapshot, namespace)

    def freeze(self, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Stop a namespace from learning: its feedback is refused from now on.

        Queries go on using what it has learned; ``undo`` and :meth:`restore` still work.
        """
        self._set_frozen(namespace, frozen=True)

    def unfreeze(self, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Let a frozen namespace learn again, from feedback recorded from now on."""
        self._set_frozen(namespace, frozen=False)

    def _set_frozen(self, namespace: str, *, frozen: bool) -> None:
        self._services.store.write(set_frozen, parse_namespace(namespace), frozen=frozen)


class AsyncMemoryNamespaces(AsyncView[MemoryNamespaces]):
    """``memory.aio.namespaces``: :class:`MemoryNamespaces`, awaited."""

    records = off_loop(MemoryNamespaces.records)
    snapshot = off_loop(MemoryNamespaces.snapshot, slow=True)
    snapshots = off_loop(MemoryNamespaces.snapshots)
    restore = off_loop(MemoryNamespaces.restore, slow=True)
    delete_snapshot = off_loop(MemoryNamespaces.delete_snapshot)
    freeze = off_loop(MemoryNamespaces.freeze)
    unfreeze = off_loop(MemoryNamespaces.unfreeze)
