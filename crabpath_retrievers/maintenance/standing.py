"""The steps by which documents come to stand for others: merge and split."""

from crabpath_retrievers.changes.maintenance import Merged, MergeNodes
from crabpath_retrievers.config.maintenance import MaintenanceSettings
from crabpath_retrievers.maintenance.broad import broad, pieces
from crabpath_retrievers.maintenance.duplicates import merging, same
from crabpath_retrievers.maintenance.splitting import Splitting
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.batching import parts

Found = tuple[int, int, dict[str, int]]
_QUESTIONS = 50  # of one document: more tell nothing new
_TOGETHER = 20  # pairs in one transaction: a learner waits for it, half a second at most


def merge(store: GraphStore, rules: MaintenanceSettings, run: str) -> Found:
    """Near-duplicates, each group under one keeper.

    Args:
        store: Whose.
        rules: What counts as near, and what may differ.
        run: Id of the maintenance; empty to look only.
    """
    looked, groups = same(store.twins.texts(rules.batch_size), rules.location_keys)
    pairs: list[Merged] = []
    for keys in groups:
        pairs += merging(store.twins.twins(keys).values(), rules.merge_similarity)
    for part in parts(pairs, _TOGETHER) if run else ():
        store.apply([MergeNodes(run, tuple(part))])
    return looked, len(pairs), {"groups": len({pair.keeper for pair in pairs})}


def split(
    store: GraphStore, rules: MaintenanceSettings, splitting: Splitting | None, run: str
) -> Found:
    """Texts that have grown too broad.

    Args:
        store: Whose.
        rules: What counts as broad.
        splitting: What embeds and indexes parts; None where there is no embedder.
        run: Id of the maintenance; empty to look only: then no chat model is asked either.
    """
    if splitting is None:
        return 0, 0, {"needs an embedder": 1}
    looked = changed = made = 0
    for long in store.twins.long(rules.split_above_chars):
        looked += 1
        if not broad(long.content, store.twins.questions(long.id, _QUESTIONS), rules):
            continue
        topics = splitting.topics if run else lambda _: None
        found = pieces(long.content, rules.split_part_chars, topics)
        if len(found) < 2:  # noqa: PLR2004
            continue
        changed, made = changed + 1, made + len(found)
        if run:
            (node,) = store.catalog.documents([long.id]).values()
            splitting.split(node, found, run)
    return looked, changed, {"parts": made}
