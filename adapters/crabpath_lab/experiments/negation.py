"""Negation: a misleading page gets negative edges, and search still finds it."""

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_lab.experiments.corpora.deploy import NEAR
from crabpath_lab.experiments.corpora.hotfix import (
    DEPRECATED,
    GOOD,
    PAGES,
    QUESTIONS,
)
from crabpath_lab.experiments.corpora.office import office_pages
from crabpath_lab.experiments.experiment import (
    BySeed,
    Experiment,
    ExperimentVerdict,
    SeedResult,
)
from crabpath_lab.experiments.judging import (
    compare_share,
    conclude,
    require_always,
)
from crabpath_lab.experiments.memory_setup import open_memory, strongest_weights
from crabpath_retrievers import CrabPath, Feedback

TURNS = 40
ROOM = 6
MAX_DOCUMENTS = 100  # more than there are pages
ERROR = 0.3
_MAX_CORRECTIONS, _THRESHOLD = 20, -0.3


def _run(embeddings: Embeddings, seed: int) -> SeedResult:
    draws = np.random.default_rng(seed)
    pages = {**PAGES, **NEAR, **office_pages()}
    misled, bad, good = list[bool](), list[float](), list[float]()
    with open_memory(pages, embeddings) as memory:
        before = {question: _find_pages(memory, question) for question in QUESTIONS}
        for _ in range(TURNS):
            slip = draws.random() < ERROR
            misled.append(_ask_and_report(memory, str(draws.choice(QUESTIONS)), slip=slip))
            bad.append(_lowest_weight_to(memory, DEPRECATED, pages))
            good.append(_lowest_weight_to(memory, GOOD, pages))
        lost = sum(not before[q] <= _find_pages(memory, q) for q in QUESTIONS)
    corrections = np.cumsum(misled)
    first = next(
        (n for n, weight in zip(corrections, bad, strict=True) if weight < _THRESHOLD), np.inf
    )
    return SeedResult(
        {
            "corrections until below -0.3": float(min(first, _MAX_CORRECTIONS + 1)),
            "deprecated page, strongest edge against it": bad[-1],
            "good page, strongest edge against it": good[-1],
            "misled, first ten questions": float(np.mean(misled[:10])),
            "misled, last ten questions": float(np.mean(misled[-10:])),
            "questions that lost one of both pages": float(lost),
        },
        {"deprecated": bad, "good": good},
    )


def _ask_and_report(memory: CrabPath, question: str, *, slip: bool) -> bool:
    """Follow one of both pages and report the outcome; returns whether it misled.

    The first one, or by mistake the other one where both are read.
    """
    turn = memory.retrieve(question, k=ROOM).turn
    read = [item.node for item in turn.returned if item.node in PAGES]
    if not read:
        memory.record(Feedback(turn.id, -1.0))
        return False
    followed = read[-1] if slip else read[0]
    wrong = followed == DEPRECATED
    memory.record(Feedback(turn.id, -1.0 if wrong else 1.0, used=[followed]))
    return wrong


def _find_pages(memory: CrabPath, question: str) -> set[str]:
    """Return which of the two pages an answer without a limit contains."""
    answer = memory.retrieve(question, k=MAX_DOCUMENTS, record=False)
    return {item.node.id for item in answer.documents} & set(PAGES)


def _lowest_weight_to(memory: CrabPath, node: str, pages: dict[str, str]) -> float:
    """Return the lowest weight of an edge to a page; 0 if none is below 0."""
    return min((strongest_weights(memory, page).get(node, 0.0) for page in pages), default=0.0)


def _judge(found: BySeed) -> ExperimentVerdict:
    quick = [n <= _MAX_CORRECTIONS for n in found["corrections until below -0.3"]]
    avoided = [share == 0 for share in found["misled, last ten questions"]]
    clean = [w >= 0 for w in found["good page, strongest edge against it"]]
    kept = [n == 0 for n in found["questions that lost one of both pages"]]
    reason = (
        f"below {_THRESHOLD} within {_MAX_CORRECTIONS} corrections in {sum(quick)} of "
        f"{len(quick)} seeds, without further corrections in the last ten questions in "
        f"{sum(avoided)}, nothing against the good page in {sum(clean)}, no search hit lost in "
        f"{sum(kept)}"
    )
    held = (
        compare_share(f"below {_THRESHOLD} within {_MAX_CORRECTIONS} corrections", quick),
        require_always("nothing against the good page", clean),
        require_always("no search hit lost", kept),
    )
    return conclude(reason, held)


EXPERIMENT = Experiment(
    name="negation",
    title="Negation",
    scene=(
        "One page says to run the tests before every deploy, a deprecated one to skip them for a "
        "hotfix; thirty others stand around them. An agent asks about hotfixes in six wordings, "
        "reads six documents, follows whichever of both pages stands first (in three of ten "
        "questions the other one, by mistake), and says which one that was and whether it "
        "succeeded. It fails with the deprecated page; that is a correction."
    ),
    paper=(
        "[OpenClawBrain] §4.2: the bad edge at -.44 after 11 queries and -.94 after 12, the "
        "good one at 1"
    ),
    run=_run,
    verdict=_judge,
    across="question",
    up="lowest weight of an edge to the page",
)
