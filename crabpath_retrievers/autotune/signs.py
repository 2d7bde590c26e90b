"""Maps each metric that has left its range to the knob changes that may help.

The knob that acts most directly comes first; docs/autotuner.md gives the reasons.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

Side = Literal["low", "high"]
"""The end at which a metric has left its range."""


class KnobTurn(NamedTuple):
    """A knob and a direction: 1 for up, -1 for down."""

    knob: str
    direction: int


_LONGER, _SHORTER = KnobTurn("half_life", 1), KnobTurn("half_life", -1)
_EASIER, _HARDER = KnobTurn("promotion_threshold", -1), KnobTurn("promotion_threshold", 1)
_STRONGER, _WEAKER = KnobTurn("hebbian_rate", 1), KnobTurn("hebbian_rate", -1)
_EARLIER, _LATER = KnobTurn("reflex", -1), KnobTurn("reflex", 1)

KNOB_TURNS: Mapping[tuple[str, Side], tuple[KnobTurn, ...]] = {
    # Edges are followed when they are strong enough: slow their decay, strengthen learning.
    ("avg_nodes_fired_per_query", "low"): (_LONGER, _STRONGER, _EASIER, _EARLIER),
    ("avg_nodes_fired_per_query", "high"): (_LATER, _WEAKER, _SHORTER, _HARDER),
    # Learning connects documents that are used together.
    ("cross_file_edge_pct", "low"): (_EASIER, _LONGER),
    ("cross_file_edge_pct", "high"): (_HARDER, _SHORTER),
    ("dormant_pct", "low"): (_SHORTER, _WEAKER),
    ("dormant_pct", "high"): (_LONGER, _STRONGER),
    ("reflex_pct", "low"): (_EARLIER, _STRONGER, _LONGER),
    ("reflex_pct", "high"): (_LATER, _WEAKER, _SHORTER),
    # Enter fewer nodes; no knob helps where exactly k documents are returned.
    ("context_compression", "high"): (_LATER, _HARDER),
    ("context_compression", "low"): (_EARLIER, _EASIER),
    ("proto_promotion_rate", "low"): (_EASIER,),
    ("proto_promotion_rate", "high"): (_HARDER,),
    # Parts of a split node are connected again by joint use.
    ("reconvergence_rate", "high"): (_HARDER, _SHORTER, _WEAKER),
    # Chunks missing in the vector index: no knob helps; crabpath doctor reports them.
    ("orphan_nodes", "high"): (),
}
"""Changes to try, by metric and side; sides that a metric cannot reach are left out."""
