"""Three offices that hand an order on in a circle, and a fourth that one of them mentions too."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from typing_extensions import Self

_NAMES = (
    *("Amber", "Birch", "Cedar", "Falcon", "Granite", "Harbour", "Juniper", "Lantern", "Maple"),
    *("Nightingale", "Orchard", "Pebble", "Quartz", "Raven", "Saffron", "Thistle", "Willow"),
)
_KINDS = ("Desk", "Depot", "Office", "House")
_GOODS = ("bicycles", "lamps", "telescopes", "violins", "stoves", "carpets", "kayaks", "clocks")


class CircleOfServices(NamedTuple):
    """A scene of names.

    Attributes:
        pages: By title, which is the name of the office.
        cycle: The three that hand the order on, in this order.
        branch: The one beside.
        question: What somebody asks about the first.
    """

    pages: Mapping[str, str]
    cycle: tuple[str, str, str]
    branch: str
    question: str

    @classmethod
    def draw(cls, draws: np.random.Generator) -> Self:
        """Draw one of many such scenes."""
        names = draws.choice(_NAMES, len(_KINDS), replace=False)
        a, b, c, d = (f"{name} {kind}" for name, kind in zip(names, _KINDS, strict=True))
        goods = str(draws.choice(_GOODS))
        pages = {
            a: f"The {a} takes orders for {goods} and hands every order to the {b}. What goes "
            f"abroad it announces to the {d}.",
            b: f"The {b} packs the {goods} of an order, and reports to the {c} what has left.",
            c: f"The {c} writes the invoice for the {goods} of an order. Then it tells the {a} "
            "that the order is done.",
            d: f"The {d} clears {goods} through customs and pays the duties.",
        }
        question = f"What does the {a} do with an order for {goods} that is packed and goes abroad?"
        return cls(pages, (a, b, c), d, question)
