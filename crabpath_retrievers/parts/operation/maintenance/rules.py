"""The rules of maintenance: which weights have faded, which notes end, which nodes are connected.

After the CrabPath v2 specification.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.config.operation import MaintenanceSettings
from crabpath_retrievers.core.records import (
    TYPED_KINDS,
    Authority,
    Edge,
    EdgeKind,
    StoredWeight,
    Vector,
    stretch_cosine,
)

_TYPED = {kind.value for kind in TYPED_KINDS}


class LearnedWeight(NamedTuple):
    """A learned weight: keys of both ends, number of the edge kind.

    ``in_text`` says whether it decays to a prior, that of STOP or of an edge of the text.
    """

    source: int
    target: int
    kind: int
    stored: StoredWeight
    in_text: bool


class AutoNote(NamedTuple):
    """An ``auto`` note with its uses and edges; see the columns of ``notes`` and ``usage``."""

    id: str
    last: int
    uses: float
    passes: float
    authority: int
    degree: int
    strongest: float


def find_faded_weights(
    weights: Iterable[LearnedWeight],
    exponent: float,
    half_life: float,
    settings: MaintenanceSettings,
) -> tuple[list[LearnedWeight], list[LearnedWeight]]:
    """Find the weights that no walk follows any more.

    Weights changed within the last ``age`` turns of the settings stay, and so do edges to nodes of
    the highest authority, which do not decay. ``exponent`` is the decay now, ``half_life`` that of
    weights, in turns.

    Returns:
        Weights of text edges that have decayed to the prior; and those of edges made by learning
        alone that have decayed to about 0.
    """
    aged = settings.min_age_turns * math.log(2.0) / half_life
    at_floor, pruned = list[LearnedWeight](), list[LearnedWeight]()
    for weight in weights:
        stored = weight.stored
        # A typed edge that somebody set to 0 must stay: feedback from before would bring it back.
        is_removed = not stored.weight and weight.kind in _TYPED
        is_fixed = stored.authority == Authority.CONSTITUTIONAL.value
        if is_removed or is_fixed or exponent - stored.decay_at < aged:
            continue
        now = stored.decay_to(exponent)
        if weight.in_text:
            if abs(now - stored.floor) < settings.faded_distance:
                at_floor.append(weight)
        elif -settings.min_inhibition < now < settings.min_weight:
            pruned.append(weight)
    return at_floor, pruned


def compute_survival_score(note: AutoNote, unseen: int, settings: MaintenanceSettings) -> float:
    """Return ``α degree + β uses + γ success rate − δ age``; below 0 the note is removed.

    Age is the number of turns ``unseen``, in units of ``settings.min_age_turns``. The CrabPath v2
    specification (docs/bibliography.md) subtracts the success rate, which would remove successful
    notes first; here it is added.
    """
    tried = note.uses + note.passes
    rate = note.uses / tried if tried else 0.0
    alive = (
        settings.edge_score * note.degree
        + settings.use_score * note.uses
        + settings.success_score * rate
    )
    return alive - settings.age_penalty * unseen / settings.min_age_turns


def is_expired(
    note: AutoNote, unseen: int, probation: int, strong: float, settings: MaintenanceSettings
) -> bool:
    """Whether an automatic note is to be removed.

    A note that was not returned for ``probation`` turns is no longer retrieved. After twice as many
    it is removed, unless it has authority, an edge of at least the absolute weight ``strong``, or a
    score of at least 0. ``unseen`` counts the turns since the note was last used or returned.
    """
    return (
        unseen > 2 * probation
        and not note.authority
        and note.strongest < strong
        and compute_survival_score(note, unseen, settings) < 0
    )


def find_neighbours(
    wanted: NDArray[np.float32],
    blocks: Iterable[tuple[Sequence[int], Sequence[Vector]]],
    own: Sequence[int],
    most: int,
    least: float,
    stretch: float = 1.0,
) -> list[list[tuple[float, int]]]:
    """Find the nearest other nodes of each vector, nearest first, as similarity and key.

    ``wanted`` are the vectors, shape ``[n, d]``, of the nodes with the keys ``own``, in order;
    ``blocks`` are keys and vectors of all nodes. ``most`` neighbours per node, of similarity
    ``least`` or more.
    """
    neighbours: list[list[tuple[float, int]]] = [[] for _ in own]
    for keys, vectors in blocks:
        similarities = stretch_cosine(wanted @ np.stack(vectors).astype(np.float32).T, stretch)
        for place, row in enumerate(similarities):
            similar = np.flatnonzero(row >= least)  # few: sorting whole rows took most of the time
            best = similar[np.argsort(-row[similar], kind="stable")][: most + 1].tolist()
            near = [(float(row[i]), keys[i]) for i in best if keys[i] != own[place]]
            both = sorted([*neighbours[place], *near], key=lambda node: (-node[0], node[1]))
            neighbours[place] = both[:most]
    return neighbours


def make_similar_edges(
    keys: Sequence[int], near: Sequence[Sequence[tuple[float, int]]], prior: float
) -> Iterator[Edge]:
    """Yield edges to and from the nearest nodes, with the weight ``prior``.

    ``near`` has the nearest of each of ``keys``, as similarity and key.
    """
    for key, neighbours in zip(keys, near, strict=True):
        for _, other in neighbours:
            for source, target in ((key, other), (other, key)):
                yield Edge(source, target, EdgeKind.SIMILAR, prior, prior)
