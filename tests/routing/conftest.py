"""Requests for routers: pointers that leave one node, with texts to show."""

import numpy as np
import pytest
from langchain_openai import ChatOpenAI

from crabpath_retrievers import EdgeKind, Node, RouterChoice, RoutingRequest
from crabpath_retrievers.core.records import NodeHead, OutgoingEdge

QUESTION = "Where is the harbour?"


def make_pointer(key: int, weight: float, title: str = "") -> OutgoingEdge:
    head = NodeHead(key, f"n{key}", title or f"Title {key}", 0, np.zeros(2, dtype=np.float32))
    return OutgoingEdge(0, head, EdgeKind.LINK, weight, weight)


def make_choice(scores, *, first=1, inhibited=()) -> RouterChoice:
    """Habitual pointers to nodes ``first``, ``first + 1``, …; scores are r + w, half each."""
    half = np.array(scores) / 2
    pointers = [make_pointer(first + i, w) for i, w in enumerate(half.tolist())]
    return RouterChoice("n0", tuple(pointers), half, half, 0.0, tuple(inhibited))


def make_reader(text="Text {id}."):
    """Reads nodes whose text names them."""

    def read(ids):
        return {i: Node(i, i, "source", text.replace("{id}", i)) for i in ids}

    return read


@pytest.fixture
def request_of():
    """Requests with the pointers of one or several nodes; see :func:`make_choice`."""

    def make(*scores, text="Text {id}.", query=QUESTION, **fields):
        firsts = np.cumsum([1, *[len(own) for own in scores]])
        choices = [make_choice(s, first=int(f)) for s, f in zip(scores, firsts, strict=False)]
        return RoutingRequest(query, tuple(choices), 6, read=make_reader(text), **fields)

    return make


@pytest.fixture
def three(request_of):
    """Three unclear pointers of one node; the policy follows the first."""
    return request_of((0.7, 0.55, 0.5))


@pytest.fixture
def pointer_of():
    return make_pointer


@pytest.fixture
def chat_model(chat_server):
    """langchain-openai's client of the chat server, without retries of its own."""

    def make(**fields):
        options = {"model": "m", "base_url": chat_server.url, "api_key": "x", "max_retries": 0}
        return ChatOpenAI(**{**options, **fields})

    return make
