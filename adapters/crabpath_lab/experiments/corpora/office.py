"""Pages of a small company that have nothing to do with each other, each with questions for it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from crabpath_lab.experiments.simulated_agent import AgentTask


class OfficePage(NamedTuple):
    """A page, and questions that only it answers."""

    text: str
    questions: tuple[str, ...]


PAGES: Mapping[str, OfficePage] = MappingProxyType(
    {
        "invoices": OfficePage(
            "Invoices go out on the first working day of the month. Send a copy to accounting and "
            "file the signed order beside it.",
            ("When do invoices go out?", "Who gets a copy of an invoice?"),
        ),
        "expenses": OfficePage(
            "Travel expenses are claimed within thirty days. Attach the receipts; meals are paid "
            "by a daily rate.",
            ("How do I claim travel expenses?", "Until when may I hand in receipts for a trip?"),
        ),
        "holidays": OfficePage(
            "Ask for holidays two weeks ahead. Your team lead approves them in the calendar tool.",
            ("How do I ask for holidays?", "Who approves my days off?"),
        ),
        "badges": OfficePage(
            "Lost badges are reported at the reception at once. A new one takes one day; until "
            "then visitors' badges are lent.",
            ("I lost my badge, what now?", "How long does a new badge take?"),
        ),
        "laptops": OfficePage(
            "New laptops are ordered by the IT desk. Disk encryption is switched on before the "
            "machine is handed over.",
            ("Who orders a new laptop?", "Is the disk of my laptop encrypted?"),
        ),
        "passwords": OfficePage(
            "Passwords live in the vault. Never write them into tickets; rotate them after "
            "somebody leaves.",
            ("Where are passwords kept?", "When must passwords be rotated?"),
        ),
        "vpn": OfficePage(
            "The VPN client needs a certificate. Renew it every ninety days in the self-service "
            "portal.",
            ("My VPN certificate has run out", "How often is the VPN certificate renewed?"),
        ),
        "interviews": OfficePage(
            "Interviews are held by two people. Write your impression down before you talk to the "
            "other interviewer.",
            ("How many people hold an interview?", "What do I do after an interview?"),
        ),
        "onboarding": OfficePage(
            "New colleagues get a buddy for their first month. The buddy shows them the kitchen, "
            "the tools and the habits of the team.",
            ("Who looks after a new colleague?", "What does a buddy do?"),
        ),
        "newsletter": OfficePage(
            "The newsletter is sent every second Thursday. Marketing proof-reads it, legal looks "
            "at the claims.",
            ("When is the newsletter sent?", "Who proof-reads the newsletter?"),
        ),
        "brand": OfficePage(
            "The logo stands on white or on dark blue. Keep a margin of its own height around it.",
            ("On which colours may the logo stand?", "How much margin does the logo need?"),
        ),
        "support": OfficePage(
            "Support answers within four hours on working days. Angry customers are called back, "
            "not written to.",
            ("How fast does support answer?", "What do we do with angry customers?"),
        ),
        "refunds": OfficePage(
            "Refunds up to fifty euros are granted by support itself. Above that the head of sales "
            "signs.",
            ("Who may grant a refund?", "Up to what amount does support refund by itself?"),
        ),
        "contracts": OfficePage(
            "Contracts are signed by two directors. Legal keeps the original, sales gets a scan.",
            ("Who signs contracts?", "Where is the original of a contract kept?"),
        ),
        "suppliers": OfficePage(
            "New suppliers fill in the questionnaire on labour and environment. Purchasing checks "
            "it every other year.",
            ("What must a new supplier fill in?", "How often are suppliers checked?"),
        ),
        "meetings": OfficePage(
            "Meetings have an agenda and end after forty-five minutes. Whoever called the meeting "
            "writes the minutes.",
            ("Who writes the minutes?", "How long may a meeting take?"),
        ),
        "kitchen": OfficePage(
            "The dishwasher is started at six. Whoever takes the last coffee makes a new pot.",
            ("When is the dishwasher started?", "Who makes new coffee?"),
        ),
        "fire": OfficePage(
            "When the fire alarm rings leave by the stairs and gather in the car park. Wardens "
            "wear yellow vests.",
            ("Where do we gather when the fire alarm rings?", "Who wears yellow vests?"),
        ),
        "parking": OfficePage(
            "Parking spaces are booked by the week. Electric cars have precedence at the chargers.",
            ("How do I book a parking space?", "Who may use the chargers?"),
        ),
        "training": OfficePage(
            "Everybody has five training days a year. Conferences count as training if you give a "
            "talk about them.",
            ("How many training days do I have?", "Does a conference count as training?"),
        ),
        "backups": OfficePage(
            "Backups of the file server run at night. A restore is rehearsed every quarter with a "
            "randomly drawn folder.",
            ("When do the backups of the file server run?", "How often do we rehearse a restore?"),
        ),
        "analytics": OfficePage(
            "The analytics warehouse is loaded every morning at five. Late events are added for "
            "three more days.",
            ("When is the warehouse loaded?", "What happens to late events?"),
        ),
        "experiments": OfficePage(
            "Product experiments run for two full weeks. Nobody looks at the result before the "
            "end.",
            ("How long do product experiments run?", "When may I look at an experiment's result?"),
        ),
        "translations": OfficePage(
            "Texts of the app are translated by an agency. Screenshots help them; send some along.",
            ("Who translates the app?", "What helps the translators?"),
        ),
    }
)


def office_pages() -> dict[str, str]:
    """Return the pages by id."""
    return {name: page.text for name, page in PAGES.items()}


def draw_office_task(draws: np.random.Generator) -> AgentTask:
    """Draw one of the questions, which needs its page."""
    name = str(draws.choice(list(PAGES)))
    return AgentTask(str(draws.choice(PAGES[name].questions)), (name,))
