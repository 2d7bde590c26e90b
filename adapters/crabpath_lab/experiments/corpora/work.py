"""Two domains of work on pages that do not mention each other, and jobs that need some of them."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from crabpath_lab.experiments.simulated_agent import AgentTask


class Job(NamedTuple):
    """Work that is done again and again.

    Attributes:
        needed: Ids of the pages that it takes.
        questions: How people ask for it.
    """

    needed: tuple[str, ...]
    questions: tuple[str, ...]


CODING: Mapping[str, str] = MappingProxyType(
    {
        "branches": "Every fix and every other change to the code starts on a branch of its own, "
        "named after the bug report. Branches live for three days at most.",
        "tests": "Before a bug is fixed a failing test is written that shows the wrong result. "
        "The whole suite must pass on a clean checkout.",
        "review": "Two pairs of eyes review every fix of the code before it is merged into the "
        "main line. Small corrections are answered within the same day.",
        "dependencies": "Third-party packages and libraries are pinned to an exact version in "
        "the lock file and brought up to date on Mondays.",
        "licences": "Only open source libraries and modules with a permissive licence may be "
        "used: MIT, BSD and Apache. Everything else is put before the lawyers.",
        "migrations": "Tables of the database are changed by migration scripts that can be run "
        "backwards. Never drop a column in the release that stops using it.",
        "seed-data": "At their desks developers try changes of the schema on a small database, "
        "whose customer tables are filled with made-up rows.",
        "profiling": "Measure slow pages and requests before you tune them: record a flame graph "
        "of ten seconds of loading and look for the widest bar.",
        "caching": "Pages and searches that load slowly are kept in memory for a minute, so that "
        "users do not wait. Write down what makes them stale.",
        "versioning": "Version numbers of a library have three parts. In a new release the first "
        "one rises when callers have to change something.",
        "changelog": "What is new in a version of the library is told in the changelog, one line "
        "for users for each change, newest on top.",
        "packaging": "The package of a new release is built once by the pipeline, signed, "
        "published, and never built again.",
        "logging": "Log lines are JSON with a level and a request id. Errors are logged once, "
        "where they are handled.",
    }
)
"""Pages of the one domain, by id."""

SAFETY: Mapping[str, str] = MappingProxyType(
    {
        "key-rotation": "Keys, passwords and tokens that have leaked are revoked first and "
        "replaced afterwards; nobody waits for a maintenance window.",
        "audit-trail": "The audit trail tells for a year what every key, token and password was "
        "used for, and by whom. Look there after a leak.",
        "notification": "Customers whose secrets or access may have leaked in public are told "
        "within three days, in plain words, by the data protection officer.",
        "accounts": "When an employee or intern leaves the company, their accounts are switched "
        "off on the last day at noon, and deleted after three months.",
        "devices": "On their last day colleagues who leave hand back phones and notebooks; two "
        "people wipe them.",
        "erasure": "When customers ask to be forgotten, everything about them is deleted within "
        "a month, and what was passed on to others too.",
        "retention": "Records of former customers that bookkeeping needs must not be deleted for "
        "ten years, whoever requests it.",
        "phishing": "Do not follow links or open attachments of a strange mail. Forward it to "
        "the security desk as an attachment.",
        "quarantine": "A computer that may have a virus, because somebody clicked on a link or "
        "opened an attachment, is taken off the network and left switched on.",
        "approval": "Dangerous commands, such as those that delete files or drop a database, "
        "need a yes from a second person, in writing.",
        "sandbox": "Bots, assistants and other automatic agents run their commands in a sandbox, "
        "from which no files of the server can be reached.",
        "masking": "E-mail addresses, names and phone numbers of users are masked before they "
        "are written anywhere outside the customer database.",
        "advisories": "Advisories about vulnerabilities in packages are read every morning. A "
        "critical security hole is patched within a day.",
    }
)
"""Pages of the other one."""

CODING_JOBS = (
    Job(
        ("branches", "tests", "review"),
        (
            "I found a bug, how do I get a fix in?",
            "A function returns the wrong result, what now?",
            "How does a correction of the code reach the main line?",
            "What is the way from a bug report to a merged fix?",
        ),
    ),
    Job(
        ("dependencies", "licences"),
        (
            "May I use a library from the internet?",
            "How do I add a third-party package?",
            "We need a library for charts, what do I have to do?",
            "I want to bring in an open source module",
        ),
    ),
    Job(
        ("migrations", "seed-data"),
        (
            "How do I add a column to a table?",
            "The customer table needs a new field",
            "I have to change the database schema",
            "How do I try a change of the schema at my desk?",
        ),
    ),
    Job(
        ("profiling", "caching"),
        (
            "The start page is slow, what do I do?",
            "A request takes five seconds",
            "How do I make the search faster?",
            "Users complain about long loading times",
        ),
    ),
    Job(
        ("versioning", "changelog", "packaging"),
        (
            "How do I publish a new version of our library?",
            "We want to ship the package, what is to be done?",
            "What belongs to a new release of the library?",
            "I am to put out version two",
        ),
    ),
)
"""Work in the first domain."""

SAFETY_JOBS = (
    Job(
        ("key-rotation", "audit-trail", "notification"),
        (
            "An API key ended up in a public repository",
            "Somebody published our access token",
            "A password for production was sent to a customer",
            "A secret has leaked, what do I do?",
        ),
    ),
    Job(
        ("accounts", "devices"),
        (
            "A colleague leaves the company on Friday",
            "What is to be done on somebody's last day?",
            "An employee has given notice",
            "The contract of our intern ends",
        ),
    ),
    Job(
        ("erasure", "retention"),
        (
            "A customer wants to be forgotten",
            "Somebody asks us to delete all their data",
            "How do I answer a request for deletion?",
            "A former user wants their records removed",
        ),
    ),
    Job(
        ("phishing", "quarantine"),
        (
            "I clicked on a link in a strange mail",
            "I opened an attachment and my screen went black",
            "There was an odd message from the bank and I followed it",
            "I think that my computer has a virus",
        ),
    ),
    Job(
        ("approval", "sandbox"),
        (
            "May the assistant delete files by itself?",
            "The agent wants to run a dangerous command",
            "What may an automatic agent do without asking?",
            "The bot is about to drop a database",
        ),
    ),
)
"""Work in the second one."""

BRIDGES = (
    Job(
        ("logging", "masking"),
        (
            "May I write the address of a user into the log?",
            "What do I log when a user cannot sign in?",
            "There are phone numbers in our log lines",
        ),
    ),
    Job(
        ("dependencies", "advisories"),
        (
            "A library that we use has a security hole",
            "There is a vulnerability in one of our packages",
            "The scanner warns of an unsafe dependency",
        ),
    ),
)
"""Work that needs one page of each."""

SHARED_QUESTIONS = (
    "What do I have to check before I go on?",
    "Who has to agree to a change?",
    "What do I do first when something goes wrong?",
    "What has to be written down?",
    "May I use it, or is it forbidden?",
    "What must be done within a day?",
    "Something is broken and customers notice, what now?",
    "How do I get rid of something old?",
    "What is to be done with the database?",
    "I need something new for my work, what are the rules?",
)
"""Questions that mean something in either domain."""


def draw_job_task(jobs: Sequence[Job], draws: np.random.Generator) -> AgentTask:
    """Draw one of the jobs, in one of its wordings."""
    job = jobs[int(draws.integers(len(jobs)))]
    return AgentTask(str(draws.choice(job.questions)), job.needed)
