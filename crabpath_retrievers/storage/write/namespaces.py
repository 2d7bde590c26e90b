"""Writers of namespaces: their clock, whether they learn, and their end."""

import sqlalchemy as sa

from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.registry import KEYED_BY_NAMESPACE
from crabpath_retrievers.storage.write.journal import write_journal
from crabpath_retrievers.storage.write.notes import delete_notes
from crabpath_retrievers.storage.write.transaction import Transaction


def advance_clock(tx: Transaction, namespace: str, turns: int = 0, exponent: float = 0.0) -> None:
    """Advance the clock and the decay of a namespace, which is created if it is new.

    Args:
        tx: The transaction.
        namespace: Name of the namespace.
        turns: Turns to add.
        exponent: Decay exponent to add, ``turns · ln 2 / half_life``.
    """
    tx.update(
        s.namespaces,
        s.namespaces.c.key == tx.get_key(namespace),
        turn=s.namespaces.c.turn + turns,
        exponent=s.namespaces.c.exponent + exponent,
    )
    tx.forget_key(namespace)


def set_frozen(tx: Transaction, namespace: str, *, frozen: bool) -> None:
    """Stop or resume learning in a namespace."""
    tx.update(s.namespaces, s.namespaces.c.key == tx.get_key(namespace), frozen=int(frozen))


def forget_namespace(tx: Transaction, name: str) -> dict[str, int]:
    """Delete a namespace with its turns, feedback, learned state, notes and snapshots.

    Returns:
        How many rows were deleted, by table.
    """
    tx.touches_corpus = True
    key = tx.find_key(name)  # first: whoever writes to it waits, and finds it gone
    deleted = {"feedback": tx.delete(s.feedback, s.feedback.c.namespace == name)}
    tx.delete(s.journal, s.journal.c.namespace == name)
    if key is None:
        return deleted
    deleted["notes"] = len(delete_notes(tx, s.notes.c.namespace == key))
    turns = sa.select(s.turns.c.id).where(s.turns.c.namespace == key)
    tx.delete(s.consumed_turns, s.consumed_turns.c.turn.in_(turns))
    for table in KEYED_BY_NAMESPACE:
        deleted.setdefault(table.name.removeprefix("crabpath_"), 0)
        deleted[table.name.removeprefix("crabpath_")] += tx.delete(table, table.c.namespace == key)
    tx.delete(s.namespaces, s.namespaces.c.key == key)
    tx.forget_key(name)
    write_journal(tx, "forget_namespace", {"key": key})
    return deleted
