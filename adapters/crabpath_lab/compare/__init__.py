"""Comparison of two retrievers on one's own documents, judged blind by a person."""

from crabpath_lab.compare.answers import SYSTEMS, AskedQuestion, ask_all, read_questions
from crabpath_lab.compare.judgements import Judgements, export_judgements, measure
from crabpath_lab.compare.page import Page, serve_page
from crabpath_lab.compare.systems import Place, open_systems
from crabpath_lab.compare.terminal import judge_in_terminal

__all__ = [
    "SYSTEMS",
    "AskedQuestion",
    "Judgements",
    "Page",
    "Place",
    "ask_all",
    "export_judgements",
    "judge_in_terminal",
    "measure",
    "open_systems",
    "read_questions",
    "serve_page",
]
