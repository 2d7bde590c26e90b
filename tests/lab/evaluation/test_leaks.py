"""No label can reach an index or a ranking before its question is answered and scored.

Every check is also run on something that does leak, and must notice it.
"""

import gc
from dataclasses import replace
from types import FunctionType, ModuleType

import numpy as np
import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_lab import METHODS, load_beir, load_hotpotqa, load_multihoprag, load_musique
from crabpath_lab.run_methods import (
    embed_questions,
    prepare_questions,
    run_method,
)
from crabpath_lab.scoring import score_rankings

pytestmark = pytest.mark.slow

LABEL = "zzsecretzz"
ALLOWED = {"title", "url"}


# Permuted labels


def rows_of(small, *, turn):
    """The sample as official JSON; labels and answers are those of ``turn`` places further."""
    text = {d.id: d for d in small.documents}
    names = list(small.queries)
    rest = [d for d in small.documents if not any(d.id in gold for gold in small.qrels.values())]
    rows = []
    for place, query in enumerate(names):
        own = [*(text[i] for i in sorted(small.qrels[query])), *rest[place * 3 : place * 3 + 3]]
        own.sort(key=lambda document: document.page_content)
        titles = [document.metadata["title"] for document in own]
        start = titles.index(text[min(small.qrels[query])].metadata["title"]) + turn
        rows.append(
            {
                "_id": query,
                "question": small.queries[query],
                "answer": f"answer {(place + turn) % len(names)}",
                "supporting_facts": [[titles[start % len(titles)], 0]],
                "context": [[d.metadata["title"], [d.page_content.split("\n", 1)[1]]] for d in own],
            }
        )
    return rows


def answers(dataset, embeddings, method="cold"):
    asked = embed_questions(dataset.queries, embeddings)
    given = prepare_questions(dataset, embeddings)
    return run_method(method, METHODS[method], given, asked, 10).found


def leaking(dataset):
    """The data set as a careless loader would make it: gold documents say whose gold they are."""
    gold = {i: q for q, relevant in dataset.qrels.items() for i in relevant}
    marked = (
        replace_text(d, f"{d.page_content} {dataset.queries[gold[d.id]]}") if d.id in gold else d
        for d in dataset.documents
    )
    return replace(dataset, documents=tuple(marked))


def replace_text(document, text):
    return document.model_copy(update={"page_content": text})


def test_permuted_labels_give_identical_cold_rankings(small, cached, write):
    """The same questions and paragraphs with other labels: equal answers, other scores."""
    labelled = load_hotpotqa(write("true/dev.json", rows_of(small, turn=0)))
    permuted = load_hotpotqa(write("permuted/dev.json", rows_of(small, turn=2)))
    assert all(labelled.qrels[q] != permuted.qrels[q] for q in labelled.qrels)
    found = answers(labelled, cached)
    assert found == answers(permuted, cached)
    ranked = {q: [f.document for f in of] for q, of in found.items()}
    scores = [score_rankings(of.qrels, ranked, (5,)) for of in (labelled, permuted)]
    assert scores[0] != scores[1]
    assert answers(leaking(labelled), cached) != answers(leaking(permuted), cached)


# Labels in documents


def exposed(documents):
    """Documents that carry a label, or metadata beyond title and address."""
    return [d.id for d in documents if LABEL in str(d) or not set(d.metadata) <= ALLOWED]


