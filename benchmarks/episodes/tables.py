"""What the region MDP predicts, as Markdown."""

from collections.abc import Mapping
from typing import Any

_OUTCOMES = {
    "mdp": "region MDP, task known",
    "without_task": "region MDP, task not known",
    "per_task": "mean of the other attempts at the task",
}
_ACTIONS = {
    "successful_in_region": "greatest success × share in the region",
    "usual_in_region": "most frequent action of the region",
    "most_frequent": "most frequent action of all",
}
_NOTE = """\
Outcome: from the first half of an attempt's steps; always saying the base rate has .5. Intervals:
95 % bootstrap over tasks. Nothing was learned from the attempts that are predicted."""


def render_episodes(figures: Mapping[str, Any]) -> str:
    """Outcomes and next actions, for each set of predicted attempts."""
    lines = [
        "| predicted | episodes | by | AUC | 95 % | Brier |",
        "|---|---|---|---|---|---|",
    ]
    for name, part in figures["parts"].items():
        outcome = part["outcome"]
        for way, words in _OUTCOMES.items():
            own = outcome[way]
            cells = f"{own['auc']:.3f} | {_format_ends(own)} | {own['brier']:.3f}"
            lines.append(f"| {name} | {outcome['episodes']} | {words} | {cells} |")
        lines.append(
            f"| {name} | {outcome['episodes']} | base rate | .500 | - "
            f"| {outcome['base_rate']['brier']:.3f} |"
        )
        gain = outcome["difference"]
        lines.append(
            f"| {name} | | MDP less task mean | {gain['auc']:+.3f} | {_format_ends(gain)} | |"
        )
    lines += ["", "| predicted | steps | by | accuracy | 95 % |", "|---|---|---|---|---|"]
    for name, part in figures["parts"].items():
        action = part["action"]
        for way, words in _ACTIONS.items():
            own = action[way]
            cells = f"{own['accuracy']:.3f} | {_format_ends(own)}"
            lines.append(f"| {name} | {action['steps']} | {words} | {cells} |")
        regions = action["regions"]
        counts = f"better in {regions['better']}, worse in {regions['worse']} of {regions['all']}"
        gain = action["difference"]
        lines.append(
            f"| {name} | | best less most frequent of all; regions: {counts} "
            f"| {gain['accuracy']:+.3f} | {_format_ends(gain)} |"
        )
    return "\n".join([*lines, "", _NOTE])


def _format_ends(part: Mapping[str, Any]) -> str:
    return "{:.3f} to {:.3f}".format(*part["ci95"])
