"""What the LlamaIndex retriever returns, and how it is made."""

import json
import re
from datetime import date
from pathlib import PurePosixPath

import numpy as np
import pytest
from blockbuster import blockbuster_ctx
from host_answers import ids, texts, turn_of
from llama_index.core import Document, Settings, SimpleDirectoryReader
from llama_index.core.instrumentation.dispatcher import instrument_tags
from llama_index.core.llms import MockLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import (
    IndexNode,
    MetadataMode,
    NodeRelationship,
    QueryBundle,
    TextNode,
)
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters
from llama_models import CountingEmbedding

from crabpath_retrievers import NotFoundError, OutcomePolicy, Rule
from crabpath_retrievers.vectors import embedder
from llama_index.retrievers.crabpath import (
    CrabPathEventHandler,
    CrabPathReranker,
    CrabPathRetriever,
    LlamaIndexEmbeddings,
)

# LlamaIndex's own tokenizers take seconds to load.
SPLITTER = SentenceSplitter(
    chunk_size=25,
    chunk_overlap=0,
    tokenizer=str.split,
    chunking_tokenizer_fn=lambda text: text.splitlines(keepends=True),
)


def test_nodes_tell_how_they_were_found_and_no_model_reads_it(shared, question):
    """The turn stands in the metadata as JSON, and can be explained by it and by the span."""
    node = shared.retrieve(question)[0].node
    block = node.metadata["crabpath"]
    assert json.loads(json.dumps(block)) == block
    turn = shared.memory.explain(block["turn_id"]).turn
    assert turn.query == question
    assert turn.run_id.startswith("CrabPathRetriever._retrieve-")
    assert shared.memory.explain(turn.run_id).turn == turn
    for mode in (MetadataMode.LLM, MetadataMode.EMBED):
        read = node.get_content(metadata_mode=mode)
        assert "turn_id" not in read
        assert f"title: {node.metadata['title']}" in read


async def test_a_bundle_may_bring_its_embedding_or_other_texts(
    place, embed_model, embeddings, question, closing
):
    """In place of the text, which is not embedded then; an embedding need not have length 1.

    Of custom_embedding_strs, as HyDE gives them, the mean of their vectors counts.
    """
    made = closing(CrabPathRetriever.from_existing(place, embed_model, similarity_top_k=10))
    made.retrieve("the first query makes sure of the model")
    given = ["Adam Collis", "Adam Collis is an actor"]
    mean = np.mean([embeddings.embed_query(text) for text in given], axis=0)
    embed_model.asked.clear()
    bundle = QueryBundle(question, embedding=(7 * mean).tolist())
    wanted = made.retrieve(bundle)
    assert embed_model.asked == []
    near = {n.metadata["title"]: n.metadata["crabpath"]["features"] for n in wanted}
    assert max(near, key=lambda title: near[title].get("similarity", -1)) == "Adam Collis"
    others = QueryBundle(question, custom_embedding_strs=given)
    for nodes in (
        await made.aretrieve(bundle),
        made.retrieve(others),
        await made.aretrieve(others),
    ):
        assert ids(nodes) == ids(wanted)
        assert [n.score for n in nodes] == pytest.approx([n.score for n in wanted], abs=1e-3)
    assert question not in embed_model.asked


