"""A procedure of four steps on four pages that do not mention each other ([CrabPath] §6.1)."""

from collections.abc import Mapping
from types import MappingProxyType

STEPS: Mapping[str, str] = MappingProxyType(
    {
        "check-ci": "Check CI when a deploy goes wrong: open the build of the release and read the "
        "first red job before anything else is touched.",
        "inspect-manifest": "Inspect the manifest of the broken release: compare its image tags "
        "and replica counts with those of the last deploy that worked.",
        "roll-back": "Roll back the deploy: set the previous tag in production, apply it to one "
        "zone, and go on zone by zone while the errors fall.",
        "verify": "Verify the recovery of production: watch the health checks and the error rate "
        "for a quarter of an hour, then tell the release channel that it is over.",
    }
)
"""Page by id, in the order in which they are worked through."""

CHAIN = tuple(STEPS)

NEAR: Mapping[str, str] = MappingProxyType(
    {
        "release-notes": "Release notes are written by the product manager. They name the changes "
        "that customers see, and no internal tickets.",
        "feature-flags": "Feature flags are switched on for one percent of the users first. Remove "
        "a flag when it has been on for all for a month.",
        "on-call": "The on-call engineer changes every Monday. Hand over open alerts in writing.",
        "postmortem": "A postmortem is written within five days of an outage. It names causes, no "
        "culprits.",
        "staging": "Staging is rebuilt every night from the main branch. Nobody deploys to it by "
        "hand.",
        "capacity": "Capacity is planned per quarter from the peak load of the last one, plus a "
        "third.",
    }
)
"""Pages that sound alike and are no part of the procedure."""

QUESTIONS = (
    "The release broke production, what do I do?",
    "Production is down after the deploy, how do I go on?",
    "How do I recover from a bad deploy?",
    "Deployment failed, walk me through the recovery",
    "Errors went up right after the release",
    "What is the procedure when a deploy goes wrong?",
    "The new version crashes in production",
    "We shipped a broken release, what now?",
    "How do I undo a deploy safely and make sure that it worked?",
    "The deploy is bad: from the build to the all-clear, what are the steps?",
)
