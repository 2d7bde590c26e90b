"""What is reported about one product says nothing about its siblings, whose questions differ."""

import pytest
from langchain_core.documents import Document

from benchmarks.embedders import Squeezed
from benchmarks.kinds import measure_kinds
from benchmarks.paraphrases import measure_paraphrases
from benchmarks.siblings import (
    generate_products,
    measure_siblings,
    measure_words,
)
from crabpath_lab import Dataset
from crabpath_retrievers import CrabPath, Feedback

ASKED = "How long is the warranty of the {}?"
PAGES = list(generate_products(12, 1).items())


@pytest.fixture
def filled(tmp_path, embeddings):
    """A memory with a page for each product, in which the name is in the text alone."""
    with CrabPath.open(tmp_path, embeddings=embeddings) as memory:
        documents = [Document(text, id=name) for name, text in PAGES]
        memory.add_documents(documents, split=False, progress=None)
        yield memory


def find_first(memory, question):
    """The id of the first document of an answer of five."""
    return memory.retrieve(question, k=5, record=False).documents[0].node.id


@pytest.mark.parametrize("stated", [True, False], ids=["used", "outcome"])
def test_a_report_on_one_product_changes_no_answer_about_another(filled, stated):
    name = PAGES[0][0]
    others = [other for other, _ in PAGES[1:]]
    before = [find_first(filled, ASKED.format(other)) for other in others]
    assert before == others
    answer = filled.retrieve(ASKED.format(name), k=5)
    filled.record(Feedback(answer.turn.id, 1.0, used=[name] if stated else None))
    assert [find_first(filled, ASKED.format(other)) for other in others] == others


@pytest.mark.slow
@pytest.mark.parametrize("titled", [False, True], ids=["plain", "titled"])
def test_which_kind_of_page_answers_carries_over_to_products_never_judged(titled):
    untaught, one, _, three = measure_kinds(Squeezed(), titled=titled, taught=3, asked=4)
    assert untaught.same < untaught.questions / 2
    assert one == one._replace(same=untaught.same, other=untaught.other)  # it may be wrong
    assert three.same > untaught.questions * 0.8
    assert three.other >= untaught.other


YEARBOOK = {
    "profile": "{} at a glance. Known to many readers. A group of engineers did the work.",
    "timeline": "{}, a chronicle. In spring the first plans. It all started in a small hall.",
    "press": "{} in the press. The bill came to some thousand, paid by the state.",
}
ABOUT = {
    "Who stood behind {}?": "profile",
    "Where could I read how {} began?": "timeline",
    "What did {} cost in the end?": "press",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "other"),
    [("1990", "1991"), ("Peru", "Chile"), ("3 March 2019", "3 May 2019"), ("E4711", "E4712")],
)
def test_neither_do_reports_in_a_store_of_six_pages_without_titles(one, other):
    with CrabPath.open(embeddings=Squeezed()) as memory:
        pages = {f"{n}: {kind}": t.format(n) for n in (one, other) for kind, t in YEARBOOK.items()}
        documents = [Document(text, id=name) for name, text in pages.items()]
        memory.add_documents(documents, split=False, progress=None)
        before = [find_first(memory, question.format(other)) for question in ABOUT]
        for question, kind in ABOUT.items():
            turn = memory.retrieve(question.format(one), k=4).turn
            memory.record(Feedback(turn.id, 1.0, relevant=[f"{one}: {kind}"]))
        after = [find_first(memory, question.format(other)) for question in ABOUT]
    right = [f"{other}: {kind}" for kind in ABOUT.values()]
    for page, was, now in zip(right, before, after, strict=True):
        assert now == page or was != page


NEEDS = {
    "Parking": ("leave my car", "The car park lies behind the hall; the guard opens with a code."),
    "Heating": (
        "get warm radiators",
        "The boiler starts at six; call the janitor if they stay cold.",
    ),
    "Waste": ("throw paper away", "Glass and paper go into the blue containers."),
    "Wifi": ("get on the network", "Guests join the open network and ask for a voucher."),
    "Keys": ("get a key", "Keys are handed out by the porter against a signature."),
    "Lunch": ("eat lunch", "The canteen serves soup and salad from noon."),
    "Printer": ("print in colour", "The colour printer stands on the second floor."),
    "Post": ("send a parcel", "Parcels are collected at four from the mail room."),
}
FRAMES = ("How do I {}?", "Where can I {}?", "What must I do to {}?")