@pytest.mark.parametrize("cleanup", [None, "incremental"])
def test_a_folder_is_loaded_again(embed_model, tmp_path, cleanup):
    """As LlamaIndex's own reader loads it: only a changed file is embedded, and replaced if so."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("Grass is green.")
    (folder / "b.txt").write_text("The sky is blue.")

    def load():
        embed_model.asked.clear()
        loose = Document(text="Apples are red.")  # LlamaIndex makes up an id at every load
        documents = SimpleDirectoryReader(str(folder)).load_data()
        made = CrabPathRetriever.from_documents(
            [*documents, loose], embed_model, path=tmp_path / "memory", cleanup=cleanup
        )
        found = set(texts(made.retrieve(QueryBundle("x", embedding=[1.0] * 384))))
        made.memory.close()
        return found, len(embed_model.asked) - 1  # without the sentence that tells embedders apart

    assert load() == ({"Grass is green.", "Apples are red.", "The sky is blue."}, 3)
    assert load()[1] == 0
    (folder / "b.txt").write_text("The sky is grey.")
    old = set() if cleanup else {"The sky is blue."}
    assert load() == ({"Grass is green.", "Apples are red.", "The sky is grey.", *old}, 1)


def test_metadata_comes_back_as_it_was(embed_model, closing):
    """Keys that LlamaIndex hides stay hidden, and nothing is added but the turn."""
    document = Document(
        id_="d",
        text="Push to main.",
        metadata={"file_path": "deploy.txt", "secret": "x"},
        excluded_llm_metadata_keys=["secret"],
    )
    made = closing(CrabPathRetriever.from_documents([document], embed_model))
    node = made.retrieve("deploy")[0].node
    assert set(node.metadata) == {"file_path", "secret", "crabpath"}
    assert node.excluded_llm_metadata_keys == ["secret", "crabpath"]
    assert node.ref_doc_id == "d"


@pytest.mark.parametrize("way", ["documents", "nodes", "object"])
def test_values_of_other_libraries_come_back_as_plain_ones(embeddings, closing, way):
    """Numbers of numpy are numbers, in filters as well; what JSON lacks is text."""
    given = {
        "year": np.int64(2024),
        "share": np.float32(0.5),
        "open": np.bool_(True),  # noqa: FBT003
        "many": np.array([1, 2]),
        "day": date(2024, 1, 2),
        "place": PurePosixPath("/a/b"),
        "rule": re.compile("x").match,
    }
    plain = {"year": 2024, "share": 0.5, "open": True, "many": [1, 2], "day": "2024-01-02"}
    plain |= {"place": "/a/b", "rule": str(given["rule"])}
    node = TextNode(id_="d", text="Push to main.", metadata=given)
    if way == "documents":
        document = Document(id_="d", text="Push to main.", metadata=given)
        made = CrabPathRetriever.from_documents([document], embeddings)
    elif way == "nodes":
        made = CrabPathRetriever.from_nodes([node], embeddings)
    else:
        outer = IndexNode(id_="o", text="Push it.", index_id="d", obj=node, metadata=given)
        made = CrabPathRetriever.from_nodes([outer], embeddings)
    (item,) = closing(made).retrieve("push")
    if way == "object":  # this process knows it; another one has what is stored
        (item,) = CrabPathRetriever(made.memory).retrieve("push")
    assert {name: item.node.metadata[name] for name in given} == plain
    for name in ("year", "share"):
        only = MetadataFilters(filters=[MetadataFilter(key=name, value=given[name])])
        asked = CrabPathRetriever(made.memory, filters=only, similarity_top_k=np.int64(2))
        assert len(asked.retrieve("push")) == 1


@pytest.mark.parametrize(
    "name", [lambda n: n, lambda n: n.node, lambda n: n.metadata["crabpath"]["source"]]
)
def test_feedback_names_nodes_as_they_were_returned(retriever, question, name):
    for field in ("used", "relevant"):
        found = retriever.retrieve(question)
        (receipt,) = retriever.record(found, np.float32(1), **{field: [name(found[1])]})
        assert (receipt.status, receipt.note) == ("applied", None)
    uses = {one.id: one.wins for one in retriever.memory.learning.usage()}
    assert uses[found[1].node_id] == max(uses.values()) > 0


def test_a_node_parser_says_where_texts_are_cut(documents, embed_model, closing):
    bare = [Document(text=document.text) for document in documents[:2]]
    wanted = {node.text for node in SPLITTER.get_nodes_from_documents(bare)}
    made = closing(
        CrabPathRetriever.from_documents(documents[:2], embed_model, node_parser=SPLITTER)
    )
    found = made.memory.get_by_ids(made.memory.store.catalog.all_ids())
    assert set(texts(found)) == wanted
    assert len(wanted) > 2


def test_nodes_keep_ids_relations_places_and_embeddings(embed_model, closing):
    """from_nodes: each node is a chunk under its own id, and comes back whole."""
    document = Document(id_="d", text=" ".join(f"Apple {n} is red." for n in range(60)))
    nodes = SPLITTER.get_nodes_from_documents([document])
    nodes[0].embedding = embed_model.get_text_embedding("x")
    embed_model.asked.clear()
    made = closing(CrabPathRetriever.from_nodes(nodes, embed_model, similarity_top_k=len(nodes)))
    assert (nodes[0].text in embed_model.asked, nodes[1].text in embed_model.asked) == (False, True)
    found = {item.node_id: item.node for item in made.retrieve("x")}
    assert set(found) == {node.node_id for node in nodes}
    for node in nodes:
        back = found[node.node_id]
        assert (back.text, back.ref_doc_id) == (node.text, "d")
        assert (back.start_char_idx, back.end_char_idx) == (node.start_char_idx, node.end_char_idx)
        assert back.relationships.keys() == node.relationships.keys()
    second, best = found[nodes[1].node_id], found[nodes[0].node_id].metadata["crabpath"]
    assert second.relationships[NodeRelationship.PREVIOUS].node_id == nodes[0].node_id
    assert best["features"]["similarity"] == pytest.approx(1.0, abs=1e-3)


def test_the_model_of_the_settings_is_used_else_the_local_one(
    documents, embed_model, embeddings, closing, monkeypatch
):
    """OpenAI is never called unasked."""
    monkeypatch.setattr(embedder, "load_default_embeddings", lambda: embeddings)
    assert Settings._embed_model is None  # noqa: SLF001  reading the public one sets it
    made = closing(CrabPathRetriever.from_documents(documents[:2]))
    assert made.memory.embedder.embeddings is embeddings
    Settings.embed_model = embed_model
    try:
        made = closing(CrabPathRetriever.from_documents(documents[:2]))
    finally:
        Settings._embed_model = None  # noqa: SLF001  as above
    assert made.memory.embedder.embeddings.embed_model is embed_model
    assert embed_model.asked


def test_an_existing_memory_is_opened(place, shared, embed_model, tmp_path, question, closing):
    """With any embedder that gives the same vectors; where there is none, nothing is created."""
    with pytest.raises(NotFoundError, match="there is no memory"):
        CrabPathRetriever.from_existing(tmp_path / "nowhere", embed_model)
    assert not (tmp_path / "nowhere").exists()
    made = closing(CrabPathRetriever.from_existing(place, embed_model, similarity_top_k=2))
    assert ids(made.retrieve(question)) == ids(shared.retrieve(question))[:2]


async def test_the_model_is_used_natively(embed_model, closing):
    """Queries by its query method or coroutine, texts in batches; its name is the memory's."""
    adapted = LlamaIndexEmbeddings(embed_model)
    assert adapted.model_name == CountingEmbedding.class_name()
    assert await adapted.aembed_documents(["a"]) == adapted.embed_documents(["a"])
    embed_model.model_name = "mini"
    documents = [Document(text="Apples are red.")]
    made = closing(CrabPathRetriever.from_documents(documents, embed_model))
    made.retrieve("the first query makes sure of the model")
    embed_model.asked.clear()
    made.retrieve("one")
    await made.aretrieve("two")
    assert embed_model.asked == ["one", "async two"]
    assert made.memory.info()["embedder"] == "mini"


