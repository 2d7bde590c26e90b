"""Lets time pass in a namespace, without turns that nobody asks."""

from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.write.transaction import Transaction


def advance_clock(tx: Transaction, namespace: str, turns: int = 0, exponent: float = 0.0) -> None:
    """Add ``turns`` to the clock of a namespace, and ``exponent`` to its decay.

    A new namespace is created.
    """
    tx.update(
        s.namespaces,
        s.namespaces.c.key == tx.get_key(namespace),
        turn=s.namespaces.c.turn + turns,
        exponent=s.namespaces.c.exponent + exponent,
    )
    tx.forget_key(namespace)
