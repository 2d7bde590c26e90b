"""Maintenance steps that merge near-duplicates and split broad texts."""

from crabpath_retrievers.changes.maintenance import MergeNodes, MergePair
from crabpath_retrievers.config.maintenance import MaintenanceSettings
from crabpath_retrievers.maintenance.broad import is_broad, split_text
from crabpath_retrievers.maintenance.duplicates import group_same_texts, plan_merges
from crabpath_retrievers.maintenance.splitting import NodeSplitter
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.batching import split_batches

StepCounts = tuple[int, int, dict[str, int]]
"""How many items a step looked at, how many it changed, and further counts by name."""

_MAX_QUESTIONS = 50  # of one document; more do not change the decision
_PAIRS_PER_TRANSACTION = 20  # keeps the write lock below half a second


def merge_duplicates(store: GraphStore, rules: MaintenanceSettings, run: str) -> StepCounts:
    """Merge near-duplicates, each group into one or more of its nodes.

    Args:
        store: The graph store.
        rules: Least cosine of duplicates, and metadata keys that may differ.
        run: Id of the maintenance run; empty for a dry run.
    """
    looked, groups = group_same_texts(
        store.duplicates.iterate_texts(rules.batch_size), rules.location_keys
    )
    pairs: list[MergePair] = []
    for keys in groups:
        pairs += plan_merges(store.duplicates.get_candidates(keys).values(), rules.merge_similarity)
    for part in split_batches(pairs, _PAIRS_PER_TRANSACTION) if run else ():
        store.apply([MergeNodes(run, tuple(part))])
    return looked, len(pairs), {"groups": len({pair.keeper for pair in pairs})}


def split_broad_texts(
    store: GraphStore, rules: MaintenanceSettings, splitting: NodeSplitter | None, run: str
) -> StepCounts:
    """Split texts that cover several topics.

    Args:
        store: The graph store.
        rules: When a text is too broad, and the size of its parts.
        splitting: Embeds and indexes the parts; None if there is no embedder.
        run: Id of the maintenance run; empty for a dry run, which calls no chat model.
    """
    if splitting is None:
        return 0, 0, {"needs an embedder": 1}
    looked = changed = made = 0
    for long in store.duplicates.get_long_documents(rules.split_above_chars):
        looked += 1
        if not is_broad(
            long.content, store.duplicates.get_query_vectors(long.id, _MAX_QUESTIONS), rules
        ):
            continue
        topics = splitting.topics if run else lambda _: None
        found = split_text(long.content, rules.split_part_chars, topics)
        if len(found) < 2:  # noqa: PLR2004
            continue
        changed, made = changed + 1, made + len(found)
        if run:
            (node,) = store.catalog.documents([long.id]).values()
            splitting.split(node, found, run)
    return looked, changed, {"parts": made}
