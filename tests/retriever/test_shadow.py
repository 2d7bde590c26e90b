"""A memory in the shadow of another retriever: real Chroma, real SQL, MiniLM."""

import asyncio
import json
import logging
import threading
import time

import minilm
import pytest
from blockbuster import blockbuster_ctx
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from typer.testing import CliRunner

from crabpath_retrievers import CrabPath, Feedback, InvalidInputError
from crabpath_retrievers.callbacks import CrabPathCallbackHandler
from crabpath_retrievers.cli import app

TOPICS = (
    *("apples", "bridges", "candles", "deserts", "engines", "forests", "glaciers", "harbours"),
    *("islands", "jewels", "kettles", "lanterns", "mirrors", "nettles", "orchards", "parrots"),
    *("quarries", "rivers", "saddles", "temples", "umbrellas", "violins", "windmills", "yachts"),
)
PAGES = [
    Document(f"A page about {topic}.", id=f"p{n}", metadata={"title": topic.title(), "year": n})
    for n, topic in enumerate(TOPICS)
]
QUESTIONS = [f"What should I know about {topic}?" for topic in TOPICS]


def strip(documents):
    """Documents without the one key that a shadow adds."""
    return [
        document.model_copy(
            update={"metadata": {k: v for k, v in document.metadata.items() if k != "crabpath"}}
        )
        for document in documents
    ]


@pytest.fixture(scope="module")
def present():
    """The retriever of today: plain Chroma."""
    store = Chroma(embedding_function=minilm.shared())
    store.add_documents(PAGES)
    return store.as_retriever(search_kwargs={"k": 4})


@pytest.fixture
def memory(location, tmp_path):
    """Embedded Chroma, and SQLite or PostgreSQL."""
    vectors = tmp_path / "vectors"
    with CrabPath.open(location, embeddings=minilm.shared(), vectors=vectors) as opened:
        opened.add_documents(PAGES, progress=None)
        yield opened


def read_turn(memory, documents):
    """The turn behind served documents, once the memory has answered."""
    memory.learning.shadow_lift()
    return memory.store.turns.get(documents[0].metadata["crabpath"]["turn_id"])


@pytest.mark.both_databases
def test_what_is_served_is_what_the_present_retriever_finds(memory, present):
    """In its order, and with its metadata but for one key; both answers are in the turn."""
    shadow = memory.shadow(present)
    assert isinstance(shadow, BaseRetriever)
    for question in QUESTIONS[:4]:
        wanted, found = present.invoke(question), shadow.invoke(question)
        assert strip(found) == wanted
        assert [type(document) for document in found] == [Document] * 4
        turn = read_turn(memory, found)
        ids = [document.id for document in wanted]
        assert turn.query == question
        assert [item.node for item in turn.returned] == list(turn.shown) == ids
        own = memory.retrieve(question, k=4, record=False)
        assert turn.shadow == tuple(item.node.id for item in own.documents)
        assert turn.frozen is None
        assert memory.store.turns.get(turn.id) == turn
        assert memory.explain(turn.id).documents[0].id == ids[0]
    assert present.invoke(QUESTIONS[0])[0].metadata.keys() == {"title", "year"}
    assert shadow.failures == 0
    (document,) = shadow.invoke(QUESTIONS[0], k=1)  # options go to the present retriever
    assert strip([document]) == present.invoke(QUESTIONS[0], k=1)


async def test_async_and_batches(memory, present):
    shadow = memory.shadow(present)
    with blockbuster_ctx():
        found = await asyncio.gather(*(shadow.ainvoke(question) for question in QUESTIONS[:6]))
    assert [strip(one) for one in found] == await present.abatch(QUESTIONS[:6])
    assert [strip(one) for one in await shadow.abatch(QUESTIONS[:2])] == [
        strip(one) for one in found[:2]
    ]
    receipts = await memory.aio.record(found[0], outcome=True, used=found[0][:1])
    assert [receipt.status for receipt in receipts] == ["applied"]
    assert shadow.failures == 0
    assert len(await asyncio.to_thread(memory.turns)) == 8


