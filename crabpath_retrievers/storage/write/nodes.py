"""Writers of the corpus: staged batches, nodes, structural edges, term statistics, queues.

The store fills the queues for the vector index and for linking, the ingest empties them.
"""

import json
import logging
import secrets
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.core.query import METADATA_KEY
from crabpath_retrievers.core.records import (
    AUTHORITY_BY_NAME,
    TEXT_KINDS,
    Edge,
    EdgeKind,
    Node,
    compute_hub_level,
)
from crabpath_retrievers.core.text import (
    IndexedWords,
    drop_signs,
    is_signed,
    list_mention_names,
    list_searched_words,
    prepend_title,
)
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.schema import RETIRED, build_retired_address, list_node_columns
from crabpath_retrievers.storage.sql_tools import (
    CompiledWrite,
    build_insert,
    encode_vector,
    is_one_of,
    split_batches,
)
from crabpath_retrievers.storage.write.learned import take_back_corrections
from crabpath_retrievers.storage.write.transaction import Transaction, write_journal

TEXT_EDGE_KINDS = tuple(kind.value for kind in TEXT_KINDS)
"""Numbers of the edge kinds that are derived from texts."""

_TEXT_TABLES = ("names", "addresses", "references", "contents", "notes")
_PAYLOAD = (
    *("document", "source", "content", "title", "names", "addresses", "references", "position"),
    *("metadata", "digest", "then", "overlap"),
)

_log = logging.getLogger(__name__)


def _build_term_upsert(insert: Callable[..., Any]) -> Any:
    new = build_insert(insert, s.terms)
    total = {"frequency": s.terms.c.frequency + new.excluded.frequency}
    return new.on_conflict_do_update(index_elements=[s.terms.c.term], set_=total)


_ADD_TO_TERMS = CompiledWrite(_build_term_upsert)
_ADD_ALL_TO_TERMS = sa.text(
    f"INSERT INTO {s.terms.name} AS known (term, frequency) "
    "SELECT term, added FROM unnest(CAST(:terms AS text[]), CAST(:added AS bigint[])) "
    "AS given(term, added) "
    "ON CONFLICT (term) DO UPDATE SET frequency = known.frequency + excluded.frequency"
)


def stage_nodes(
    tx: Transaction,
    nodes: Sequence[Node] = (),
    removed: Sequence[str] = (),
    retired: Sequence[str] = (),
    positions: Sequence[tuple[str, int]] = (),
) -> None:
    """Record a batch before it is published, so that an interrupted ingest can be finished.

    An id has one row in the queue. Publication does what the arguments say.

    Args:
        retired: Ids of nodes to hide from queries. What was learned about them is kept, and counts
            again once a node with the same id is published.
        positions: New positions of other nodes, as ``(id, position)``.
    """
    rows = {node: _build_queue_row(node, "move", str(to)) for node, to in positions}
    rows |= {node: _build_queue_row(node, "remove") for node in removed}
    rows |= {node: _build_queue_row(node, "retire") for node in retired}
    rows |= {node.id: _build_staged_row(node) for node in nodes}
    tx.delete_in(s.staging.c.id, rows)
    tx.add(s.staging, [{**row, "place": place} for place, row in enumerate(rows.values())])


def _build_queue_row(node: str, operation: str, payload: str | None = None) -> dict[str, Any]:
    return {"id": node, "operation": operation, "payload": payload, "embedding": None}


def _build_staged_row(node: Node) -> dict[str, Any]:
    assert node.vector is not None, "staged nodes must have a vector"  # noqa: S101
    text = json.dumps(build_payload(node), ensure_ascii=False)
    return {**_build_queue_row(node.id, "put", text), "embedding": encode_vector(node.vector)}


def build_payload(node: Node) -> dict[str, Any]:
    """Build the payload of a node, without its id and vector."""
    return {**{name: getattr(node, name) for name in _PAYLOAD}, "metadata": dict(node.metadata)}


class NewNode(NamedTuple):
    """Node to be written: its payload as staged, its vector, its words."""

    id: str
    payload: Mapping[str, Any]
    embedding: bytes
    words: IndexedWords


