"""Quality of regions: sizes, and similarity within them, compared with k-means and chance."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.cli.commands import existing_store
from crabpath_retrievers.learning.standalone import parse_settings, read_published_settings
from crabpath_retrievers.parts.region_mdp.models import RegionModels
from crabpath_retrievers.regions import Hubs, RegionIndex
from crabpath_retrievers.storage import GraphStore

_BATCHED_ABOVE = 20_000  # vectors from which k-means works in batches
_BATCH = 4096
_SEED = 0

Vectors = NDArray[np.float32]
Labels = NDArray[np.intp]


def measure_store(place: str, level: int | None) -> dict[str, Any]:
    """Figures of the regions of an existing memory; nothing is written.

    Args:
        place: Directory or database URL.
        level: Of the regions; None takes the finest with experience.
    """
    with existing_store(place) as store:
        settings = parse_settings(read_published_settings(store)).region
        models = RegionModels(store, RegionIndex(store, settings), settings)
        return measure_quality(store, models.hubs(level))


def measure_quality(store: GraphStore, hubs: Hubs) -> dict[str, Any]:
    """Three partitions of the same corpus into the same number of regions, JSON-safe.

    ``hash`` are the regions of the level, ``kmeans`` those that scikit-learn finds, ``random``
    has the sizes of ``hash`` and random members: the baseline without structure. Reads the whole
    corpus. ``hash`` also has ``to_hub``, the mean cosine to the hub.

    Args:
        store: The corpus.
        hubs: Of one level.
    """
    vectors = np.concatenate(
        [
            np.stack([node.vector for node in block]).astype(np.float32)
            for block in store.regions.iterate_nodes()
        ]
    )
    place = {key: number for number, key in enumerate(hubs.keys)}
    near = np.array([place[key] for key in hubs.nearest(vectors)])
    own = describe_partition(vectors, near)
    own["to_hub"] = round(float((vectors * hubs.vectors[near]).sum(axis=1).mean()), 3)
    lot = np.random.default_rng(_SEED).permutation(near)
    return {
        "level": hubs.level,
        "nodes": len(vectors),
        "hash": own,
        "kmeans": describe_partition(vectors, cluster_kmeans(vectors, own["regions"])),
        "random": describe_partition(vectors, lot),
    }


def cluster_kmeans(vectors: Vectors, number: int) -> Labels:
    """Labels of k-means; in batches where there are many vectors."""
    from sklearn.cluster import KMeans, MiniBatchKMeans

    if len(vectors) > _BATCHED_ABOVE:
        model = MiniBatchKMeans(number, batch_size=_BATCH, n_init=1, random_state=_SEED)
    else:
        model = KMeans(number, n_init=1, random_state=_SEED)
    labels: Labels = model.fit_predict(vectors)
    return labels


def describe_partition(vectors: Vectors, labels: Labels) -> dict[str, Any]:
    """Sizes of the regions of a partition, and how alike their members are.

    Args:
        vectors: Unit vectors, shape ``[n, d]``.
        labels: The region of each, shape ``[n]``.

    Returns:
        ``regions``, ``smallest``, ``median``, ``largest``; ``largest_share`` of all nodes;
        ``to_mean``, the mean cosine of a node to the mean of its region; and ``to_others``, that
        to the other members, which small regions do not flatter: None without a region of two.
    """
    _, region = np.unique(labels, return_inverse=True)
    sizes = np.bincount(region)
    sums = np.zeros((len(sizes), vectors.shape[1]))
    np.add.at(sums, region, vectors)
    lengths = np.linalg.norm(sums, axis=1)
    several = sizes > 1
    # Of unit vectors x with the sum S: Σ x·S/|S| = |S|, and Σ x·(S - x) = |S|² - n.
    others = (lengths[several] ** 2 - sizes[several]) / (sizes[several] - 1)
    return {
        "regions": len(sizes),
        "smallest": int(sizes.min()),
        "median": float(np.median(sizes)),
        "largest": int(sizes.max()),
        "largest_share": round(float(sizes.max() / len(vectors)), 4),
        "to_mean": round(float(lengths.sum() / len(vectors)), 3),
        "to_others": round(float(others.sum() / sizes[several].sum()), 3)
        if several.any()
        else None,
    }
