"""Cost reduction: tokens in the context when everything is loaded, with search, with CrabPath."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_lab.experiments.compressed_context import (
    ConfidentReader,
    confident_documents,
    count_tokens,
)
from crabpath_lab.experiments.corpora.deploy import CHAIN, NEAR, QUESTIONS, STEPS
from crabpath_lab.experiments.corpora.office import PAGES, office_pages
from crabpath_lab.experiments.experiment import (
    BySeed,
    Experiment,
    ExperimentVerdict,
    SeedResult,
)
from crabpath_lab.experiments.judging import TINY, compare_mean, conclude
from crabpath_lab.experiments.memory_setup import (
    UNTAUGHT,
    make_documents,
    open_memory,
    shuffle_pages,
)
from crabpath_lab.experiments.simulated_agent import AgentTask
from crabpath_lab.methods.base import EvaluationCorpus
from crabpath_lab.methods.dense import open_dense
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE

TURNS = 80
_OFFICE = 8  # pages that are asked about
_K = 6
_MIN_REDUCTION = 0.63  # reduction

ContextFunction = Callable[[str], Sequence[str]]


def _run(embeddings: Embeddings, seed: int, turns: int = TURNS) -> SeedResult:
    draws = np.random.default_rng(seed)
    pages = shuffle_pages(draws, STEPS, NEAR, office_pages())
    asked, unasked = _draw_workload(draws)
    corpus = EvaluationCorpus.from_documents(
        make_documents(pages), embeddings, split=False, show_progress=False
    )
    with open_memory(pages, embeddings) as memory, open_dense(corpus) as rank:
        agent, length = ConfidentReader(memory), list[float]()
        for _ in range(turns):
            task = asked[int(draws.integers(len(asked)))]
            length.append(float(count_tokens(pages[name] for name in agent.work(task).documents)))
        ways: dict[str, ContextFunction] = {
            "everything": lambda _question: list(pages),
            f"search, {_K} documents": lambda question: [
                found.document for found in rank(question, memory.embedder.query(question), _K)
            ],
            "CrabPath": lambda question: confident_documents(memory, question, DEFAULT_NAMESPACE),
            "CrabPath, never taught": lambda question: confident_documents(
                memory, question, UNTAUGHT
            ),
        }
        figures = dict[str, float]()
        for name, ask in ways.items():
            figures |= _summarize(name, ask, asked, pages)
        figures |= _summarize("CrabPath, other questions", ways["CrabPath"], unasked, pages)
    return SeedResult(figures, {"tokens read, learning": length})


def _draw_workload(draws: np.random.Generator) -> tuple[list[AgentTask], list[AgentTask]]:
    """Draw tasks that are asked repeatedly, and others of the same pages that never are."""
    names = [str(name) for name in draws.choice(list(PAGES), _OFFICE, replace=False)]
    wordings = [str(one) for one in draws.permutation(QUESTIONS)]
    half = len(wordings) // 2
    parts = [
        [
            *(AgentTask(question, CHAIN) for question in of),
            *(AgentTask(PAGES[name].questions[place], (name,)) for name in names),
        ]
        for place, of in enumerate((wordings[:half], wordings[half:]))
    ]
    return parts[0], parts[1]


def _summarize(
    name: str, ask: ContextFunction, tasks: Sequence[AgentTask], pages: Mapping[str, str]
) -> dict[str, float]:
    answers = [ask(task.question) for task in tasks]
    lengths = [count_tokens(pages[page] for page in answer) for answer in answers]
    right = [task.succeeds(answer) for task, answer in zip(tasks, answers, strict=True)]
    return {
        f"tokens, {name}": float(np.mean(lengths)),
        f"accuracy, {name}": float(np.mean(right)),
    }


def _judge(found: BySeed) -> ExperimentVerdict:
    names = ("everything", f"search, {_K} documents", "CrabPath", "CrabPath, other questions")
    all_, search, ours, other = (np.array(found[f"tokens, {name}"]) for name in names)
    _, by_search, right, there = (np.array(found[f"accuracy, {name}"]) for name in names)
    saved = 1 - ours / all_
    reason = (
        f"tokens a question {all_.mean():.0f} with everything, {search.mean():.0f} with search, "
        f"{ours.mean():.0f} with what was learned, {saved.mean():.0%} less than everything, at an "
        f"accuracy of {right.mean():.2f} against {by_search.mean():.2f} of search; for questions "
        f"that were never asked {other.mean():.0f} tokens and {there.mean():.2f}"
    )
    held = (
        compare_mean(f"{_MIN_REDUCTION:.0%} less than everything", saved, least=_MIN_REDUCTION),
        compare_mean("less than search, difference of tokens", ours - search, most=-TINY),
        compare_mean("as accurate as search, difference", right - by_search, least=0),
    )
    return conclude(reason, held)


EXPERIMENT = Experiment(
    name="cost",
    title="Cost reduction",
    scene=(
        "34 pages; five wordings of a question about a deployment of four pages, and eight about "
        "single pages, are repeated. An agent reads what the memory is confident of, asks "
        "for more where that is not enough, and says only whether it succeeded. Then the tokens "
        "of the context and its accuracy are taken for everything loaded, for the six nearest "
        "pages of plain Chroma, and for what the memory is confident of now; at last for questions "
        "about the same pages that it was never asked. Tokens are four characters, as in budgets."
    ),
    paper=(
        "[CrabPath] §6.4: 6,066 tokens static, 744 with search, 297 with CrabPath; 63 to 99 % "
        "less than "
        "static; no accuracy is reported"
    ),
    run=_run,
    verdict=_judge,
    across="question while it learns",
    up="tokens read until the task succeeds",
)
