"""What a namespace is told outright: teachings, corrections, directives, and who may not fade."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from typing_extensions import TypedDict, Unpack

from crabpath_retrievers.changes.notes import KeepNote, NoteEdge, NoteKind, SetAuthority
from crabpath_retrievers.driver import arun, perform
from crabpath_retrievers.errors import InvalidInputError, NotFoundError
from crabpath_retrievers.feedback.noted import entry_edges
from crabpath_retrievers.graph import Authority, Vector
from crabpath_retrievers.learning.notes import LONGEST, Asked, Said, note, note_digest, note_id
from crabpath_retrievers.memory.parts import Parts
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE
from crabpath_retrievers.query import namespace_of, text_of, texts_of
from crabpath_retrievers.storage.replaced import WHOLES
from crabpath_retrievers.storage.turn_log import Logged
from crabpath_retrievers.text import storable, titled
from crabpath_retrievers.time_limit import within_limit

_LONGEST_NAME = 600
_SHOWN = 5


class NoteFields(TypedDict, total=False):
    """Optional fields of a note: see :meth:`Teaching.teach`."""

    title: str
    related: Sequence[str] | str
    id: str | None


class Teaching(Parts):
    """Notes of a namespace: no other one ever sees them, and no corpus index holds them."""

    @within_limit
    def teach(
        self,
        text: str,
        *,
        title: str = "",
        query: str | None = None,
        related: Sequence[str] | str = (),
        namespace: str = DEFAULT_NAMESPACE,
        authority: str = "overlay",
        id: str | None = None,  # noqa: A002  as everywhere else
    ) -> str:
        """Tell a namespace something that its documents do not say.

        From now on its queries find the note as they find documents. The same again changes
        nothing; the same id with something else replaces the note.

        Args:
            text: The note, returned as a whole: at most 20,000 characters.
            title: Its title.
            query: A question that it answers; similar ones will recall it.
            related: Ids of documents, chunks or notes to which it leads.
            namespace: Whose note it is.
            authority: ``overlay``; ``canonical``: weights of edges that lead to it decay at a
                quarter of the speed; or ``constitutional``: they never do.
            id: Its id; None derives one from namespace and text.

        Returns:
            The id of the note.

        Raises:
            InvalidInputError: An argument cannot be used, the id is taken, or the namespace is
                frozen.
            NotFoundError: A related id does not exist for this namespace.
        """
        said = Said(text, title, texts_of(related, name="related"), id=id)
        asked = None if query is None else Asked(query)
        return self._tell("teaching", namespace, said, authority, asked)

    @within_limit
    def direct(
        self,
        text: str,
        *,
        title: str = "",
        query: str | None = None,
        related: Sequence[str] | str = (),
        namespace: str = DEFAULT_NAMESPACE,
        authority: str = "canonical",
        id: str | None = None,  # noqa: A002
    ) -> str:
        """Give a namespace an instruction; as :meth:`teach`, but canonical unless told."""
        said = Said(text, title, texts_of(related, name="related"), id=id)
        asked = None if query is None else Asked(query)
        return self._tell("directive", namespace, said, authority, asked)

    @within_limit
    def correct(
        self,
        text: str,
        *,
        turn_id: str | None = None,
        wrong: Sequence[str] | str | None = None,
        query: str | None = None,
        namespace: str | None = None,
        authority: str = "overlay",
        **fields: Unpack[NoteFields],
    ) -> str:
        """Say what would have been right.

        The note advises against what it corrects; so does the node by which the turn came to it.
        That lowers a document where the note, or that node, is found; it never removes it.

        Args:
            text: What is right.
            turn_id: The turn, or the host's run, that was wrong; its question recalls the note.
            wrong: Ids of what is wrong; None is the best document of the turn, if one is given.
            query: A question that the note answers, instead of that of the turn.
            namespace: Whose note it is; None for that of the turn, or "default" without one.
            authority: As for :meth:`teach`.
            fields: ``title``, ``related`` and ``id`` of :meth:`teach`.

        Returns:
            The id of the note.

        Raises:
            InvalidInputError: As for :meth:`teach`.
            NotFoundError: There is no such turn in that namespace, or no such id.
        """
        logged = None if turn_id is None else self._turn(turn_id, namespace)
        if namespace is None:
            namespace = logged.turn.namespace if logged else DEFAULT_NAMESPACE
        if wrong is None:
            wrong = self._best(logged) if logged else ()
        said = Said(
            text,
            fields.get("title", ""),
            texts_of(fields.get("related", ()), name="related"),
            texts_of(wrong, name="wrong"),
            fields.get("id"),
        )
        asked = Asked(query) if query is not None else _question(logged)
        return self._tell("correction", namespace, said, authority, asked, logged)

    def anchor(
        self,
        ids: Sequence[str] | str,
        authority: str = "constitutional",
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> int:
        """Set how far nodes are above learning (``overlay``, ``canonical``, ``constitutional``).

        Documents stay anchored when they are updated. Learned weights go on from where they stand.

        Args:
            ids: Ids of chunks or notes, or of whole documents.
            authority: As for :meth:`teach`.
            namespace: Whose notes may be among them.

        Returns:
            How many nodes were set.

        Raises:
            InvalidInputError: There is no such authority.
            NotFoundError: An id does not exist for this namespace.
        """
        self._require_open()
        rank = Authority.of(authority)
        keys = self._nodes(texts_of(ids), namespace_of(namespace))
        self.store.apply([SetAuthority(tuple(keys.values()), rank)])
        return len(keys)

    async def ateach(self, text: str, **options: Any) -> str:
        """As :meth:`teach`, off the event loop."""
        return await arun(perform(self.teach, text, **options))

    async def adirect(self, text: str, **options: Any) -> str:
        """As :meth:`direct`, off the event loop."""
        return await arun(perform(self.direct, text, **options))

    async def acorrect(self, text: str, **options: Any) -> str:
        """As :meth:`correct`, off the event loop."""
        return await arun(perform(self.correct, text, **options))

    async def aanchor(self, ids: Sequence[str] | str, *given: Any, **options: Any) -> int:
        """As :meth:`anchor`, off the event loop."""
        return await arun(perform(self.anchor, ids, *given, **options))

    def _tell(
        self,
        kind: NoteKind,
        namespace: str,
        given: Said,
        authority: str,
        asked: Asked | None,
        logged: Logged | None = None,
    ) -> str:
        """Keep a note, unless it is there as it is."""
        self._require_open()
        rank, whose = Authority.of(authority), namespace_of(namespace)
        asked = None if asked is None else _asked(asked)
        if self.store.learned.learned(whose).frozen:
            msg = f"namespace {whose!r} is frozen: it learns nothing, teach another one"
            raise InvalidInputError(msg)
        said = _cleaned(given)
        related, wrong = ([*self._nodes(ids, whose)] for ids in (said.related, said.wrong))
        said = replace(said, related=related, wrong=wrong)
        name = said.id or note_id(kind, whose, said.text)
        known = {fact.digest for fact in self.store.notes.facts([name]) if fact.namespace == whose}
        query = None if asked is None else asked.query
        if note_digest(kind, said, rank, query) not in known:
            beside = () if logged is None else entry_edges(self.store, logged.turn, said.wrong)
            self.store.apply([self._note(kind, whose, said, rank, asked, beside)])
        return name

    def _note(
        self,
        kind: NoteKind,
        namespace: str,
        said: Said,
        rank: Authority,
        asked: Asked | None,
        beside: Iterable[NoteEdge],
    ) -> KeepNote:
        vector = self._identity.embedded(titled(said.title, said.text) if said.title else said.text)
        if asked is not None:
            place = self.embedder.query(asked.query) if asked.vector is None else asked.vector
            asked = Asked(asked.query, place, asked.turn)
        return note(namespace, kind, said, vector, authority=rank, asked=asked, beside=beside)

    def _turn(self, turn_id: str, namespace: str | None) -> Logged:
        self._require_open()
        scope = None if namespace is None else namespace_of(namespace)
        name = text_of("turn_id", turn_id)
        found = self.store.turns.find(name, namespace=scope)
        if found is None:
            msg = f"no turn {name!r} is recorded here: check the id and the namespace"
            raise NotFoundError(msg)
        return found

    def _best(self, logged: Logged) -> list[str]:
        """The best document of a turn; none when it was forgotten."""
        best = [item.node for item in logged.turn.returned[:1]]
        return [node for node in best if self.store.learned.keys([node])]

    def _nodes(self, ids: Sequence[str], namespace: str) -> dict[str, int]:
        """Keys by id of the nodes that a namespace sees, those of whole documents among them."""
        owner = self.store.walk.clock(namespace).key
        stands = self.store.catalog.answering(ids)
        ids = [stands.get(node, node) for node in ids]
        found = {head.id: head.key for head in self.store.walk.heads(ids, namespace=owner)}
        missing = [node for node in dict.fromkeys(ids) if node not in found]
        chunks = self.store.catalog.known(documents=missing, owners=WHOLES)
        unknown = [node for node in missing if node not in {chunk.document for chunk in chunks}]
        if unknown:
            shown = ", ".join(map(repr, unknown[:_SHOWN])) + (" …" if unknown[_SHOWN:] else "")
            msg = f"there is no document or note {shown}: check the ids and the namespace"
            raise NotFoundError(msg)
        answering = self.store.catalog.answering([chunk.id for chunk in chunks])
        return found | self.store.learned.keys([answering.get(c.id, c.id) for c in chunks])


def _question(logged: Logged | None) -> Asked | None:
    if logged is None:
        return None
    vector: Vector | None = None
    if logged.vector is not None:
        vector = np.asarray(logged.vector, dtype=np.float32)
    return Asked(logged.turn.query, vector, logged.turn.id)


def _asked(asked: Asked) -> Asked:
    return Asked(_text("query", asked.query, LONGEST), asked.vector, asked.turn)


def _cleaned(said: Said) -> Said:
    """What was said, as it is stored.

    Raises:
        InvalidInputError: A part of it is no text, empty or too long.
    """
    untitled = isinstance(said.title, str) and not said.title
    title = "" if untitled else _text("title", said.title, _LONGEST_NAME)
    name = None if said.id is None else _text("id", said.id, _LONGEST_NAME)
    return replace(said, text=_text("text", said.text, LONGEST), title=title, id=name)


def _text(what: str, value: object, most: int) -> str:
    if not isinstance(value, str):
        msg = f"the {what} must be a text, not {type(value).__name__}"
        raise InvalidInputError(msg)
    text = storable(value).strip()
    if not 1 <= len(text) <= most:
        longer = "" if what != "text" else "; what is longer is a document: use add_documents"
        msg = f"the {what} must have 1 to {most} characters, not {len(text)}{longer}"
        raise InvalidInputError(msg)
    return text
