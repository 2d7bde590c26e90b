"""Break memories on purpose, and print what held: ``make soak``.

Each check is also run alone with a number of runs: ``make soak ONLY=kill_ingest RUNS=300``.
"""

import json
import random
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.soak import (
    answers,
    archives,
    disk,
    filters,
    forgets,
    fuzz,
    isolation,
    kills,
    orphans,
    paths,
    pooler,
    power,
    rest,
    servers,
)
from benchmarks.soak.figures import Budget, Row, Skipped, table
from crabpath_retrievers import InvalidInputError


class Check(NamedTuple):
    """A check with its share of the time, and its short form."""

    run: Callable[..., Row]
    share: int
    short: int
    small: dict[str, Any] = {}  # noqa: RUF012  never changed


CHECKS = {
    "kill_ingest": Check(kills.check_kill_ingest, 30, 2, {"chunks": 1200}),
    "kill_ingest_servers": Check(kills.check_kill_ingest_servers, 8, 1, {"chunks": 100}),
    "kill_feedback": Check(kills.check_kill_feedback, 14, 1, {"chunks": 200}),
    "kill_feedback_servers": Check(kills.check_kill_feedback_servers, 8, 1, {"chunks": 50}),
    "servers": Check(servers.check_servers, 10, 1, {"limit": 1.0}),
    "pooler": Check(pooler.check_pooler, 4, 100),
    "disk": Check(disk.check_disk, 4, 2),
    "power": Check(power.check_power, 10, 1),
    "fuzz": Check(fuzz.check_fuzz, 20, 500),
    "rest": Check(rest.check_rest, 10, 500),
    "filters": Check(filters.check_filters, 6, 400),
    "archives": Check(archives.check_archives, 10, 15),
    "bomb": Check(archives.check_bomb, 1, 1, {"mebibytes": 300}),
    "router": Check(answers.check_router, 4, 60),
    "langsmith": Check(answers.check_langsmith, 4, 100),
    "isolation": Check(isolation.check_isolation, 14, 150),
    "isolation_servers": Check(isolation.check_isolation_servers, 8, 50),
    "orphans": Check(orphans.check_orphans, 2, 10),
    "paths": Check(paths.check_paths, 6, 40),
    "forget": Check(forgets.check_forget, 8, 10),
}


def run_check(name: str, budget: Budget, seed: int, **small: Any) -> Row:
    """The row of one check; it is left out where this machine lacks what it needs."""
    started = time.monotonic()
    try:
        row = CHECKS[name].run(budget, seed, **small)
    except Skipped as why:
        row = Row(name, skipped=True, remark=f"left out: {why}")
    except Exception as error:
        traceback.print_exc()
        row = Row(name)
        row.blame("other", f"the check itself failed: {error!r}")
    row.seconds = time.monotonic() - started
    return row


def run_checks(
    only: str | None = None,
    *,
    minutes: float = 15.0,
    seed: int | None = None,
    runs: int | None = None,
    report: Path | None = None,
) -> bool:
    """Run checks, print the table; whether all figures that must be 0 are.

    Args:
        only: Names with commas between them; None for all.
        minutes: Most time for all of them together.
        seed: Repeats the random choices of a run.
        runs: So many runs of each check, however long.
        report: File for the table; figures stand beside it as JSON.

    Raises:
        InvalidInputError: No check has such a name.
    """
    seed = random.randrange(2**31) if seed is None else seed
    names = only.split(",") if only else list(CHECKS)
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        msg = f"no check {unknown[0]!r}: choose from {', '.join(CHECKS)}"
        raise InvalidInputError(msg)
    print(f"seed {seed}: SEED={seed} repeats the random choices", flush=True)
    rows, end = [], time.monotonic() + 60 * minutes
    for place, name in enumerate(names):
        left = sum(CHECKS[later].share for later in names[place:])
        seconds = max(0.0, end - time.monotonic()) * CHECKS[name].share / left
        budget = Budget(runs=runs) if runs else Budget(seconds)
        print(f"{name} …", file=sys.stderr, flush=True)
        rows.append(run_check(name, budget, seed))
    shown = table(rows)
    print(shown)
    if report is not None:
        report.write_text(f"Seed {seed}.\n\n{shown}\n", encoding="utf-8")
        figures = {"seed": seed, "rows": [row.to_dict() for row in rows]}
        text = json.dumps(figures, indent=1, ensure_ascii=False)
        report.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
    return not any(row.broken for row in rows)
