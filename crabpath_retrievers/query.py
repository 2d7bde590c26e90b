"""What is asked of the memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.graph import Vector

_MOST = 1_000_000  # more than any answer; vector stores fail in their own ways above it


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One question to the memory.

    Attributes:
        text: What is asked.
        k: Documents to return, at least 1.
        namespace: Whose learned weights apply, and whose clock advances.
        filter: Condition on metadata, in the vector index's own language.
        seed_ids: Nodes that the host suggests as entries (document 002 §1.4).
        boost_tags: Documents whose metadata carries one of these values are preferred.
        fill: Return exactly k (as far as there are documents); else only confident ones.
        max_tokens: Budget for the returned texts, near-duplicates left out; None for no budget.
        vector: Unit query vector of shape ``[d]``; None embeds the text.
        record: Whether to keep the turn record.
        run_id: Run of the host framework, by which feedback may find the turn.
        callbacks: Callbacks of the host framework, for a router that runs models.
    """

    text: str
    k: int = 4
    namespace: str = "default"
    filter: Mapping[str, Any] | None = None
    seed_ids: Sequence[str] = ()
    boost_tags: Sequence[str] = ()
    fill: bool = True
    max_tokens: int | None = None
    vector: Vector | None = None
    record: bool = True
    run_id: str | None = None
    callbacks: Any = None

    def __post_init__(self) -> None:
        """Refuse what cannot be asked.

        Raises:
            InvalidInputError: Empty text, k or budget below 1, or an unusable namespace.
        """
        if not isinstance(self.text, str) or not self.text.strip():
            msg = "the query is empty: pass a question or some words"
            raise InvalidInputError(msg)
        _require_count("k", self.k)
        if self.max_tokens is not None:
            _require_count("max_tokens", self.max_tokens)
        if not isinstance(self.namespace, str) or not self.namespace.strip():
            msg = f"namespace must be a non-empty text, not {self.namespace!r}"
            raise InvalidInputError(msg)
        for name in ("seed_ids", "boost_tags"):
            values = getattr(self, name)
            if not isinstance(values, Sequence) or not all(isinstance(v, str) for v in values):
                msg = f"{name} must be a list of texts, not {values!r}"
                raise InvalidInputError(msg)


def _require_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
        msg = f"{name} must be a whole number of at least 1 and at most {_MOST}, not {value!r}"
        raise InvalidInputError(msg)
