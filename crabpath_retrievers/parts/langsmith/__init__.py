"""LangSmith: pull feedback of people and evaluators, push applied feedback."""

from crabpath_retrievers.parts.langsmith.pull import PullReport, pull
from crabpath_retrievers.parts.langsmith.push import LangSmithPush

__all__ = ["LangSmithPush", "PullReport", "pull"]
