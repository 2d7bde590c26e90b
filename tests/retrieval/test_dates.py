"""Documents that say when they were valid."""

from datetime import date, datetime, timedelta, timezone

import pytest
from langchain_core.documents import Document

from crabpath_retrievers import CrabPath, CrabPathRetriever, InvalidInputError, Settings
from crabpath_retrievers.config import DateSettings

QUESTION = "What does a parking permit cost?"
OLD = "The fee for a parking permit is 20 euros a year."
NEW = "The fee for a parking permit is 35 euros a year."
FIRST_OF_MAY = datetime(2024, 5, 1, tzinfo=timezone.utc)


def make_page(text, moment=None, *, key="date", title="Parking permit", **metadata):
    dated = {} if moment is None else {key: moment}
    return Document(text, metadata={"title": title, **dated, **metadata})


@pytest.fixture
def retriever():
    """Makes a retriever over pages."""
    opened = []

    def make(*pages, **fields):
        opened.append(CrabPathRetriever.from_documents(list(pages), **fields))
        return opened[-1]

    yield make
    for made in opened:
        made.memory.close()


def read(documents):
    return [document.page_content for document in documents]


@pytest.mark.slow
@pytest.mark.parametrize(
    "value",
    [
        *("2024-05-01", "2024-05", "2024/5/1", "20240501", "01.05.2024", "1 May 2024"),
        *("May 1st, 2024", "May 1 2024", "1st May 2024", 20240501),
        *("May 1, 2024", "2024-05-01T00:00:00Z", "2024-05-01T02:00:00+02:00", 1714521600),
        *("1. Mai 2024", "1er mai 2024", "1 de mayo de 2024", "1º de maio de 2024", "maggio 2024"),
        *("1. maj 2024", "1 mei 2024", "1. května 2024", "1 мая 2024 г.", "1 Μαΐου 2024"),
        *("Wed, 01 May 2024 00:00:00 +0000", 1714521600000, date(2024, 5, 1), FIRST_OF_MAY),
    ],
)
def test_a_date_is_read_in_any_usual_form(retriever, value):
    """As a text, a number or a date: what has it is valid from that day on."""
    pages = retriever(make_page(OLD, value), k=1)
    assert read(pages.invoke(QUESTION, as_of=FIRST_OF_MAY)) == [OLD]
    assert read(pages.invoke(QUESTION, as_of=FIRST_OF_MAY - timedelta(days=1))) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "day"),
    [
        *((text, date(2024, 5, 31)) for text in ("31-05-2024", "05-31-2024", "31. Mai 2024")),
        *((text, date(2024, 5, 31)) for text in ("31 mai 2024", "31 de mayo de 2024")),
        *(
            (text, date(2024, 3, 9))
            for text in ("9. März 2024", "9 mars 2024", "9. maaliskuuta 2024")
        ),
        *((text, date(2024, 6, 9)) for text in ("9 juin 2024", "9. června 2024", "9 czerwca 2024")),
        *((text, date(2024, 7, 9)) for text in ("9 juillet 2024", "9. července 2024")),
        *(
            (text, date(2024, 8, 9))
            for text in ("9 août 2024", "9 Ağustos 2024", "9. elokuuta 2024")
        ),
        *((text, date(2024, 11, 9)) for text in ("9. marraskuuta 2024", "9 Kasım 2024")),
        *(
            (text, date(2024, 12, 9))
            for text in ("9. Dez. 2024", "9 décembre 2024", "9 декабря 2024")
        ),
    ],
)
def test_a_day_in_european_languages(retriever, value, day):
    """In metadata and as the moment of a question, whose day counts whole."""
    pages = retriever(make_page(OLD, value), k=1)
    assert read(pages.invoke(QUESTION, as_of=value)) == [OLD]
    assert read(pages.invoke(QUESTION, as_of=day)) == [OLD]
    assert read(pages.invoke(QUESTION, as_of=day - timedelta(days=1))) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "value",
    [
        *("05-06-2024", "31-05/2024", "31 de nada de 2024", "31. Feb. 2024", "45-13-2024"),
        *("05/06/2024", "soon", "", None, True, float("nan"), 1e30, "9999-99-99", "x" * 10_000),
        *("31/05/1445 AH", "令和6年5月1日", [2024], {"year": 2024}, -1e30),
    ],
)
def test_what_is_in_doubt_is_no_date(retriever, value):
    """Neither a guess nor an exception: what has no date is valid at any time."""
    pages = retriever(make_page(OLD, value), k=1)
    for moment in ("1900-01-01", "2024-05-31", "2024-06-05", "9998-01-01"):
        assert read(pages.invoke(QUESTION, as_of=moment)) == [OLD]


