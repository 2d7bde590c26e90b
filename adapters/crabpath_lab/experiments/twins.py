"""Twin brains: two namespaces of one memory diverge with their use."""

from collections.abc import Container, Iterable

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_lab.experiments.corpora.office import office_pages
from crabpath_lab.experiments.corpora.work import (
    CODING,
    CODING_JOBS,
    SAFETY,
    SAFETY_JOBS,
    SHARED_QUESTIONS,
    draw_job_task,
)
from crabpath_lab.experiments.experiment import (
    BySeed,
    Experiment,
    ExperimentVerdict,
    SeedResult,
)
from crabpath_lab.experiments.judging import (
    TINY,
    compare_mean,
    conclude,
    require_always,
)
from crabpath_lab.experiments.memory_setup import (
    open_memory,
    sample_pages,
    shuffle_pages,
    strongest_weights,
)
from crabpath_lab.experiments.simulated_agent import SimulatedAgent
from crabpath_retrievers import CrabPath

TURNS = 50
CODER, GUARD, BYSTANDER = "coder", "guard", "bystander"

_K = 6
_FILLER_PAGES = 12
_MIN_DIFFERENCE = 0.05


def _run(embeddings: Embeddings, seed: int, turns: int = TURNS) -> SeedResult:
    draws = np.random.default_rng(seed)
    pages = shuffle_pages(draws, CODING, SAFETY, sample_pages(draws, office_pages(), _FILLER_PAGES))
    apart = list[float]()
    with open_memory(pages, embeddings) as memory:
        before = _namespace_state(memory, pages, BYSTANDER)
        coder, guard = (SimulatedAgent(memory, name, tells_used=True) for name in (CODER, GUARD))
        for _ in range(turns):
            coder.work(draw_job_task(CODING_JOBS, draws), _K)
            guard.work(draw_job_task(SAFETY_JOBS, draws), _K)
            apart.append(_count_differing(memory, pages))
        coding = [_extra_pages(memory, question, CODING) for question in SHARED_QUESTIONS]
        safety = [-_extra_pages(memory, question, SAFETY) for question in SHARED_QUESTIONS]
        return SeedResult(
            {
                "edges that differ": float(apart[-1]),
                "shared questions answered differently": float(
                    np.mean([_answers_differ(memory, question) for question in SHARED_QUESTIONS])
                ),
                "more coding pages for the coder": float(np.mean(coding)),
                "more safety pages for the guard": float(np.mean(safety)),
                "third namespace unchanged": float(
                    _namespace_state(memory, pages, BYSTANDER) == before
                ),
            },
            {"edges that differ": apart},
        )


def _edge_weights(
    memory: CrabPath, pages: Iterable[str], name: str
) -> dict[tuple[str, str], float]:
    return {
        (node, other): weight
        for node in pages
        for other, weight in strongest_weights(memory, node, namespace=name).items()
    }


def _count_differing(memory: CrabPath, pages: Iterable[str]) -> int:
    """Count edges whose weights differ between the twins; a missing edge weighs 0."""
    coder, guard = (_edge_weights(memory, pages, name) for name in (CODER, GUARD))
    return sum(
        abs(coder.get(edge, 0.0) - guard.get(edge, 0.0)) > _MIN_DIFFERENCE
        for edge in coder.keys() | guard
    )


def _ask(memory: CrabPath, question: str, name: str) -> list[tuple[str, float]]:
    found = memory.retrieve(question, k=_K, namespace=name, record=False)
    return [(item.node.id, item.score) for item in found.documents]


def _extra_pages(memory: CrabPath, question: str, pages: Container[str]) -> int:
    """Count these pages that only the coder gets."""
    coder, guard = (_ask(memory, question, name) for name in (CODER, GUARD))
    return sum(page in pages for page, _ in coder) - sum(page in pages for page, _ in guard)


def _answers_differ(memory: CrabPath, question: str) -> bool:
    coder, guard = (_ask(memory, question, name) for name in (CODER, GUARD))
    return [page for page, _ in coder] != [page for page, _ in guard]


def _namespace_state(memory: CrabPath, pages: Iterable[str], name: str) -> tuple[object, ...]:
    """Return answers and edge weights of a namespace, to compare bit by bit."""
    answers = [_ask(memory, question, name) for question in SHARED_QUESTIONS]
    return answers, _edge_weights(memory, pages, name)


def _judge(found: BySeed) -> ExperimentVerdict:
    apart = found["edges that differ"]
    untouched = [same == 1.0 for same in found["third namespace unchanged"]]
    more = {
        name: found[name]
        for name in ("more coding pages for the coder", "more safety pages for the guard")
    }
    coder, guard = (float(np.mean(values)) for values in more.values())
    reason = (
        f"{np.mean(apart):.0f} edges differ by more than {_MIN_DIFFERENCE} after {TURNS} questions "
        f"each, shared questions bring the coder {coder:.1f} and the guard {guard:.1f} more of "
        f"their own pages, a third namespace is unchanged to the last bit in {sum(untouched)} of "
        f"{len(untouched)} seeds"
    )
    held = (
        compare_mean("edges that differ above 0", apart, least=TINY),
        *(compare_mean(f"{name}, above 0", values, least=TINY) for name, values in more.items()),
        require_always("third namespace unchanged", untouched),
    )
    return conclude(reason, held)


EXPERIMENT = Experiment(
    name="twins",
    title="Twin brains",
    scene=(
        "Two agents share one memory of 38 pages and have a namespace each. One does five kinds of "
        "coding jobs, the other five of safety; they say how it ended and which pages they worked "
        "with. Then both are asked ten questions that mean something in either domain, and a third "
        "namespace, that never asked, is compared with itself."
    ),
    paper=(
        "[OpenClawBrain] §4.8: 27 of 306 edges differ by more than .05 after 50 queries; "
        "[CrabPath] §6.2: 8 against 2 "
        "cross-file edges, 5.3 % against 6.25 % reflex"
    ),
    run=_run,
    verdict=_judge,
    across="question of each twin",
    up="edges that differ by more than .05",
)
