"""What a store over a memory does beside LangGraph's own: it learns, and keeps users apart."""

import importlib
import json
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta

import pytest
from langchain.agents import create_agent
from langchain.tools import ToolRuntime, tool
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.base import PutOp

from crabpath_retrievers import CrabPath, InvalidInputError, NotFoundError
from langgraph_crabpath import CrabPathSearchItem, CrabPathStore

ANN, BOB = ("memories", "ann"), ("memories", "bob")
TEAS = {
    "green": {"content": "Green tea is what she drinks before noon"},
    "black": {"content": "Black tea with milk is for guests"},
    "mint": {"content": "Mint tea helps her to sleep"},
    "none": {"content": "She runs along the river on Sundays"},
}
CHILD = """
import sys
from langchain_core.embeddings import DeterministicFakeEmbedding
from crabpath_retrievers import CrabPath
from langgraph_crabpath import CrabPathStore

vectors = DeterministicFakeEmbedding(size=16)
with CrabPath.open(sys.argv[1], embeddings=vectors, vectors="pgvector") as memory:
    store = CrabPathStore(memory)
    for number in range(10):
        store.put(("shared",), f"{sys.argv[2]}{number}", {"text": f"{sys.argv[2]} {number}"})
        store.put(("shared",), "both", {"text": sys.argv[2]})
    print(len(store.search(("shared",), query="text", limit=100)))
"""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def memory(request, embeddings, tmp_path):
    """A memory with Chroma in a directory, or with pgvector in PostgreSQL."""
    given = {"path": tmp_path / "memory"}
    if request.param == "postgresql":
        given = {"path": request.getfixturevalue("pgvector_url"), "vectors": "pgvector"}
    with CrabPath.open(**given, embeddings=embeddings) as opened:
        yield opened


@pytest.fixture
def store(memory):
    return CrabPathStore(memory)


def fill(store, values, namespace=ANN):
    store.batch([PutOp(namespace, key, value) for key, value in values.items()])


def keys(found):
    return [item.key for item in found]


# Learning.


def test_an_outcome_changes_the_order_under_its_prefix_alone(store):
    fill(store, TEAS)
    fill(store, TEAS, BOB)
    question = "What should I serve?"
    before = store.search(ANN, query=question)
    assert len({item.turn_id for item in before}) == 1
    (receipt,) = store.record(before, "up", used=[before[-1]])
    assert receipt.status == "applied"
    after = store.search(ANN, query=question)
    assert after[0].key == before[-1].key
    assert after[0].probability > before[-1].probability
    assert after[0].score == pytest.approx(before[-1].score)
    assert keys(store.search(BOB, query=question)) == keys(before)


def test_what_was_learned_about_an_item_outlives_its_update(store):
    fill(store, TEAS)
    question = "What should I serve?"
    found = store.search(ANN, query=question)
    store.record(found, "up", used=[found[-1]])
    last, made = found[-1].key, found[-1].created_at
    store.put(ANN, last, {"content": TEAS[last]["content"] + ", as before"})
    first = store.search(ANN, query=question)[0]
    assert (first.key, first.created_at) == (last, made)
    assert first.updated_at > made


def test_an_item_of_several_texts_is_learned_about_as_one(memory):
    """Whichever of them was found; what was learned of a text stays as long as the text does."""
    store = CrabPathStore(memory, index={"fields": ["name", "food", "place"]})
    for n in range(4):
        value = {"name": f"Person {n}", "food": f"dish number {n}", "place": f"town number {n}"}
        store.put(ANN, f"{n}", value)
    question = "Which dish shall I cook?"
    before = store.search(ANN, query=question)
    assert sorted(keys(before)) == ["0", "1", "2", "3"]
    (receipt,) = store.record(before, "up", used=[before[-1]])
    assert receipt.status == "applied"
    after = store.search(ANN, query=question)
    last = before[-1].key
    assert after[0].key == last
    store.put(ANN, last, {**after[0].value, "place": "elsewhere"})
    assert keys(store.search(ANN, query=question))[0] == last
    assert store.search(ANN, query=f"town number {last}")[0].score < 0.9  # the old place is gone
    (receipt,) = store.record(after, "down", unused=[last_id := after[0].id])
    assert receipt.status == "applied"
    assert last_id == before[-1].id
    store.delete(ANN, last)
    assert last not in keys(store.search(ANN, query=question))
    assert memory.info()["nodes"] == 9


