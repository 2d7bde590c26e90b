"""Whether routes to used documents become reflexes when questions come back.

A route leads to a used document if the walk followed it, and would have led if the walk read its
last edge at a visited document and the used one was found otherwise, as a past turn lets it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from crabpath_lab.datasets.sample import load_sample
from crabpath_lab.scratch import open_scratch
from crabpath_lab.simulated_model import load_chat_model
from crabpath_retrievers import ChatModelRouter, CrabPath, Feedback
from crabpath_retrievers.config import LearningSettings, Settings, TierSettings
from crabpath_retrievers.core.records import Turn

ROUNDS = 10
SHOWN = 10  # documents of an answer
PROCEDURES = 60
MODEL = "simulated:0"
_ALL = 10_000  # more edges than a node has
_TIERS = TierSettings()
_SCATTER = 605
_SYLLABLES = ("ba", "cor", "del", "en", "far", "gil", "hol", "is", "jun", "kal", "lor", "mer")
_TASKS = (
    "stop the writers, take a copy of the disk and note its checksum.",
    "pack the racks, label every cable and book a lorry for the evening.",
    "drain the tank, rinse it twice and leave the lid open until noon.",
    "switch off the pumps, wait for the green lamp and open the valve slowly.",
    "measure the wear of the belt and write the figure on the yellow card.",
)
_ENDS = (
    "Seal the crate with wax and hand the key to the porter.",
    "Send the signed form to the archive before the bell rings.",
    "Read the pressure aloud; below forty bars the shift may leave.",
    "Cover the lens with felt and store it upright.",
    "Tell the harbour office which berth stays empty.",
)

Edge = tuple[str, str, str]
"""Ids of source and target, label of the kind."""


class RouteCorpus(NamedTuple):
    """Documents, and the questions with the ids of what answers each."""

    name: str
    documents: Sequence[Document]
    questions: Mapping[str, frozenset[str]]


class RouteFigures(NamedTuple):
    """The figures of one corpus with one router.

    Attributes:
        corpus, router, learning: What was measured.
        used: Used documents, of different questions.
        routes: Last edges of the routes that led or would have led to them, in any round.
        reflex_before, reflex: Those that are reflexes before the first report and after the last.
        routed: Used documents with such an edge.
        routed_reflex: Those of them with a reflex among their edges.
        unjudged: Edges of which no turn with a report visited the source and showed the target.
        moved, changed_tier: Those of them whose weight, and whose tier, changed.
        inhibitory: Edges of the text that became inhibitory.
        calls: Router calls per question, in the first and in the last round.
        first, recall: Right first answers and share of right documents, likewise.
    """

    corpus: str
    router: str
    learning: str
    used: int
    routes: int
    reflex_before: int
    reflex: int
    routed: int
    routed_reflex: int
    unjudged: int
    moved: int
    changed_tier: int
    inhibitory: int
    calls: tuple[float, float]
    first: tuple[float, float]
    recall: tuple[float, float]


@dataclass(slots=True)
class _Observations:
    used: set[tuple[str, str]] = field(default_factory=set)
    routes: dict[tuple[str, str], set[Edge]] = field(default_factory=dict)
    judged: set[tuple[str, str]] = field(default_factory=set)


def sample_corpus() -> RouteCorpus:
    """The sample that ships with the package."""
    data = load_sample()
    questions = {text: frozenset(data.qrels[name]) for name, text in data.queries.items()}
    return RouteCorpus("sample", data.documents, questions)


def chain_corpus(procedures: int = PROCEDURES) -> RouteCorpus:
    """Procedures of three or four pages, each of which mentions the next.

    The question names the first page; the last one answers it.
    """
    documents, questions = list[Document](), dict[str, frozenset[str]]()
    for number in range(procedures):
        pages = 3 + number % 2
        names = [_name_page(number, page) for page in range(pages)]
        tasks = [_TASKS[(number + page) % len(_TASKS)] for page in range(pages - 1)]
        texts = [
            f"Step {page + 1} of this maintenance procedure: {task} Go on with {names[page + 1]}."
            for page, task in enumerate(tasks)
        ]
        texts.append(f"Last step of this maintenance procedure: {_ENDS[number % len(_ENDS)]}")
        documents += [
            Document(body, id=name, metadata={"title": name})
            for name, body in zip(names, texts, strict=True)
        ]
        questions[f"Which last step has the maintenance procedure that begins with {names[0]}?"] = (
            frozenset({names[-1]})
        )
    return RouteCorpus("chains", documents, questions)


def _name_page(number: int, page: int) -> str:
    base = len(_SYLLABLES)
    place = (4 * number + page) * _SCATTER % base**3  # neighbours have names of their own
    parts = (place // base**2, place // base % base, place % base)
    return "".join(_SYLLABLES[part] for part in parts).capitalize()


def measure_routes(
    corpus: RouteCorpus,
    embeddings: Embeddings,
    variants: Mapping[str, LearningSettings],
    *,
    rounds: int = ROUNDS,
) -> Iterator[RouteFigures]:
    """Ask the questions in ``rounds`` rounds and report what was used of each answer.

    Yields:
        The figures with the policy alone, and with a chat model as router, of every variant.
    """
    for learning, settings in variants.items():
        for router in ("policy", MODEL):
            chosen = None if router == "policy" else ChatModelRouter(load_chat_model(router))
            own = Settings().replace(learning=settings)
            with open_scratch(embeddings=embeddings, settings=own, router=chosen) as memory:
                memory.add_documents(corpus.documents, split=False, progress=None)
                yield _measure(memory, corpus, router, learning, rounds)


def _measure(
    memory: CrabPath, corpus: RouteCorpus, router: str, learning: str, rounds: int
) -> RouteFigures:
    before, seen = read_weights(memory, corpus), _Observations()
    done = [_run_round(memory, corpus, seen) for _ in range(rounds)]
    after = read_weights(memory, corpus)
    routes = {edge for edges in seen.routes.values() for edge in edges}
    reflex = {edge for edge in routes if after.get(edge, 0.0) >= _TIERS.reflex}
    unjudged = [edge for edge in before if edge[:2] not in seen.judged]
    ends = [done[0], done[-1]]
    return RouteFigures(
        corpus.name,
        router,
        learning,
        len(seen.used),
        len(routes),
        sum(before.get(edge, 0.0) >= _TIERS.reflex for edge in routes),
        len(reflex),
        len(seen.routes),
        sum(not reflex.isdisjoint(edges) for edges in seen.routes.values()),
        len(unjudged),
        sum(before[e] != after[e] for e in unjudged),
        sum(_TIERS.tier_of(before[e]) != _TIERS.tier_of(after[e]) for e in unjudged),
        sum(before[e] > _TIERS.inhibitory >= after[e] for e in before),
        *((round(a, 3), round(b, 3)) for a, b in zip(*ends, strict=True)),
    )


def _run_round(
    memory: CrabPath, corpus: RouteCorpus, seen: _Observations
) -> tuple[float, float, float]:
    """Ask each question once; router calls, right first answers and recall per question."""
    calls, first, recall = 0, 0, 0.0
    for question, right in corpus.questions.items():
        answer = memory.retrieve(question, k=SHOWN)
        shown = [item.node.id for item in answer.documents]
        used = [node for node in shown if node in right]
        calls += answer.turn.usage.calls
        first += bool(shown) and shown[0] in right
        recall += len(used) / len(right)
        seen.judged.update(product(answer.turn.visited, shown))
        for node in used:
            seen.used.add((question, node))
            if edges := find_last_edges(answer.turn, node):
                seen.routes.setdefault((question, node), set()).update(edges)
        memory.record(Feedback(answer.turn.id, 1.0 if used else -1.0, used=used))
    count = len(corpus.questions)
    return calls / count, first / count, recall / count


def find_last_edges(turn: Turn, document: str) -> set[Edge]:
    """The last edges of all routes of a turn that led, or would have led, to a document."""
    came_from: dict[str, str] = {}
    for step in turn.steps:
        for target in (*step.reflexes, *step.chosen):
            came_from.setdefault(target, step.node)
    seeds = {seed.node for seed in turn.seeds}
    return {
        (step.node, document, edge.kind)
        for step in turn.steps
        for edge in step.candidates
        if edge.target == document
        and edge.tier != "inhibitory"
        and not _passes(step.node, document, came_from, seeds)
    }


def _passes(node: str, document: str, came_from: Mapping[str, str], seeds: set[str]) -> bool:
    """Whether the route to a node passes a document."""
    while node not in seeds and node != document and node in came_from:
        node = came_from[node]
    return node == document


def read_weights(memory: CrabPath, corpus: RouteCorpus) -> dict[Edge, float]:
    """The weights of all edges that a walk may follow."""
    return {
        (edge.source, edge.target, edge.kind): edge.weight
        for document in corpus.documents
        for edge in memory.graph.edges(str(document.id), limit=_ALL).edges
    }
