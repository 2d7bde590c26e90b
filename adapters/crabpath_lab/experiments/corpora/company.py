"""Generates distinct pages of a large company, each of which mentions two others."""

from collections.abc import Mapping
from itertools import product

from crabpath_lab.experiments.corpora.deploy import NEAR, STEPS
from crabpath_lab.experiments.corpora.office import PAGES

_PLACES = (
    *("Aarhus", "Bergen", "Cardiff", "Dresden", "Esbjerg", "Fano", "Ghent", "Hull", "Izmir"),
    *("Jena", "Kiel", "Lyon", "Malmo", "Nantes", "Oslo", "Porto", "Quimper", "Riga", "Seville"),
    *("Turin", "Uppsala", "Verona", "Warsaw", "Xanten", "York", "Zadar", "Brno", "Cork", "Delft"),
    *(
        "Evora",
        "Faro",
        "Graz",
        "Haarlem",
        "Imst",
        "Jever",
        "Krems",
        "Linz",
        "Metz",
        "Nice",
        "Ostend",
    ),
    *("Pisa", "Reims", "Split", "Tampere", "Ulm", "Vigo", "Wels", "Zwolle", "Bath", "Chur"),
)
_UNITS = (
    *(
        "Archive",
        "Bakery",
        "Canteen",
        "Depot",
        "Exchange",
        "Foundry",
        "Garage",
        "Harbour",
        "Institute",
    ),
    *(
        "Joinery",
        "Kitchen",
        "Laboratory",
        "Mill",
        "Nursery",
        "Office",
        "Press",
        "Quarry",
        "Registry",
    ),
    *("Studio", "Terminal", "Union", "Vault", "Warehouse", "Yard", "Academy", "Bureau", "Clinic"),
    *(
        "Dairy",
        "Embassy",
        "Ferry",
        "Gallery",
        "Hangar",
        "Inn",
        "Jetty",
        "Kiosk",
        "Library",
        "Market",
    ),
    *("Notary", "Orchard", "Pharmacy"),
)
_BEFORE = (1, 7)  # places before it, of those that a page mentions
_RULES = (*STEPS.values(), *NEAR.values(), *(page.text for page in PAGES.values()))

PAGE_COUNT = len(_PLACES) * len(_UNITS)
"""Pages that there are."""


def generate_company(number: int, first: int = 0) -> dict[str, str]:
    """Generate ``number`` pages by title, each with a rule of its own.

    Args:
        number: At most ``PAGE_COUNT``.
        first: Which of them is the first, from 0 on; after the last one come those before it.
    """
    every = [f"{place} {unit}" for unit, place in product(_UNITS, _PLACES)]
    places = [(first + place) % PAGE_COUNT for place in range(number)]
    return {every[place]: _make_page(every, place) for place in places}


def ask_rule(title: str, pages: Mapping[str, str]) -> str:
    """Make a question that the page of this title answers."""
    return f"What is the rule of the {title} about this: {pages[title].split('.')[0]}?"


def _make_page(titles: list[str], place: int) -> str:
    rule = _RULES[place % len(_RULES)].split(". ")[0].rstrip(".")
    others = " and the ".join(titles[place - before] for before in _BEFORE)
    return f"{rule}. So do the {others}."