@pytest.mark.parametrize("about", ["items", "item", "turn", "last", "state", "memory"])
async def test_an_outcome_is_recorded_about_whatever_holds_the_turn(store, memory, about):
    fill(store, TEAS)
    found = await store.asearch(ANN, query="Which tea?")
    if about == "last":
        receipts = await store.arecord(None, "down", prefix=ANN)
    elif about == "memory":
        receipts = memory.record(found, "down")
    else:
        state = {"messages": [{"type": "tool", "artifact": found}]}
        given = {"items": found, "item": found[0], "turn": found[0].turn_id, "state": state}
        receipts = await store.arecord(given[about], "down")
    assert [receipt.status for receipt in receipts] == ["applied"]


def test_what_cannot_be_recorded_is_said(store):
    fill(store, TEAS)
    listed = store.search(ANN)
    found = store.search(ANN, query="Which tea?")
    for about, more, message in [
        (None, {}, "prefix="),
        (found, {"prefix": ANN}, "prefix="),
        (found, {"correction": "No tea."}, "put the corrected item"),
        (listed, {}, "no document that CrabPath returned"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            store.record(about, "up", **more)
    with pytest.raises(NotFoundError):
        store.record("unknown", "up")


def test_prefixes_may_learn_together(memory):
    store = CrabPathStore(memory, namespace=lambda prefix: prefix[0])
    fill(store, TEAS)
    fill(store, {"own": {"content": "Bob serves lemonade"}}, BOB)
    found = store.search(ANN, query="What should I serve?")
    store.record(found, "up", used=[found[-1]])
    assert found[0].turn_namespace == "memories"
    assert keys(store.search(BOB, query="What should I serve?")) == ["own"]


# Whose items are found.


@pytest.fixture
def linked(memory):
    """Items of two users that mention each other by title; and the edges between them."""
    store = CrabPathStore(memory)
    texts = {
        ANN: {"Zermatt trip": "The Zermatt trip needs the Quokka plan.", "Quokka plan": "Ann's."},
        BOB: {"Wombat file": "Bob's Wombat file names the Quokka plan.", "Quokka plan": "Bob's."},
    }
    texts[ANN]["Quokka plan"] = "Ann's Quokka plan rests on the Wombat file."
    texts[BOB]["Quokka plan"] = "Bob's Quokka plan is a secret of the Wombat file."
    for namespace, items in texts.items():
        for title, text in items.items():
            store.put(namespace, title, {"title": title, "text": text}, index=["text"])
    return store


def test_a_walk_stays_under_the_prefix(linked, memory):
    assert sum(memory.info()["edges"].values()) > 0
    seen = []
    store = CrabPathStore(memory, options={"on_hop": seen.append})
    found = store.search(ANN, query="Zermatt trip", limit=10)
    assert sorted(keys(found)) == ["Quokka plan", "Zermatt trip"]
    assert seen
    assert "/bob/" not in str(seen)
    assert "/bob/" not in str(memory.explain(found[0].turn_id))


def test_a_search_that_may_look_everywhere_walks_everywhere(linked):
    found = linked.search(("memories",), query="Zermatt trip", limit=10)
    assert {item.namespace for item in found} == {ANN, BOB}


def test_neither_what_was_learned_nor_notes_lead_out_of_a_prefix(memory):
    store = CrabPathStore(memory, namespace="all")
    fill(store, TEAS)
    fill(store, {"own": {"content": "Bob likes coffee"}}, BOB)
    question = "Which tea before noon?"
    for _ in range(3):
        store.record(store.search(ANN, query=question), "up")
    memory.teach("Ann's secret is rooibos tea.", query=question, namespace="all")
    turn = store.search(ANN, query=question)[0].turn_id
    memory.correct("No tea before noon.", turn_id=turn, namespace="all")
    assert keys(store.search(BOB, query=question)) == ["own"]
    assert set(keys(store.search(ANN, query=question))) <= set(TEAS)


def test_a_label_is_no_prefix_of_another_one(store):
    labels = ["a/b", "a%00002Fb", "a\n", "a\ud800", "a\udfff", "a\U0010ffff", "A", "ab", "ä"]
    spaces = [("a",), ("a", "b"), ("a", ":b"), *((label,) for label in labels)]
    for number, space in enumerate(spaces):
        store.put(space, "a/b%", {"text": f"text {number}"})
    for number, space in enumerate(spaces):
        inside = range(3) if space == ("a",) else [number]
        wanted = [f"text {one}" for one in inside]
        for found in (store.search(space), store.search(space, query="text")):
            assert sorted(item.value["text"] for item in found) == wanted
        assert store.get(space, "a/b%").value == {"text": f"text {number}"}
    assert store.list_namespaces() == sorted(spaces)


def test_namespaces_are_listed_page_by_page(store, monkeypatch):
    monkeypatch.setattr("langgraph_crabpath.store._PAGE", 2)
    spaces = [("a",), ("a", "b"), ("a", "b", "c"), ("b",), ("b", ":"), ("c", "d")]
    for space in spaces:
        fill(store, {f"k{n}": {"n": n} for n in range(3)}, space)
    assert store.list_namespaces() == spaces
    assert store.list_namespaces(prefix=("a",)) == spaces[:3]


def test_documents_of_the_memory_are_no_items(store, memory):
    metadata = {"item": {"value": "{}"}, "source": "tea.md"}
    memory.add_documents([Document("Green tea is a drink", metadata=metadata)])
    fill(store, TEAS)
    assert set(keys(store.search((), query="Green tea", limit=10))) == set(TEAS)
    assert set(keys(store.search(()))) == set(TEAS)
    assert store.list_namespaces() == [ANN]


def test_a_few_items_are_found_among_many_of_others(store):
    """Those of others are nearer to the question, and more than any search looks at."""
    many = {f"{n}": {"content": f"Green tea number {n} before noon"} for n in range(400)}
    fill(store, many, BOB)
    fill(store, {"river": TEAS["none"], "mint": TEAS["mint"]})
    found = store.search(ANN, query="Green tea number 7 before noon", limit=10)
    assert sorted(keys(found)) == ["mint", "river"]


# Values.


def test_a_value_comes_back_as_it_was(store):
    value = {
        "z": "a\x00b\ud800",
        "a": [1, 1.0, 2**70, -0.5, True, None, {"deep": [[]]}],
        "": {"$key": "#x", "chroma:document": "y"},
        "text": "tea",
    }
    store.put(ANN, "k\x00\n", value)
    found = store.get(ANN, "k\x00\n")
    assert (found.key, found.value, list(found.value)) == ("k\x00\n", value, list(value))
    assert store.search(ANN, query="tea")[0].value == value


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        (lambda store: store.put(ANN, "1", {"at": object()}), "must be JSON, and <object"),
        (lambda store: store.put(ANN, "1", {"at": date(2026, 1, 2)}), r"date\(2026, .*isoformat"),
        (lambda store: store.put(ANN, "1", {"at": {"a"}}), r"\{'a'\} is none"),
        (lambda store: store.put(ANN, "1", {"at": float("nan")}), "must be JSON"),
        (lambda store: store.put(ANN, "1", ["a"]), "must be a dict"),
        (lambda store: store.put(ANN, "k" * 600, {"a": 1}), "at most 500"),
        (lambda store: store.put(ANN, "1", {"a": "b"}, index="a"), "list of paths"),
        (lambda store: store.search(ANN, filter={"a": {"$near": 1}}), r"\$near"),
        (lambda store: store.batch([PutOp(ANN, "1", {"a": 1}), "get"]), "not str"),
        (lambda store: CrabPathStore("./memory"), "open CrabPath memory"),
        (lambda store: CrabPathStore(store.memory, index={"fields": "text"}), "list of paths"),
        (lambda store: CrabPathStore(store.memory, index={"embed": len}), "is its memory's"),
        (lambda store: CrabPathStore(store.memory, options={"k": 3}), "sets k itself"),
    ],
)
def test_bad_input_is_said_and_changes_nothing(store, operation, message):
    with pytest.raises(InvalidInputError, match=message):
        operation(store)
    assert store.search(()) == []


