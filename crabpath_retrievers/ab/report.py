"""Report of a trial: both arms, their differences, and a verdict."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from crabpath_retrievers.ab.comparison import Comparison, compare_arms
from crabpath_retrievers.ab.metrics import UNMEASURED, ArmMetrics, compute_arm_metrics
from crabpath_retrievers.ab.reading import load_turns_by_arm
from crabpath_retrievers.ab.state import TrialState
from crabpath_retrievers.ab.verdict import TrialVerdict, decide_verdict
from crabpath_retrievers.config import RankSettings
from crabpath_retrievers.storage import GraphStore


@dataclass(frozen=True, slots=True)
class TrialReport:
    """Results of a trial so far.

    Attributes:
        state: State of the trial.
        control, treatment: Metrics of each arm.
        comparisons: Differences between the arms, with intervals.
        verdict: What to do.
        reason: Why.
        not_known: Metrics that a memory cannot measure, and why.
    """

    state: TrialState
    control: ArmMetrics
    treatment: ArmMetrics
    comparisons: tuple[Comparison, ...]
    verdict: TrialVerdict
    reason: str
    not_known: Mapping[str, str] = field(default_factory=lambda: dict(UNMEASURED))

    def __getitem__(self, metric: str) -> Comparison:
        """Return the comparison of a metric by name."""
        return next(one for one in self.comparisons if one.metric == metric)

    def to_dict(self) -> dict[str, Any]:
        """Convert the report to plain, JSON-safe data."""
        return asdict(self)


def build_report(store: GraphStore, state: TrialState, *, until: float) -> TrialReport:
    """Compare both arms by the turns and the feedback in the store."""
    arms = load_turns_by_arm(store, state, since=state.started, until=until)
    returned = {node for turns in arms.values() for turn in turns for node in turn.returned}
    characters = store.trials.characters(returned)
    per_token = RankSettings().characters_per_token
    metrics = {
        arm: compute_arm_metrics(
            turns,
            characters,
            store.trials.get_weight_changes(
                {turn.namespace for turn in turns}, since=state.started
            ),
            per_token,
        )
        for arm, turns in arms.items()
    }
    control, treatment = metrics["control"], metrics["treatment"]
    comparisons = compare_arms(arms["control"], arms["treatment"], characters, state.settings)
    verdict, reason = decide_verdict(state, (control.turns, treatment.turns), comparisons)
    return TrialReport(state, control, treatment, comparisons, verdict, reason)