def test_of_two_versions_the_newer_stands_first_and_the_older_says_so(retriever):
    """Also where only one document is asked for; explain tells it."""
    pages = retriever(make_page(OLD, "2021-01-01"), make_page(NEW, "2024-01-01"), k=2)
    found = pages.invoke(QUESTION)
    assert read(found) == [NEW, OLD]
    blocks = [document.metadata["crabpath"] for document in found]
    assert blocks[1]["superseded_by"] == blocks[0]["id"]
    assert "superseded_by" not in blocks[0]
    assert blocks[0]["score"] >= blocks[1]["score"]
    assert read(pages.invoke(QUESTION, k=1)) == [NEW]
    assert read(pages.invoke("parking permit 20 euros", k=1)) == [OLD]  # it is asked for
    told = str(pages.memory.explain(blocks[0]["turn_id"]))
    assert f"older version: {blocks[1]['id']}" in told


def test_what_differs_in_what_the_question_names_is_no_version(retriever):
    """Siblings with dates; other titles; equal dates; a version of the future."""
    siblings = [
        make_page(f"Reset of model XR{n}: hold the button for {n} seconds.", f"202{n}-01-01")
        for n in (1, 2)
    ]
    found = retriever(*siblings, k=2).invoke("How is the model XR1 reset?")
    assert "XR1" in found[0].page_content
    assert "superseded_by" not in found[0].metadata["crabpath"]
    others = [make_page(OLD, "2021-01-01"), make_page(NEW, "2024-01-01", title="Permits of Rome")]
    future = [make_page(OLD, "2021-01-01"), make_page(NEW, "2999-01-01")]
    equal = [make_page(OLD, "2021-01-01"), make_page(NEW, "2021-01-01")]
    for pages in (others, future, equal):
        found = retriever(*pages, k=2).invoke(QUESTION)
        assert not any("superseded_by" in d.metadata["crabpath"] for d in found)


def make_records(rows, title):
    """Texts of one form with a date each, as tickets and rows of tables are."""
    return [
        make_page(
            f"order: {number}\ncustomer: {name}\nproduct: garden chair\nstatus: {status}",
            f"2024-01-{day:02}",
            title=title,
        )
        for day, (number, name, status) in enumerate(rows, 1)
    ]


def test_records_without_a_title_are_no_versions_of_each_other(retriever):
    """Rows of a table with dates are answered as rows without."""
    rows = [
        *(("1001", "Anna Berg", "shipped"), ("1002", "Boris Falk", "cancelled")),
        *(("1003", "Clara Holm", "shipped"), ("1004", "David Lund", "open")),
    ]
    dated, undated = make_records(rows, ""), make_records(rows, "")
    for page in undated:
        del page.metadata["date"]
    answers = [retriever(*pages, k=4) for pages in (dated, undated)]
    for question in ("canceled order", "Annas order", "order 01002", "Which order is open?"):
        first, second = (one.invoke(question) for one in answers)
        assert read(first) == read(second), question
        assert not any("superseded_by" in page.metadata["crabpath"] for page in first)


def test_feedback_that_prefers_the_older_version_counts(retriever):
    """After a few reports the older one stands first, and nothing is said to be better."""
    pages = retriever(make_page(OLD, "2021-01-01"), make_page(NEW, "2024-01-01"), k=2)
    for _ in range(3):
        found = pages.invoke(QUESTION)
        used = [document for document in found if document.page_content == OLD]
        pages.record(found, outcome=True, used=used)
    found = pages.invoke(QUESTION)
    assert read(found) == [OLD, NEW]
    assert "superseded_by" not in found[0].metadata["crabpath"]


def test_what_has_expired_or_is_not_asked_for_supersedes_nothing(retriever):
    """An offer that has ended; the older date in the question."""
    valid = make_page(NEW, "2022-01-01")
    offer = make_page(OLD, "2024-01-01", valid_to="2024-02-01")
    found = retriever(valid, offer, k=2).invoke(QUESTION)
    assert not any("superseded_by" in page.metadata["crabpath"] for page in found)
    pages = retriever(make_page(OLD, "2019-01-01"), make_page(NEW, "2024-01-01"), k=1)
    assert read(pages.invoke("parking permit fee in 2024")) == [NEW]
    found = retriever(make_page(OLD, "2019-01-01"), make_page(NEW, "2024-01-01"), k=2)
    named = found.invoke("parking permit fee in 2019")
    assert not any("superseded_by" in page.metadata["crabpath"] for page in named)


