"""Which turns a feedback is about, what it says of each, and when it is refused."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.feedback.credit import credit
from crabpath_retrievers.feedback.delayed import shares
from crabpath_retrievers.feedback.finding import find_supported
from crabpath_retrievers.feedback.learner import Judged
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE, Credit, Feedback
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.learned_queries import Kept
from crabpath_retrievers.storage.turn_log import Logged
from crabpath_retrievers.trajectory import Turn

_SHIPPED = LearningSettings().sources
# Turns are written behind the answers: that of another process may come after its feedback.
_PATIENCE = (0.02, 0.05, 0.1)
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from a feedback.

    Attributes:
        judged: The turns of one namespace that it is about; none means that it is refused.
        note: Why it is refused, or what of it is ignored.
    """

    judged: tuple[Judged, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Judge:
    """Reads turns and says what kept feedback means for them."""

    store: GraphStore
    settings: LearningSettings

    def verdict(self, kept: Kept) -> Verdict:
        """What follows from feedback, as the turns stand now.

        The window of feedback without a turn ends when it was given, however late it is judged.
        """
        kept = kept._replace(feedback=self._standing(kept.feedback))
        named = kept.feedback.turn_id is not None
        candidates = self._asked(kept) if named else self._window(kept)
        if isinstance(candidates, str):
            return Verdict(note=candidates)
        return self._judged(kept.feedback, candidates)

    def _standing(self, feedback: Feedback) -> Feedback:
        """The feedback about the nodes that stand for those that it names."""
        named = (*(feedback.used or ()), *(feedback.unused or ()))
        stands = self.store.catalog.answering(named) if named else {}
        if not stands:
            return feedback
        used, unused = (
            None if ids is None else tuple(dict.fromkeys(stands.get(i, i) for i in ids))
            for ids in (feedback.used, feedback.unused)
        )
        left = unused and tuple(node for node in unused if node not in (used or ()))
        return replace(feedback, used=used, unused=left)

    def _asked(self, kept: Kept) -> list[Logged] | str:
        asked, namespace = str(kept.feedback.turn_id), kept.feedback.namespace
        found = self.store.turns.find(asked, namespace=namespace)
        for pause in _PATIENCE:
            if found is not None or time.time() - kept.created > sum(_PATIENCE):
                break
            time.sleep(pause)
            found = self.store.turns.find(asked, namespace=namespace)
        if found is None:
            where = "here" if namespace is None else f"in namespace {namespace!r}"
            return f"no turn {asked!r} is recorded {where}: check the id and the namespace"
        if found.consumed is not None:
            return f"turn {found.turn.id!r} was consumed by feedback {found.consumed!r}"
        return _frozen(found) or [found]

    def _window(self, kept: Kept) -> list[Logged] | str:
        namespace = kept.feedback.namespace or DEFAULT_NAMESPACE
        turns, seconds = self.settings.window_turns, self.settings.window_seconds
        found = self.store.turns.window(namespace, until=kept.created, turns=turns, seconds=seconds)
        left = [logged for logged in found if logged.consumed is None]
        if not left:
            if not found and self._is_ahead(namespace, kept.created):
                return (
                    f"the last turn of namespace {namespace!r} is later than this feedback (was "
                    "the clock set back?): give the turn id"
                )
            return (
                f"none of the last {turns} turns of namespace {namespace!r} within {seconds:g} "
                "seconds is left to learn from: give the turn id"
            )
        return _frozen(left[0]) or _named(kept.feedback, left)

    def _is_ahead(self, namespace: str, moment: float) -> bool:
        """Whether the last turn was recorded after a moment."""
        latest = self.store.turns.latest(namespace)
        found = self.store.turns.find(latest, namespace=namespace) if latest else None
        return found is not None and found.turn.created > moment

    def _judged(self, feedback: Feedback, candidates: Sequence[Logged]) -> Verdict:
        weight = self.settings.sources.get(feedback.source, _SHIPPED[feedback.source])
        parts = shares([logged.turn.clock for logged in candidates], self.settings.turn_decay)
        judged = [
            Judged(
                logged.turn,
                self._credit(logged.turn, _about(feedback, logged.turn), weight * part),
                logged.vector,
            )
            for logged, part in zip(candidates, parts, strict=True)
        ]
        return Verdict(tuple(judged), _ignored(feedback, candidates))

    def _credit(self, turn: Turn, feedback: Feedback, weight: float) -> Credit:
        found = None
        if feedback.used is None and feedback.answer:
            found = find_supported(self.store, turn, feedback.answer)
        return credit(turn, feedback, found, weight)


def _frozen(logged: Logged) -> str | None:
    name = logged.turn.namespace
    return f"namespace {name!r} is frozen: it learns nothing" if logged.frozen else None


def _named(feedback: Feedback, candidates: list[Logged]) -> list[Logged]:
    """Those that returned a document which the feedback names; all where none did.

    A success elsewhere must not count as a pass for what these turns returned.
    """
    ids = {*(feedback.used or ()), *(feedback.unused or ())}
    return [logged for logged in candidates if ids & _returned(logged.turn)] or candidates


def _about(feedback: Feedback, turn: Turn) -> Feedback:
    """The feedback without documents that the turn did not return.

    Where it knows none of those that were used, nothing is known of what it did return.
    """
    returned = _returned(turn)
    used, unused = (
        ids if not ids else tuple(i for i in ids if i in returned) or None
        for ids in (feedback.used, feedback.unused)
    )
    return replace(feedback, used=used, unused=unused)


def _ignored(feedback: Feedback, candidates: Sequence[Logged]) -> str | None:
    returned = {node for logged in candidates for node in _returned(logged.turn)}
    given = dict.fromkeys((*(feedback.used or ()), *(feedback.unused or ())))
    strange = [i for i in given if i not in returned]
    if not strange:
        return None
    shown = ", ".join(strange[:_SHOWN]) + (" …" if len(strange) > _SHOWN else "")
    return f"{len(strange)} ids that were not returned are ignored: {shown}"


def _returned(turn: Turn) -> set[str]:
    return {item.node for item in turn.returned}