def test_documents_and_nodes_are_added_later(embed_model, closing):
    first = [Document(id_="a", text="Apples are red.")]
    made = closing(CrabPathRetriever.from_documents(first, embed_model))
    assert made.add_documents([Document(id_="b", text="The sky is blue.")]) == ["b"]
    sky = Document(text="The sky is blue.", metadata={"source": "s"})
    (old,) = made.add_documents([sky])
    assert old not in made.add_documents([Document(text="It is grey.", metadata=sky.metadata)])
    assert made.add_documents([sky], cleanup="incremental") == [old]
    assert made.memory.forget(old) == made.memory.info()["nodes"] - 1 == 1
    assert made.add_nodes([TextNode(id_="c", text="Grass is green.")]) == ["c"]
    assert set(ids(made.retrieve("colours"))) == {"a", "b", "c"}
    made.similarity_top_k = 1
    assert ids(made.retrieve("What is blue?")) == ["b"]


async def test_tags_name_the_conversation_of_a_call(retriever, question):
    """Of every retrieval within them, in threads and on the event loop, and of feedback."""
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())
    turns = {}
    for session in ("A", "B"):
        with instrument_tags({"session_id": session, "query_id": "q"}):
            turns[session] = [turn_of(engine.query(question).source_nodes)]
            turns[session].append(turn_of((await engine.aquery(question)).source_nodes))
    judged = retriever.memory.store.turns.get_verdicts
    with instrument_tags({"session_id": "A"}):
        (receipt,) = retriever.record(None, outcome=True)
    assert receipt.status == "applied"
    assert dict(judged([*turns["A"], *turns["B"]])).keys() == {turns["A"][-1]}
    (receipt,) = await retriever.arecord(None, "down", session="B")
    assert dict(judged(turns["B"])).keys() == {turns["B"][-1]}


async def test_nothing_blocks_the_event_loop(retriever, question):
    """Retrieval by text, by other texts, by an embedding; feedback; reranking; events."""
    engine = RetrieverQueryEngine.from_args(retriever, llm=MockLLM())  # it reads files
    silent = OutcomePolicy(silent_success=Rule(0.2, "harvested"))
    with blockbuster_ctx(), CrabPathEventHandler(retriever.memory, silent) as handler:
        nodes = await retriever.aretrieve(question)
        await retriever.aretrieve(QueryBundle(question, custom_embedding_strs=["Ed Wood"]))
        await retriever.aretrieve(QueryBundle(question, embedding=[1.0] * 384))
        (receipt,) = await retriever.arecord(nodes, 1.0)
        assert receipt.status == "applied"
        for item in nodes:
            del item.node.metadata["crabpath"]
        reranker = CrabPathReranker(memory=retriever.memory)
        ranked = await reranker.apostprocess_nodes(nodes, query_str=question)
        assert set(ids(ranked)) == set(ids(nodes))
        (receipt,) = await handler.arecord(await engine.aquery(question), 1.0)
        assert receipt.status == "applied"