@pytest.mark.parametrize(
    "titles",
    [
        ("Team A+", "Team A-"),
        ("RFC 2045", "RFC 2046"),
        ("Windows Server 2016", "Windows Server 2019"),
    ],
)
def test_titles_that_differ_in_a_sign_or_a_number_are_of_different_things(retriever, titles):
    pages = [
        make_page("The setup takes ten minutes. Restart it twice.", "2021-01-01", title=titles[0]),
        make_page("The setup takes nine minutes. Restart it twice.", "2024-01-01", title=titles[1]),
    ]
    found = retriever(*pages, k=2).invoke("How long does the setup take?")
    assert not any("superseded_by" in page.metadata["crabpath"] for page in found)


def test_one_chunk_of_a_document_stays_one(retriever):
    """Also where the newer version is in another chunk of a document that is returned."""
    old = make_page("# Rental\n\n## Deposit\n\nThe deposit is 1000 euros and is paid back.", "2020")
    new = make_page(
        "# Rental\n\n## Deposit\n\nThe deposit is 1500 euros and is paid back.\n\n"
        "## How high is the deposit?\n\nHow high is the deposit? See above.",
        "2024",
    )
    for name, page in (("old", old), ("new", new)):
        page.metadata["source"] = name
    pages = retriever(old, new, k=3, one_per_document=True)
    sources = [d.metadata["source"] for d in pages.invoke("How high is the deposit?")]
    assert len(sources) == len(set(sources))


def test_a_day_counts_to_its_end(retriever):
    """That of ``as_of`` and that of ``valid_to``."""
    morning = make_page(OLD, "2024-05-31T09:00:00Z", valid_to="2024-06-30")
    pages = retriever(morning, k=1)
    for asked in ("2024-05-31", date(2024, 5, 31), "2024-06-30", "2024-05", 20240531):
        assert read(pages.invoke(QUESTION, as_of=asked)) == [OLD], asked
    for asked in ("2024-05-30", "2024-05-31T08:00:00Z", "2024-07-01"):
        assert read(pages.invoke(QUESTION, as_of=asked)) == [], asked


def test_as_of_returns_what_was_valid_then(retriever):
    """What came later or had ended is left out, what has no date stays."""
    ended = make_page("A permit was 12 euros.", "2015-01-01", valid_to="2020-12-31")
    free = make_page("Ask at the town hall about a permit.", title="Where")
    pages = retriever(make_page(OLD, "2021-01-01"), make_page(NEW, "2024-01-01"), ended, free, k=4)
    assert {*read(pages.invoke(QUESTION, as_of="2022-06-30"))} == {OLD, free.page_content}
    was = {ended.page_content, free.page_content}
    assert {*read(pages.invoke(QUESTION, as_of=date(2018, 1, 1)))} == was
    assert len(pages.invoke(QUESTION)) == 4
    then = retriever(make_page(OLD, "2021-01-01"), make_page(NEW, "2024"), as_of="2022", k=2)
    assert read(then.invoke(QUESTION)) == [OLD]
    assert read(then.invoke(QUESTION, as_of=None)) == [NEW, OLD]


def test_many_later_versions_do_not_hide_the_one_of_then(retriever):
    """A page that was changed every month for two years."""
    versions = [
        make_page(
            f"The fee for a parking permit is {n + 5} euros.", f"{2014 + n // 12}-{n % 12 + 1}"
        )
        for n in range(24)
    ]
    pages = retriever(*versions, k=1)
    found = pages.invoke(QUESTION, as_of="2014-02-10")
    assert read(found) == ["The fee for a parking permit is 6 euros."]
    assert read(pages.invoke(QUESTION)) == ["The fee for a parking permit is 28 euros."]


@pytest.mark.parametrize("k", [1, 4, 10])
def test_the_right_one_of_many_versions_is_first_whatever_k_is(retriever, k):
    """A page that was changed every year for sixteen years; "in 2012" asks for a moment, too."""
    fees = {
        year: f"The fee for a parking permit is {100 + 13 * (year % 100)} euros. Pay at noon."
        for year in range(2010, 2026)
    }
    pages = retriever(*(make_page(text, f"{year}-01-01") for year, text in fees.items()), k=k)
    assert read(pages.invoke(QUESTION))[0] == fees[2025]
    for year, text in fees.items():
        assert read(pages.invoke(QUESTION, as_of=f"{year}-06-30"))[0] == text
        asked = f"What did a parking permit cost in {year}?"
        assert read(pages.invoke(asked))[0] == text


