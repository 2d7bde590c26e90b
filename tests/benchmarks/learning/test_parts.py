"""The parts: no label before its answer, nothing left behind, figures as they are meant."""

from dataclasses import replace

import pytest

from benchmarks.learning import feedback_grid
from benchmarks.learning.ablation import _SWITCHES, ABLATIONS, run_ablation
from benchmarks.learning.answer_length import measure_short_answers
from benchmarks.learning.endurance import fit_slopes, run_endurance
from benchmarks.learning.paired_learners import open_paired_learners
from benchmarks.learning.plan import LearningPlan
from benchmarks.learning.study import measure_learning
from crabpath_lab.streams import FeedbackSimulator
from crabpath_retrievers import CrabPath
from crabpath_retrievers.config import LearningSettings

pytestmark = pytest.mark.slow

ONE = {"parts": ("grid",), "noise": (0.0,), "orders": 1}


class Labels(dict):
    def __init__(self, labels, log):
        super().__init__(labels)
        self.log = log

    def __getitem__(self, query):
        self.log.append(("label", query))
        return super().__getitem__(query)


@pytest.fixture
def log(monkeypatch):
    """What was asked, which labels were read, what was recorded."""
    noted = []
    retrieve, record = CrabPath.retrieve, CrabPath.record

    def _retrieve(self, text, **options):
        noted.append(("asked", text))
        return retrieve(self, text, **options)

    def _record(self, feedback):
        noted.append(("record", feedback.turn_id))
        return record(self, feedback)

    monkeypatch.setattr(CrabPath, "retrieve", _retrieve)
    monkeypatch.setattr(CrabPath, "record", _record)
    return noted


@pytest.fixture
def data(small, log):
    four = small.head(4)
    return replace(four, qrels=Labels(four.qrels, log))


@pytest.fixture
def pair(data, cached):
    """The four questions in a memory; the frozen twin has answered them."""
    with open_paired_learners("small", data, cached, (5,), passes=2) as pair:
        pair.run_frozen()
        yield pair


def lessons(log):
    """What happened before each record, since the one before."""
    parts = [[]]
    for event in log:
        parts[-1].append(event)
        if event[0] == "record":
            parts.append([])
    return parts[:-1]


def test_no_label_is_told_before_its_question_was_answered(pair, log, monkeypatch):
    """Ask, tell, record; for short answers all thresholds are asked before the label is read."""
    simulate = FeedbackSimulator.simulate

    def _simulate(self, *given):
        log.append(("told", given))
        return simulate(self, *given)

    monkeypatch.setattr(FeedbackSimulator, "simulate", _simulate)
    log.clear()
    pair.run_learning("ann", FeedbackSimulator("used", 0.0, 5), pair.schedule())
    found = lessons(log)
    assert len(found) == 4
    for part in found:
        # The stream plans with labels; they reach feedback when the question was answered.
        assert [kind for kind, _ in part if kind != "label"] == ["asked", "told", "record"]
    log.clear()
    list(measure_short_answers(pair))
    found = lessons(log)
    assert len(found) == 4
    for part in found:
        kinds = [kind for kind, _ in part if kind not in {"label", "told"}]
        assert kinds == ["asked"] * 5 + ["record"]
        assert len({text for kind, text in part if kind == "asked"}) == 1


def test_what_was_learned_is_forgotten_between_cells(pair):
    before = pair.memory.info()
    plan = LearningPlan(paths={"small": "x"}, feedback=("used",), **ONE)
    first, again = (list(feedback_grid.run_grid(pair, plan)) for _ in range(2))
    assert first == again
    assert pair.memory.info() == before


def test_every_mechanism_is_switched_off_once(pair):
    """A new one would be missed here; and a variant leaves nothing behind."""
    default = LearningSettings()
    named = list(LearningSettings.model_fields)
    # What is off by default has nothing to be measured without.
    switches = {name for name in named if getattr(default, name) is True}
    assert {name.split()[1] for name in ABLATIONS if name.startswith("without")} == switches
    for name in switches - {"decay", "gate"}:
        alone = ABLATIONS[f"only {name}"]
        assert [other for other in switches if getattr(alone, other)] == [name]
    before = pair.memory.info()
    rows = list(run_ablation(pair, {"used": ("all", "only usage")}))
    assert [row["variant"] for row in rows] == ["all", "frozen", "only usage"]
    assert pair.memory.info() == before


