"""What hosts rely on in a returned document: equality, serialisation, its metadata, any prompt."""

import copy
import json
import logging
import pickle

import pytest
from host_answers import block_of, turn_of
from langchain_classic.chains import create_retrieval_chain
from langchain_classic.chains.combine_documents import create_stuff_documents_chain
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel
from langchain_core.load import dumpd, dumps, loads
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from llama_index.core.schema import TextNode

from crabpath_retrievers import CrabPath, CrabPathRetriever, InvalidInputError
from llama_index.retrievers.crabpath import CrabPathRetriever as LlamaRetriever

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
OWN = {"id": "mine", "score": 42, "original": [1], "source": "x.md"}
PROMPT = PromptTemplate.from_template("[{source}|{title}|{page}] {page_content}")


def over(documents):
    return CrabPathRetriever.from_documents(documents, EMBEDDINGS, split=False)


@pytest.fixture
def retriever():
    """Over four pages, each with a source, a title and a number."""
    made = over(PAGES)
    yield made
    made.memory.close()


@pytest.fixture(scope="module")
def found():
    """What two questions about the pages return."""
    made = over(PAGES)
    yield made.invoke(QUESTION), made.invoke(QUESTION)
    made.memory.close()


def test_equality_is_that_of_id_and_text(found):
    """Also with plain documents, whichever side they stand on; and in sets."""
    first, second = found
    plain = [Document(id=item.id, page_content=item.page_content) for item in first]
    assert first[0].metadata != second[0].metadata
    assert first == second == plain
    assert plain == first
    assert len({*first, *second}) == len(first)
    assert first[0] != first[1]
    assert first[0] != Document(id=first[0].id, page_content="other")
    assert Document(id="other", page_content=first[0].page_content) != first[0]
    assert first[0] != first[0].page_content


@pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
def test_copies_are_equal_and_complete(found):
    """Also what LangChain writes down and reads again: a plain document."""
    one = found[0][0]
    copies = [copy.copy(one), copy.deepcopy(one), one.model_copy()]
    dumped = [pickle.dumps(one, protocol) for protocol in range(2, 6)]
    copies += [pickle.loads(data) for data in dumped]  # noqa: S301  its own
    for item in copies:
        assert (type(item), item, item.metadata) == (type(one), one, one.metadata)
    assert one.model_copy(update={"id": "other"}) != one
    plain = Document(**one.model_dump())
    assert (dumpd(one), repr(one)) == (dumpd(plain), repr(plain))
    again = loads(dumps(one), allowed_objects="core")
    assert (type(again), dict(again)) == (Document, dict(one))
    assert json.loads(json.dumps(one.metadata, allow_nan=False)) == one.metadata


@pytest.mark.parametrize("options", [{}, {"allowed_msgpack_modules": None}], ids=["any", "strict"])
def test_a_langgraph_checkpoint_keeps_a_document(found, caplog, options):
    """LangGraph knows its type, also where only known ones may come back."""
    serializer = JsonPlusSerializer(**options)
    with caplog.at_level(logging.WARNING):
        again = serializer.loads_typed(serializer.dumps_typed(found[0]))
    assert not caplog.records
    assert [type(item) for item in again] == [Document] * len(again)
    assert [dict(item) for item in again] == [dict(item) for item in found[0]]


def test_metadata_of_its_own_survives():
    """Ours goes where there is room; the block has all of it, and is no metadata when added."""
    odd = Document(id="o", page_content="Odd.", metadata=dict(OWN))
    same = Document(id="s", page_content="Same.", metadata={"id": "s", "source": "s.md"})
    retriever = over([*PAGES, odd, same])
    found = retriever.invoke(QUESTION, k=9)
    odd, page = (next(d.metadata for d in found if d.id == name) for name in ("o", "p0"))
    assert {key: value for key, value in odd.items() if key != "crabpath"} == OWN
    assert odd["crabpath"]["id"] == "o"
    assert 0 <= odd["crabpath"]["score"] <= 1
    assert (page["id"], page["score"]) == ("p0", page["crabpath"]["score"])
    assert retriever.record(odd["crabpath"]["turn_id"], 1.0, used=["o"]).status == "applied"
    written = [Document(**json.loads(item.model_dump_json())) for item in found]
    report = retriever.memory.add_documents(written, split=False, cleanup=None)
    assert (report.unchanged, report.updated, report.added) == (len(found), 0, 0)
    retriever.memory.close()
    other = over(found)
    again = other.invoke(QUESTION, k=9)
    assert len(again) == len(found)
    other.memory.close()


