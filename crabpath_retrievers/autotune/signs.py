"""Which knob is turned which way for a metric that has left its range; docs/autotuner.md says why.

Of each, the knob that acts most directly comes first.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

Side = Literal["low", "high"]
"""At which end a metric has left its range."""


class Turn(NamedTuple):
    """A knob and a direction: 1 is up, -1 down."""

    knob: str
    direction: int


_LONGER, _SHORTER = Turn("half_life", 1), Turn("half_life", -1)
_EASIER, _HARDER = Turn("promotion_threshold", -1), Turn("promotion_threshold", 1)
_STRONGER, _WEAKER = Turn("hebbian_rate", 1), Turn("hebbian_rate", -1)
_EARLIER, _LATER = Turn("reflex", -1), Turn("reflex", 1)

SIGNS: Mapping[tuple[str, Side], tuple[Turn, ...]] = {
    # A pointer is followed when it is strong enough: let what was learned last, and grow.
    ("avg_nodes_fired_per_query", "low"): (_LONGER, _STRONGER, _EASIER, _EARLIER),
    ("avg_nodes_fired_per_query", "high"): (_LATER, _WEAKER, _SHORTER, _HARDER),
    # Joint use is what learning joins documents by.
    ("cross_file_edge_pct", "low"): (_EASIER, _LONGER),
    ("cross_file_edge_pct", "high"): (_HARDER, _SHORTER),
    ("dormant_pct", "low"): (_SHORTER, _WEAKER),
    ("dormant_pct", "high"): (_LONGER, _STRONGER),
    ("reflex_pct", "low"): (_EARLIER, _STRONGER, _LONGER),
    ("reflex_pct", "high"): (_LATER, _WEAKER, _SHORTER),
    # Fewer nodes are entered; where exactly k documents are returned, nothing can help.
    ("context_compression", "high"): (_LATER, _HARDER),
    ("context_compression", "low"): (_EARLIER, _EASIER),
    ("proto_promotion_rate", "low"): (_EASIER,),
    ("proto_promotion_rate", "high"): (_HARDER,),
    # Pieces that point at each other again do so by joint use.
    ("reconvergence_rate", "high"): (_HARDER, _SHORTER, _WEAKER),
    # A chunk that the vector index lacks: no knob brings it back, crabpath doctor tells of it.
    ("orphan_nodes", "high"): (),
}
"""Turns to try, by metric and side; metrics that cannot leave their range there are left out."""
