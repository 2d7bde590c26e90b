"""Among near-equal texts the word of the question that tells them apart decides."""

import pytest
from langchain_core.documents import Document

from benchmarks.embedders import Squeezed
from benchmarks.twins import FAMILIES, generate_twins
from crabpath_retrievers import CrabPath

IDENTIFIERS = {
    "Release 26.3.19 repairs the scheduler.": ("26.3.19", "26.3.19 scheduler"),
    "Release 19.26.3 repairs the scheduler.": ("19.26.3",),
    "Release 3.19.26 repairs the scheduler.": ("3.19.26",),
    "Set readTimeout to wait longer.": ("read timeout", "read_timeout", "ReadTimeout"),
    "Set write_timeout to wait longer.": ("write timeout", "writeTimeout"),
    "The AX-200 charges within two hours.": ("AX200", "ax200 charge", "AX-200"),
    "The AX-2000 charges within nine hours.": ("AX2000", "charge of the AX-2000"),
    "Logs are in /var/log/app/error.log by default.": ("error.log", "/var/log/app/error.log"),
    "Driver v4.7.2 repairs the printer.": ("driver 4.7.2", "what changed in v4.7.2"),
    "Driver 4.2.7 repairs the printer.": ("driver v4.2.7",),
}


def find_first(memory, question):
    return memory.retrieve(question, k=1, record=False).documents[0].node.content


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("free", [False, True])
def test_the_named_one_of_a_family_is_first(family, free):
    """In the words of the texts and in others."""
    twins = generate_twins(family, 150, questions=15, free=free)
    with CrabPath.open() as memory:
        memory.add_documents(twins.documents, split=False, progress=None)
        answers = {q: memory.retrieve(text, k=1).documents for q, text in twins.queries.items()}
        wrong = [q for q, found in answers.items() if found[0].node.id not in twins.qrels[q]]
        assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: None, Squeezed], ids=["minilm", "squeezed"])
def test_a_line_is_found_among_hundreds_that_differ_in_a_number(make):
    """Whatever the scale of the embedder's cosines."""
    lines = [
        Document(f"Q: How do I reset device model XR{n:05}? A: Hold B for {3 + n % 9} seconds.")
        for n in range(400)
    ]
    with CrabPath.open(embeddings=make()) as memory:
        memory.add_documents(lines, split=False, progress=None)
        for n in range(7, 400, 30):
            asked = f"How do I reset device model XR{n:05}?"
            found = memory.retrieve(asked, k=3, record=False).documents
            assert any(f"XR{n:05}" in document.node.content for document in found), asked


def test_identifiers_are_found_whole_and_in_parts():
    """Versions, options in two spellings, paths."""
    with CrabPath.open() as memory:
        memory.add_documents([Document(text) for text in IDENTIFIERS], split=False, progress=None)
        wrong = [
            (question, found)
            for text, questions in IDENTIFIERS.items()
            for question in questions
            if (found := find_first(memory, question)) != text
        ]
        assert wrong == []


def write_record(n):
    """A plain record, and questions that only its number, code or address tells from others."""
    phone, order, code = f"+49 30 {7031907 + 90013 * n % 999983}", f"{40000 + 37 * n}", f"E{n:04}X"
    commit, mail = f"{0xA3F9C00 + 7919 * n:x}", f"desk{n}@acme{n % 7}.example"
    goods = ("chairs", "tables", "lamps", "beds")[n % 4]
    return {
        f"Customer {n % 9} buys {goods}; call {phone}.": f"who called from {phone}?",
        f"Order {order}: two {goods}, sent on Monday.": f"where is order {order}",
        f"Error {code} means that a fan of the {goods} saw stopped.": f"what does {code} mean?",
        f"Commit {commit} repairs the list of {goods}.": f"what did commit {commit} change",
        f"Questions about {goods} go to {mail}.": f"which questions go to {mail}?",
    }


@pytest.mark.slow
def test_the_only_record_with_the_number_of_the_question_is_first():
    """Vectors tell numbers badly from each other."""
    records = [write_record(n) for n in range(120)]
    with CrabPath.open() as memory:
        memory.add_documents([Document(t) for texts in records for t in texts], split=False)
        asked = {question: text for texts in records[5::25] for text, question in texts.items()}
        wrong = [(q, found) for q in asked if (found := find_first(memory, q)) != asked[q]]
        assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "asked"),
    [
        (lambda n: f"In {1500 + n} the mayor opened a bridge over the Elbe.", "What opened in {}?"),
        (lambda n: f"Locker {100 + n} is that of {('Ann', 'Bob')[n % 2]}.", "Whose is locker {}?"),
        (lambda n: f"Set {1 + n // 10}.{n % 10} mm for a blade, in 4 steps.", "When is it {} mm?"),
        (
            lambda n: f"Table {1 + n // 9}.{n % 9} has values for 20 degrees.",
            "What is in table {}?",
        ),
    ],
    ids=["years", "small numbers", "decimals", "tables"],
)
def test_the_only_text_with_a_year_or_a_small_number_of_the_question_is_first(write, asked):
    texts = [write(n) for n in range(120)]
    with CrabPath.open() as memory:
        memory.add_documents([Document(text) for text in texts], split=False)
        wrong = [
            question
            for text in texts[5::10]
            if find_first(memory, question := asked.format(text.split()[1])) != text
        ]
        assert wrong == []


TOPICS = {
    "Canteen": "The canteen opens at eleven and sells soup.",
    "Files": "A file on disk is read line after line.",
    "Backups": "The database is dumped every night to tape.",
}


@pytest.mark.parametrize("write", [str.upper, str.lower, str.capitalize])
def test_words_of_every_question_are_no_titles(write):
    """A reference with a page for each keyword; a keyword is found where it is written as one."""
    words = {"with": "Opens a context manager.", "when": "Adds a condition.", "for": "A loop."}
    words |= {"does": "An alias.", "how do I": "A film.", "it": "A novel.", "what is": "A song."}
    pages = {**TOPICS, **{write(word): text for word, text in words.items()}}
    documents = [Document(text, metadata={"title": title}) for title, text in pages.items()]
    with CrabPath.open() as memory:
        memory.add_documents(documents, split=False)
        for question, title in {
            "When does it open for lunch?": "Canteen",
            "How do I read what is in a file?": "Files",
            "When is the database saved, and with what?": "Backups",
        }.items():
            assert find_first(memory, question) == TOPICS[title]
        assert find_first(memory, "What does WITH do?") == words["with"]
        assert find_first(memory, write("for")) == words["for"]