def test_a_variant_with_nothing_on_is_the_frozen_twin(pair, monkeypatch):
    nothing = LearningSettings(**dict.fromkeys(_SWITCHES, False))
    variants = {"all": LearningSettings(), "nothing": nothing}
    monkeypatch.setattr("benchmarks.learning.ablation.ABLATIONS", variants)
    _, frozen, untaught = run_ablation(pair, {"used": ("all", "nothing")})
    assert frozen["parts"] == untaught["parts"]


def test_each_part_has_orders_and_noise_of_its_own_until_they_are_given():
    """Five orders and a fifth of noise for contamination; what is given goes for all."""
    plan = LearningPlan(paths={"small": "x"})
    assert (plan.orders_of("grid"), plan.orders_of("regions")) == (3, 3)
    assert (plan.orders_of("contamination"), plan.noise_of("contamination")) == (5, (0.2,))
    given = replace(plan, orders=2, noise=(0.1,))
    assert given.orders_of("contamination") == given.orders_of("grid") == 2
    assert given.noise_of("contamination") == given.noise_of("grid") == (0.1,)


def test_a_row_is_below_when_its_whole_interval_is_and_kinds_are_summed_up_over_cells():
    """One question in four lost, or none; equal answers have no interval."""
    worse = feedback_grid.compare_metric([0.0, 1.0, 1.0, 1.0] * 10, [1.0] * 40)
    assert (worse["difference"], worse["below"]) == (-0.25, True)
    assert worse["ci95"][1] < 0
    assert not feedback_grid.compare_metric([1.0] * 40, [1.0] * 40)["below"]
    cells = [
        {"feedback": "used", "metrics": {"m": {"difference": value, "below": value < 0}}}
        for value in (0.3, -0.1)
    ]
    row = {"cells": 2, "difference": 0.1, "least": -0.1, "below": 1}
    assert feedback_grid.summarize_by_kind(cells) == {"used": {"m": row}}


def test_figures_are_handed_over_after_every_cell(beir_folder, cache):
    seen = []
    plan = LearningPlan(
        paths={"hotpotqa": beir_folder}, limit=2, feedback=("used", "outcome"), cache=cache, **ONE
    )
    measure_learning(plan, lambda figures: seen.append(len(figures["grid"]["cells"])))
    assert seen == [1, 2]


def test_windows_of_a_long_stream(small, cached, log, monkeypatch):
    """No label before its question and the frozen twin's; what is left at the end is a window."""
    simulate = FeedbackSimulator.simulate

    def _simulate(self, shown, gold, *others):
        log.append(("label", gold))
        return simulate(self, shown, gold, *others)

    monkeypatch.setattr(FeedbackSimulator, "simulate", _simulate)
    found = list(run_endurance(small.head(4), cached, 3, 12, size=5))
    assert len(lessons(log)) == 12
    for part in lessons(log):
        assert [kind for kind, _ in part].count("label") == 1
        assert part[-2][0] == "label"
        assert len({text for kind, text in part if kind == "asked"}) == 1
    assert [window["turns"] for window in found] == [5, 10, 12]
    assert ["ratio" in window for window in found] == [True, False, True]
    assert all(min(1.0, w["ratio"]) <= w["whole_ratio"] <= max(1.0, w["ratio"]) for w in found[::2])
    assert found[-1]["store_mb"] > 0


def test_slopes_are_per_thousand_turns():
    """A window without the twin does not count for its slope."""
    times = {"p50": 1.0, "p95": 2.0}
    windows = [
        {"turns": 500 * n, "retrieve_ms": times, "record_ms": times, "store_mb": 2.0 * n}
        | {"memory_mb": 9.0}
        for n in (1, 2, 3, 4)
    ]
    found = fit_slopes(windows)
    assert found["all"]["store_mb"] == found["second half"]["store_mb"] == 4.0
    assert found["all"]["memory_mb"] == found["all"]["retrieve_ms_p95"] == 0.0
    assert found["all"]["ratio"] is None
