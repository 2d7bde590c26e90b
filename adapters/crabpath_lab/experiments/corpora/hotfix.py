"""A rule and the deprecated note that contradicts it ([CrabPath] §1)."""

from collections.abc import Mapping
from types import MappingProxyType

GOOD, DEPRECATED = "run-tests", "skip-tests"

PAGES: Mapping[str, str] = MappingProxyType(
    {
        GOOD: "Run the whole test suite before every deploy, a hotfix included. A deploy without "
        "green tests is stopped by the pipeline.",
        DEPRECATED: "Skip the tests for a hotfix: when it is urgent, deploy the hotfix without "
        "tests and run them afterwards.",
    }
)

QUESTIONS = (
    "May I skip the tests for a hotfix?",
    "This hotfix is urgent, do I run the tests?",
    "Do I need tests before I deploy a hotfix?",
    "How do I deploy an urgent hotfix?",
    "Tests take too long for this hotfix",
    "Deploy a hotfix now or wait for the tests?",
)
