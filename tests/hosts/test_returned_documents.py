"""What hosts rely on in a returned document: equality, serialisation, its metadata, any prompt."""

import copy
import json
import logging
import pickle

import pytest
from langchain_chroma import Chroma
from langchain_classic.chains import create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_classic.retrievers import MultiQueryRetriever
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel
from langchain_core.load import dumpd, dumps, loads
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from crabpath_retrievers import CrabPath, CrabPathRetriever

QUESTION = "Who owns the cluster?"
RIGHT = "Petra Schmidt owns the cluster."
EMBEDDINGS = DeterministicFakeEmbedding(size=16)
PAGES = [
    Document(
        id=f"p{number}",
        page_content=f"Page {number} is about topic{number}.",
        metadata={"source": f"{number}.md", "title": f"Page {number}", "page": number},
    )
    for number in range(4)
]


def over(documents, **fields):
    """A retriever over documents."""
    return CrabPathRetriever.from_documents(documents, EMBEDDINGS, split=False, **fields)


@pytest.fixture
def retriever():
    """Over four pages, each with a source, a title and a number."""
    made = over(PAGES)
    yield made
    made.memory.close()


def found_by(retriever, which):
    """The document of this id."""
    return next(item for item in retriever.invoke(QUESTION, k=9) if item.id == which)


def test_several_queries_return_every_document_once(retriever):
    """MultiQueryRetriever leaves out what is equal, whichever turn returned it."""
    model = FakeListChatModel(responses=["Who owns it?\nWhose is the cluster?\nOwner?"])
    several = MultiQueryRetriever.from_llm(retriever, model)
    found = [document.id for document in several.invoke(QUESTION)]
    assert sorted(found) == [page.id for page in PAGES]


def test_equality_is_that_of_id_and_text(retriever):
    """Also with plain documents, whichever side they stand on; and in sets."""
    first, second = retriever.invoke(QUESTION), retriever.invoke(QUESTION)
    plain = [Document(id=item.id, page_content=item.page_content) for item in first]
    assert first[0].metadata != second[0].metadata
    assert first == second == plain
    assert plain == first
    assert len({*first, *second}) == len(first)
    assert first[0] != first[1]
    assert first[0] != Document(id=first[0].id, page_content="other")
    assert Document(id="other", page_content=first[0].page_content) != first[0]
    assert first[0] != first[0].page_content


def test_copies_are_equal_and_complete(retriever):
    """By pickle, copy, deepcopy and model_copy."""
    (found, *_) = retriever.invoke(QUESTION)
    copies = [copy.copy(found), copy.deepcopy(found), found.model_copy()]
    dumped = [pickle.dumps(found, protocol) for protocol in range(2, 6)]
    copies += [pickle.loads(data) for data in dumped]  # noqa: S301  its own
    for item in copies:
        assert type(item) is type(found)
        assert item == found
        assert item.metadata == found.metadata
    assert found.model_copy(update={"id": "other"}) != found


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
def test_langchain_writes_down_a_document(retriever):
    """And reads it again as one."""
    (found, *_) = retriever.invoke(QUESTION)
    plain = Document(**found.model_dump())
    assert dumpd(found) == dumpd(plain)
    assert repr(found) == repr(plain)
    again = loads(dumps(found), allowed_objects="core")
    assert type(again) is Document
    assert dict(again) == dict(found)


@pytest.mark.parametrize("strict", [False, True])
def test_a_checkpoint_keeps_a_document(retriever, caplog, strict):
    """LangGraph knows its type, also where only known ones may come back."""
    options = {"allowed_msgpack_modules": None} if strict else {}
    serializer = JsonPlusSerializer(**options)
    found = retriever.invoke(QUESTION)
    with caplog.at_level(logging.WARNING):
        again = serializer.loads_typed(serializer.dumps_typed(found))
    assert not caplog.records
    assert [type(item) for item in again] == [Document] * len(found)
    assert [dict(item) for item in again] == [dict(item) for item in found]


OWN = {"id": "mine", "score": 42, "crabpath": "also mine", "source": "x.md"}


def test_metadata_of_its_own_survives():
    """Ours goes where there is room; the block has all of it."""
    retriever = over([*PAGES, Document(id="o", page_content="Odd.", metadata=dict(OWN))])
    odd, page = (found_by(retriever, which).metadata for which in ("o", "p0"))
    assert {key: odd[key] for key in ("id", "score", "source")} == {
        key: OWN[key] for key in ("id", "score", "source")
    }
    assert odd["crabpath"]["original"] == "also mine"
    assert odd["crabpath"]["id"] == "o"
    assert 0 <= odd["crabpath"]["score"] <= 1
    assert (page["id"], page["score"]) == ("p0", page["crabpath"]["score"])
    assert "original" not in page["crabpath"]
    turn = odd["crabpath"]["turn_id"]
    assert retriever.record(turn, 1.0, used=["o"]).status == "applied"
    retriever.memory.close()