def test_texts_are_compared_with_texts_and_numbers_with_numbers(store):
    fill(store, {"a": {"name": "apple"}, "b": {"name": "banana"}, "c": {"name": 3}, "d": {}})
    assert keys(store.search(ANN, filter={"name": {"$gt": "apple"}})) == ["b"]
    assert keys(store.search(ANN, query="fruit", filter={"name": {"$lt": 4}})) == ["c"]


@pytest.mark.parametrize("text", ["a", "a\x00", "a\ud800", "a" * 600, "$a", "' OR 1=1", "ü"])
def test_a_filter_tells_any_texts_apart(store, text):
    fill(store, {"one": {"name": text}, "other": {"name": text + "?"}, "near": {"name": "a "}})
    assert keys(store.search(ANN, filter={"name": text})) == ["one"]
    assert keys(store.search(ANN, query="a name", filter={"name": text})) == ["one"]


def test_a_search_reads_only_under_its_prefix(store, memory, monkeypatch):
    """Whatever other users keep: of theirs nothing is read."""
    for user in range(20):
        fill(store, TEAS, ("memories", f"user{user}"))
    read = []
    original = memory.store.catalog.documents
    monkeypatch.setattr(
        type(memory.store.catalog),
        "documents",
        lambda _self, ids, **more: read.extend(ids) or original(ids, **more),
    )
    assert len(store.search(("memories", "user7"))) == len(TEAS)
    assert read
    assert all("/user7/" in name for name in read)