def write_nodes(tx: Transaction, given: Sequence[NewNode]) -> tuple[Mapping[str, int], list[str]]:
    """Add the nodes ``given``, or replace those with the same id, which keep their keys.

    Returns:
        Keys by id; and ids of the siblings of replaced nodes, which must be linked again.
    """
    existing = tx.get_node_keys([node.id for node in given])
    siblings = find_siblings(tx, existing)
    texts = {existing[node.id]: node.payload["content"] for node in given if node.id in existing}
    take_back_corrections(tx, texts)
    _delete_contents(tx, list(existing.values()), TEXT_EDGE_KINDS)
    rows = [build_node_row(*node) for node in given]
    new = [row for row in rows if row["id"] not in existing]
    added = tx.add_nodes([{**row, "authority": row["authority"] or 0} for row in new])
    changed = [row for row in rows if row["id"] in existing]
    if changed:
        columns: dict[str, Any] = {n: sa.bindparam(n) for n in rows[0] if n != "id"}
        # Authority set by a user is kept, unless the metadata of the document sets another.
        named = sa.bindparam("authority", type_=sa.SmallInteger())
        columns["authority"] = sa.func.coalesce(named, s.nodes.c.authority)
        update = s.nodes.update().where(s.nodes.c.key == sa.bindparam("old")).values(columns)
        keyed = [(existing[row.pop("id")], row) for row in changed]
        tx.run(update, [{**row, "old": key} for key, row in keyed])
    keys = {**existing, **added}
    with tx.send_together(len(given)):
        _insert_contents(tx, [(keys[node.id], node) for node in given])
        _count_hub_changes(tx, sum(row["level"] > 0 for row in rows))
    return keys, siblings


def _insert_contents(tx: Transaction, given: Sequence[tuple[int, NewNode]]) -> None:
    lists = ((s.names, "name", "names"), (s.addresses, "address", "addresses"))
    for table, column, field in (*lists, (s.references, "address", "references")):
        values = ((key, v) for key, node in given for v in dict.fromkeys(node.payload[field]))
        tx.add(table, [{column: value, "node": key} for key, value in values])
    texts = [(key, node.words.tokens.split()) for key, node in given]
    rows = zip(given, texts, strict=True)
    tx.add(s.contents, [build_content_row(key, n.payload, len(t)) for (key, n), (_, t) in rows])
    _index_texts(tx, texts)


def remove_nodes(tx: Transaction, ids: Sequence[str]) -> list[str]:
    """Delete documents with all their rows; return ids of siblings, which must be linked again."""
    held = sa.select(s.nodes.c.key).order_by(s.nodes.c.key).with_for_update()
    known = sorted(tx.get_node_keys(ids).values())
    keys = [key for (key,) in tx.select_in(held, s.nodes.c.key, known)]
    siblings = find_siblings(tx, ids)
    delete_nodes(tx, keys)
    return siblings


def delete_nodes(tx: Transaction, keys: Sequence[int]) -> None:
    """Delete documents or notes, given by key, with all rows that refer to them."""
    query = sa.select(s.nodes.c.key).where(s.nodes.c.level > 0)  # notes have level 0
    hubs = len(tx.select_in(query, s.nodes.c.key, keys))
    _delete_contents(tx, keys, [kind.value for kind in EdgeKind])
    for column in (*list_node_columns(), s.nodes.c.key):
        if column.table is not s.edges and column.table.name not in _TEXT_TABLES:
            tx.delete_in(column, keys)
    _count_hub_changes(tx, hubs)


def retire_nodes(tx: Transaction, ids: Sequence[str]) -> list[str]:
    """Hide nodes from all queries; their texts and what was learned about them are kept.

    Hidden hubs remain hubs, since their vectors define regions. Returns ids of siblings, which must
    be linked again.
    """
    keys = list(tx.get_node_keys(ids).values())
    siblings = find_siblings(tx, ids)
    rows = [row._asdict() for row in tx.select_in(sa.select(s.contents), s.contents.c.node, keys)]
    _delete_contents(tx, keys, TEXT_EDGE_KINDS)
    for part in split_batches(keys):
        tx.update(s.nodes, is_one_of(tx.connection, s.nodes.c.key, part), owner=RETIRED)
    tx.add(s.contents, rows)
    tx.add(
        s.addresses,
        [{"address": build_retired_address(r["content"]), "node": r["node"]} for r in rows],
    )
    return siblings


