"""Edge damping: a walk that follows one pointer at a time gets out of a cycle, or does not."""

from itertools import pairwise

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_lab.experiments.corpora.office import office_pages
from crabpath_lab.experiments.corpora.services import CircleOfServices
from crabpath_lab.experiments.experiment import (
    BySeed,
    Experiment,
    ExperimentVerdict,
    SeedResult,
)
from crabpath_lab.experiments.judging import compare_share, conclude
from crabpath_lab.experiments.memory_setup import (
    open_memory,
    sample_pages,
    shuffle_pages,
)
from crabpath_retrievers.config import SeedSettings, Settings, WalkSettings
from crabpath_retrievers.core.records import Turn

_FILLER_PAGES = 12
_HOPS = 8
_VISITS = 3


def _run(embeddings: Embeddings, seed: int) -> SeedResult:
    draws = np.random.default_rng(seed)
    scene = CircleOfServices.draw(draws)
    pages = shuffle_pages(draws, scene.pages, sample_pages(draws, office_pages(), _FILLER_PAGES))
    figures, curves = dict[str, float](), dict[str, list[float]]()
    for name, settings in (
        ("λ = 0.3", _single_path_settings(0.3)),
        ("λ = 1.0", _single_path_settings(1.0)),
        ("usual settings", Settings()),
    ):
        with open_memory(pages, embeddings, settings, scene.pages) as memory:
            turn = memory.retrieve(scene.question, record=False).turn
        figures |= {f"{of}, {name}": value for of, value in _summarize(turn, scene).items()}
        if name.startswith("λ"):
            curves[name] = _pages_by_hop(turn)
    return SeedResult(figures, curves)


def _single_path_settings(damping: float) -> Settings:
    """Make settings for one entry and one edge at a time, as in the paper, with re-entry."""
    return Settings(
        seeds=SeedSettings(max_entries=1),
        walk=WalkSettings(
            damping=damping,
            max_visits_per_node=_VISITS,
            max_new_nodes=1,
            max_hops=_HOPS,
            max_empty_hops=_HOPS,
            min_energy=0.0,
        ),
    )


def _summarize(turn: Turn, scene: CircleOfServices) -> dict[str, float]:
    route = _followed_edges(turn)
    depths = {str(place["node_id"]): float(place["depth"]) for place in turn.trace}
    again = sum(edge in route[:place] for place, edge in enumerate(route))
    return {
        "reaches D": float(scene.branch in turn.visited),
        "hops to D": depths.get(scene.branch, float(_HOPS + 1)),
        "edges followed again": float(again),
        "goes round the cycle first": float(
            route[:3] == list(pairwise((*scene.cycle, scene.cycle[0])))
        ),
    }


def _followed_edges(turn: Turn) -> list[tuple[str, str]]:
    """List the edges that were followed, one after the other."""
    return [(edge["source"], edge["target"]) for edge in turn.follow_log]


def _pages_by_hop(turn: Turn) -> list[float]:
    """Count the pages seen after each hop; constant once the walk has ended."""
    targets = [target for _, target in _followed_edges(turn)]
    return [float(len({turn.seeds[0].node, *targets[: hop + 1]})) for hop in range(_HOPS)]


def _judge(found: BySeed) -> ExperimentVerdict:
    damped, undamped = found["reaches D, λ = 0.3"], found["reaches D, λ = 1.0"]
    reached = [
        hops
        for hops, there in zip(found["hops to D, λ = 0.3"], damped, strict=True)
        if there == 1.0
    ]
    how = f"after {np.mean(reached):.1f} hops" if reached else "never"
    reason = (
        f"with λ = 0.3 the walk reaches D in {int(sum(damped))} of {len(damped)} seeds, {how}; "
        f"with λ = 1.0 in {int(sum(undamped))}, else it goes round to its last hop. The usual "
        f"settings never enter a node twice and follow several pointers: D in "
        f"{int(sum(found['reaches D, usual settings']))} of {len(damped)}"
    )
    held = (
        compare_share("D reached with λ = 0.3", [there == 1.0 for there in damped]),
        compare_share("D not reached with λ = 1.0", [there == 0.0 for there in undamped]),
    )
    return conclude(reason, held)


EXPERIMENT = Experiment(
    name="damping",
    title="Edge damping",
    scene=(
        "Three pages mention each other in a circle, A → B → C → A, and A mentions D too; nobody "
        "set an edge. A question about an order that B packs and D clears enters at A. As in the "
        "paper the walk has one entry and follows one pointer at a time; it may enter a node three "
        "times, and λ is the only difference. Beside it the walk with the usual settings. No hop "
        f"means that D is an entry itself, {_HOPS + 1} hops that it was never reached."
    ),
    paper=(
        "[OpenClawBrain] §4.5: D is reached in 4 hops with λ = 0.3; with λ = 1.0 the walk "
        "loops in the cycle"
    ),
    run=_run,
    verdict=_judge,
    across="hop",
    up="pages seen",
)