def test_what_questions_of_all_kinds_begin_with_carries_no_use(tmp_path, embeddings):
    """A small memory cannot tell from its texts how little "How do I" says."""
    with CrabPath.open(tmp_path, embeddings=embeddings) as memory:
        pages = [Document(t, id=name, metadata={"title": name}) for name, (_, t) in NEEDS.items()]
        memory.add_documents(pages, split=False, progress=None)
        asked = [(f.format(need), name) for name, (need, _) in NEEDS.items() for f in FRAMES]
        assert all(find_first(memory, question) == name for question, name in asked)
        for frame in FRAMES[:2]:
            answer = memory.retrieve(frame.format("throw paper away"), k=4)
            memory.record(Feedback(answer.turn.id, 1.0, used=["Waste"]))
            wrong = [q for q, name in asked if find_first(memory, q) != name]
            assert wrong == []


SITES = ("alpha.com", "beta.com", "gamma.com", "delta.com", "omega.com", "sigma.com")
SECTIONS = (
    "Our partners may receive data about purchases.",
    "You can close the account in the settings at any time.",
    "Cookies remember what is in the basket.",
    "Records are erased three years after the last order.",
    "Write to the data officer with any question about privacy.",
    "Who gets a newsletter can see in each mail how to leave; what you bought is not used.",
)


def test_what_was_used_of_one_site_does_not_stand_first_for_another(tmp_path, embeddings):
    """The title names the site, and the section lacks the words of the question."""
    with CrabPath.open(tmp_path, embeddings=embeddings) as memory:
        documents = [
            Document(f"{site}\n{text}", id=f"{site}:{number}", metadata={"title": site})
            for site in SITES
            for number, text in enumerate(SECTIONS)
        ]
        memory.add_documents(documents, split=False, progress=None)
        asked = {site: f"{site}: Who gets to see what I bought?" for site in SITES}
        for site in SITES[1:5]:
            answer = memory.retrieve(asked[site], k=6)
            memory.record(Feedback(answer.turn.id, 1.0, used=[f"{site}:0"]))
        assert [find_first(memory, asked[site]) for site in SITES] == [f"{s}:0" for s in SITES]


def test_a_filter_that_finds_nothing_beside_past_turns_has_no_answer(filled):
    name = PAGES[0][0]
    answer = filled.retrieve(ASKED.format(name), k=5)
    filled.record(Feedback(answer.turn.id, 1.0, used=[name]))
    assert filled.retrieve(ASKED.format(name), filter={"shelf": 5}).documents == ()


def test_the_product_of_the_report_gains_in_other_words(filled):
    name, other = PAGES[0][0], PAGES[1][0]
    reworded = "Which guarantee period applies, and how heavy is the thing?"
    for _ in range(3):
        answer = filled.retrieve(reworded, k=5)
        filled.record(Feedback(answer.turn.id, 1.0, relevant=[other]))
    assert find_first(filled, "What guarantee period applies to the heavy thing?") == other
    assert find_first(filled, ASKED.format(name)) == name


def test_what_is_taught_in_one_phrasing_is_found_in_another(embeddings):
    texts = {"rain": "An umbrella keeps you dry.", "snow": "Boots keep feet warm."}
    documents = [Document(text, id=name) for name, text in texts.items()]
    documents += [Document(text, id=name) for name, text in PAGES]
    queries = {
        "1.0": "Which button do I press on a Tuesday?",
        "1.1": "On Tuesdays, which button is pressed?",
        "2.0": "What keeps feet warm?",
    }
    gold = {name: frozenset({"snow" if name == "2.0" else "rain"}) for name in queries}
    figures = measure_paraphrases(Dataset("needs", tuple(documents), queries, gold), embeddings)
    assert figures == (1, 0, 1, 1, 1, 1)