def _index_texts(tx: Transaction, texts: Sequence[tuple[int, list[str]]]) -> None:
    if texts:
        tx.fulltext.add(tx.connection, texts)
        words = [tokens for _, tokens in texts]
        _count_terms(tx, words, sum(map(len, words)), sign=1)


def _unindex(tx: Transaction, keys: Sequence[int]) -> None:
    """Delete nodes from the full-text index and from the counts of terms.

    Nodes that are not visible are not in either, and are ignored.
    """
    if texts := tx.fulltext.get_words(tx.connection, keys):
        query = sa.select(s.contents.c.node, s.contents.c.length)
        held = [key for key, _ in texts]
        length = sum(row.length for row in tx.select_in(query, s.contents.c.node, held))
        tx.fulltext.remove(tx.connection, held)
        _count_terms(tx, [words for _, words in texts], length, sign=-1)


def renew_words(tx: Transaction, is_affected: Callable[[str], bool] = bool) -> None:
    """Index visible texts again if they are split into other words now; reads all texts.

    Only texts, each with its title, for which ``is_affected`` is true are split anew.
    """
    columns = (s.nodes.c.key, s.nodes.c.id, s.nodes.c.title, s.nodes.c.terms)
    texts = (s.contents.c.content, s.contents.c.metadata, s.contents.c.position)
    query = sa.select(*columns, *texts)
    query = query.join(s.contents, s.contents.c.node == s.nodes.c.key).where(s.nodes.c.owner == 0)
    last, language = 0, tx.language
    while found := tx.run(
        query.where(s.nodes.c.key > last).order_by(s.nodes.c.key).limit(512)
    ).all():
        last = found[-1].key
        rows = [row for row in found if is_affected(f"{row.title}\n{row.content}")]
        words = [IndexedWords.from_text(row.title, row.content, language) for row in rows]
        pairs = zip(rows, words, strict=True)
        changed = [(row, new) for row, new in pairs if new.terms != bytes(row.terms)]
        _unindex(tx, [row.key for row, _ in changed])
        _index_texts(tx, [(row.key, new.tokens.split()) for row, new in changed])
        for row, new in changed:
            tx.update(s.nodes, s.nodes.c.key == row.key, terms=new.terms)
            length = len(new.tokens.split())
            tx.update(s.contents, s.contents.c.node == row.key, length=length)
        _renew_names(tx, {row.key: row for row, _ in changed})
        queue_linking(tx, [row.id for row, _ in changed])


def _renew_names(tx: Transaction, rows: Mapping[int, Any]) -> None:
    """Rebuild the stored names of the nodes ``rows`` from titles and aliases, as tokens.

    This adds names that are long enough only with signs, such as "C++".
    """
    held: dict[int, set[str]] = {key: set() for key in rows}
    for name, key in tx.select_in(sa.select(s.names.c.name, s.names.c.node), s.names.c.node, rows):
        held[key].add(name)
    for key, former in held.items():
        given = json.loads(rows[key].metadata).get("aliases") or ()
        aliases = [given] if isinstance(given, str) else [str(alias) for alias in given]
        title, parts = rows[key].title, rows[key].title.split(" › ")
        titles = (title, *parts, *aliases)
        letters = {_strip_marks(name) for name in former}
        new = {n for n in list_mention_names("", titles) if _strip_marks(n) in letters}
        own = parts[1:][-1:] if rows[key].position else [title, *aliases]
        new |= {name for name in list_mention_names("", own) if is_signed(name)}
        new |= {name for name in former if _strip_marks(name) not in map(_strip_marks, new)}
        if new != former:
            tx.delete_in(s.names.c.node, [key])
            tx.add(s.names, [{"name": name, "node": key} for name in sorted(new)])


def _strip_marks(name: str) -> str:
    """Reduce a name to letters, as a key that does not depend on tokens."""
    decomposed = unicodedata.normalize("NFD", drop_signs(name.replace(" ", "")))
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def find_siblings(tx: Transaction, ids: Iterable[str]) -> list[str]:
    """Find the ids of the siblings of these nodes, without the nodes."""
    keys = list(tx.get_node_keys(ids).values())
    others = _find_targets(tx, keys, EdgeKind.SIBLING) - set(keys)
    return [node for (node,) in tx.select_in(sa.select(s.nodes.c.id), s.nodes.c.key, others)]


