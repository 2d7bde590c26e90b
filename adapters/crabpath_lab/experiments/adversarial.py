"""Hebbian learning alone, and with outcomes, where wrong pages use the words of right ones."""

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_lab.experiments.corpora.adversarial import TOPICS, load_procedures
from crabpath_lab.experiments.experiment import (
    BySeed,
    Experiment,
    ExperimentVerdict,
    SeedResult,
)
from crabpath_lab.experiments.judging import compare_mean, conclude
from crabpath_lab.experiments.memory_setup import open_memory
from crabpath_retrievers import CrabPath, Feedback
from crabpath_retrievers.config import LearningSettings, Settings

TURNS = 50
ROOM = 3
ERROR = 0.3
_PAPER = 16 / 24  # wrong paths with outcomes, to those of Hebbian learning only
_HEBBIAN = LearningSettings(
    policy_gradient=False,
    ranker=False,
    usage=False,
    episodes=False,
    regions=False,
)


def _run(embeddings: Embeddings, seed: int) -> SeedResult:
    alone = _wrong_answers(embeddings, seed, Settings(learning=_HEBBIAN), outcomes=False)
    both = _wrong_answers(embeddings, seed, Settings(), outcomes=True)
    return SeedResult(
        {
            "wrong path, Hebbian only": float(np.mean(alone)),
            "wrong path, with outcomes": float(np.mean(both)),
            "accuracy, Hebbian only, second half": 1.0 - float(np.mean(alone[TURNS // 2 :])),
            "accuracy, with outcomes, second half": 1.0 - float(np.mean(both[TURNS // 2 :])),
        },
        {"Hebbian only": _running_share(alone), "Hebbian and outcomes": _running_share(both)},
    )


def _wrong_answers(
    embeddings: Embeddings, seed: int, settings: Settings, *, outcomes: bool
) -> list[bool]:
    """Run the questions, the same for both settings; list whether each ended on a wrong page."""
    draws = np.random.default_rng(seed)
    with open_memory(load_procedures(), embeddings, settings) as memory:
        return [_ask_and_report(memory, draws, outcomes=outcomes) for _ in range(TURNS)]


def _ask_and_report(memory: CrabPath, draws: np.random.Generator, *, outcomes: bool) -> bool:
    """Follow the first document, or by mistake any of the read ones; report the outcome."""
    name = str(draws.choice(list(TOPICS)))
    question = str(draws.choice(TOPICS[name].questions))
    mistaken, slip = draws.random() < ERROR, int(draws.integers(ROOM))
    turn = memory.retrieve(question, k=ROOM).turn
    read = [item.node for item in turn.returned]
    followed = read[slip] if mistaken else read[0]
    wrong = followed != f"{name} right"
    if outcomes:
        memory.record(Feedback(turn.id, -1.0 if wrong else 1.0, used=[followed]))
    else:
        # What fires together is wired together, whatever came of it.
        memory.record(Feedback(turn.id, 1.0, used=read))
    return wrong


def _running_share(wrong: list[bool]) -> list[float]:
    """Compute the share of wrong paths among the last ten questions."""
    return [float(np.mean(wrong[max(0, n - 9) : n + 1])) for n in range(len(wrong))]


def _judge(found: BySeed) -> ExperimentVerdict:
    alone, both = (
        np.array(found[f"wrong path, {name}"]) for name in ("Hebbian only", "with outcomes")
    )
    accuracy, before = (
        np.array(found[f"accuracy, {name}, second half"])
        for name in ("with outcomes", "Hebbian only")
    )
    reason = (
        f"wrong paths {alone.mean():.0%} with Hebbian learning only, {both.mean():.0%} with "
        f"outcomes ({both.mean() / alone.mean() - 1.0:+.0%}; the paper {_PAPER - 1.0:+.0%})"
    )
    less = compare_mean("wrong paths at most 16/24 of those of Hebb", both - _PAPER * alone, most=0)
    up = compare_mean("accuracy not lower, difference", accuracy - before, least=0)
    half = compare_mean("wrong paths at least halved", both - alone / 2, most=0)
    return conclude(reason, (less, up), (half,))


EXPERIMENT = Experiment(
    name="adversarial",
    title="Hebbian learning alone, and with outcomes",
    scene=(
        "Five procedures have a page that is right, an outdated one and a hotfix, which use the "
        "same words. An agent asks fifty questions, reads three documents and follows the first, "
        "or in 30 % of the questions any of the three. Alone, Hebbian learning joins whatever is "
        "read together, and nothing else is learned; with outcomes the agent says what it "
        "followed and whether it succeeded, and all of learning is on."
    ),
    paper="[CrabPath] §6: wrong paths 24 % with Hebbian learning only, 16 % with outcomes (-33 %)",
    run=_run,
    verdict=_judge,
    across="question",
    up="share of wrong paths among the last ten",
)