def test_outcomes_teach_the_memory_that_serves_nothing(memory, present):
    """The next answer of the memory has learned; what is served stays as it was."""
    shadow, question = memory.shadow(present), QUESTIONS[0]
    before = memory.retrieve(question, k=4, record=False).documents
    for _ in range(3):
        found = shadow.invoke(question)
        (receipt,) = memory.record(found, outcome=True, used=[found[2]])
        assert receipt.status == "applied"
    after = memory.retrieve(question, k=4, record=False).documents
    assert before[0].node.id != found[2].id == after[0].node.id
    assert strip(shadow.invoke(question)) == present.invoke(question)
    (used,) = memory.learning.usage(limit=1)
    assert used.id == found[2].id


def test_the_report_counts_exactly(memory):
    """Places in what was shown against those of the memory, by hand."""
    shown = {
        QUESTIONS[0]: [PAGES[5], PAGES[0], PAGES[6], PAGES[7]],  # the memory has it first: higher
        QUESTIONS[1]: [PAGES[1], PAGES[5], PAGES[6], PAGES[7]],  # first in both: equal
        QUESTIONS[2]: [PAGES[2], Document("Nobody has this.", id="x"), PAGES[3], PAGES[4]],
    }
    shadow = memory.shadow(lambda question: shown[question])
    assert memory.learning.shadow_lift() == []
    gains = []
    for question, used in zip(shown, (["p0"], ["p1"], ["x", "p2"]), strict=True):
        found = shadow.invoke(question)
        turn = read_turn(memory, found)
        places = {name: place for place, name in enumerate(turn.shadow, 1)}
        before = [turn.shown[name] for name in turn.shown]
        gains += [(1 / places[u] if u in places else 0.0) - 1 / (before.index(u) + 1) for u in used]
        assert memory.record(Feedback(turn.id, 1.0, used=used)).status == "applied"
    memory.record(shadow.invoke(QUESTIONS[0]), outcome=False, used=["p0"])  # it misled
    memory.record(shadow.invoke(QUESTIONS[1]), outcome=True)  # names nothing
    (row,) = memory.learning.shadow_lift()
    assert (row.group, row.turns, row.documents) == ("default", 3, 4)
    assert (row.higher, row.equal, row.lower, row.missing) == (1, 2, 0, 1)
    assert (row.share, row.gain) == (0.25, pytest.approx(sum(gains) / 4, abs=1e-4))
    assert gains == [0.5, 0.0, -0.5, 0.0]
    assert (row.share_low, row.low) == (None, None)  # too few turns
    assert memory.learning.lift() == []


def test_an_interval_needs_twenty_turns_and_relevant_names_count(memory):
    """What neither ranking has does not count; what only the memory has is a gain."""
    ends = {question: [PAGES[n - 1], PAGES[n]] for n, question in enumerate(QUESTIONS)}
    shadow = memory.shadow(lambda question: ends[question])
    for n, question in enumerate(QUESTIONS):
        memory.record(shadow.invoke(question), outcome=True, used=[f"p{n}"])
    (row,) = memory.learning.shadow_lift()
    assert row.turns == row.documents == row.higher == len(TOPICS)
    assert row.share_low == row.share == row.share_high == 1.0
    assert row.low == row.gain == row.high == 0.5
    lacking = memory.shadow(lambda _: [PAGES[9], PAGES[10]])
    memory.record(lacking.invoke(QUESTIONS[0]), outcome=False, relevant=["p0", "p20"])
    (row,) = memory.learning.shadow_lift()
    assert (row.documents, row.higher) == (len(TOPICS) + 1,) * 2


def test_namespaces_are_kept_apart(memory, present):
    """Of a call by its config, else of the shadow."""
    shadow = memory.shadow(present, namespace="ann")
    bob = {"configurable": {"user_id": "bob", "thread_id": "7"}}
    for config in (None, bob):
        found = shadow.invoke(QUESTIONS[0], config)
        turn = read_turn(memory, found)
        assert (turn.namespace, turn.session) == (("bob", "7") if config else ("ann", None))
        memory.record(found, outcome=True, used=found[:1])
    rows = memory.learning.shadow_lift()
    assert [(row.group, row.turns) for row in rows] == [("ann", 1), ("bob", 1)]
    assert memory.learning.shadow_lift(namespace="bob") == rows[1:]
    assert memory.learning.shadow_lift(namespace="carol") == []
    (refused,) = memory.record(found, outcome=False, namespace="ann", strict=False)
    assert refused.reason == "unknown_turn"
    assert memory.retrieve(QUESTIONS[0]).turn.namespace == "default"
    assert memory.learning.usage() == []