def test_what_was_returned_can_be_added_again():
    """Nothing of the answer is taken for metadata of the document."""
    odd = Document(id="o", page_content="Odd.", metadata=dict(OWN))
    same = Document(id="s", page_content="Same.", metadata={"id": "s", "source": "s.md"})
    retriever = over([*PAGES, odd, same])
    found = retriever.invoke(QUESTION, k=9)
    written = [Document(**json.loads(item.model_dump_json())) for item in found]
    report = retriever.memory.add_documents(written, split=False, cleanup=None)
    assert (report.unchanged, report.updated, report.added) == (len(found), 0, 0)
    other = over(found)
    assert other.memory.retrieve(QUESTION, k=9, record=False).documents
    for item in other.invoke(QUESTION, k=9):
        assert "path" not in item.metadata["crabpath"].get("original", {})
    other.memory.close()
    retriever.memory.close()


PROMPT = PromptTemplate.from_template("[{source}|{title}|{page}] {page_content}")


def answer(retriever):
    """What a chain makes of the documents, each formatted with its metadata."""
    model = FakeListChatModel(responses=["yes"])
    prompt = ChatPromptTemplate.from_template("{context}\n{input}")
    stuff = create_stuff_documents_chain(model, prompt, document_prompt=PROMPT)
    return create_retrieval_chain(retriever, stuff).invoke({"input": QUESTION})["context"]


def corrected(retriever):
    """The same retriever after somebody corrected it."""
    turn = retriever.invoke(QUESTION)[0].metadata["crabpath"]["turn_id"]
    assert retriever.record(turn, -1.0, correction=RIGHT).status == "applied"
    return retriever


def test_a_prompt_with_metadata_takes_a_correction(retriever):
    """The note says where it comes from; what it cannot know is empty."""
    told = next(d for d in answer(corrected(retriever)) if d.page_content == RIGHT)
    named = {key: told.metadata[key] for key in ("source", "title", "page", "note")}
    assert named == {
        "source": "crabpath:correction",
        "title": "Correction",
        "page": "",
        "note": "correction",
    }
    assert told.metadata["score"] == told.metadata["crabpath"]["score"]


def test_an_answer_of_notes_alone_fits_too(retriever):
    """What documents have is known where none is returned."""
    (alone,) = corrected(retriever).invoke(RIGHT, k=1)
    assert alone.page_content == RIGHT
    assert PROMPT.format(page_content=RIGHT, **_named(alone)).startswith("[crabpath:correction|")


def _named(document):
    return {key: document.metadata[key] for key in ("source", "title", "page")}


@pytest.mark.parametrize(
    ("kind", "title"),
    [("teaching", "Note"), ("directive", "Instruction"), ("correction", "Correction")],
)
def test_notes_follow_the_documents(location, kind, title):
    """Told before there were any, and after the odd one among them is forgotten."""
    with CrabPath.open(location, embeddings=EMBEDDINGS, vectors=_vectors(location)) as memory:
        if kind == "correction":
            memory.correct(RIGHT)
        else:
            memory.teach(RIGHT, kind=kind)
        retriever = CrabPathRetriever(memory=memory, k=1)
        (bare,) = retriever.invoke(RIGHT)
        assert bare.metadata["title"] == title
        assert "page" not in bare.metadata
        memory.add_documents([*PAGES, Document(id="z", page_content="Odd.")], split=False)
        assert "page" not in retriever.invoke(RIGHT)[0].metadata
        memory.forget("z")
        assert retriever.invoke(RIGHT)[0].metadata["page"] == ""


def _vectors(location):
    if "://" not in location:
        return None
    from langchain_core.vectorstores import InMemoryVectorStore

    return InMemoryVectorStore(EMBEDDINGS)


def test_notes_fit_a_wrapped_store():
    """Its documents say which keys there are."""
    store = Chroma("notes", EMBEDDINGS)
    store.add_documents(PAGES)
    retriever = corrected(CrabPathRetriever.from_vectorstore(store))
    told = next(d for d in answer(retriever) if d.page_content == RIGHT)
    assert told.metadata["page"] == ""
    retriever.memory.close()
    store.delete_collection()


@pytest.mark.parametrize("blank", ["", " ", "\x00"])
def test_a_blank_namespace_is_the_default_one(retriever, blank):
    """A host that does not know who asks configures one, or gives one with the call."""
    made = CrabPathRetriever(memory=retriever.memory, namespace=blank)
    hers = CrabPathRetriever(memory=retriever.memory, namespace="ann")
    namespace = [
        found[0].metadata["crabpath"]["namespace"]
        for found in (made.invoke(QUESTION), hers.invoke(QUESTION, namespace=blank))
    ]
    assert namespace == ["default", "ann"]
    assert made.record(None, 1.0).status == "applied"