def _delete_contents(tx: Transaction, keys: Sequence[int], kinds: Sequence[int]) -> None:
    """Delete the contents, full text and edges of these ``kinds`` of nodes."""
    if keys:
        _unindex(tx, keys)
        _remove_edges(tx, keys, kinds)
        for column in list_node_columns(*_TEXT_TABLES):
            tx.delete_in(column, keys)


def _remove_edges(tx: Transaction, keys: Sequence[int], kinds: Sequence[int]) -> None:
    """Delete the edges of these kinds that leave or enter the nodes, and recount mentions."""
    counts = EdgeKind.MENTION.value in kinds
    mentioned = _find_targets(tx, keys, EdgeKind.MENTION) if counts else set()
    for part in split_batches(keys):
        touching = is_one_of(tx.connection, s.edges.c.source, part) | is_one_of(
            tx.connection, s.edges.c.target, part
        )
        tx.delete(s.edges, touching, s.edges.c.kind.in_(kinds))
    if counts:
        recount_mentions(tx, mentioned | set(keys))


def _find_targets(tx: Transaction, keys: Sequence[int], kind: EdgeKind) -> set[int]:
    query = sa.select(s.edges.c.target).where(s.edges.c.kind == kind.value)
    return {key for (key,) in tx.select_in(query, s.edges.c.source, keys)}


def recount_mentions(tx: Transaction, keys: Iterable[int]) -> None:
    """Update how many nodes mention each of these nodes."""
    count = (
        sa.select(sa.func.count())
        .where(s.edges.c.target == s.nodes.c.key, s.edges.c.kind == EdgeKind.MENTION.value)
        .scalar_subquery()
    )
    for part in split_batches(keys):
        tx.update(s.nodes, is_one_of(tx.connection, s.nodes.c.key, part), mentions=count)


def _count_terms(
    tx: Transaction, texts: Sequence[Sequence[str]], length: int, *, sign: int
) -> None:
    """Add the words of ``texts`` to the counts of terms; subtract them if ``sign`` is -1.

    ``length`` is the number of tokens of all texts.
    """
    frequency: Counter[str] = Counter()
    for text in texts:
        frequency.update(set(text))
    words = sorted(frequency)  # in one order, so that transactions do not wait for each other
    if words and tx.connection.dialect.name == "postgresql":
        added = [sign * frequency[word] for word in words]
        tx.run(_ADD_ALL_TO_TERMS, {"terms": words, "added": added})
    elif words:
        rows = [{"term": word, "frequency": sign * frequency[word]} for word in words]
        _ADD_TO_TERMS.run_all(tx.connection, rows)
    if sign < 0:
        for part in split_batches(frequency):
            tx.delete(
                s.terms, is_one_of(tx.connection, s.terms.c.term, part), s.terms.c.frequency <= 0
            )
    _add_to_meta(tx, nodes=sign * len(texts), tokens=sign * length)


def put_meta(tx: Transaction, values: Mapping[str, str]) -> None:
    """Write metadata of the store, such as its embedder, by name."""
    tx.upsert(s.meta, [{"name": name, "value": value} for name, value in values.items()])


def _build_addition(insert: Callable[..., Any]) -> Any:
    new = build_insert(insert, s.meta)
    number = sa.cast(s.meta.c.value, sa.BigInteger) + sa.cast(new.excluded.value, sa.BigInteger)
    return new.on_conflict_do_update(
        index_elements=[s.meta.c.name], set_={"value": sa.cast(number, sa.Text)}
    )


_ADD_TO_META = CompiledWrite(_build_addition)


def _add_to_meta(tx: Transaction, **amounts: int) -> None:
    """Add to counters of the store, in one order in all transactions."""
    rows = [{"name": name, "value": str(amount)} for name, amount in sorted(amounts.items())]
    _ADD_TO_META.run_all(tx.connection, rows)


def renew_corpus_version(tx: Transaction) -> None:
    """Invalidate the corpus caches of all processes.

    The version is random: that of an imported or restored store cannot equal a former one.
    """
    put_meta(tx, {"corpus": str(secrets.randbits(62))})