# Hosts.


def test_an_agent_has_it_in_its_tools(store, model, chat_server):
    fill(store, TEAS)

    @tool
    def recall(query: str, runtime: ToolRuntime) -> str:
        """Recall what is known."""
        return str(keys(runtime.store.search(ANN, query=query, limit=1)))

    def says(body):
        asked = body["messages"][-1]["role"] == "user"
        return {"query": "tea before noon"} if asked else body["messages"][-1]["content"]

    chat_server.says = says
    agent = create_agent(model, [recall], store=store)
    answered = agent.invoke({"messages": "What shall I bring?"})
    assert answered["messages"][-1].content == "['green']"


@pytest.fixture(scope="module")
def langmem():
    """The package, whose import warns of names that LangGraph has moved."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("langmem")


async def test_the_tools_of_langmem_remember_find_and_learn(store, langmem, model, chat_server):
    space = ("memories", "{user_id}")
    tools = [
        langmem.create_manage_memory_tool(namespace=space),
        langmem.create_search_memory_tool(namespace=space, response_format="content_and_artifact"),
    ]
    agent = create_agent(model, tools, store=store, checkpointer=InMemorySaver())

    def ask(user, thread=None, **call):
        def says(body):
            last = body["messages"][-1]
            return call if last["role"] == "user" else last["content"]

        chat_server.says = says
        config = {"configurable": {"thread_id": thread or f"{user}{call}", "user_id": user}}
        return agent.ainvoke({"messages": "Go on."}, config), config

    for content in ("Ann drinks green tea", "Ann runs on Sundays"):
        await ask("ann", tool="manage_memory", content=content, action="create")[0]
    await ask("bob", tool="manage_memory", content="Bob drinks green tea", action="create")[0]
    run, config = ask("ann", tool="search_memory", query="tea", limit=5)
    answered = await run
    told = json.loads(answered["messages"][-1].content)
    said = [one["value"]["content"] for one in told]
    assert said == ["Ann drinks green tea", "Ann runs on Sundays"]
    kept = (await agent.aget_state(config)).values
    found = kept["messages"][-2].artifact
    (receipt,) = await store.arecord(kept, "up", used=[found[1]])
    assert receipt.status == "applied"
    again = await ask("ann", "2", tool="search_memory", query="tea", limit=5)[0]
    assert json.loads(again["messages"][-1].content)[0]["key"] == told[1]["key"]
    update = {"content": "Ann drinks mint tea", "action": "update", "id": told[0]["key"]}
    await ask("ann", tool="manage_memory", **update)[0]
    await ask("ann", tool="manage_memory", action="delete", id=told[1]["key"])[0]
    left = store.search(("memories", "ann"))
    assert [item.value for item in left] == [{"content": "Ann drinks mint tea"}]
    assert len(store.search(("memories",))) == 2


def test_an_item_survives_a_checkpoint(store):
    fill(store, TEAS)
    (item,) = store.search(ANN, query="tea before noon", limit=1)
    name = (CrabPathSearchItem.__module__, CrabPathSearchItem.__name__)
    serde = JsonPlusSerializer(allowed_msgpack_modules=[name])
    again = serde.loads_typed(serde.dumps_typed(item))
    assert again == item
    own = (item.score, item.probability, item.metadata)
    assert (again.score, again.probability, again.metadata) == own
    assert "turn_id" not in store.get(ANN, "green").dict()


@pytest.mark.slow
def test_two_processes_share_a_store(pgvector_url):
    vectors = DeterministicFakeEmbedding(size=16)
    CrabPath.open(pgvector_url, embeddings=vectors, vectors="pgvector").close()
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, pgvector_url, name], stdout=subprocess.PIPE, text=True
        )
        for name in ("one", "two")
    ]
    counts = [int(child.communicate(timeout=120)[0]) for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert max(counts) == 21
    with CrabPath.open(pgvector_url, embeddings=vectors) as memory:
        store = CrabPathStore(memory)
        assert len(store.search(("shared",), query="one", limit=100)) == 21
        assert store.get(("shared",), "both").value["text"] in ("one", "two")


def test_items_of_an_earlier_store_are_found_updated_and_deleted(memory):
    """As the store wrote them before an item could have several texts, or an end."""
    now = "2026-01-02T03:04:05+00:00"
    for key, indexed in (("tea", True), ("hidden", False)):
        item = {"value": json.dumps({"content": f"Ann likes {key}"}), "created_at": now}
        metadata = {"source": f"store:/memories/ann/:{key}", "item": {**item, "updated_at": now}}
        text = f"Ann likes {key}" if indexed else metadata["source"]
        if indexed:
            places = ("store:/", "store:/memories/", "store:/memories/ann/")
            metadata |= {f"namespace_{n}": place for n, place in enumerate(places)}
        memory.add_documents(
            [Document(text, metadata=metadata, id=metadata["source"])], split=False
        )
    store = CrabPathStore(memory, index={"fields": ["content", "more"]}, ttl={"default_ttl": 1})
    assert keys(store.search(ANN, query="tea")) == ["tea", "hidden"]
    assert keys(store.search(ANN)) == ["hidden", "tea"]
    store.put(ANN, "tea", {"content": "Ann likes mint tea", "more": "with honey"})
    first, last = store.search(ANN, query="honey")
    assert (first.key, first.created_at.year, last.score) == ("tea", 2026, None)
    assert store.sweep_ttl() == 0
    store.delete(ANN, "tea")
    store.delete(ANN, "hidden")
    assert memory.info()["nodes"] == 0


# Times to live, and opening by an address.


def expire(monkeypatch, seconds):
    """Let time pass for the store."""

    class Later(datetime):
        @classmethod
        def now(cls, tz=None):
            return super().now(tz) + timedelta(seconds=seconds)

    monkeypatch.setattr("langgraph_crabpath.store.datetime", Later)


def test_an_item_lives_until_it_is_swept(memory, monkeypatch):
    store = CrabPathStore(memory, index={"fields": ["content", "note"]}, ttl={"default_ttl": 1})
    fill(store, {"old": {"content": "no end"}})  # a PutOp has no default
    store.put(ANN, "tea", {"content": "green tea", "note": "before noon"})
    store.put(ANN, "mint", {"content": "mint tea"}, ttl=2)
    store.put(ANN, "hidden", {"content": "black tea"}, index=False)
    made = store.get(ANN, "tea")
    expire(monkeypatch, 50)
    assert store.search(ANN, query="green tea", limit=1)[0].key == "tea"  # begins anew
    expire(monkeypatch, 105)
    assert store.get(ANN, "tea", refresh_ttl=False) == made
    assert store.sweep_ttl() == 1
    assert keys(store.search(ANN, refresh_ttl=False)) == ["mint", "old", "tea"]
    expire(monkeypatch, 115)
    assert keys(store.search(ANN, query="before noon", refresh_ttl=False))[0] == "tea"
    store.put(ANN, "mint", {"content": "mint tea"}, ttl=None)
    assert store.sweep_ttl() == 1
    expire(monkeypatch, 10**9)
    assert store.sweep_ttl() == 0
    assert keys(store.search(ANN)) == ["mint", "old"]


def test_a_read_embeds_nothing_to_renew_an_item(memory, embeddings, monkeypatch):
    store = CrabPathStore(memory, index={"fields": ["content", "note"]})
    store.put(ANN, "tea", {"content": "green tea", "note": "before noon"}, ttl=1)
    embedded = []
    embed = type(embeddings).embed_documents
    monkeypatch.setattr(
        type(embeddings),
        "embed_documents",
        lambda own, texts: embedded.extend(texts) or embed(own, texts),
    )
    expire(monkeypatch, 40)
    before = store.search(ANN, query="green tea", refresh_ttl=False)
    store.get(ANN, "tea")
    expire(monkeypatch, 80)
    assert store.sweep_ttl() == 0
    after = store.search(ANN, query="green tea", refresh_ttl=False)
    assert not {"green tea", "before noon"}.intersection(embedded)
    assert [item.score for item in after] == [item.score for item in before]
    assert after == before


@pytest.mark.parametrize("omit", [None, False, True])
def test_expired_items_are_omitted_where_that_is_asked_for(memory, monkeypatch, omit):
    ttl = {"refresh_on_read": False, **({} if omit is None else {"omit_expired": omit})}
    store = CrabPathStore(memory, ttl=ttl)
    for n in range(6):
        store.put(("omit", "mixed"), f"{n}", {"text": f"item {n}"}, ttl=1 if n % 2 else None)
    store.put(("omit", "gone"), "e", {"text": "item"}, ttl=1)
    expire(monkeypatch, 61)
    mixed = ["0", "2", "4"] if omit else ["0", "1", "2", "3", "4", "5"]
    assert (store.get(("omit", "gone"), "e") is None) == bool(omit)
    assert keys(store.search(("omit", "mixed"))) == mixed
    assert keys(store.search(("omit", "mixed"), limit=2, offset=1)) == mixed[1:3]
    found = store.search(("omit", "mixed"), query="item 1", limit=3)
    assert len(found) == 3
    assert set(keys(found)) <= set(mixed)
    spaces = [("omit", "mixed")] if omit else [("omit", "gone"), ("omit", "mixed")]
    assert store.list_namespaces(prefix=("omit",)) == spaces
    assert store.sweep_ttl() == 4


def test_an_item_that_is_renewed_keeps_what_others_put(memory, monkeypatch):
    """A read that renews an item while another thread puts it loses neither."""
    store = CrabPathStore(memory)
    store.put(ANN, "n", {"n": -1}, ttl=1)
    expire(monkeypatch, 30)
    with ThreadPoolExecutor(2) as pool:
        reads = [pool.submit(store.get, ANN, "n") for _ in range(20)]
        for n in range(20):
            store.put(ANN, "n", {"n": n}, ttl=1)
            assert store.get(ANN, "n", refresh_ttl=False).value == {"n": n}
        assert all(read.result() for read in reads)


def test_a_sweeper_deletes_in_the_background(memory):
    store = CrabPathStore(memory, ttl={"default_ttl": 0.001, "refresh_on_read": False})
    store.put(ANN, "tea", {"content": "green tea"})
    store.start_ttl_sweeper(sweep_interval_minutes=0.001)
    store.start_ttl_sweeper()
    until = time.monotonic() + 30
    while store.get(ANN, "tea") is not None:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert store.stop_ttl_sweeper()
    assert store.stop_ttl_sweeper(timeout=1)
    without = CrabPathStore(memory)
    without.start_ttl_sweeper()  # nothing to sweep
    assert "crabpath-ttl" not in {thread.name for thread in threading.enumerate()}


def test_a_store_is_opened_by_its_address(tmp_path, embeddings):
    index = {"dims": 384, "embed": embeddings.embed_documents, "fields": ["content"]}
    for place, kept in ((str(tmp_path / "items"), True), (":memory:", False)):
        for again in (False, True):
            with CrabPathStore.from_conn_string(
                place, index=index, ttl={"default_ttl": 9}
            ) as store:
                store.setup()
                assert (store.get(ANN, "tea") is not None) == (again and kept)
                store.put(ANN, "tea", {"content": "green tea"})
                assert store.search(ANN, query="green tea")[0].score == pytest.approx(1, abs=1e-3)
                config = store.index_config
                assert (config["dims"], config["fields"]) == (384, ["content"])
                assert config["embed"] == store.memory.embedder.embeddings
                assert store.ttl_config == {"default_ttl": 9}
    with CrabPath.open(tmp_path / "own", embeddings=embeddings) as memory:
        config = CrabPathStore(memory).index_config
        assert config == {"dims": 384, "embed": embeddings, "fields": ["$"]}


@pytest.mark.slow
def test_a_store_is_opened_by_the_address_of_a_database(pgvector_url, embeddings):
    address = pgvector_url.replace("postgresql+psycopg://", "postgresql://")
    for value in (None, {"content": "green tea"}):
        with CrabPathStore.from_conn_string(address, index={"embed": embeddings}) as store:
            found = store.get(ANN, "tea")
            assert (found.value if found else None) == value
            store.put(ANN, "tea", {"content": "green tea"})