def test_a_question_that_waits_does_not_outlive_its_namespace(memory, present, monkeypatch):
    """What was asked before a namespace is forgotten is forgotten with it."""
    query = type(memory.embedder).query
    monkeypatch.setattr(
        type(memory.embedder), "query", lambda *given: (time.sleep(0.3), query(*given))[1]
    )
    memory.shadow(present, namespace="ann").invoke(QUESTIONS[0])
    memory.forget(namespace="ann")
    memory.learning.shadow_lift()  # waits for what still waits
    assert memory.turns(namespace="ann") == []


def test_a_memory_that_fails_harms_nobody(memory, present, caplog, monkeypatch):
    """It is said once and counted; afterwards it goes on."""
    shadow = memory.shadow(present)

    def fail(*_args, **_options):
        msg = "no embedder"
        raise RuntimeError(msg)

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(type(memory.embedder), "query", fail)
        for question in QUESTIONS[:3]:
            found = shadow.invoke(question)
            assert strip(found) == present.invoke(question)
        (refused,) = memory.record(found, outcome=True, strict=False)
    assert (refused.reason, shadow.failures) == ("unknown_turn", 3)
    assert [r.message for r in caplog.records if "beside" in r.message] == [
        "the memory did not answer a question beside the present retriever, which did: no embedder"
    ]
    assert read_turn(memory, shadow.invoke(QUESTIONS[0])).query == QUESTIONS[0]
    bad = {"configurable": {"user_id": "x" * 600}}
    assert shadow.invoke(QUESTIONS[0], bad) == present.invoke(QUESTIONS[0])
    assert shadow.failures == 4
    memory.close()
    assert strip(shadow.invoke(QUESTIONS[0])) == present.invoke(QUESTIONS[0])


def test_a_slow_memory_delays_nobody_and_its_room_is_bounded(memory, present, monkeypatch):
    shadow, go = memory.shadow(present), threading.Event()
    query = type(memory.embedder).query
    with monkeypatch.context() as patch:
        patch.setattr(
            type(memory.embedder), "query", lambda *given: (go.wait(60), query(*given))[1]
        )
        begun = time.monotonic()
        for _ in range(70):
            shadow.invoke(QUESTIONS[0])
        assert time.monotonic() - begun < 30
        assert shadow.failures == 70 - 64
        go.set()
        memory.learning.shadow_lift()
    assert len(memory.turns(limit=100)) == 64


def test_errors_of_the_present_retriever_stay_its_own(memory):
    def fail(_):
        msg = "gone"
        raise KeyError(msg)

    with pytest.raises(KeyError, match="gone"):
        memory.shadow(fail).invoke("Anything?")
    assert memory.shadow(lambda _: []).invoke("Anything?") == []
    odd = memory.shadow(lambda _: "no documents")
    assert (odd.invoke("Anything?"), odd.failures) == ("no documents", 1)
    for wrong in (5, None, Chroma(embedding_function=minilm.shared())):
        with pytest.raises(InvalidInputError, match="as_retriever"):
            memory.shadow(wrong)
    with pytest.raises(InvalidInputError, match="k must be"):
        memory.shadow(fail, k=0)


def test_documents_are_matched_by_id_source_text_and_title(tmp_path):
    """Without ids, feedback still names what was served; what the memory lacks keeps its place."""
    given = [
        Document("Ship it on Monday.", metadata={"source": "ship.md"}),
        Document("Roll back   within a minute.", metadata={}),  # equal text
        Document("Another wording of it.", metadata={"title": "Change log"}),  # equal title
        Document("Nothing of the memory.", metadata={"source": "elsewhere.md"}),
    ]
    kept = [
        Document("Releases: how to ship.", id="s", metadata={"source": "ship.md"}),
        Document("Roll back within a minute.", id="r"),
        Document("Every entry names its author.", id="c", metadata={"title": "Change log"}),
    ]
    with CrabPath.open(tmp_path / "m", embeddings=minilm.shared()) as memory:
        memory.add_documents(kept, split=False, progress=None)
        shadow = memory.shadow(RunnableLambda(lambda _: given))
        found = shadow.invoke("How do I ship or roll back, and what is in the change log?")
        turn = read_turn(memory, found)
        known = {d.id: c for c in ("s", "r", "c") for d in memory.get_by_ids(c)}
        assert [item.node for item in turn.returned] == [*known]
        names = [document.metadata["crabpath"]["id"] for document in found]
        assert list(turn.shown) == names
        assert list(turn.shown.values()) == [*known, names[3]]
        (receipt,) = memory.record(found, outcome=True, used=[found[1], found[3]])
        assert receipt.status == "applied"
        assert [use.id for use in memory.learning.usage()] == ["r"]
        (row,) = memory.learning.shadow_lift()
        assert (row.documents, row.missing) == (2, 1)
        cited = memory.shadow(lambda _: [given[3], *given[:3]], namespace="cited")
        found = cited.invoke("How do I ship or roll back?")
        memory.record(found, outcome=True, answer="Within a minute, says [3].")
        assert [use.id for use in memory.learning.usage(namespace="cited")] == ["r"]
        assert given[0].metadata == {"source": "ship.md"}