def _count_hub_changes(tx: Transaction, changed: int) -> None:
    """Add ``changed`` to the number of changes of hubs, which invalidates caches of hubs."""
    if changed:
        _add_to_meta(tx, hubs=changed)


def build_node_row(
    node_id: str, payload: Mapping[str, Any], embedding: bytes, words: IndexedWords | None = None
) -> dict[str, Any]:
    """Build the row of ``nodes`` from the payload and the encoded vector of a node.

    ``words`` are those of the text; None splits it. Authority is None if the metadata have none.
    """
    named = payload["metadata"].get("authority")
    authority = None
    if isinstance(named, str) and named.strip():
        authority = AUTHORITY_BY_NAME.get(named.strip().casefold())
        if authority is None:
            msg = "metadata 'authority' is none of %s: %.200r"
            _log.warning(msg, ", ".join(AUTHORITY_BY_NAME), named)
    return {
        "id": node_id,
        "owner": 0,
        "authority": None if authority is None else authority.value,
        "level": compute_hub_level(node_id),
        "mentions": 0,
        "title": payload["title"],
        "embedding": embedding,
        "terms": (words or IndexedWords.from_text(payload["title"], payload["content"])).terms,
    }


def build_content_row(
    key: int, payload: Mapping[str, Any], length: int | None = None
) -> dict[str, Any]:
    """Build the row of ``contents`` from the payload of the node ``key``.

    ``length`` is the number of tokens; None counts them.
    """
    metadata, then = payload["metadata"], payload.get("then")
    split = metadata.get("split_from")
    if then is not None:
        metadata = {**metadata, METADATA_KEY: [then, payload["overlap"]]}
    if length is None:
        length = len(list_searched_words(prepend_title(payload["title"], payload["content"])))
    return {
        "node": key,
        **{name: payload[name] for name in ("document", "source", "position", "digest", "content")},
        "length": length,
        "metadata": json.dumps(metadata, ensure_ascii=False),
        "split_from": split if isinstance(split, str) else None,
    }


def put_edges(
    tx: Transaction,
    edges: Sequence[Edge],
    linked: Sequence[int] = (),
    resorted: Sequence[int] = (),
    lost: Sequence[tuple[int, int, EdgeKind]] = (),
) -> None:
    """Add structural edges; existing ones get the new prior and floor.

    Edges of deleted nodes are skipped.

    Args:
        linked: Keys of queued nodes that are linked herewith, and leave the queue.
        resorted: Keys of nodes whose edges to siblings are deleted first.
        lost: Edges to delete first, as ``(source, target, kind)``.
    """
    tx.touches_corpus = True
    if resorted:
        _remove_edges(tx, resorted, [EdgeKind.SIBLING.value])
    _remove_lost(tx, lost)
    rows = build_edge_rows(tx, edges)
    with tx.send_together(len(rows)):
        tx.upsert(s.edges, rows, ("prior", "floor"))
        named = {edge.target for edge in edges if edge.kind is EdgeKind.MENTION}
        named |= {target for _, target, kind in lost if kind is EdgeKind.MENTION}
        recount_mentions(tx, named)
    for part in split_batches(linked):
        done = sa.select(s.nodes.c.id).where(is_one_of(tx.connection, s.nodes.c.key, part))
        tx.delete(s.staging, s.staging.c.operation == "link", s.staging.c.id.in_(done))


def _remove_lost(tx: Transaction, lost: Sequence[tuple[int, int, EdgeKind]]) -> None:
    """Delete edges given by source, target and kind."""
    of = s.edges.c
    own = [of[name] == sa.bindparam(f"lost_{name}") for name in ("source", "target", "kind")]
    rows = [
        {"lost_source": source, "lost_target": target, "lost_kind": kind.value}
        for source, target, kind in lost
    ]
    if rows:
        tx.run(s.edges.delete().where(*own), rows)


