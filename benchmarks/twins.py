"""Generated near twins: corpora whose texts differ in what identifies them, and their questions.

One seed fits, another one tests: neither identifiers nor wordings of questions are shared.
"""

import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

from crabpath_lab.datasets import Dataset, make_passage
from crabpath_retrievers.errors import InvalidInputError

_SYLLABLES = (
    *("ba", "cor", "del", "en", "far", "gil", "hol", "is", "jun", "kal", "lor", "mer", "nor"),
    *("os", "per", "quin", "ros", "sal", "tor", "um", "ver", "wil", "yor", "zan", "bri", "cle"),
)


class Family(NamedTuple):
    """Texts that differ in a name, and questions about one of them.

    Attributes:
        draw_name: Draws what identifies a text.
        draw_values: Draws what else is in it, by the names of fields.
        title, text: Of every member, with ``{name}`` and the other fields.
        template, free: A question in the words of the text, and one in other words, each in two
            wordings.
    """

    draw_name: Callable[[random.Random], str]
    draw_values: Callable[[random.Random], dict[str, int | str]]
    title: str
    text: str
    template: tuple[str, str]
    free: tuple[str, str]


def _draw_word(rng: random.Random) -> str:
    return "".join(rng.sample(_SYLLABLES, rng.choice((2, 3)))).capitalize()


def _draw_part(rng: random.Random) -> str:
    return f"{rng.randrange(1000, 9999)}-{rng.choice('ABCDEFGH')}{rng.randrange(10, 99)}"


def _draw_option(rng: random.Random) -> str:
    words = ("max", "min", "cache", "worker", "pool", "retry", "idle", "read", "write", "batch")
    more = ("size", "timeout", "limit", "count", "delay", "ratio", "depth", "rate", "window", "age")
    return f"{_draw_word(rng).lower()}_{rng.choice(words)}_{rng.choice(more)}"


def _draw_company(rng: random.Random) -> str:
    return f"{_draw_word(rng)} {rng.choice(('Ltd', 'GmbH', 'Inc', 'AG'))}"


def _draw_version(rng: random.Random) -> str:
    return f"{rng.randrange(1, 30)}.{rng.randrange(60)}.{rng.randrange(20)}"


def _draw_hours(rng: random.Random) -> dict[str, int | str]:
    hour = rng.randrange(7, 11)
    return {"opens": hour, "closes": hour + 8}


FAMILIES: Mapping[str, Family] = {
    "devices": Family(  # lines of an FAQ
        lambda rng: f"XR{rng.randrange(100_000):05}",
        lambda rng: {"seconds": rng.randrange(3, 30), "button": rng.choice("ABCD")},
        "",
        "Q: How do I reset device model {name}? A: Hold button {button} for {seconds} seconds.",
        ("How do I reset device model {name}?", "How is a {name} reset?"),
        ("My {name} hangs, what now?", "{name} does not react to anything any more"),
    ),
    "branches": Family(  # pages of a bank
        _draw_word,
        _draw_hours,
        "Branch in {name}",
        "Our branch in {name} opens at {opens} in the morning and closes at {closes}. "
        "Cash is paid out at the counter, and an adviser is there every Tuesday.",
        ("When does the branch in {name} open?", "What are the hours of the {name} branch?"),
        (
            "I live near {name} and need to talk to an adviser",
            "Until when can I fetch money in {name}?",
        ),
    ),
    "parts": Family(  # rows of a list
        _draw_part,
        lambda rng: {
            "size": rng.randrange(2, 40),
            "price": f"{rng.randrange(100, 9900) / 100:.2f}",
        },
        "",
        "Part {name}: hexagon bolt M{size}, zinc plated, pack of 100, {price} euros, in stock.",
        ("What does part {name} cost?", "Is part {name} in stock?"),
        ("price {name}", "which thread has the bolt {name}"),
    ),
    "options": Family(  # of a program
        _draw_option,
        lambda rng: {"value": rng.randrange(1, 500)},
        "{name}",
        "{name} (integer): sets a limit of the server. The default is {value}. "
        "A change takes effect after a restart.",
        ("What is the default of {name}?", "Is {name} an integer?"),
        (
            "I changed {name} and nothing happened",
            "which value does {name} have if I set nothing",
        ),
    ),
    "policies": Family(  # sections about privacy; questions in free words leave out "Ltd"
        _draw_company,
        lambda rng: {"months": rng.randrange(1, 36)},
        "Retention",
        "{name} keeps your data for {months} months after you close your account. "
        "Then it is deleted, unless the law demands that we keep it. "
        "You may ask us for a copy at any time.",
        ("{name}: how long is my data kept?", "{name}: for how many months do you keep data?"),
        (
            "will {first} erase what they know of me if I leave",
            "I want a copy of what {first} stores about me",
        ),
    ),
    "releases": Family(  # notes
        _draw_version,
        lambda rng: {"bug": rng.randrange(1000, 99999)},
        "Release {name}",
        "Version {name} fixes bug #{bug} in the scheduler and updates the bundled libraries. "
        "There are no breaking changes.",
        ("What does version {name} fix?", "What changed in release {name}?"),
        (
            "is it safe to go to {name}, does anything break",
            "we are on {name}, which libraries came with it",
        ),
    ),
}


def generate_twins(
    family: str, members: int = 500, *, questions: int = 100, free: bool = False, seed: int = 1
) -> Dataset:
    """A corpus of near twins with questions about some of them.

    Args:
        family: One of ``FAMILIES``.
        members: Number of texts.
        questions: Number of questions, at most one a text.
        free: Whether questions are in free words rather than in those of the texts.
        seed: An even one draws other wordings of questions than an odd one.

    Raises:
        InvalidInputError: The family is not known, or there are more questions than texts.
    """
    if family not in FAMILIES or questions > members:
        msg = f"choose a family among {', '.join(FAMILIES)}, and at most one question a member"
        raise InvalidInputError(msg)
    rng, of = random.Random(f"{family} {seed}"), FAMILIES[family]  # noqa: S311  no secret
    names: dict[str, None] = {}
    while len(names) < members:
        names[of.draw_name(rng)] = None
    values = [{"name": n, "first": n.split()[0], **of.draw_values(rng)} for n in names]
    documents = tuple(
        make_passage(f"{family}-{place}", of.title.format(**given), of.text.format(**given))
        for place, given in enumerate(values)
    )
    asked = sorted(rng.sample(range(members), questions))
    question = (of.free if free else of.template)[seed % 2]
    return Dataset(
        f"twins-{family}{'-free' if free else ''}",
        documents,
        {f"q{place}": question.format(**values[place]) for place in asked},
        {f"q{place}": frozenset({f"{family}-{place}"}) for place in asked},
    )
