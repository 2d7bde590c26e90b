"""Handbooks of two machines: a first page names nine parts, which have a page each."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from crabpath_lab.experiments.simulated_agent import AgentTask

MACHINES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "Printing Press": {
            "Suction Head": "Clean the rubber cups with water every morning. They last a year.",
            "Guide Rail": "Set the rail with the long key. One turn is half a millimetre.",
            "Sheet Counter": "The counter has a small lens. Wipe it with a dry cloth.",
            "Ink Pump": "Prime the pump by hand. Its filter is changed once a month.",
            "Damping Roller": "The roller is wrapped in cloth, which is washed on Fridays.",
            "Plate Clamp": "Tighten the four screws of the clamp crosswise, to ten newton metres.",
            "Drying Lamp": "The lamp burns two thousand hours. Let it cool before you touch it.",
            "Powder Spray": "Fill up the powder to the mark. Nozzles are pierced with a needle.",
            "Stack Table": "The chain of the table is greased once a quarter.",
        },
        "Coffee Roaster": {
            "Bean Sieve": "Lift the sieve out and shake it. The mesh is four millimetres wide.",
            "Dosing Flap": "The flap is moved by air. Drain the water trap every day.",
            "Load Cell": "Calibrate the cell with the ten kilo weight.",
            "Gas Burner": "The jets of the burner are brushed. Test for leaks with soap water.",
            "Drum Bearing": "Two strokes of the grease gun a week are enough for the bearing.",
            "Bean Probe": "The probe is a thin wire in a sleeve. It is replaced, never bent.",
            "Stirring Arm": "Brushes of the arm wear off. Keep a spare set at hand.",
            "Exhaust Fan": "Chaff settles on the blades of the fan. Scrape it off weekly.",
            "Quench Valve": "The valve lets in a mist of water. Descale it with vinegar.",
        },
    }
)
"""Parts of each machine, by name."""

_FAULTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Printing Press": (
            "smears the sheets",
            "prints paler and paler",
            "stops every ten minutes",
            "makes a noise like a whistle",
        ),
        "Coffee Roaster": (
            "burns one side of every batch",
            "shows numbers that cannot be",
            "takes twice as long as before",
            "smells of rubber",
        ),
    }
)
_WORDINGS = ("The {machine} {fault}", "What is wrong when the {machine} {fault}?")


def make_handbook() -> dict[str, str]:
    """Make the pages by title."""
    first = {
        machine: f"The {machine} is made of the {_join_names(tuple(parts))}. When the {machine} "
        "has a fault, begin here."
        for machine, parts in MACHINES.items()
    }
    return {**first, **{name: text for parts in MACHINES.values() for name, text in parts.items()}}


def draw_faults(draws: np.random.Generator) -> list[AgentTask]:
    """Draw questions about a fault of a machine, which need the page of the part that causes it.

    Which part that is stands nowhere; it is drawn.
    """
    return [
        AgentTask(wording.format(machine=machine, fault=fault), (str(part),))
        for machine, known in _FAULTS.items()
        for fault, part in zip(
            known, draws.choice(list(MACHINES[machine]), len(known), replace=False), strict=True
        )
        for wording in _WORDINGS
    ]


def _join_names(names: tuple[str, ...]) -> str:
    *others, last = names
    return f"{', the '.join(others)} and the {last}"
