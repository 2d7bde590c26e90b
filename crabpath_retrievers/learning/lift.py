"""Whether what was learned ranked better than the ranking before any lesson, by one feedback."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.records import Turn
from crabpath_retrievers.storage import Reader


def compare_rankings(
    read: Reader, turns: Iterable[tuple[Turn, Credit]]
) -> Iterator[tuple[float, bool]]:
    """Yield the gain of learning on turns, and whether the label is independent of what was shown.

    A label that a document was used favours the ranking that showed the document: such a label
    counts, as dependent, if the learned ranking answered, and not at all if the other one did.
    Turns that cannot be compared, or whose rankings are equal, are left out.

    Yields:
        Differences in [-1, 1], weighted by the feedback: of nDCG, or of the shares of used
        documents that each ranking drafted.
    """
    for turn, credit in turns:
        used = frozenset(credit.used).difference(credit.inferred, credit.added)
        shown = [item.node for item in turn.returned if item.node not in credit.added]
        rankings = shown if turn.learned is None else turn.learned, turn.frozen or ()
        right = credit.relevant or used
        is_compared = credit.relevant or turn.learned is None or turn.teams
        if turn.frozen is None or not (right and is_compared) or (*rankings[0],) == turn.frozen:
            continue
        known = find_documents(read, [*rankings[0], *rankings[1], *right])
        wanted = {document for node in right for document in known.get(node, ())}
        if not wanted:
            continue
        if turn.teams and not credit.relevant:
            learned, frozen = count_drafted(turn.teams, known, wanted)
        else:
            learned, frozen = score_both(rankings, known, wanted)
        yield credit.weight * (learned - frozen), bool(credit.relevant or turn.teams)


def count_drafted(
    teams: Mapping[str, str], known: Mapping[str, AbstractSet[str]], used: AbstractSet[str]
) -> tuple[float, float]:
    """Compute the shares of used documents that the learned and the other ranking drafted.

    ``teams`` has the ranking that drafted each node, ``known`` the ids of documents by name.
    """
    drafted = {document: team for node, team in teams.items() for document in known.get(node, ())}
    found = [drafted.get(document) for document in used]
    count = max(1, len(found))
    return found.count("learned") / count, found.count("frozen") / count


def score_both(
    rankings: Sequence[Sequence[str]],
    known: Mapping[str, AbstractSet[str]],
    relevant: AbstractSet[str],
) -> tuple[float, float]:
    """Compute the nDCG in [0, 1] of two rankings, at the length of the longer one.

    ``known`` has the ids of documents by name; ``relevant`` are the right documents.
    """
    k = max(map(len, rankings))
    first, second = (_compute_ndcg(ids, known, relevant, k) for ids in rankings)
    return first, second


def find_documents(read: Reader, names: Sequence[str]) -> dict[str, set[str]]:
    """Map ids of chunks, ids of documents, and sources to ids of documents."""
    wanted = sorted({*names})
    found: dict[str, set[str]] = defaultdict(set)
    for chunk in read.catalog.find_chunks(ids=wanted, documents=wanted, sources=wanted):
        for name in {chunk.id, chunk.document, chunk.source}:
            found[name].add(chunk.document)
    return found


def rank_documents(ids: Sequence[str], known: Mapping[str, AbstractSet[str]]) -> list[str]:
    """List the documents of chunks, each once, in order; chunks not in ``known`` are left out."""
    ranked = (document for node in ids for document in sorted(known.get(node, ())))
    return [*dict.fromkeys(ranked)]


def _compute_ndcg(
    ids: Sequence[str], known: Mapping[str, AbstractSet[str]], relevant: AbstractSet[str], k: int
) -> float:
    """Compute nDCG at k (Järvelin & Kekäläinen 2002), in [0, 1].

    ``ids`` are ranked chunks; ``known`` has the ids of documents by name; ``relevant`` is not
    empty.
    """
    ranked = rank_documents(ids, known)
    discounts = 1.0 / np.log2(np.arange(max(1, k)) + 2.0)
    gains = discounts[[place for place, name in enumerate(ranked[:k]) if name in relevant]]
    return float(gains.sum() / discounts[: len(relevant)].sum())
