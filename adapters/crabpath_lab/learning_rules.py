"""Other rules of learning, which the studies compare with those of the package."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

from crabpath_retrievers.core.changes import KeepEpisode
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.records import Turn
from crabpath_retrievers.learning import lesson
from crabpath_retrievers.learning.credit import CreditedTurn
from crabpath_retrievers.learning.rules import assign_episode_credit, policy_gradient

_BLIND_FACTOR = 0.85
_assign_edge_credit = policy_gradient.assign_edge_credit
_assign_episode_credit = assign_episode_credit
_build_episode = lesson.Lesson.build_episode


def _credit_last_edges(routes: Any, known: Mapping[str, float], decided: Any) -> dict[Any, Any]:
    """Credit the last decision of each path only."""
    last = set[tuple[str, str]]()
    for route in routes:
        last.update([move for move in route if move in decided][-1:])
    credit = _assign_edge_credit(routes, known, decided)
    return {move: merit for move, merit in credit.items() if move in last}


def _apply_heuristic(draw: policy_gradient.DrawnAction, rate: float) -> Iterator[tuple[Any, float]]:
    """Apply the rule without the gradient: η (z - b) on the chosen edge alone."""
    if draw.drawn.target is not None:
        yield draw.drawn, rate * draw.gain


def _keep_credit(credit: Credit, *_: object) -> Credit:
    """Blame every followed document in full."""
    return credit


def _credit_stated(*given: Any) -> dict[str, float]:
    """Return the stated credit: nothing is seen in hindsight."""
    fair: Credit = given[-1]
    return {node: value for node, value in fair.documents.items() if value}


def _decay_blindly(fair: Credit) -> dict[str, float]:
    """Let every returned document decay by 15 %, the unconditional rule of [CVX RFC-013]."""
    nats = -math.log(_BLIND_FACTOR) * fair.weight * max(0.0, -fair.outcome)
    return dict.fromkeys(fair.documents, nats) if nats else {}


def _credit_all_experience(
    turn: Turn, credit: Credit, followed: Any, **options: Any
) -> dict[str, float]:
    """Store failures like successes, against which [CVX RFC-013] argues."""
    if credit.outcome >= 0:
        return _assign_episode_credit(turn, credit, followed, **options)
    documents = {node: abs(value) for node, value in credit.documents.items()}
    as_success = replace(credit, outcome=-credit.outcome, documents=documents)
    return _assign_episode_credit(turn, as_success)


def _label_all(own: lesson.Lesson, credited: CreditedTurn, *known: Any) -> KeepEpisode | None:
    """Let failures credit documents for other questions."""
    episode = _build_episode(own, credited, *known)
    has_stated_use = float(credited.credit.has_stated_use)
    return None if episode is None else replace(episode, labelled_turns=has_stated_use)


_Patch = tuple[Any, str, Callable[..., Any]]
_WITHOUT_BLAME: tuple[_Patch, ...] = (
    (lesson, "share_blame", _keep_credit),
    (lesson.Lesson, "credit_followed", _credit_stated),
)
RULES: Mapping[str, tuple[_Patch, ...]] = MappingProxyType(
    {
        "rule myopic": ((policy_gradient, "assign_edge_credit", _credit_last_edges),),
        "rule heuristic": ((policy_gradient, "apply_gradient", _apply_heuristic),),
        "reward_decay none": (
            *_WITHOUT_BLAME,
            (lesson, "compute_reward_decay", lambda _fair: {}),
        ),
        "reward_decay blind": (*_WITHOUT_BLAME, (lesson, "compute_reward_decay", _decay_blindly)),
        "experience all": (
            (lesson, "assign_episode_credit", _credit_all_experience),
            (lesson.Lesson, "build_episode", _label_all),
        ),
    }
)
"""What each variant replaces; any other name replaces nothing."""


@contextmanager
def use_rules(*names: str) -> Iterator[None]:
    """Learn by other rules, in the whole process, within the block."""
    with ExitStack() as stack:
        for name in names:
            for owner, attribute, rule in RULES.get(name, ()):
                stack.enter_context(patch.object(owner, attribute, rule))
        yield