def build_edge_rows(tx: Transaction, edges: Sequence[Edge]) -> list[dict[str, Any]]:
    """Build the rows of those edges whose nodes exist and that join different nodes."""
    ends = {key for e in edges for key in (e.source, e.target)}
    latest = sa.select(sa.func.max(s.namespaces.c.exponent)).scalar_subquery()
    rows = tx.select_in(sa.select(s.nodes.c.key, latest), s.nodes.c.key, ends)
    existing = {key for key, _ in rows}
    decay_at = max((exponent or 0.0 for _, exponent in rows), default=0.0)
    return [
        {
            "source": e.source,
            "target": e.target,
            "kind": e.kind.value,
            "prior": e.prior,
            "floor": e.floor,
            "decay_at": decay_at,
        }
        for e in edges
        if e.source in existing and e.target in existing and e.source != e.target
    ]


def confirm_index_deletions(tx: Transaction, ids: Sequence[str]) -> None:
    """Take the vectors ``ids`` off the deletion queue: the index no longer holds them."""
    tx.delete_in(s.index_deletions.c.id, ids)


def queue_indexing(
    tx: Transaction, ids: Iterable[str], operation: Literal["index", "return"]
) -> None:
    """Queue stored nodes for indexing, whether or not the index still holds their vectors.

    If ``operation`` is ``return``, they are queued for linking after that.
    """
    for part in split_batches(ids):
        tx.delete_in(s.index_deletions.c.id, part)
        tx.upsert(s.staging, [_build_queue_row(node, operation) for node in part])


def find_visible(tx: Transaction, ids: Iterable[str]) -> dict[str, int]:
    """Find the keys of those of ``ids`` that are visible documents, by id."""
    query = sa.select(s.nodes.c.id, s.nodes.c.key).where(s.nodes.c.owner == 0)
    return {node: key for node, key in tx.select_in(query, s.nodes.c.id, ids)}


def queue_linking(tx: Transaction, ids: Iterable[str]) -> None:
    """Queue the nodes ``ids`` for linking; those that queries do not see are left out."""
    for part in split_batches(ids):
        seen = find_visible(tx, part)
        tx.add_missing(s.staging, [{"id": node, "operation": "link"} for node in seen])


def queue_reindex(tx: Transaction, ids: Sequence[str] | None = None) -> None:
    """Queue all episodes, all notes and the chunks ``ids`` for the vector index.

    ``ids`` None queues all chunks.
    """
    waiting = sa.select(s.nodes.c.id, sa.literal("index")).where(
        s.nodes.c.owner == 0, s.nodes.c.id.not_in(sa.select(s.staging.c.id))
    )
    parts: list[Any] = [None] if ids is None else [*split_batches(ids)]
    for part in parts:
        chosen = (
            waiting if part is None else waiting.where(is_one_of(tx.connection, s.nodes.c.id, part))
        )
        tx.run(s.staging.insert().from_select(["id", "operation"], chosen))
    for table in (s.episodes, s.notes):
        tx.update(table, indexed=0)


def mark_indexed(
    tx: Transaction,
    nodes: Sequence[str] = (),
    episodes: Sequence[str] = (),
    notes: Sequence[int] = (),
) -> None:
    """Take nodes, episodes and notes that the vector index holds now off its queues."""
    for part in split_batches(nodes):
        own = is_one_of(tx.connection, s.staging.c.id, part)
        tx.delete(s.staging, own, s.staging.c.operation == "index")
        tx.update(s.staging, own, s.staging.c.operation == "return", operation="link")
    queues: tuple[tuple[Any, Sequence[Any]], ...] = (
        (s.episodes.c.id, episodes),
        (s.notes.c.node, notes),
    )
    for column, keys in queues:
        for part in split_batches(keys):
            tx.update(column.table, is_one_of(tx.connection, column, part), indexed=1)


_OPERATIONS = ("put", "remove", "retire", "move")


def defer_indexes(tx: Transaction) -> None:
    """Drop indexes of an empty store that are faster built later; does nothing on SQLite."""
    tx.fulltext.defer(tx.connection)


def build_indexes(tx: Transaction) -> None:
    """Build the indexes that were deferred, and tidy the full text for many look-ups."""
    tx.fulltext.complete(tx.connection)