def test_recency_prefers_the_newer_and_leaves_alone_what_only_one_answers(retriever):
    """It is evidence, not a filter: of two that say the same the newer, whichever came first."""
    today = datetime.now(timezone.utc).date().isoformat()
    text, lighthouse = "Ferries to the island run every hour.", "The lighthouse was built in 1838."
    for dates in (("2020-01-01", today), (today, "2020-01-01")):
        notices = [
            make_page(text, moment, title=f"Notice {n}") for n, moment in enumerate(dates, start=12)
        ]
        old = make_page(lighthouse, "1999-01-01", title="Lighthouse")
        pages = retriever(*notices, old, k=1)
        (found,) = pages.invoke("How often do ferries run to the island?", recency=30)
        assert found.metadata["date"] == today
        assert read(pages.invoke("When was the lighthouse built?", recency=30)) == [lighthouse]


def test_other_keys_say_when_by_a_setting(retriever):
    """Named in the order in which they count."""
    settings = Settings(dates=DateSettings(begin=("published",), end=("gone",)))
    pages = [
        make_page(OLD, "2021-01-01", key="published", date="2030-01-01"),
        make_page(NEW, "2024-01-01", key="published", gone="2024-06-01"),
    ]
    made = retriever(*pages, k=2, settings=settings)
    assert read(made.invoke(QUESTION)) == [NEW, OLD]
    assert read(made.invoke(QUESTION, as_of="2025")) == [OLD]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("recency", value) for value in (0, -1, float("nan"), float("inf"), "long", True)),
        *(("as_of", value) for value in ("soon", "05/06/2024", 1e30, [])),
    ],
)
def test_options_that_say_no_moment_are_refused_in_a_sentence(option, value):
    """Before anything is asked."""
    with CrabPath.open() as memory, pytest.raises(InvalidInputError, match=option):
        memory.retrieve("?", **{option: value})


def test_a_date_that_cannot_be_read_is_logged_and_counts_as_none(retriever, caplog):
    """The document is answered as if it had no date."""
    pages = retriever(make_page(OLD, "05/06/2021"), make_page(NEW, "2024-01-01"), k=2)
    assert len(pages.invoke(QUESTION, as_of="2023-01-01")) == 1
    assert "05/06/2021" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "cost"),
    [
        (QUESTION, 35),
        ("What did a parking permit cost in 2022?", 20),
        ("What did a parking permit cost in May 2021?", 20),
        ("Parking permit cost on 2023-12-31", 20),
        ("Was kostete ein parking permit 2022?", 20),
        ("What did a parking permit cost before 2024?", 20),
        ("What does a parking permit cost since 2022?", 35),
        ("What does a parking permit cost in 2024?", 35),
        ("What will a parking permit cost in 2099?", 35),
        ("What did a parking permit cost in March 2024?", 35),
        ("What did a parking permit cost in 2019?", 15),
        ("parking permit cost 2022", 20),
    ],
)
def test_a_question_that_names_a_moment_gets_what_was_valid_then(retriever, asked, cost):
    """Also a year in which nobody wrote a version; the later one is not called superseded."""
    pages = retriever(
        make_page(OLD.replace("20", "15"), "2018-01-01"),
        make_page(OLD, "2021-01-01"),
        make_page(NEW, "2024-01-01"),
        k=3,
    )
    found = pages.invoke(asked)
    assert f" {cost} euros" in found[0].page_content
    newer = [one for one in found if " 35 " in one.page_content]
    assert "superseded_by" not in newer[0].metadata["crabpath"]


@pytest.mark.parametrize(
    "asked",
    [
        "What does a parking permit cost for a trip of 2022 kilometres?",
        "I was born in 2001. What does a parking permit cost?",
        "In room 2022 they asked: what does a parking permit cost?",
        "What does a parking permit cost now? In 2022 it was 20 euros.",
        "What did a parking permit cost in 1999?",
    ],
)
def test_a_number_or_a_year_before_all_versions_is_no_moment(retriever, asked):
    """The newest version stands first."""
    pages = retriever(
        make_page(OLD.replace("20", "15"), "2018-01-01"),
        make_page(OLD.replace("20", "25"), "2021-01-01"),
        make_page(NEW, "2024-01-01"),
        k=3,
    )
    found = pages.invoke(asked)
    assert read(found)[0] == NEW


def test_a_year_in_the_text_is_no_moment(retriever):
    """What is called "2019" is asked for as of now; two years ask for no version."""
    texts = [text.replace("permit", "permit 2019") for text in (OLD, NEW)]
    pages = retriever(*map(make_page, texts, ("2018-05-01", "2024-05-01")), k=2)
    assert read(pages.invoke("What does a parking permit 2019 cost?", k=1)) == [texts[1]]
    two = retriever(make_page(OLD, "2021-01-01"), make_page(NEW, "2024-01-01"), k=2)
    blocks = [one.metadata["crabpath"] for one in two.invoke("parking permit 2022 against 2024")]
    assert not any("superseded_by" in block for block in blocks)