def test_a_key_that_is_ours_is_refused_and_others_may_be_set(retriever):
    """Through every door; what a host puts in the place of what was added is its own."""
    memory, taken = retriever.memory, {"crabpath": {"mine": 1}}
    llama = LlamaRetriever(memory)
    for add in (
        lambda: memory.add_documents([Document(id="o", page_content="Odd.", metadata=taken)]),
        lambda: memory.teach("Odd.", metadata=taken),
        lambda: llama.add_nodes([TextNode(id_="o", text="Odd.", metadata=taken)]),
        lambda: llama.add_nodes([TextNode(id_="o", text="Odd.", metadata={"llama_index": 1})]),
    ):
        with pytest.raises(InvalidInputError, match=r"(?s)(crabpath|llama_index)' in its metadata"):
            add()
    assert memory.get_by_ids(["o"]) == []
    found = retriever.invoke(QUESTION, k=1)[0]
    found.metadata |= {"id": "mine"}
    memory.add_documents([found], split=False)
    own = {"id": "mine", "llama_index": "theirs"}
    memory.add_documents([Document(id="o", page_content="Odd.", metadata=own)], split=False)
    (again,) = memory.get_by_ids([found.id])
    assert again.metadata["id"] == "mine"
    assert "score" not in again.metadata
    (odd,) = (item for item in llama.retrieve("Odd.") if item.node_id == "o")
    assert odd.metadata.items() >= own.items()


def test_a_prompt_with_metadata_takes_a_correction(retriever):
    """The note says where it comes from; what it cannot know is empty, also beside one document."""
    turn = turn_of(retriever.invoke(QUESTION))
    assert retriever.record(turn, -1.0, correction=RIGHT).status == "applied"
    model = FakeListChatModel(responses=["yes"])
    prompt = ChatPromptTemplate.from_template("{context}\n{input}")
    stuff = create_stuff_documents_chain(model, prompt, document_prompt=PROMPT)
    found = create_retrieval_chain(retriever, stuff).invoke({"input": QUESTION})["context"]
    first, _ = retriever.invoke(RIGHT, k=1)
    known = {"source": "crabpath:correction", "title": "Correction", "note": "correction"}
    for note in (first, next(d for d in found if RIGHT in d.page_content)):
        assert note.page_content.startswith("Correction of the answer to ")
        assert {**known, "page": ""}.items() <= note.metadata.items()
        assert note.metadata["score"] == note.metadata["crabpath"]["score"]


@pytest.mark.parametrize(
    ("kind", "title"),
    [("teaching", "Note"), ("directive", "Instruction"), ("correction", "Correction")],
)
def test_notes_have_the_keys_of_the_documents(location, kind, title):
    """Before there are any, and after the odd one among them is forgotten."""
    vectors = InMemoryVectorStore(EMBEDDINGS) if "://" in location else None
    with CrabPath.open(location, embeddings=EMBEDDINGS, vectors=vectors) as memory:
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


def test_a_blank_namespace_is_the_default_one(retriever):
    """A host that does not know who asks configures one, or gives one with the call."""
    made = CrabPathRetriever(memory=retriever.memory, namespace="\x00")
    hers = CrabPathRetriever(memory=retriever.memory, namespace="ann")
    assert block_of(made.invoke(QUESTION))["namespace"] == "default"
    assert block_of(hers.invoke(QUESTION, namespace=" "))["namespace"] == "ann"
    assert made.record(None, 1.0).status == "applied"