def publish_staged(tx: Transaction) -> None:
    """Make the staged batch visible to queries, and queue its nodes for linking."""
    tx.touches_corpus = True
    query = sa.select(s.staging).where(s.staging.c.operation.in_(_OPERATIONS))
    queued = tx.run(query.order_by(s.staging.c.place)).all()
    if not queued:
        return
    added, removed, retired, moved = (
        [row for row in queued if row.operation == operation] for operation in _OPERATIONS
    )
    tx.delete_in(s.staging.c.id, [row.id for row in queued if row.operation != "put"])
    names = {"put": added, "removed": removed, "retired": retired}
    ids = {name: [row.id for row in rows] for name, rows in names.items()}
    siblings = _take_away(tx, ids["removed"], remove_nodes)
    siblings += _take_away(tx, ids["retired"], retire_nodes)
    language = tx.language
    siblings += write_nodes(tx, [_decode_staged(row, language) for row in added])[1]
    linking = {"operation": "link", "payload": None, "embedding": None}
    tx.update(s.staging, s.staging.c.operation == "put", **linking)
    queue_linking(tx, siblings)
    move_nodes(tx, [(row.id, int(row.payload)) for row in moved])
    write_journal(tx, "publish", {name: len(rows) for name, rows in ids.items()})


def _decode_staged(row: Any, language: str | None) -> NewNode:
    payload = json.loads(row.payload)
    words = IndexedWords.from_text(payload["title"], payload["content"], language)
    return NewNode(row.id, payload, row.embedding, words)


def publish_nodes(
    tx: Transaction,
    nodes: Sequence[Node],
    words: Sequence[IndexedWords],
    removed: Sequence[str] = (),
    *,
    indexed: bool = False,
    queued: bool = True,
) -> dict[int, str]:
    """Make a batch visible without staging it.

    Args:
        indexed: Whether this transaction also writes the vectors to the index; if not, the nodes
            are queued for it.
        queued: Whether the nodes are queued for linking; if not, the caller links them in this
            transaction.

    Returns:
        If not ``queued``, ids by key of the nodes and of the siblings of replaced or deleted ones,
        in order of keys; else nothing.
    """
    tx.touches_corpus = True
    given = []
    for node, own in zip(nodes, words, strict=True):
        assert node.vector is not None, "published nodes must have a vector"  # noqa: S101
        given.append(NewNode(node.id, build_payload(node), encode_vector(node.vector), own))
    ids = [node.id for node in given]
    siblings = _take_away(tx, removed, remove_nodes)
    keys, of_replaced = write_nodes(tx, given)
    siblings += of_replaced
    write_journal(tx, "publish", {"put": len(ids), "removed": len(removed)})
    if not queued:
        found = {**keys, **find_visible(tx, siblings)}
        return {key: found_id for found_id, key in sorted(found.items(), key=itemgetter(1))}
    if indexed:
        queue_linking(tx, ids)
    else:
        queue_indexing(tx, ids, "return")
    queue_linking(tx, siblings)
    return {}


def _take_away(
    tx: Transaction, ids: Sequence[str], take: Callable[[Transaction, Sequence[str]], list[str]]
) -> list[str]:
    """Remove or retire nodes by ``take``; return the siblings that must be linked again.

    Vectors of the nodes are queued for deletion, and the nodes leave all other queues.
    """
    siblings: list[str] = []
    for part in split_batches(ids):
        siblings += take(tx, part)
        tx.delete_in(s.staging.c.id, part)
        tx.add_missing(s.index_deletions, [{"id": node} for node in part])
    return siblings


def move_nodes(tx: Transaction, positions: Sequence[tuple[str, int]]) -> None:
    """Set ``positions``, as ``(id, position)``, and queue the nodes and siblings for linking."""
    if positions:
        tx.touches_corpus = True
        moved = [node for node, _ in positions]
        keys = tx.get_node_keys(moved)
        own = s.contents.c.node == sa.bindparam("moved")
        update = s.contents.update().where(own).values(position=sa.bindparam("to"))
        rows = [{"moved": keys[n], "to": to} for n, to in positions if n in keys]
        tx.run(update, rows)
        queue_linking(tx, [*moved, *find_siblings(tx, moved)])


def remove_documents(tx: Transaction, ids: Sequence[str]) -> None:
    """Delete the nodes ``ids`` with all rows that refer to them.

    Their vectors are queued for deletion, and their siblings for linking.
    """
    tx.touches_corpus = True
    queue_linking(tx, _take_away(tx, ids, remove_nodes))
    write_journal(tx, "remove", {"nodes": len(ids)})
