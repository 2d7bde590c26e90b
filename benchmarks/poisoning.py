"""Poisoning: how far lying feedback moves the answers that honest givers get.

Givers are honest users, who each judge some questions once, and liars: one name, nobody, or twenty
invented names. A lie takes the best returned document that is wrong for the right one.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from langchain_core.embeddings import Embeddings

from crabpath_lab.datasets import Dataset, make_passage
from crabpath_lab.scratch import open_scratch
from crabpath_retrievers import CrabPath, Feedback
from crabpath_retrievers.retrieval.pipeline import Answer

Liars = Literal["one name", "nobody", "20 names"]
LIARS: tuple[Liars, ...] = ("one name", "nobody", "20 names")
LIES = ("used", "relevant", "failures")

_HONEST, _INVENTED, _K = 10, 20, 4


def make_pages() -> Dataset:
    """100 nearly equal pages, and 60 questions about one of them each."""
    places = [(service, part) for service in range(20) for part in range(5)]
    pages = [
        make_passage(
            f"{service}-{part}",
            f"Service {service}, part {part}",
            f"The runbook of service {service}, part {part}: press button "
            f"{service * 7 % 13}{part * 3}, then wait.",
        )
        for service, part in places
    ]
    queries = {
        f"{service}-{part}": f"part {part} of {service}: which button do I press when it hangs?"
        for service, part in places
        if part < 3  # noqa: PLR2004  60 of them
    }
    return Dataset("pages", tuple(pages), queries, {q: frozenset({q}) for q in queries})


def measure_attack(
    embeddings: Embeddings, *, lies: int = 200, honest: int = _HONEST, seed: int = 1
) -> Iterator[dict[str, Any]]:
    """Lies after one honest feedback for each of 60 questions about 100 nearly equal pages.

    Args:
        embeddings: The embedder.
        lies: Number of lies, on the same questions.
        honest: Number of honest users.
        seed: Of who says what.

    Yields:
        A row for each kind of lie and of liars: questions whose right page is first, and among
        four, before any feedback, after the honest one, after the lies, and when these are undone.
    """
    data = make_pages()
    gold = {query: min(data.qrels[query]) for query in data.queries}
    for kind in LIES:
        for liars in LIARS:
            rng = random.Random(seed)  # noqa: S311  no secret
            with open_scratch(embeddings=embeddings) as memory:
                memory.add_documents(data.documents, split=False, progress=None)
                row: dict[str, Any] = {"lies": kind, "liars": liars}
                row["untaught"] = _score(memory, data.queries, gold)
                for query, text in data.queries.items():
                    user = f"user {rng.randrange(honest)}"
                    _tell(memory, memory.retrieve(text, k=_K), gold[query], user)
                row["taught"] = _score(memory, data.queries, gold)
                told = list[str]()
                for number in range(lies):
                    query = [*data.queries][number % len(data.queries)]
                    answer = memory.retrieve(data.queries[query], k=_K)
                    told += _lie(memory, answer, kind, gold[query], _name_liar(liars, rng))
                row["poisoned"] = _score(memory, data.queries, gold)
                for feedback in reversed(told):
                    memory.undo(feedback)
                row["undone"] = _score(memory, data.queries, gold)
                yield row


def measure_streams(
    datasets: Sequence[Dataset],
    embeddings: Embeddings,
    *,
    limit: int = 600,
    passes: int = 1,
    seed: int = 1,
) -> Iterator[dict[str, Any]]:
    """Streams of questions that are asked and then judged, a share of them by liars.

    Args:
        datasets: What is asked.
        embeddings: The embedder.
        limit: Most questions of each.
        passes: How often each is asked.
        seed: Draws the order, the givers, and who lies.

    Yields:
        A row for each data set, share and kind of liars: share of the questions of the second half
        whose first document is relevant.
    """
    for data in datasets:
        with open_scratch(embeddings=embeddings) as memory:
            memory.add_documents(data.documents, split=data.split, progress=None)
            order = sorted(data.queries)
            random.Random(seed).shuffle(order)  # noqa: S311  no secret
            asked = order[:limit] * passes
            row = {"data": data.name, "liars": "no feedback", "share": 0.0}
            yield row | {"first": _run_stream(memory, data, asked, None, 0.0, seed)}
            for share in (0.0, 0.02, 0.1):
                for liars in LIARS if share else LIARS[:1]:
                    first = _run_stream(memory, data, asked, liars, share, seed)
                    yield {
                        "data": data.name,
                        "liars": liars if share else "none",
                        "share": share,
                        "first": first,
                    }


def _run_stream(
    memory: CrabPath,
    data: Dataset,
    asked: Sequence[str],
    liars: Liars | None,
    share: float,
    seed: int,
) -> float:
    space, rng, right = "stream", random.Random(seed), list[bool]()  # noqa: S311  no secret
    memory.forget(namespace=space)
    for query in asked:
        text, relevant = data.queries[query], data.qrels[query]
        answer = memory.retrieve(text, k=_K, namespace=space, record=liars is not None)
        documents = [item.node.document for item in answer.documents]
        right.append(documents[:1] != [] and documents[0] in relevant)
        user, lies = f"user {rng.randrange(_HONEST)}", rng.random() < share
        liar = _name_liar(liars or "nobody", rng)
        if liars is None:
            continue
        ids = [item.node.id for item in answer.documents]
        good = [node for node, name in zip(ids, documents, strict=True) if name in relevant]
        bad = [node for node in ids if node not in good]
        used = bad[:1] if lies else good
        if used or not lies:
            memory.record(Feedback(answer.turn.id, 1.0, used=used, user=liar if lies else user))
    half = right[len(right) // 2 :]
    return round(sum(half) / len(half), 4)


def _name_liar(liars: Liars, rng: random.Random) -> str | None:
    number = rng.randrange(_INVENTED)
    return {"one name": "liar", "nobody": None, "20 names": f"invented {number}"}[liars]


def _tell(memory: CrabPath, answer: Answer, right: str, user: str) -> None:
    """Name the right page."""
    memory.record(Feedback(answer.turn.id, 1.0, relevant=[right], user=user))


def _lie(memory: CrabPath, answer: Answer, kind: str, right: str, user: str | None) -> list[str]:
    """Put the best wrong page in the place of the right one; the ids of what was learned from."""
    ids = [item.node.id for item in answer.documents]
    wrong, shown = [node for node in ids if node != right][:1], [right] if right in ids else None
    turn = answer.turn.id
    if kind == "used":
        lie = Feedback(turn, 1.0, used=wrong, unused=shown, user=user)
    elif kind == "relevant":
        lie = Feedback(turn, 1.0, relevant=wrong, irrelevant=[right], user=user)
    else:
        lie = Feedback(turn, -1.0, used=shown, user=user)
    receipt = memory.record(lie)
    return [receipt.feedback_id] if receipt.status == "applied" else []


def _score(
    memory: CrabPath, queries: Mapping[str, str], gold: Mapping[str, str]
) -> tuple[int, int]:
    """Questions whose right page is first, and among four."""
    found = [
        ([d.node.id for d in memory.retrieve(text, k=_K, record=False).documents], gold[query])
        for query, text in queries.items()
    ]
    return sum(ids[:1] == [right] for ids, right in found), sum(r in ids for ids, r in found)
