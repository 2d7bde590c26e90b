"""Entry search: dense, lexical and name hits of one query, joined, each with its scores."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from crabpath_retrievers.config import Settings
from crabpath_retrievers.graph import NodeHead, Vector
from crabpath_retrievers.rerank.features import Hit
from crabpath_retrievers.seeds.index import VectorIndex
from crabpath_retrievers.seeds.lexical import lexical_hits, names_in
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.walk_queries import Clock
from crabpath_retrievers.text import tokens

if TYPE_CHECKING:
    from crabpath_retrievers.retrieval import Query

_LONGEST_QUERY = 20_000  # characters that lexical search reads


class Search:
    """Finds where a walk may start."""

    def __init__(self, store: GraphStore, index: VectorIndex, settings: Settings) -> None:
        """Search ``store`` and ``index``."""
        self._store, self._index, self._settings = store, index, settings

    def hits(self, query: "Query", vector: Vector) -> tuple[Clock, dict[int, Hit]]:
        """The namespace's clock, and hits by node key."""
        settings = self._settings.seeds
        text = query.text[:_LONGEST_QUERY]
        lexical = lexical_hits(self._store, tokens(text), settings)
        named = self._named(text)
        dense = self._index.search(vector, max(settings.hits, query.k), query.filter)
        wanted = (*dense, *query.seed_ids)
        heads = self._store.walk.heads(wanted, (*lexical, *named))
        if query.filter:
            found = [head.id for head in heads if head.id not in set(dense)]
            allowed = set(dense) | self._index.matching(found, vector, query.filter)
            heads = [head for head in heads if head.id in allowed]
        hits = _hits(heads, vector, lexical, named, set(query.seed_ids))
        return self._store.walk.clock(query.namespace), hits

    def _named(self, text: str) -> set[int]:
        """Nodes whose name stands in the query; a longer name silences those inside it."""
        links = self._settings.links
        owners: dict[str, list[int]] = {}
        for name, key in self._store.walk.owners(names_in(text, links.max_name_words)):
            owners.setdefault(name, []).append(key)
        named: set[int] = set()
        taken = ""
        for name in sorted(owners, key=len, reverse=True):
            if f" {name} " not in taken and len(owners[name]) <= links.max_owners:
                named |= set(owners[name])
                taken += f" {name} "
        return named


def _hits(
    heads: Iterable[NodeHead],
    vector: Vector,
    lexical: dict[int, float],
    named: set[int],
    hinted: set[str],
) -> dict[int, Hit]:
    heads = list(heads)
    if not heads:
        return {}
    matrix = np.stack([head.vector for head in heads]).astype(np.float32)
    best = max(lexical.values(), default=0.0) or 1.0
    return {
        head.key: Hit(
            head,
            similarity,
            lexical=lexical.get(head.key, 0.0) / best,
            name=head.rarity if head.key in named else 0.0,
            hint=1.0 if head.id in hinted else 0.0,
        )
        for head, similarity in zip(heads, (matrix @ vector).tolist(), strict=True)
    }
