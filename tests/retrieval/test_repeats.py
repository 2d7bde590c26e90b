"""Near-duplicates in an answer: the words decide, and the better one is returned alone."""

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import FakeEmbeddings
from langchain_core.vectorstores import InMemoryVectorStore
from maintained import QUESTION, TWINS, Bag, ids

from crabpath_retrievers import CrabPath, Feedback

TEXT = "The server listens on port 8080 and Ann restarts it when the disk is full."
NEAR, FAR = (1.0, 0.0), (0.0, 1.0)


class Near(FakeEmbeddings):
    """Every text is like every other one."""

    size: int = 2

    def embed_documents(self, texts):
        return [list(NEAR) for _ in texts]

    def embed_query(self, text):
        return list(NEAR)


def repeats(*texts, titles=("", ""), metadata=({}, {}), vectors=(NEAR, NEAR), note=None):
    """Of two documents the one that is left out of an answer, with the one that repeats it."""
    given = zip(texts, titles, metadata, strict=True)
    documents = [
        Document(text, id=str(n), metadata={"title": title, **of})
        for n, (text, title, of) in enumerate(given)
    ]
    known = {str(n): list(vector) for n, vector in enumerate(vectors[: len(texts)])}
    near = Near()
    with CrabPath.open(embeddings=near, vectors=InMemoryVectorStore(near)) as memory:
        memory.add_documents(documents, split=False, vectors=known, progress=None)
        if note is not None:
            memory.teach(note)
        turn = memory.retrieve("Which port?", k=9, record=False).turn
    assert len(turn.returned) + len(turn.repeats) == sum(map(bool, (*texts, note)))
    return {max(pair): min(pair) for pair in turn.repeats.items()}


@pytest.mark.parametrize(
    "other",
    [
        TEXT,
        TEXT + "\n",
        "the server   listens on port 8080, and Ann restarts it when the disk is full",
        "## The server listens on port `8080` and (Ann) restarts it ##\n\n- when the disk is full",
        "> * The server listens on port 8080 and Ann\n---\nrestarts it when the disk is full.",
    ],
)
def test_formatting_does_not_matter(other):
    assert repeats(TEXT, other) == {"1": "0"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "other"),
    [
        *(("8080", other) for other in ("8081", "-8080", "80.80", "8080/8081")),
        *(("Ann", other) for other in ("Anna", "Bob")),
        *(("is full", other) for other in ("is not full", "isn't full")),
        ("and Ann", "or Ann"),
        ("full.", "full?"),
        *(("port 8080", other) for other in ("port > 8080", "port != 8080", "port .8080")),
        *(("8080 and", other) for other in ('8080" and', "8080# and", "8080 * and", "8080_ and")),
        *(("Ann", other) for other in ("Ann A", "Ann a", "-Ann", "*Ann", "the Ann", "ann", "ANN")),
        ("full.", "full C#"),
    ],
)
def test_one_other_word_is_another_fact(word, other):
    """A number, a sign, a name, a letter, a negation, a conjunction."""
    assert word in TEXT
    assert repeats(TEXT, TEXT.replace(word, other)) == {}


@pytest.mark.parametrize("texts", [("猫が好き", "犬が好き"), ("", "x"), ("== !=", "== ==")])
def test_other_scripts_and_signs_are_read(texts):
    assert repeats(*texts) == {}


def test_signs_at_the_edge_of_a_line_belong_to_the_word_that_they_touch():
    for text, other in [("Written in C#", "Written in C"), ("-O2 is fast", "O2 is fast")]:
        assert repeats(text, other) == {}
    assert repeats("- 5 degrees", "-5 degrees") == {}


def test_the_same_words_about_something_else_are_another_fact():
    """Title and metadata say about what; where a text is from does not matter."""
    assert repeats(TEXT, TEXT, titles=("Linux", "Windows")) == {}
    assert repeats(TEXT, TEXT, metadata=({"team": "a"}, {"team": "b"})) == {}
    assert repeats(TEXT, TEXT, metadata=({"source": "a"}, {"source": "b"})) == {"1": "0"}


def test_notes_and_dissimilar_vectors_are_no_repeats():
    assert repeats(TEXT, titles=("",), metadata=({},), note=TEXT) == {}
    assert repeats(TEXT, TEXT, vectors=(NEAR, FAR)) == {}


@pytest.fixture
def twins(location):
    bag = Bag()
    vectors = InMemoryVectorStore(bag)
    with CrabPath.open(location, embeddings=bag, vectors=vectors) as memory:
        memory.add_documents(TWINS, split=False)
        yield memory


@pytest.mark.both_databases
def test_an_answer_returns_one_of_two(twins):
    """The one that was used, from then on; the next document takes the place of the other."""
    first, second = ids(twins, k=2)
    assert len({"new", "old"} & {first, second}) == 1
    assert len(ids(twins, k=9)) == 3
    (other,) = {"new", "old"} - {first, second}
    turn = twins.retrieve(QUESTION, candidate_ids=[first, other], k=2).turn
    assert {item.node for item in turn.returned} == {"new", "old"}  # the caller chose both
    twins.record(Feedback(turn.id, 1.0, used=[other]))
    assert ids(twins, k=2)[0] == other


@pytest.mark.slow
@pytest.mark.parametrize("copies", [25, 200])
def test_copies_do_not_empty_an_answer(copies, embeddings):
    """The same notice in every file: one of it, and the next best texts."""
    notice = "To ask for a refund of a ticket, write to the office."
    others = [f"In city {n} a ticket of class {n % 7} is refunded, less a fee." for n in range(40)]
    documents = [Document(notice, metadata={"source": f"{n}.md"}) for n in range(copies)]
    with CrabPath.open(embeddings=embeddings) as memory:
        memory.add_documents([*documents, *map(Document, others)], split=False)
        for options in ({"k": 5}, {"k": 10}, {"k": 5, "one_per_document": True}):
            answer = memory.retrieve("How do I get a refund of a ticket?", **options)
            texts = [found.node.content for found in answer.documents]
            assert len(texts) == options["k"]
            assert texts.count(notice) == 1
        assert 0 < len(answer.turn.repeats) <= 20
        few = memory.retrieve("refund", k=5, filter={"source": {"$in": ["1.md", "2.md"]}})
        assert len(few.documents) == 1


def test_an_explanation_tells_what_was_left_out(twins):
    turn = twins.retrieve(QUESTION, k=2).turn
    ((gone, kept),) = turn.repeats.items()
    assert {gone, kept} == {"new", "old"}
    explanation = twins.explain(turn.id)
    for said in (str(explanation), explanation._repr_html_()):
        assert f"it says what {kept} says" in said
    assert explanation.to_dict()["turn"]["repeats"] == {gone: kept}