def load_secret(write, name):
    """A data set whose every label is the secret word."""
    asked = {"question": LABEL, "answer": LABEL, "query": LABEL, "text": LABEL}
    if name == "hotpotqa":
        facts = {"supporting_facts": [[LABEL, 0]], "evidences": [[LABEL] * 3], "level": LABEL}
        row = {"_id": "q", **asked, **facts, "context": [["A", ["The text of A."]]]}
        return load_hotpotqa(write("dev.json", [row]))
    if name == "musique":
        own = {"title": "A", "paragraph_text": "The text of A.", "idx": 0, "is_supporting": True}
        parts = {"answer_aliases": [LABEL], "question_decomposition": [asked]}
        return load_musique(
            write("dev.jsonl", [{"id": "q", **asked, **parts, "paragraphs": [own]}])
        )
    if name == "multihoprag":
        given = {"title": "A", "fact": LABEL, "url": "https://x/a", "author": LABEL}
        titled = {"title": "A", "body": "The text of A.", "url": "https://x/a"}
        write("corpus.json", [{**titled, "category": LABEL, "source": LABEL, "author": LABEL}])
        rows = [{**asked, "evidence_list": [given]}]
        return load_multihoprag(write("MultiHopRAG.json", rows).parent)
    entry = {"_id": "d", "title": "A", "text": "The text of A.", "metadata": {"gold": LABEL}}
    write("corpus.jsonl", [entry])
    write("queries.jsonl", [{"_id": LABEL, **asked, "metadata": {"answer": LABEL}}])
    return load_beir(write("qrels/test.tsv", f"q\td\ts\n{LABEL}\td\t1\n").parent.parent)


@pytest.mark.parametrize("name", ["hotpotqa", "musique", "multihoprag", "beir"])
def test_documents_carry_no_label(write, name):
    dataset = load_secret(write, name)
    assert dataset.queries
    assert list(dataset.answers.values()) == [LABEL]
    assert [d.page_content for d in dataset.documents] == ["A\nThe text of A."]
    assert exposed(dataset.documents) == []
    marked = dataset.documents[0].model_copy(update={"metadata": {"is_supporting": True}})
    assert exposed([marked, replace_text(dataset.documents[0], LABEL)]) == [marked.id] * 2


# What a method can reach


def reachable(root):
    """Ids of all objects that can be reached from one by any reference."""
    seen, todo = {}, [root]
    while todo:
        item = todo.pop()
        if id(item) not in seen and not isinstance(item, (type, ModuleType, FunctionType)):
            seen[id(item)] = item
            todo += gc.get_referents(item)
    return set(seen)


@pytest.mark.parametrize("closed", [False, True])
def test_no_label_can_be_reached_from_what_a_method_is_given(small, write, closed):
    """Neither qrels, nor one of their sets, nor an answer, followed through every reference."""
    dataset = load_hotpotqa(write("dev.json", rows_of(small, turn=0)))
    labels = {id(dataset), id(dataset.qrels), *map(id, dataset.qrels.values())}
    labels |= {id(dataset.answers), *map(id, dataset.answers.values())}
    given = list(prepare_questions(dataset, DeterministicFakeEmbedding(size=4), closed=closed))
    assert len(given) == (len(dataset.queries) if closed else 1)
    for task in given:
        assert not labels & reachable(task.corpus)
        assert not labels & reachable(task)
    assert labels <= reachable([given, dataset])


# Order


def quality(dataset, embeddings, method):
    found = answers(dataset, embeddings, method)
    ranked = {q: [*dict.fromkeys(f.document for f in of)] for q, of in found.items()}
    scores = score_rankings(dataset.qrels, ranked, (5,))
    return {name: sum(values) / len(values) for name, values in scores.items()}, ranked


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_questions_changes_no_answer(small, cached, method):
    queries, qrels = (dict(reversed(of.items())) for of in (small.queries, small.qrels))
    figures, ranked = quality(small, cached, method)
    assert quality(replace(small, queries=queries, qrels=qrels), cached, method) == (
        pytest.approx(figures),
        ranked,
    )


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_documents_does_not_decide_quality(small, cached, method):
    """Gold documents do not profit from standing first in the corpus, nor last."""
    gold = {i for relevant in small.qrels.values() for i in relevant}
    first = sorted(small.documents, key=lambda d: d.id not in gold)
    mixed = [first[place] for place in np.random.default_rng(0).permutation(len(first))]
    figures, *others = (
        quality(replace(small, documents=tuple(order)), cached, method)[0]
        for order in (first, first[::-1], mixed)
    )
    assert others == [pytest.approx(figures)] * 2
