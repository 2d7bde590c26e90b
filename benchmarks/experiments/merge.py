"""Merging: a corpus that says everything twice, before and after maintenance."""

from collections.abc import Iterator

import numpy as np
from langchain_core.embeddings import Embeddings

from benchmarks.experiments.corpora.office import PAGES
from benchmarks.experiments.experiment import BySeed, Experiment, ExperimentVerdict, SeedResult
from benchmarks.experiments.memory_setup import open_memory
from crabpath_retrievers import CrabPath, Feedback

TURNS = 40
ROOM = 3
_WIKI, _EXPORT = "wiki/", "export/"


def _run(embeddings: Embeddings, seed: int) -> SeedResult:
    draws = np.random.default_rng(seed)
    stream = _generate_tasks(draws)
    with open_memory(_draw_corpus(draws), embeddings) as memory:
        nodes = memory.info()["nodes"]
        before = [_ask_and_report(memory, next(stream)) for _ in range(TURNS)]
        run = memory.maintenance.run(["merge"]).run
        merged = memory.info()["nodes"]
        after = [_ask_and_report(memory, next(stream)) for _ in range(TURNS)]
        memory.maintenance.undo(run)
        undone = memory.info()["nodes"]
    return SeedResult(
        {
            "nodes before": float(nodes),
            "nodes after": float(merged),
            "nodes after undo": float(undone),
            "different pages read, before": float(np.mean([pages for pages, _ in before])),
            "different pages read, after": float(np.mean([pages for pages, _ in after])),
            "accuracy before": float(np.mean([done for _, done in before])),
            "accuracy after": float(np.mean([done for _, done in after])),
        }
    )


def _draw_corpus(draws: np.random.Generator) -> dict[str, str]:
    """The pages of a wiki, and a third of them once more as its export sets them."""
    chosen = draws.choice(list(PAGES), size=len(PAGES) // 3, replace=False)
    wiki = {f"{_WIKI}{name}": page.text for name, page in PAGES.items()}
    return wiki | {
        f"{_EXPORT}{name}": PAGES[str(name)].text.replace(". ", ".\n") for name in chosen
    }


def _generate_tasks(draws: np.random.Generator) -> Iterator[tuple[str, set[str]]]:
    """Questions that need two pages."""
    while True:
        a, b = (str(name) for name in draws.choice(list(PAGES), size=2, replace=False))
        yield f"{draws.choice(PAGES[a].questions)} {draws.choice(PAGES[b].questions)}", {a, b}


def _ask_and_report(memory: CrabPath, task: tuple[str, set[str]]) -> tuple[int, bool]:
    """Ask and report the outcome; returns the number of different pages, and success."""
    question, needed = task
    turn = memory.retrieve(question, k=ROOM).turn
    read = {item.node.split("/", 1)[1] for item in turn.returned}
    memory.record(Feedback(turn.id, 1.0 if needed <= read else -1.0))
    return len(read), needed <= read


def _judge(found: BySeed) -> ExperimentVerdict:
    mean = {name: float(np.mean(values)) for name, values in found.items()}
    reason = (
        f"{mean['nodes before']:.0f} nodes become {mean['nodes after']:.0f}, of three documents "
        f"{mean['different pages read, before']:.2f} say different things before and "
        f"{mean['different pages read, after']:.2f} after, accuracy {mean['accuracy before']:.2f} "
        f"and {mean['accuracy after']:.2f}"
    )
    smaller = mean["nodes after"] < mean["nodes before"]
    kept = mean["accuracy after"] >= mean["accuracy before"]
    return ExperimentVerdict("reproduced" if smaller and kept else "not reproduced", reason)


EXPERIMENT = Experiment(
    name="merge",
    title="Merging near-duplicates",
    scene=(
        "Twenty-four pages of a wiki, a third of which came a second time, from an export that "
        "sets them otherwise. An agent asks questions that need two pages, has room for three "
        "documents, and says only whether it succeeded: forty questions before maintenance merges, "
        "forty after. Then the merge is undone."
    ),
    paper="[OpenClawBrain] §4.14.1: 40 nodes become 32, fired value 2.0 becomes 1.0",
    run=_run,
    verdict=_judge,
)
