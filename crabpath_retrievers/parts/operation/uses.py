"""Past uses of documents: verdicts on questions like that of a turn, and documents by their use."""

import re
from collections.abc import Iterable
from typing import NamedTuple

import sqlalchemy as sa
from pydantic_core import from_json

from crabpath_retrievers.core.feedback import DOCUMENT_FIELDS, Feedback
from crabpath_retrievers.core.records import Turn
from crabpath_retrievers.storage.read.learned import StoredEpisode
from crabpath_retrievers.storage.schema import (
    consumed_turns,
    feedback,
    namespaces,
    nodes,
    turns,
    usage,
)
from crabpath_retrievers.storage.sql_tools import Queries

_QUERY = re.compile(r'"query": ?("(?:[^"\\]|\\.)*")')  # in a record, before all texts of others
_MOST_PRECEDENTS = 500  # newest verdicts among which those on similar questions are looked for


class Precedent(NamedTuple):
    """A verdict on a past question that is like the one of a turn.

    Attributes:
        query: The past question.
        similarity: Cosine of both questions, in [-1, 1].
        turn_id, feedback_id: The past turn, and the feedback about it.
        outcome: In [-1, 1].
        user, source: Who gave it; the user is None if unknown.
        created: When the feedback was given, in seconds since the epoch.
        documents: Credit of documents, in [-1, 1] and below 0 for what was not used.
        stated: Whether the verdict names documents; else it is about the answer as a whole.
    """

    query: str
    similarity: float
    turn_id: str
    feedback_id: str
    outcome: float
    user: str | None
    source: str
    created: float
    documents: dict[str, float]
    stated: bool


class DocumentUse(NamedTuple):
    """Number of turns of a namespace that used a returned chunk or note, by their feedback.

    Attributes:
        id, title: Of the chunk or note.
        wins: Turns that used it, weighted by credit.
        losses: Turns that returned it and did not use it.
        usefulness: ``(wins + 1) / (wins + losses + 2)``, in (0, 1): the mean of a Beta posterior.
    """

    id: str
    title: str
    wins: float
    losses: float
    usefulness: float


class UseQueries(Queries):
    """Reads of past uses."""

    def find_precedents(
        self, turn: Turn, alike: Iterable[tuple[StoredEpisode, float]]
    ) -> list[Precedent]:
        """Find the verdicts before a turn on past questions, the most alike question first.

        ``alike`` are episodes with the similarity of their questions. Only the newest 500 verdicts
        are considered.
        """
        self._store.flush()
        known = {episode.query: (episode, near) for episode, near in alike}
        newest = (
            sa.select(feedback.c.id, feedback.c.payload, feedback.c.created)
            .where(
                feedback.c.namespace == turn.namespace,
                feedback.c.status == "applied",
                feedback.c.created < turn.created,
            )
            .order_by(feedback.c.sequence.desc())
            .limit(_MOST_PRECEDENTS)
        )
        given = {name: (payload, at) for name, payload, at in self._rows(newest) if known}
        judged = (
            sa.select(consumed_turns.c.feedback, turns.c.id, turns.c.record)
            .join(turns, turns.c.id == consumed_turns.c.turn)
            # The sum keeps the planner from the index on namespaces, as above.
            .join(namespaces, namespaces.c.key == turns.c.namespace + 0)
            .where(namespaces.c.name == turn.namespace)
        )
        found: list[Precedent] = []
        for given_id, name, record in self._rows_in(judged, consumed_turns.c.feedback, given):
            # A record holds a whole walk, and all but the question is not needed.
            text = _QUERY.search(record)
            query = from_json(text[1]) if text else ""
            if query not in known:
                continue
            (episode, near), (payload, at) = known[query], given[given_id]
            said = Feedback.from_record(payload)
            credit = episode.credit_by_user.get(said.user or "", episode.documents)
            who = given_id, said.outcome, said.user, said.source
            stated = any(getattr(said, field) is not None for field in DOCUMENT_FIELDS)
            found.append(Precedent(query, near, name, *who, at, credit, stated))
        return sorted(found, key=lambda one: (-one.similarity, -one.created))

    def rank_by_use(self, namespace: int, limit: int, *, least: bool) -> list[DocumentUse]:
        """List at most ``limit`` chunks and notes by their use, the most useful first.

        These were used at least as often as not. ``least`` lists the others, the least useful
        first.
        """
        wins, losses = usage.c.wins, usage.c.losses
        useful = (wins + 1.0) / (wins + losses + 2.0)
        query = (
            sa.select(nodes.c.id, nodes.c.title, wins, losses, useful)
            .join(nodes, nodes.c.key == usage.c.node)
            .where(usage.c.namespace == namespace, nodes.c.owner.in_((0, namespace)))
            .where(losses > wins if least else sa.and_(wins >= losses, wins > 0))
            .order_by(useful if least else useful.desc(), nodes.c.key)
            .limit(limit)
        )
        return [DocumentUse(*row) for row in self._rows(query)]
