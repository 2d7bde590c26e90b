"""Words that only signs tell apart are words of texts, titles and names."""

import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from tables import edges, meta, names, nodes, terms

from crabpath_retrievers import CrabPath, EdgeKind
from crabpath_retrievers.core import text
from tests.seams import get_engine

FAQ = {
    "Questions about C go to Anna, who also looks after the kernel.": "Who do I ask about C?",
    "Questions about C# go to Carla, who also looks after the desktop.": "Who do I ask about C#?",
    "Questions about C++ go to Ben, who also looks after the engine.": "Who do I ask about C++?",
    "Questions about F# go to Dirk, who also looks after the models.": "Who do I ask about F#?",
    "Questions about .NET go to Eva, who also makes the builds.": "Who do I ask about .NET?",
    "Questions about the net go to Finn, who lays the cables.": "Who do I ask about the net?",
    "Questions about A* go to Gina, who also draws the maps.": "Who do I ask about A*?",
    "With the flag -O2 the build takes nine minutes.": "How long is the build with -O2?",
    "With the flag -O3 the build takes sixteen minutes.": "How long is the build with -O3?",
    "With the O2 sensor the build takes two days.": "How long is the build with the O2 sensor?",
    "Orders of >5 boxes are sent by ship.": "How are orders of > 5 boxes sent?",
    "Orders of <5 boxes are sent by mail.": "How are orders of < 5 boxes sent?",
    "The folder $HOME is copied daily.": "When is $HOME copied?",
    "The folder home is copied weekly.": "What is copied weekly?",
    "Methods that make beans have @Bean before them.": "Where does @Bean stand?",
}
PLAIN = """# Prices of C

> 5 apples are *red*, **green** or ~~blue~~; - 5 % less for #1, that is $5 or US$5, not 5%.
- item | a | b | <b>5</b> -> 7 => 8 === 9 >>> 10
Write to anna@acme.example or see https://acme.example/c#top?q=a+b, well-known since n+1 = x-y.
"""


def store_pages(memory, pages):
    documents = [Document(page, id=title, metadata={"title": title}) for title, page in pages]
    memory.add_documents(documents, split=False, progress=None)


def find_wrong(memory, asked):
    answers = {q: memory.retrieve(q, k=1, record=False).documents[0].node for q in asked}
    return [q for q, node in answers.items() if asked[q] not in (node.id, node.content)]


@pytest.mark.both_databases
def test_the_page_with_the_sign_of_the_question_is_first(location, tmp_path):
    with CrabPath.open(location, vectors=tmp_path / "vectors") as memory:
        memory.add_documents([Document(page) for page in FAQ], split=False, progress=None)
        assert find_wrong(memory, {question: page for page, question in FAQ.items()}) == []


def test_emphasis_headings_prices_and_addresses_are_no_such_words():
    with CrabPath.open() as memory:
        memory.add_documents([Document(PLAIN)], split=False, progress=None)
        with memory.store.connect() as connection:
            found = connection.scalars(sa.select(terms.c.term)).all()
        assert {"prices", "red", "5"} <= {*found}
        assert [word for word in found if not word.isascii()] == []


PAGES = {
    "C++": "It is the language of the engine.",
    "C#": "It is the language of the desktop.",
    "Google+": "It was closed in 2019.",
    "Google": "It answers questions.",
    "C Guide": "How the kernel is written.",
    "C++ Guide": "How the engine is written.",
    "Ben": "Ben has written in C++ for years, as the C++ Guide says.",
    "Hans": "Hans had many friends on Google+ and wrote there daily.",
}
MENTIONS = {("Ben", "C++"), ("Ben", "C++ Guide"), ("Hans", "Google+"), ("C++ Guide", "C++")}


def list_mentions(memory):
    source, target = nodes.alias(), nodes.alias()
    ends = edges.join(source, source.c.key == edges.c.source)
    ends = ends.join(target, target.c.key == edges.c.target)
    query = sa.select(source.c.id, target.c.id).select_from(ends)
    with memory.store.connect() as connection:
        rows = connection.execute(query.where(edges.c.kind == EdgeKind.MENTION.value)).all()
    return set(map(tuple, rows))


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, -1])
def test_a_name_with_signs_is_another_name(order):
    """Whichever page comes first: a title is found in texts, and texts mention titles."""
    with CrabPath.open() as memory:
        for page in list(PAGES.items())[::order]:
            store_pages(memory, [page])
        assert list_mentions(memory) == MENTIONS
        assert find_wrong(memory, {title: title for title in PAGES}) == []


@pytest.mark.slow
@pytest.mark.both_databases
def test_stores_from_before_are_indexed_again(location, tmp_path, monkeypatch):
    """Their words and names get signs when they are opened, and mentions follow."""
    options = {"vectors": tmp_path / "vectors"}
    with monkeypatch.context() as former:
        former.setattr(text, "_mark_signs", lambda given: (tuple(text.tokenise(given)), ()))
        with CrabPath.open(location, **options) as memory:
            store_pages(memory, PAGES.items())
            assert list_mentions(memory) != MENTIONS
            archive = memory.transfer.export(tmp_path / "archive").path
            with get_engine(memory.store).begin() as connection:
                older = meta.update().where(meta.c.name == "schema_version").values(value="4")
                connection.execute(older)
                for table in ("crabpath_feedback", "crabpath_notes"):  # a column of version 6
                    connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN token")
    with CrabPath.open(tmp_path / "copy") as copy, CrabPath.open(location, **options) as memory:
        copy.transfer.import_archive(archive)
        for each in (copy, memory):
            with each.store.connect() as connection:
                held = set(connection.scalars(sa.select(names.c.name)))
            assert {"c＋＋", "c＃", "google＋", "google", "c guide", "c＋＋ guide"} <= held
            assert find_wrong(each, {title: title for title in PAGES}) == []
        store_pages(memory, [("Zoe", "She came late.")])
        assert list_mentions(memory) == MENTIONS
        memory.forget([*PAGES, "Zoe"])
        with memory.store.connect() as connection:
            assert connection.scalar(sa.select(sa.func.count()).select_from(terms)) == 0
