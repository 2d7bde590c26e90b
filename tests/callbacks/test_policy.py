"""The table in the documentation is the table in the code."""

from pathlib import Path
from typing import get_args

from crabpath_retrievers.callbacks import OutcomePolicy
from crabpath_retrievers.core.outcome_policy import EventKind

PAGE = Path(__file__).parents[2] / "docs" / "callbacks.md"


def row(kind):
    """Outcome, source and switch of an event, as a row of a table has them."""
    rule = OutcomePolicy().rule(kind)
    outcome = "2s - 1" if kind in {"langsmith", "score"} else f"{rule.outcome:g}"
    return [kind, outcome, rule.source, "yes" if rule.on else "no"]


def test_the_page_says_what_the_policy_does():
    """Every event, in the order of precedence."""
    lines = PAGE.read_text(encoding="utf-8").replace("−", "-").splitlines()
    cells = [[cell.strip(" `*") for cell in line.split("|")[1:5]] for line in lines]
    assert [row for row in cells if row and row[0] in get_args(EventKind)] == [
        *map(row, get_args(EventKind))
    ]


def test_the_docstring_says_what_the_policy_does():
    """The same for who reads the code."""
    text = str(OutcomePolicy.__doc__).replace("2s - 1", "2s-1").splitlines()
    rows = [line.split()[:4] for line in text if line.split()[:1]]
    wanted = [[cell.replace(" ", "") for cell in row(kind)] for kind in get_args(EventKind)]
    assert [row for row in rows if row[0] in get_args(EventKind)] == wanted
