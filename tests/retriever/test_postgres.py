"""The retriever over PostgreSQL with its vectors in a directory, end to end."""

import pytest
from langchain_core.documents import Document
from passages import read_passages, read_questions

from crabpath_retrievers import CrabPath, CrabPathRetriever

ODD = ("nul \x00 in \ud83d text 🦀", "quote ' and \\ backslash", "a:b & !c")


def ids(documents):
    return [document.id for document in documents]


@pytest.mark.slow
async def test_answers_as_on_sqlite(postgres_url, embeddings, tmp_path):
    """The same graph and best documents; turns, updates, odd text; opened by a second worker."""
    passages, place = read_passages(40), {"vectors": tmp_path / "vectors"}
    small = CrabPathRetriever.from_documents(passages, embeddings)
    retriever = CrabPathRetriever.from_documents(passages, embeddings, path=postgres_url, **place)
    with small.memory, retriever.memory as memory:
        assert memory.info()["edges"] == small.memory.info()["edges"]
        for question in read_questions(4):
            here, there = small.invoke(question), retriever.invoke(question)
            # PostgreSQL's lexical scores do not count repetitions, so near ties may change places.
            assert set(ids(there)[:2]) == set(ids(here)[:2])
            assert len(there) == 4
            assert ids(await retriever.ainvoke(question)) == ids(there)
        found = retriever.invoke("Who played Corliss Archer?", namespace="müller 🦀")
        shown = memory.explain(found[0].metadata["crabpath"]["turn_id"])
        assert [reason.id for reason in shown.documents] == ids(found)
        assert memory.info()["namespaces"]["müller 🦀"] == 1

        report = memory.add_documents([Document("Ed Wood is somebody else.", id="h4")])
        assert (report.updated, report.added) == (1, 0)
        assert memory.forget("h4") == 1
        assert memory.info()["nodes"] == memory.index.count() == 39
        for text in ODD:
            odd = {"odd": text.replace("\ud83d", "")}
            (node_id,) = retriever.add_documents([Document(text, metadata=odd)])
            assert node_id in ids(retriever.invoke(text, k=3))

        with CrabPath.open(postgres_url, embeddings=embeddings, create=False, **place) as other:
            again = CrabPathRetriever(memory=other)
            assert ids(again.invoke(question)) == ids(retriever.invoke(question))
            other.add_documents([Document("Crabs walk sideways.", id="crab")])
        assert ids(retriever.invoke("How do crabs walk?", k=1)) == ["crab"]
