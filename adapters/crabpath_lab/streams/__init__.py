"""Streams: retrieve, score, then learn, question by question (prequential evaluation)."""

from crabpath_lab.streams.learners import (
    BetaCounts,
    CrabPathLearner,
    FrozenLearner,
    MovingAverage,
    NearestNeighbours,
    QueryCache,
    TaughtAnswer,
)
from crabpath_lab.streams.off_policy import LoggedTurn, estimate_greedy_uses
from crabpath_lab.streams.prequential import REPAIR_ARMS, StreamPart, StreamSchedule, run_stream
from crabpath_lab.streams.simulated_feedback import (
    FeedbackSimulator,
    ReturnedChunk,
    SimulatedFeedback,
)
from crabpath_lab.streams.stream import Stream, summarize_repair

__all__ = [
    "REPAIR_ARMS",
    "BetaCounts",
    "CrabPathLearner",
    "FeedbackSimulator",
    "FrozenLearner",
    "LoggedTurn",
    "MovingAverage",
    "NearestNeighbours",
    "QueryCache",
    "ReturnedChunk",
    "SimulatedFeedback",
    "Stream",
    "StreamPart",
    "StreamSchedule",
    "TaughtAnswer",
    "estimate_greedy_uses",
    "run_stream",
    "summarize_repair",
]
