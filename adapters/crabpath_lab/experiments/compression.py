"""Context compression: an agent that reads only what the memory is confident of reads less."""

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_lab.experiments.compressed_context import (
    ConfidentReader,
    TaskReading,
    count_tokens,
)
from crabpath_lab.experiments.corpora.deploy import CHAIN, NEAR, QUESTIONS, STEPS
from crabpath_lab.experiments.corpora.office import draw_office_task, office_pages
from crabpath_lab.experiments.experiment import (
    BySeed,
    Experiment,
    ExperimentVerdict,
    SeedResult,
)
from crabpath_lab.experiments.judging import compare_mean, conclude
from crabpath_lab.experiments.memory_setup import (
    UNTAUGHT,
    open_memory,
    shuffle_pages,
)
from crabpath_lab.experiments.simulated_agent import AgentTask, would_succeed

TURNS = 80
_WORDINGS, _OTHERS = 4, 6  # questions of the workload
_LAST = 10
_FIXED = 6
_PAPER_DOCUMENTS = 2.7


def _run(embeddings: Embeddings, seed: int, turns: int = TURNS) -> SeedResult:
    draws = np.random.default_rng(seed)
    pages = shuffle_pages(draws, STEPS, NEAR, office_pages())
    tasks = _draw_workload(draws)
    asked = [tasks[int(draws.integers(len(tasks)))] for _ in range(turns)]
    with open_memory(pages, embeddings) as memory:
        agent = ConfidentReader(memory)
        read = [agent.work(task) for task in asked]
        fixed = [would_succeed(memory, task, _FIXED, UNTAUGHT) for task in asked[-_LAST:]]
    length = [float(count_tokens(pages[name] for name in one.documents)) for one in read]
    number = [float(len(one.documents)) for one in read]
    return SeedResult(
        {
            "documents, first ten": float(np.mean(number[:_LAST])),
            "documents, last ten": float(np.mean(number[-_LAST:])),
            "tokens, first ten": float(np.mean(length[:_LAST])),
            "tokens, last ten": float(np.mean(length[-_LAST:])),
            "enough at once, first ten": _share_at_once(read[:_LAST]),
            "enough at once, last ten": _share_at_once(read[-_LAST:]),
            f"accuracy of {_FIXED} documents without learning, last ten": float(np.mean(fixed)),
            "documents that the last ten need": float(
                np.mean([len(task.needed) for task in asked[-_LAST:]])
            ),
            "nodes visited, last ten": float(np.mean([one.visited for one in read[-_LAST:]])),
        },
        {"documents read": number, "fixed": [float(_FIXED)] * turns},
    )


def _draw_workload(draws: np.random.Generator) -> list[AgentTask]:
    """Draw a few questions, asked repeatedly."""
    wordings = draws.choice(QUESTIONS, _WORDINGS, replace=False)
    return [
        *(AgentTask(str(one), CHAIN) for one in wordings),
        *(draw_office_task(draws) for _ in range(_OTHERS)),
    ]


def _share_at_once(read: list[TaskReading]) -> float:
    return float(np.mean([one.at_once for one in read]))


def _judge(found: BySeed) -> ExperimentVerdict:
    last, right = found["documents, last ten"], found["enough at once, last ten"]
    fixed = found[f"accuracy of {_FIXED} documents without learning, last ten"]
    reason = (
        f"documents read fall from {np.mean(found['documents, first ten']):.1f} to "
        f"{np.mean(last):.1f} a question, "
        f"{np.mean(found['documents that the last ten need']):.1f} are needed; they are "
        f"enough for {np.mean(right):.0%} of the questions, {_FIXED} without learning for "
        f"{np.mean(fixed):.0%}. The walk still visits "
        f"{np.mean(found['nodes visited, last ten']):.0f} nodes: what falls is what is read"
    )
    held = (
        compare_mean(f"at most {_PAPER_DOCUMENTS} documents", last, most=_PAPER_DOCUMENTS),
        compare_mean("enough as often as six unlearned", np.subtract(right, fixed), least=0),
    )
    return conclude(reason, held)


EXPERIMENT = Experiment(
    name="compression",
    title="Context compression",
    scene=(
        "Ten questions are repeated, four about a deployment of four pages, six about "
        "single pages, among 34 pages. An agent reads what the memory is confident of; where that "
        "is not enough it asks for 6, 12 and 30 documents, until it succeeds. Of every answer it "
        "says only whether it succeeded. Read is what it has read in all until then."
    ),
    paper=(
        "[OpenClawBrain] §4.3: nodes fired fall from 30 at query 1 to 2.7 at queries 91 to "
        "100, by 91 %"
    ),
    run=_run,
    verdict=_judge,
    across="question",
    up="documents read",
)
