"""Corrections: which of them belong to a query, and where they stand in its answer.

A correction belongs to its question. It comes where its own fit to the query is better than that of
other documents, and then stands before the document that it corrects.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.core.query import Query
from crabpath_retrievers.core.records import (
    Candidate,
    Node,
    Vector,
    compare_vectors,
    stack_vectors,
    stretch_cosine,
)
from crabpath_retrievers.core.text import Floats, is_opposed, normalise_name, tokenise
from crabpath_retrievers.retrieval.search import SeedHits
from crabpath_retrievers.storage import Reader
from crabpath_retrievers.storage.read.notes import (
    Correction,
    build_note_episode_id,
    find_text_id,
)

SAME_QUESTION = 0.5
"""Evidence of the same query from which a note counts as taught for it."""

_AHEAD = 0.17  # similarity by which a correction must be nearer than documents are
_EXPECTED = 0.4  # of the similarity of a document to the question that was corrected
_TWINS = 0.8  # similarity of texts that differ in what identifies them
_WORDS = 0.2  # similarity that a like document gains by having all words that are asked for


def find_corrections(
    read: Reader,
    query: Query,
    vector: Vector,
    seeds: SeedHits,
    pool: Sequence[Candidate],
    max_scanned: int,
) -> tuple[list[Correction], dict[int, str], Sequence[Candidate], frozenset[int]]:
    """Find the corrections that answer the query, and add them to the pool of candidates.

    A correction is added if a document that it corrects is in the pool, and removed if it was given
    to another question.

    Args:
        query: The query; if it names the candidates itself, the pool stays as it is.
        max_scanned: Most corrections that are read.

    Returns:
        The corrections in the pool; the kind of each note by its key; the pool after it; and the
        keys of corrections that were given to this very question, which are ranked first.
    """
    keys, clock = {hit.head.key for hit in pool}, seeds.clock
    corrections = read.notes.find_corrections(clock.key, sorted(keys), max_scanned)
    current = find_current_corrections(corrections)
    missing = {item.note for item in current} - keys
    if missing and query.candidate_ids is None:
        heads = read.walk.get_nodes((), sorted(missing), namespace=clock.key, corpus=clock.corpus)
        vectors = [head.vector for head in heads]
        similarities = compare_vectors(vectors, vector, read.stretch)
        pairs = zip(heads, similarities, strict=True)
        pool = [*pool, *(Candidate(head, near, found=False) for head, near in pairs)]
        keys |= missing
    origins = read.notes.find_origins(clock.key, sorted(keys))
    notes = {origin.key: origin.kind for origin in origins}
    given = [one for one in origins if one.kind == "correction"]
    if query.candidate_ids is not None or not given:  # candidates are what is asked for
        return corrections, notes, pool, frozenset()
    said = {one.key: one.query or "" for one in given}
    latest = {one.query: one.key for one in sorted(given, key=lambda one: one.said)}
    outdated = {one.key for one in given if one.query and latest[one.query] != one.key}
    for item in corrections:  # these give way by what they correct
        outdated -= {item.note, item.document}
    opposed = {key for key, asked in said.items() if asked and is_opposed(query.text, asked)}
    pool = [hit for hit in pool if hit.head.key not in outdated | opposed]
    documents = [hit for hit in pool if hit.head.key not in notes]
    fits = _measure_fits(read, vector, seeds, said, (pool, documents), current)
    fitting = [
        hit._replace(similarity=fit)
        for hit in pool
        if (fit := fits.get(hit.head.key, hit.similarity)) is not None
    ]
    # The same words were said of several questions: they stand in an answer once.
    best: dict[str, Candidate] = {}
    for hit in sorted(fitting, key=lambda hit: hit.similarity):
        if hit.head.key in said:
            best[find_text_id(hit.head.id)] = hit
    once = {hit.head.key for hit in best.values()}
    name = normalise_name(query.text)
    first = {  # those of this very question, unless it was answered otherwise as often since
        hit.head.key
        for hit in best.values()
        if normalise_name(said[hit.head.key]) == name and hit.again >= hit.passed
    }
    belonging = [hit for hit in fitting if hit.head.key not in said.keys() - once]
    return corrections, notes, belonging, frozenset(first)


def _measure_fits(
    read: Reader,
    vector: Vector,
    seeds: SeedHits,
    said: Mapping[int, str],
    pools: tuple[Sequence[Candidate], Sequence[Candidate]],
    current: Iterable[Correction],
) -> dict[int, float | None]:
    """Measure how well corrections fit the query, by key; None if they belong to another one.

    The fit is the best similarity, in [-1, 1], of the query to the question that was corrected, to
    what was wrong and to the text of the note.

    Args:
        said: The questions that were corrected, by keys of the corrections; may be empty.
        pools: All candidates, and the documents among them.
    """
    information, stretch = seeds.information, read.stretch
    pool, documents = pools
    ids = {key: build_note_episode_id(key, query) for key, query in said.items()}
    questions = read.learned.episode_vectors(seeds.clock.key, ids.values())
    rows = {hit.head.key: row for row, hit in enumerate(documents)}
    similar = np.array([hit.similarity for hit in documents])
    vectors = [hit.head.vector for hit in documents]
    has = information.find_words([hit.head.terms for hit in documents])
    corrected: dict[int, list[int]] = {}
    for item in current:
        if item.document in rows:
            corrected.setdefault(item.note, []).append(rows[item.document])
    fits: dict[int, float | None] = {}
    for hit in pool:
        key = hit.head.key
        if key not in said:
            continue
        question, about = questions.get(ids[key]), corrected.get(key, [])
        near = [(hit.head.vector, hit.similarity)]
        if question is not None:
            near += [(question, compare_vectors([question], vector, stretch)[0])]
        if about:
            nearest = max(about, key=similar.__getitem__)
            near += [(vectors[nearest], float(similar[nearest]))]
        values = [value for _, value in near]
        best, mean = max(values), compare_with_mean([row for row, _ in near], values, stretch)
        if hit.again > SAME_QUESTION:  # it may answer several questions
            best = mean = 1.0
        asked = question if question is not None else hit.head.vector
        if question is None and about:
            asked = vectors[about[0]]
        expected = np.array(compare_vectors(vectors, asked.astype(np.float32), stretch))
        meant = about or ([int(expected.argmax())] if documents else [])
        alike = [compare_vectors(vectors, vectors[row], stretch) for row in meant]
        wrong = np.zeros(len(documents), dtype=bool)
        wrong[about] = True
        words = {*tokenise(said[key])}
        known = information.find_words([hit.head.terms])[0] > 0
        known |= np.array([word in words for word in information.words], dtype=bool)
        known |= has[meant].any(axis=0)
        nearness = np.max(alike, axis=0, initial=-1.0)
        is_fit = fits_query(mean, similar, expected, wrong, nearness, known, has, information.nats)
        fits[key] = best if is_fit else None
    return fits


def fits_query(
    mean: float,
    similar: Floats,
    expected: Floats,
    wrong: NDArray[np.bool_],
    alike: Floats,
    known: NDArray[np.bool_],
    has: Floats,
    nats: Floats,
) -> bool:
    """Whether a correction fits a query, rather than belonging to another question.

    Let the mean be that of the question that was corrected, of what was wrong and of the text of
    the note. Other documents must be less near to the query than this mean is, by a margin that
    grows with how near they were to the corrected question: they were no better answers then. A
    document like the corrected one counts as nearer if only it has some words of the query. If a
    near twin of the corrected document has such words, the correction does not fit: the query asks
    for the twin.

    Args:
        mean: Similarity of the query to the mean.
        similar: Similarity of the query to each document of the pool, shape ``[n]``.
        expected: Similarity of each document to the corrected question, or to what stands for it;
            ``[n]``.
        wrong: Which documents the correction is about, shape ``[n]``.
        alike: Similarity of each document to the corrected ones, or to the one that stands for
            them; shape ``[n]``.
        known: Which words of the query are in the corrected question, in the note or in what it
            corrects, shape ``[Q]``.
        has: 1 for each word of the query that a document has, else 0; shape ``[n, Q]``.
        nats: Information of those words, shape ``[Q]``.
    """
    more = (has - known) @ nats
    share = more / max(1.0, float(nats.sum()))
    rivals = similar - _EXPECTED * np.maximum(0.0, expected)
    rivals += _WORDS * np.maximum(0.0, alike) * share
    if mean - rivals[~wrong].max(initial=0.0) < _AHEAD:
        return False
    twins = ~wrong & (alike >= _TWINS)
    return not more[twins].max(initial=0.0) > 0.0


def compare_with_mean(vectors: Sequence[Vector], similar: Sequence[float], stretch: float) -> float:
    """Compute the similarity of a query to the mean of some texts."""
    rows = stack_vectors(vectors)
    length = float(stretch_cosine(rows @ rows.T, stretch).sum())
    return sum(similar) / math.sqrt(max(1.0, length))


def find_current_corrections(corrections: Iterable[Correction]) -> list[Correction]:
    """Find the current correction of each document: a note may have been corrected since.

    Args:
        corrections: Corrections of documents and of notes, latest note first.

    Returns:
        Corrections by notes that nothing corrects, in the same order for each document.
    """
    given = list(corrections)
    said = {item.note: item.said for item in given}
    links: defaultdict[int, list[Correction]] = defaultdict(list)
    for item in given:
        if item.said > said.get(item.document, -1):  # else the note was said again since
            links[item.document].append(item)
    current = list[Correction]()
    for document in list(links):
        seen, queue = {document}, links[document]
        while queue:
            found = [item for item in dict.fromkeys(queue) if item.note not in seen]
            seen |= {item.note for item in found}
            following = {item: links.get(item.note, []) for item in found}
            current += [
                item._replace(document=document)
                for item, newer in following.items()
                if all(one.note in seen for one in newer)
            ]
            queue = [one for newer in following.values() for one in newer]
    return sorted(current, key=lambda item: -item.said)


def choose_corrections(
    corrections: Iterable[Correction], odds: Mapping[int, float]
) -> dict[int, int]:
    """Choose the one note that goes with each corrected document, by key of the document.

    Of several notes about one question the latest counts; of notes about different questions the
    one with the highest ``odds``, which are by key of the note. Notes without odds are left out.
    """
    latest: dict[int, dict[str | int, int]] = {}
    for item in corrections:
        if item.note in odds:
            questions = latest.setdefault(item.document, {})
            questions.setdefault(item.query or item.note, item.note)
    return {
        document: max(questions.values(), key=lambda note: odds[note])
        for document, questions in latest.items()
    }


def mark_corrections(read: Reader, nodes: Mapping[str, Node], namespace: str) -> dict[str, Node]:
    """Return the notes among some nodes; the text of a correction says what it corrects.

    If a document that a correction is about has got another text since, text and metadata of the
    correction say so, too.
    """
    notes = {key: node for key, node in nodes.items() if not node.document}
    if any(node.metadata.get("note") == "correction" for node in notes.values()):
        for fact in read.notes.get_facts(notes, namespace):
            if fact.kind == "correction":
                note = notes[fact.id]
                text = mark_correction(note.content, fact.query, outdated=fact.is_outdated)
                more = {"outdated": True} if fact.is_outdated else {}
                notes[fact.id] = replace(note, content=text, metadata={**note.metadata, **more})
    return notes


_MAX_ASKED = 200  # characters of a question that is shown


_OUTDATED = ", given before the document was changed"
_MARKS = re.compile(rf'\A(?:Correction(?: of the answer to "[^"\n]*")?(?:{_OUTDATED})?:\n)+')


def mark_correction(text: str, question: str | None, *, outdated: bool) -> str:
    """Put a line before the text of a correction that says what it corrects, for hosts.

    Hosts drop metadata. If the text begins with such a line already, as text copied from an answer
    does, that line is replaced. ``question`` is the corrected one; None if it is not known.
    ``outdated`` says that the document was changed since.
    """
    text = f"{_OUTDATED if outdated else ''}:\n{_MARKS.sub('', text)}"
    if question is None:
        return f"Correction{text}"
    asked = " ".join(question.replace('"', "'").split())
    shown = asked if len(asked) <= _MAX_ASKED else f"{asked[:_MAX_ASKED]}…"
    return f'Correction of the answer to "{shown}"{text}'
