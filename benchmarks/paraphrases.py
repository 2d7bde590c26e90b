"""Whether what is taught in one phrasing of a need is found in its other phrasings."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from langchain_core.embeddings import Embeddings

from crabpath_lab.datasets import Dataset
from crabpath_retrievers import CrabPath, Feedback

_SHOWN = 10  # documents of an answer that is taught


class ParaphraseFigures(NamedTuple):
    """Right first answers before and after needs were taught in their first phrasing.

    Attributes:
        questions, before, after: Of the other phrasings of the needs taught.
        others, others_before, others_after: Of all other needs.
    """

    questions: int
    before: int
    after: int
    others: int
    others_before: int
    others_after: int


def measure_paraphrases(dataset: Dataset, embeddings: Embeddings) -> ParaphraseFigures:
    """Teach the first phrasing of each need that has several, and ask all others again.

    Args:
        dataset: Ids of questions are those of their need, a dot, and the number of the phrasing.
        embeddings: The embedder.
    """
    needs: dict[str, list[str]] = {}
    for query in sorted(dataset.queries):
        needs.setdefault(query.partition(".")[0], []).append(query)
    taught = [phrasings[0] for phrasings in needs.values() if len(phrasings) > 1]
    reworded = [query for phrasings in needs.values() for query in phrasings[1:]]
    others = [phrasings[0] for phrasings in needs.values() if len(phrasings) == 1]
    with (
        TemporaryDirectory() as place,
        CrabPath.open(Path(place), embeddings=embeddings) as memory,
    ):
        memory.add_documents(dataset.documents, split=False, progress=None)

        def is_right(query: str) -> bool:
            found = memory.retrieve(dataset.queries[query], k=1, record=False).documents
            return bool(found) and found[0].node.id in dataset.qrels[query]

        def count_right(queries: list[str]) -> int:
            return sum(map(is_right, queries))

        before, others_before = count_right(reworded), count_right(others)
        for query in taught:
            turn = memory.retrieve(dataset.queries[query], k=_SHOWN).turn.id
            memory.record(Feedback(turn, 1.0, relevant=sorted(dataset.qrels[query])))
        after, others_after = count_right(reworded), count_right(others)
    return ParaphraseFigures(len(reworded), before, after, len(others), others_before, others_after)
