"""The figures of attribution as Markdown."""

from typing import Any

_MEASURES = ("precision", "recall", "f1", "credited")
_NOTE = """\
Means over questions with 95 % BCa bootstrap intervals and the number of questions that each is of.
Only gold documents that were returned count. Attributed: questions with a supported document; where
there is gold, the others count 0 in recall and F1. Foreign: questions with a document supported by
the answer of another question. Credited: share of the support that gold documents get."""


def render_attribution(figures: dict[str, Any]) -> str:
    """One row per data set and kind of answer."""
    lines = [
        f"| data | answers | attributed | foreign | {' | '.join(_MEASURES)} |",
        f"|---|---|---|---|{'---|' * len(_MEASURES)}",
    ]
    for name, found in figures["datasets"].items():
        for kind in ("all", "yes/no", "other"):
            part = found[kind]
            counts = f"{part['attributed']} of {part['questions']} | {part['foreign']}"
            cells = [counts, *(_format_cell(part[measure]) for measure in _MEASURES)]
            lines.append(f"| {name}, k={found['k']} | {kind} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", _NOTE])


def _format_cell(value: dict[str, Any]) -> str:
    if value["mean"] is None:
        return "none"
    ends = "" if value["ci95"] is None else " [{:.3f}, {:.3f}]".format(*value["ci95"])
    return f"{value['mean']:.3f}{ends} (n={value['n']})"