@pytest.mark.slow
def test_reports_on_all_products_spoil_none(embeddings):
    figures = list(measure_siblings(20, (1, 5, 20), embeddings, titled=False, seed=2))
    assert [row.learned >= row.frozen for row in figures] == [True] * 3
    assert [row.questions for row in figures] == [57, 45, 60]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "words", "question", "asked_for"),
    [
        ("The {} {} is closed in August.", ("first", "second"), "What about the {} {}?", None),
        ("The {} {} is closed in August.", ("old", "new"), "Who may use the {} {}?", None),
        ("{} guests of the {} ask Ms Moss.", ("paid", "unpaid"), "May {} guests see the {}?", None),
        (
            *("{} ask the {} for the key.", ("Plumbers", "Painters")),
            *("I am a {}, where is the {}'s key?", ("plumber", "painter")),
        ),
        (
            *("The {} {} costs 5 euros.", ("Italian", "French")),
            *("In {}, what is the fee of the {}?", ("Italy", "France")),
        ),
    ],
)
def test_a_report_spoils_no_answer_about_a_page_that_differs_in_a_common_word(
    page, words, question, asked_for, embeddings
):
    places = ("office", "library", "garage", "chapel", "kitchen", "clinic", "garden", "terrace")
    (one, other), (past, now) = words, asked_for or words
    documents = [
        Document(page.format(word, place), id=f"{word} {place}")
        for place in places
        for word in words
    ]
    with CrabPath.open(embeddings=embeddings) as memory:
        memory.add_documents(documents, split=False, progress=None)
        asked = {f"{other} {place}": question.format(now, place) for place in places}
        before = {name for name, ask in asked.items() if find_first(memory, ask) == name}
        for place in places:
            answer = memory.retrieve(question.format(past, place), k=5)
            memory.record(Feedback(answer.turn.id, 1.0, used=[f"{one} {place}"]))
        after = {name for name, ask in asked.items() if find_first(memory, ask) == name}
    assert len(before) >= len(places) / 2
    assert len(after) >= len(before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "forms"),
    [("one/two", False), ("plumbers/electricians", True), ("Italian/French", True)],
)
def test_neither_does_it_for_words_in_other_forms_nor_where_no_word_is_rare(
    family, forms, embeddings
):
    for figures in measure_words(family, embeddings, (), forms=forms):
        assert figures.learned >= figures.frozen >= figures.questions * 0.9


OPPOSITES = {
    "order": (
        "Which tool migrates MySQL to Postgres?",
        "Which tool migrates Postgres to MySQL?",
        ("Migrating from MySQL to Postgres", "Use pgloader; it converts types on the way."),
        (
            "Migrating from Postgres to MySQL",
            "Dump to CSV and load it table by table; there is no converter.",
        ),
    ),
    "negation": (
        "Can I cancel a refundable ticket?",
        "Can I cancel a non-refundable ticket?",
        (
            "Refundable fares",
            "A refundable ticket may be cancelled until departure, and the price is returned.",
        ),
        (
            "Non-refundable fares",
            "A non-refundable ticket is lost when cancelled; only taxes are returned.",
        ),
    ),
    "number": (
        "I am a student. What does the bus cost me?",
        "I am retired. What does the bus cost me?",
        ("Students", "Students ride the bus for 2 euros; show the card of your school."),
        ("Retired", "Retired people pay 3 euros for the bus; show your pension card."),
    ),
}


@pytest.mark.parametrize("kind", ["order", "negation"])
def test_a_correction_is_none_of_the_opposite_question(kind, embeddings):
    asked, past, right, used = OPPOSITES[kind]
    documents = [Document(t, id=name, metadata={"title": name}) for name, t in (right, used)]
    with CrabPath.open(embeddings=embeddings) as memory:
        memory.add_documents(documents, split=False, progress=None)
        turn = memory.retrieve(past, k=5).turn
        memory.record(Feedback(turn.id, -1.0, correction=used[1]))
        assert find_first(memory, past) not in {right[0], used[0]}
        assert find_first(memory, asked) == right[0]


@pytest.mark.parametrize(("asked", "past", "right", "used"), OPPOSITES.values(), ids=OPPOSITES)
def test_a_report_spoils_no_answer_to_the_opposite_question(asked, past, right, used, embeddings):
    documents = [Document(t, id=name, metadata={"title": name}) for name, t in (right, used)]
    with CrabPath.open(embeddings=embeddings) as memory:
        memory.add_documents(documents, split=False, progress=None)
        assert find_first(memory, asked) == right[0]
        turn = memory.retrieve(past, k=5).turn
        memory.record(Feedback(turn.id, 1.0, used=[used[0]]))
        assert find_first(memory, past) == used[0]
        assert find_first(memory, asked) == right[0]