def test_callbacks_report_outcomes_of_a_shadow(memory, present):
    """A chain over the shadow, its handler, and scores by the id of its run."""
    shadow = memory.shadow(present)
    handler = CrabPathCallbackHandler(shadow)
    chain = shadow | RunnableLambda(lambda found: f"See {found[0].id}.")
    run_id = "0195e6a0-0000-7000-8000-000000000001"
    chain.invoke(QUESTIONS[3], {"callbacks": [handler], "run_id": run_id})
    (receipt,) = handler.score(1, run_id=run_id, used=["p3"])
    assert receipt.status == "applied"
    (row,) = memory.learning.shadow_lift()
    assert (row.turns, row.documents) == (1, 1)
    shadow.invoke(QUESTIONS[4], run_id="0195e6a0-0000-7000-8000-000000000002")
    late = memory.record("0195e6a0-0000-7000-8000-000000000002", outcome=True, used=["p4"])
    assert late.status == "applied"


def test_documents_that_name_a_turn_already_are_left_alone(memory):
    """Such as those of another memory: feedback names the turn by the run."""
    theirs = memory.as_retriever(k=2)
    shadow = memory.shadow(theirs)
    found = shadow.invoke(QUESTIONS[0], {"run_id": "0195e6a0-0000-7000-8000-000000000003"})
    memory.learning.shadow_lift()
    turn = memory.store.turns.get("0195e6a0-0000-7000-8000-000000000003")
    assert turn.id != found[0].metadata["crabpath"]["turn_id"]
    assert turn.shadow == tuple(document.id for document in found)


@pytest.mark.sqlite  # the command is given the directory
def test_the_command(memory, present, location):
    cli = CliRunner()
    command = ["report", "--shadow", "--store", location]
    assert "no turn of a shadow" in cli.invoke(app, command).stdout
    shadow = memory.shadow(present)
    for question in QUESTIONS[:2]:
        found = shadow.invoke(question)
        memory.record(found, outcome=True, used=found[:1])
    shown = " ".join(cli.invoke(app, command).stdout.split())
    assert "hardly ever called used" in shown
    assert shown.startswith(
        "default: 2 used documents of 2 turns. The memory would have placed 0 of them higher "
        "(0%; 95 %: too few), 2 equally, 0 lower, and 0 not among as many."
    )
    (row,) = json.loads(cli.invoke(app, [*command, "--json"]).stdout)
    assert (row["group"], row["turns"], row["equal"]) == ("default", 2, 2)
    refused = cli.invoke(app, [*command, "--by", "day"])
    assert (refused.exit_code, "by must be one of" in refused.stderr) == (2, True)


def test_ids_of_another_store_teach_no_other_document(tmp_path):
    """Row numbers of two stores are equal by chance: the text decides."""
    texts = [
        "Parking is behind the hall; the guard has the code.",
        "The boiler starts at six in the morning.",
        "Paper goes into blue bins on Fridays.",
        "Keys are handed out by the porter.",
    ]
    with CrabPath.open(tmp_path, embeddings=minilm.shared()) as memory:
        pages = [Document(text, id=str(n)) for n, text in enumerate(texts)]
        memory.add_documents(pages, split=False, progress=None)
        other = [Document(text, id=str(3 - n)) for n, text in enumerate(texts)]
        shadow = memory.shadow(lambda _: other)
        found = shadow.invoke("Who has them?")
        memory.record(found, outcome=True, used=found[3:])
        assert memory.retrieve("Who has them?").documents[0].node.content == texts[3]
        assert memory.learning.usage(limit=1)[0].id == "3"
