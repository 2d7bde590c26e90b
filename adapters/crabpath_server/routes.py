"""Functions of questions, documents, feedback, notes and turns."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Literal

from langchain_core.documents import Document
from pydantic import Field
from pydantic_core import to_json

from crabpath_retrievers import __version__
from crabpath_retrievers.core.feedback import DOCUMENT_FIELDS, Receipt
from crabpath_retrievers.core.query import Query
from crabpath_retrievers.core.records import Hop, PathEdge
from crabpath_retrievers.errors import (
    InvalidInputError,
    MissingExtraError,
    NotFoundError,
    StoreError,
)
from crabpath_retrievers.ingest.chunking import join_chunks
from crabpath_retrievers.ingest.pipeline import IngestReport
from crabpath_retrievers.memory.services import Readiness
from crabpath_retrievers.parts.file_formats import parse_file
from crabpath_retrievers.parts.listing import (
    FeedbackRecord,
    ListPlace,
    ListQueries,
    NoteRecord,
    TurnRecord,
    find_note_place,
    find_turn_place,
)
from crabpath_retrievers.retrieval.pipeline import Answer, RetrievedDocument
from crabpath_retrievers.storage import GraphStore
from crabpath_server.answers import ApiOutput, Sent
from crabpath_server.endpoints import ApiInput, Call, Ids, Limit, ShortText, require_accepted
from crabpath_server.judging import bound_correction, bound_feedback, bound_undo, find_last_turn

# Fields that name documents, which senders know by names without the directory of the server.
_DOCUMENTS = {*DOCUMENT_FIELDS, "wrong", "related", "seed_ids", "candidate_ids"}


After = Annotated[str | None, Field(description="The next of the page before this one.")]
Next = Annotated[str | None, Field(description="Where the next page begins; null at the end.")]


class Health(ApiOutput):
    """The server answers."""

    status: Literal["ok"] = "ok"


class Session(ApiOutput):
    """Rights of the sender."""

    namespace: str = Field(description="The namespace of this request.")
    namespaces: list[str] = Field(description='All that are granted; ["*"] for every one.')
    rights: list[str]
    giver: str | None = Field(description="User of feedback that names none; null without one.")
    version: str = Field(description="Of CrabPath.")


async def check_health(_call: Call) -> Health:
    """Say that the server answers, without asking the stores."""
    return Health()


async def check_readiness(call: Call) -> Readiness:
    """Ask the embedder, the database and the vector store; 503 where one does not answer."""
    if call.probe is None:
        return Readiness(ready=False, reason="the server is ending")
    state = await call.probe.check()
    if "admin" in call.grant.rights:
        return Readiness(ready=state.ready, reason=state.reason)
    # Sentences of databases and servers name their places and users.
    reason = "all parts answer" if state.ready else "the right admin sees the reason"
    return Readiness(ready=state.ready, reason=reason)


async def describe_session(call: Call) -> Session:
    """Say what the token grants."""
    return Session(
        namespace=call.namespace,
        namespaces=list(call.grant.namespaces),
        rights=sorted(call.grant.rights),
        giver=call.grant.choose_user(None),
        version=__version__,
    )


class QueryBody(ApiInput):
    """A question and its options."""

    text: ShortText
    k: int = Field(4, le=1000, description="Documents to return.")
    filter: dict[str, Any] | None = Field(
        None, description="Condition on metadata, in the language of the vector store."
    )
    seed_ids: Ids | None = Field(None, description="Nodes suggested as entries of the walk.")
    boost_tags: Ids | None = None
    explore: bool | int = False
    fill: bool = Field(
        default=True, description="Exactly k documents; false for confident ones only."
    )
    min_score: float | None = Field(None, description="Least probability, from 0 to 1.")
    one_per_document: bool = False
    confined: bool = Field(default=False, description="Walk only where the filter allows.")
    max_tokens: int | None = None
    recency: float | None = Field(None, description="Half-life of a document, in days.")
    as_of: str | None = Field(None, description="Only what was valid then, such as 2024-05-31.")
    task_type: str | None = None
    session: str | None = Field(None, description="The conversation that asks.")
    arm: str | None = Field(None, description="Arm of an A/B trial, as trial:arm.")
    run_id: str | None = Field(None, description="Run of the host, which names the turn as well.")
    candidate_ids: Ids | None = Field(None, description="The only nodes to rank.")
    record: bool = Field(default=True, description="Whether feedback can refer to the turn.")


class FoundDocument(ApiOutput):
    """A document of an answer."""

    id: str
    text: str
    title: str
    metadata: dict[str, Any]
    score: float = Field(description="Probability of relevance, from 0 to 1.")
    origin: Literal["seed", "walk"]
    tier: str | None = Field(description="Tier of the strongest edge to it; null without one.")
    path: list[PathEdge] = Field(description="The way of the walk to it; empty for a search hit.")
    source: str = Field("", description="Where its text comes from.")
    features: dict[str, float] = Field({}, description="Inputs of the ranker by name.")
    superseded_by: str | None = Field(None, description="Id of its newer version.")


class QueryAnswer(ApiOutput):
    """Documents, best first."""

    turn_id: str
    namespace: str
    documents: list[FoundDocument]
    latency_ms: dict[str, float]


def _to_found(item: RetrievedDocument) -> FoundDocument:
    node, returned = item.node, item.returned
    return FoundDocument(
        id=node.id,
        text=node.content,
        title=node.title,
        metadata=dict(node.metadata),
        score=item.score,
        origin=returned.origin,
        tier=None if returned.support is None else returned.support.tier,
        path=list(returned.path),
        source=node.source,
        features=returned.features,
        superseded_by=returned.superseded_by,
    )


def _to_answer(answer: Answer) -> QueryAnswer:
    return QueryAnswer(
        turn_id=answer.turn.id,
        namespace=answer.turn.namespace,
        documents=[_to_found(item) for item in answer.documents],
        latency_ms=answer.turn.latency_ms,
    )


async def _to_fields(call: Call, body: ApiInput, *but: str) -> dict[str, Any]:
    """Return the fields that were sent but for ``but``, with stored names of documents."""
    fields = body.to_options(*but)
    for name in _DOCUMENTS & fields.keys():
        if fields[name]:
            fields[name] = [*(await call.names.find(fields[name])).values()]
    return fields


async def _to_query_options(call: Call, body: QueryBody) -> dict[str, Any]:
    if body.candidate_ids is not None and body.record:
        # Else anybody chooses what a question returned, and labels it.
        call.grant.require("teach", "candidate_ids with record")
    options = await _to_fields(call, body, "text")
    if body.filter:
        options["filter"] = await call.names.find_in_filter(body.filter)
    return options


async def retrieve_durably(call: Call, text: str, **options: Any) -> Answer:
    """Ask the memory; where other processes share its database, the turn is written first.

    They know written turns alone: feedback without a turn would judge the answer before this one.
    """
    store = call.memory.store
    answer = await call.memory.aio.retrieve(text, namespace=call.namespace, **options)
    if store.dialect == "postgresql":
        with suppress(StoreError):  # an answer does not depend on what can be written
            await asyncio.to_thread(store.flush)
    return answer


async def ask(call: Call, body: QueryBody) -> QueryAnswer:
    """Find the documents that answer a question, and record the turn."""
    options = await _to_query_options(call, body)
    return _to_answer(await retrieve_durably(call, body.text, **options))


async def ask_with_hops(call: Call, body: QueryBody) -> AsyncIterator[tuple[str, object]]:
    """As :func:`ask`; each hop of the walk is an event ``hop``, and the answer the last event."""
    loop, hops = asyncio.get_running_loop(), asyncio.Queue[Hop | None]()

    def pass_on(hop: Hop | None) -> None:
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(hops.put_nowait, hop)

    options = await _to_query_options(call, body)
    asked = asyncio.ensure_future(retrieve_durably(call, body.text, **options, on_hop=pass_on))
    asked.add_done_callback(lambda _: pass_on(None))
    try:
        while (hop := await hops.get()) is not None:
            yield "hop", hop
        yield "answer", _to_answer(await asked)
    finally:
        asked.cancel()


class SearchBody(ApiInput):
    """A question for plain vector search."""

    text: ShortText
    k: int = Field(4, le=1000, description="Documents to return.")


class SearchAnswer(ApiOutput):
    """Documents, nearest first; the score of each is the cosine, from -1 to 1."""

    documents: list[FoundDocument]


class BatchBody(ApiInput):
    """Questions to answer at once."""

    questions: list[QueryBody] = Field(min_length=1, max_length=100)

    @property
    def requests(self) -> int:
        """Each question counts as a request."""
        return len(self.questions)


class BatchAnswer(ApiOutput):
    """Answers in the order of their questions."""

    answers: list[QueryAnswer]


async def ask_batch(call: Call, body: BatchBody) -> BatchAnswer:
    """Answer several questions; one that cannot be used refuses all, before any is recorded."""
    tried = set[bytes]()
    for place, question in enumerate(body.questions):
        options = await _to_query_options(call, question)
        with _name_question(place):
            Query.from_options(question.text, namespace=call.namespace, **options)
            if question.filter and (condition := to_json(question.filter)) not in tried:
                tried.add(condition)  # only an index can say whether it reads a filter
                options |= {"namespace": call.namespace, "record": False}
                await call.memory.aio.retrieve(question.text, **options)
    asked = (ask(call, question) for question in body.questions)
    # All are awaited: those that are cancelled would count as failures.
    answers = await asyncio.gather(*asked, return_exceptions=True)
    for place, answer in enumerate(answers):
        if isinstance(answer, BaseException):
            with _name_question(place):
                raise answer
    return BatchAnswer(answers=answers)


@contextmanager
def _name_question(place: int) -> Iterator[None]:
    """Name the question of a batch that cannot be used."""
    try:
        yield
    except InvalidInputError as error:
        msg = f"questions[{place}]: {error}"
        raise InvalidInputError(msg) from error


async def search(call: Call, body: SearchBody) -> SearchAnswer:
    """Find the nearest documents as a plain vector store would; no turn is recorded."""
    found = await call.memory.aio.similarity_search(body.text, k=body.k)
    return SearchAnswer(
        documents=[
            FoundDocument(
                **dict(_to_stored(document)), score=cosine, origin="seed", tier=None, path=[]
            )
            for document, cosine in found
        ]
    )


class GivenDocument(ApiInput):
    """A document to add."""

    text: str
    id: str | None = None
    metadata: dict[str, Any] = Field({}, description="Such as title and source.")
    is_file: bool = Field(
        default=False,
        description="Whether the text is that of the file which metadata.source names, to be read "
        "as crabpath add does: its title from its heading, HTML, CSV, JSON and others as Markdown.",
    )


class DocumentsBody(ApiInput):
    """Documents to add."""

    documents: list[GivenDocument]
    split: bool = Field(default=True, description="False when the documents are chunks already.")
    cleanup: Literal["incremental", "full"] | None = None


class StoredDocument(ApiOutput):
    """A chunk or note of the memory."""

    id: str
    text: str
    title: str
    metadata: dict[str, Any]


class DocumentList(ApiOutput):
    """Chunks of the memory."""

    documents: list[StoredDocument]
    next: Next


class WholeDocument(StoredDocument):
    """A document, or one chunk or note; the text has once what neighbouring chunks share."""

    chunks: list[StoredDocument]


class Deleted(ApiOutput):
    """Number of deleted chunks and notes."""

    deleted: int
    documents: int = Field(description="Documents of these chunks, whole or in part.")
    chunks: int
    notes: int


class SourceCounts(ApiOutput):
    """Sources by name, each with the number of its chunks."""

    sources: dict[str, int]
    next: Next


def _to_stored(document: Document) -> StoredDocument:
    metadata = dict(document.metadata)
    return StoredDocument(
        id=str(document.id),
        text=document.page_content,
        title=str(metadata.get("title") or ""),
        metadata=metadata,
    )


async def list_chunks(
    call: Call,
    source: str | None = None,
    under: Annotated[
        str | None, Field(description="Only sources that begin with this text.")
    ] = None,
    q: Annotated[
        str | None, Field(description="Words of the text or the title; best matches first.")
    ] = None,
    after: After = None,
    limit: Limit = 100,
) -> DocumentList:
    """List the chunks that queries find, the oldest first."""
    start = await call.names.find_start(under or None)
    if after:
        after = await call.names.find_one(after)
        with suppress(NotFoundError):  # the id of a chunk
            place = ListPlace.parse(after, "chunk")
            after = str(place._replace(source=(start or "") + place.source))
    found = await call.memory.aio.documents(
        source=source and await call.names.find_one(source),
        under=start,
        words=q,
        after=after or None,
        limit=limit + 1,
    )
    page = [_to_stored(document) for document in found[:limit]]
    last = page[-1].id if len(found) > limit else None
    if last is not None and q is None:  # what is found by words has no lasting order
        place = await asyncio.to_thread(ListQueries(call.memory.store).find_chunk, last)
        # From the start on, as the directory above is not shown and may be another one then.
        last = str(place._replace(source=place.source[len(start) :] if start else ""))
    return DocumentList(documents=page, next=last)


async def add_documents(call: Call, body: DocumentsBody) -> IngestReport:
    """Add documents, or replace those with the same ids; all namespaces share them."""
    for item in body.documents:
        # A NUL cannot be stored; without it, the id would be that of another document.
        if item.id in {".", "..", ""} or (item.id and "\x00" in item.id):
            msg = f"the id {item.id!r:.80} has no path of its own: choose another id, or none"
            raise InvalidInputError(msg)
    ids, notes = {item.id for item in body.documents if item.id}, call.memory.store.notes
    if taken := await asyncio.to_thread(notes.get_facts, ids, call.namespace):
        msg = f"the id {taken[0].id!r:.250} is that of a note: choose another one, or none"
        raise InvalidInputError(msg)
    sources = {str(item.metadata["source"]) for item in body.documents if "source" in item.metadata}
    stored = await call.names.find(sources)
    documents, left_out = list[Document](), list[str]()
    for item in body.documents:
        metadata = dict(item.metadata)
        if isinstance(source := metadata.get("source"), str):
            metadata["source"] = stored.get(source, source)
        given = [Document(page_content=item.text, id=item.id, metadata=metadata)]
        if item.is_file:
            given, skipped = await asyncio.to_thread(_read_file, item, metadata)
            left_out += skipped
        documents += given
    report = await call.memory.aio.add_documents(
        documents, split=body.split, cleanup=body.cleanup, progress=None
    )
    report.left_out += left_out
    call.names.renew()
    return report


def _read_file(item: GivenDocument, metadata: dict[str, Any]) -> tuple[list[Document], list[str]]:
    """Read the documents of a file; also return which parts of it cannot be read."""
    if not isinstance(item.metadata.get("source"), str):
        msg = "a document that is_file needs the name of the file: give metadata.source"
        raise InvalidInputError(msg)
    try:
        documents, skipped = parse_file(item.metadata["source"], item.text.encode())
    except (InvalidInputError, MissingExtraError) as error:
        msg = f"{item.metadata['source']}: {error}"
        raise InvalidInputError(msg) from error
    for document in documents:
        document.metadata |= metadata
        document.id = item.id if len(documents) == 1 else None
    return documents, [*skipped]


async def read_document(call: Call) -> WholeDocument:
    """Read a document with all its chunks, or one chunk or note."""
    return await read_whole(call, call.path["id"])


async def read_whole(call: Call, name: str) -> WholeDocument:
    """Read a document with all its chunks, or one chunk or note that the namespace sees."""
    stored = await call.names.find_one(name)
    found = await call.memory.aio.get_by_ids([stored], namespace=call.namespace)
    if not found:
        msg = f"there is no document or note {name!r}: check the id and the namespace"
        raise NotFoundError(msg)
    chunks, text = [_to_stored(document) for document in found], found[0].page_content
    ids = [chunk.id for chunk in chunks]
    if ids != [stored]:
        nodes = await asyncio.to_thread(call.memory.store.catalog.documents, ids)
        text = join_chunks([nodes[node] for node in ids if node in nodes])
    return WholeDocument(
        id=name, text=text, title=chunks[0].title, metadata=chunks[0].metadata, chunks=chunks
    )


async def delete_document(call: Call) -> Deleted:
    """Delete a document with all its chunks, or one chunk or note; 0 where there is none."""
    name = call.path["id"]
    stored = await call.names.find_one(name)
    deleted = await call.memory.aio.forget([stored], notes_of=call.namespace)
    return Deleted(deleted=deleted, **deleted.to_dict())


async def delete_source(call: Call, source: str) -> Deleted:
    """Delete every chunk of a source."""
    source = await call.names.find_one(source)
    deleted = await call.memory.aio.forget(source=source)
    return Deleted(deleted=deleted, **deleted.to_dict())


async def list_sources(
    call: Call,
    under: Annotated[str | None, Field(description="Only those that begin with this text.")] = None,
    after: After = None,
    limit: Limit = 100,
) -> SourceCounts:
    """List the sources."""
    found = await call.memory.aio.sources(
        under=await call.names.find_start(under),
        after=after and await call.names.find_one(after),
        limit=limit + 1,
    )
    page = [*found][:limit]
    last = page[-1] if len(found) > limit else None
    return SourceCounts(sources={name: found[name] for name in page}, next=last)


class FeedbackBody(ApiInput):
    """Feedback on a turn."""

    turn_id: str | None = Field(
        None, description="The turn; without one, the last turn of the session or namespace."
    )
    outcome: float | bool | str = Field(
        description='From -1 (failure) to 1 (success); or true, false, "up" or "down".'
    )
    used: Ids | None = None
    unused: Ids | None = None
    relevant: Ids | None = None
    irrelevant: Ids | None = None
    answer: str | None = None
    correction: ShortText | None = Field(None, description="What would have been right.")
    source: Literal["human", "self", "harvested", "teacher"] = "human"
    feedback_id: str | None = Field(
        None, description="The same id again, with other content, replaces the former."
    )
    user: str | None = None
    session: str | None = Field(None, description="The conversation that it comes from.")


class FeedbackList(ApiOutput):
    """Feedback, newest first."""

    feedback: list[Sent[FeedbackRecord]]
    next: Next


class ForgetFeedbackBody(ApiInput):
    """Selects the feedback to delete: that of a user, of a token, or of both at once."""

    user: str | None = None
    token: str | None = Field(None, description="Id of the token that gave it.")


class ForgottenFeedback(ApiOutput):
    """Number of feedbacks that were undone, and lost their texts and their user; and of notes."""

    feedback: int


async def forget_feedback(call: Call, body: ForgetFeedbackBody) -> ForgottenFeedback:
    """Undo all that a user or token said in the namespace, and delete its texts."""
    given = body.to_options()
    forget = call.memory.aio.learning.forget_feedback
    return ForgottenFeedback(feedback=await forget(**given, namespace=call.namespace))


class UndoBody(ApiInput):
    """Exactly one of both."""

    feedback_id: str | None = Field(None, description="Feedback, or a note or correction.")
    turn_id: str | None = Field(None, description="A turn, for all that was said about it.")


async def give_feedback(call: Call, body: FeedbackBody) -> Receipt:
    """Learn from the outcome of a turn."""
    return require_accepted(await give_or_refuse(call, body))


async def give_or_refuse(call: Call, body: FeedbackBody) -> Receipt:
    """As :func:`give_feedback`; refused feedback has a receipt, too."""
    fields = await _to_fields(call, body, "turn_id", "outcome")
    fields["user"] = call.grant.choose_user(body.user)
    turn_id = await bound_feedback(call, body.turn_id, fields)
    receipt: Receipt = await call.memory.aio.record(
        turn_id, body.outcome, namespace=call.namespace, strict=False, **fields
    )
    return receipt


async def read_feedback(
    call: Call, turn_id: str | None = None, after: After = None, limit: Limit = 100
) -> FeedbackList:
    """List the feedback of the namespace."""
    found = await call.memory.aio.learning.feedback(
        turn_id=turn_id, namespace=call.namespace, before=after, limit=limit + 1
    )
    page = found[:limit]
    last = page[-1].feedback_id if len(found) > limit else None
    return FeedbackList(feedback=page, next=last and await _make_next(_find_said, call, last))


async def retract_feedback(call: Call, body: UndoBody) -> Receipt:
    """Undo all that was learned from one feedback or note, or all that was said about a turn."""
    await bound_undo(call, body.feedback_id, body.turn_id)
    return await call.memory.aio.undo(
        body.feedback_id, turn_id=body.turn_id, namespace=call.namespace
    )


class UndoUserBody(ApiInput):
    """Selects what one user or token said in the namespace; feedback of both where both are given.

    Of a token alone, that is its notes and corrections without an outcome, too.
    """

    user: str | None = None
    token: str | None = Field(None, description="Id of a token of the server.")


class ReceiptList(ApiOutput):
    """Receipts, the feedback learned last first; then those of notes, by their ids."""

    receipts: list[Sent[Receipt]]


async def retract_user(call: Call, body: UndoUserBody) -> ReceiptList:
    """Undo all that the namespace has learned from one user or token."""
    undone = await call.memory.aio.learning.undo_all(
        user=body.user, token=body.token, namespace=call.namespace
    )
    return ReceiptList(receipts=undone)


class NoteBody(ApiInput):
    """A note."""

    text: str
    query: str | None = Field(None, description="A question that it answers.")
    title: str = ""
    related: list[str] = Field([])
    id: str | None = Field(None, description="The same id replaces the note.")
    metadata: dict[str, Any] | None = None


class TeachBody(NoteBody):
    """Something that the documents do not say."""

    kind: Literal["teaching", "directive"] = "teaching"
    authority: Literal["overlay", "canonical", "constitutional"] | None = None


class CorrectBody(NoteBody):
    """Right text, and the documents that were wrong."""

    turn_id: str | None = Field(
        None,
        description="The turn that was wrong; without it, wrong and query, the last turn of the "
        "session or namespace.",
    )
    session: str | None = Field(None, description="The conversation that it comes from.")
    wrong: list[str] | None = Field(None, description="Wrong documents; null: the turn's best.")
    authority: Literal["overlay", "canonical", "constitutional"] = "overlay"


class NoteId(ApiOutput):
    """Id of a note."""

    id: str


class NoteList(ApiOutput):
    """Notes, newest first."""

    notes: list[Sent[NoteRecord]]
    next: Next


async def teach(call: Call, body: TeachBody) -> NoteId:
    """Add a note to the namespace."""
    fields = await _to_fields(call, body, "text")
    return NoteId(id=await call.memory.aio.teach(body.text, namespace=call.namespace, **fields))


async def correct(call: Call, body: CorrectBody) -> NoteId:
    """Add a note with the right answer, and rank the wrong documents lower."""
    fields = await _to_fields(call, body, "text", "session", "turn_id")
    fields["turn_id"] = await bound_correction(call, body.turn_id, fields)
    if fields["turn_id"] is None and not (fields.get("wrong") or fields.get("query")):
        fields["turn_id"] = await asyncio.to_thread(find_last_turn, call, body.session or None)
    return NoteId(id=await call.memory.aio.correct(body.text, namespace=call.namespace, **fields))


async def read_notes(call: Call, after: After = None, limit: Limit = 100) -> NoteList:
    """List the notes of the namespace."""
    found = await call.memory.aio.notes(namespace=call.namespace, before=after, limit=limit + 1)
    page = found[:limit]
    last = page[-1].id if len(found) > limit else None
    return NoteList(notes=page, next=last and await _make_next(find_note_place, call, last))


class TurnList(ApiOutput):
    """Turns, newest first."""

    turns: list[Sent[TurnRecord]]
    next: Next


async def read_turns(call: Call, after: After = None, limit: Limit = 100) -> TurnList:
    """List what the namespace asked."""
    found = await call.memory.aio.turns(namespace=call.namespace, before=after, limit=limit + 1)
    page = found[:limit]
    last = page[-1].id if len(found) > limit else None
    return TurnList(turns=page, next=last and await _make_next(find_turn_place, call, last))


async def _make_next(
    find: Callable[[GraphStore, str, str], ListPlace], call: Call, last: str
) -> str:
    return str(await asyncio.to_thread(find, call.memory.store, last, call.namespace))


def _find_said(store: GraphStore, name: str, namespace: str) -> ListPlace:
    return ListQueries(store).find_feedback(name, namespace)
