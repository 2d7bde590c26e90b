"""All experiments by name."""

from collections.abc import Mapping
from types import MappingProxyType

from crabpath_lab.experiments import (
    adversarial,
    brain_death,
    compression,
    cost,
    damping,
    domains,
    forgetting,
    negation,
    noise,
    procedural,
    prune,
    scaling,
    static,
    twins,
    weight_growth,
)
from crabpath_lab.experiments.experiment import Experiment
from crabpath_retrievers import InvalidInputError

_MODULES = (
    procedural,
    negation,
    forgetting,
    domains,
    brain_death,
    twins,
    adversarial,
    noise,
    damping,
    compression,
    cost,
    static,
    weight_growth,
    prune,
    scaling,
)

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {of.EXPERIMENT.name: of.EXPERIMENT for of in _MODULES}
)


def select_experiments(names: str) -> list[Experiment]:
    """Select experiments by names with commas; ``all`` for all."""
    asked = [name.strip() for name in names.split(",") if name.strip()]
    wanted = list(EXPERIMENTS) if asked == ["all"] else list(dict.fromkeys(asked))
    unknown = [name for name in wanted if name not in EXPERIMENTS]
    if unknown or not wanted:
        what = f"no experiment {unknown[0]!r:.250}" if unknown else "nothing to run"
        msg = f"there is {what}: choose among {', '.join(EXPERIMENTS)}, or all"
        raise InvalidInputError(msg)
    return [EXPERIMENTS[name] for name in wanted]
