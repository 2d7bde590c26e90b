"""Nodes come back as what they were: of their class, with their fields, so that recursion works."""

from typing import Any

import pytest
from llama_index.core import Document, VectorStoreIndex
from llama_index.core.retrievers import RecursiveRetriever
from llama_index.core.schema import (
    ImageNode,
    IndexNode,
    MetadataMode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)

from crabpath_retrievers import CrabPath
from llama_index.retrievers.crabpath import CrabPathRetriever

ROOT = [
    IndexNode(id_="i1", text="Payroll: salaries, leave, bonuses.", index_id="inner"),
    TextNode(id_="n1", text="The canteen opens at noon."),
]
INNER = [
    TextNode(id_="n2", text="Salaries are paid on the 25th."),
    TextNode(id_="n3", text="A bonus is paid in March."),
]
QUESTION = "When are salaries paid?"


class Clause(TextNode):
    """A node of a program's own class."""

    article: int
    parties: dict[str, list[str]]

    @classmethod
    def class_name(cls) -> str:
        return "Clause"


NODES = [
    IndexNode(id_="x", text="All about payroll.", index_id="inner"),
    ImageNode(
        id_="p",
        text="The plan of the office.",
        image_url="https://x.test/plan.png",
        image_path="p.png",
    ),
    Clause(id_="c", text="The tenant pays.", article=7, parties={"tenant": ["Ann"]}),
    Document(id_="d", text="A whole document about cats.", excluded_llm_metadata_keys=["k"]),
    TextNode(
        id_="t",
        text="Plain words.",
        metadata={"k": 1},
        text_template="T {content}",
        relationships={NodeRelationship.NEXT: RelatedNodeInfo(node_id="c")},
    ),
]


def dump(node: Any) -> dict[str, Any]:
    """All fields of a node but its embedding, and what an answer adds."""
    data = node.model_dump(mode="json", exclude={"embedding"})
    data["metadata"].pop("crabpath", None)
    for name in ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys"):
        data[name] = [key for key in data[name] if key != "crabpath"]
    for name in ("id", "score", "source"):
        data["metadata"].pop(name, None)
    data.pop("class_name")
    return data


@pytest.mark.parametrize("way", ["from_nodes", "from_index", "add_nodes", "from_existing", "again"])
async def test_every_class_of_nodes_comes_back_as_it_went_in(
    way, embeddings, embed_model, tmp_path, closing
):
    nodes: list[Any] = NODES
    if way == "from_index":
        index = VectorStoreIndex(NODES, embed_model=embed_model)
        made = CrabPathRetriever.from_index(index, similarity_top_k=9)
        nodes = [
            index.docstore.docs[node.node_id] for node in NODES
        ]  # its store knows five classes
    else:
        given = NODES[:1] if way == "add_nodes" else NODES
        made = CrabPathRetriever.from_nodes(given, embeddings, path=tmp_path, similarity_top_k=9)
    if way == "add_nodes":
        made.add_nodes(NODES[1:])
    if way == "again":
        made.add_nodes([item.node for item in made.retrieve("anything")])
    if way == "from_existing":
        made.memory.close()
        made = CrabPathRetriever.from_existing(tmp_path, embeddings, similarity_top_k=9)
    closing(made)
    for items in (made.retrieve("anything"), await made.aretrieve("anything")):
        found = {item.node_id: item.node for item in items}
        assert found.keys() == {node.node_id for node in NODES}
        for node in nodes:
            back = found[node.node_id]
            assert isinstance(back, type(node))
            expected, got = dump(node), dump(back)
            if not node.relationships or way == "from_index":
                expected.pop("relationships")
                got.pop("relationships")
            if isinstance(node, Document):
                for data in (expected, got):
                    data["text_resource"].pop("mimetype", None)
            assert got == expected
            assert (back == node, back.hash) == (True, node.hash)


async def test_recursion_finds_what_it_finds_over_an_index_of_llama_index(
    embeddings, embed_model, closing
):
    inner = VectorStoreIndex(INNER, embed_model=embed_model).as_retriever(similarity_top_k=2)
    theirs = VectorStoreIndex(ROOT, embed_model=embed_model)
    ours = closing(CrabPathRetriever.from_nodes(ROOT, embeddings, similarity_top_k=1))
    copied = closing(CrabPathRetriever.from_index(theirs, similarity_top_k=1))
    found = []
    for root in (theirs.as_retriever(similarity_top_k=1), ours, copied):
        recursive = RecursiveRetriever("root", retriever_dict={"root": root, "inner": inner})
        items = recursive.retrieve(QUESTION)
        assert [i.node_id for i in items] == [
            i.node_id for i in await recursive.aretrieve(QUESTION)
        ]
        found.append({item.node_id for item in items})
    assert found == [{"n2", "n3"}] * 3


def test_recursion_follows_nodes_of_a_dictionary(embeddings, closing):
    ours = closing(CrabPathRetriever.from_nodes(ROOT, embeddings, similarity_top_k=1))
    recursive = RecursiveRetriever(
        "root", retriever_dict={"root": ours}, node_dict={"inner": INNER[0]}
    )
    assert [item.node_id for item in recursive.retrieve(QUESTION)] == ["n2"]


async def test_an_index_node_leads_to_its_object(embeddings, embed_model, tmp_path, closing):
    """A node under it is stored; a retriever is known to the process, or given at opening."""
    inner = VectorStoreIndex(INNER, embed_model=embed_model).as_retriever(similarity_top_k=1)
    for obj, kept in ((INNER[0], {"n2"}), (inner, {"i"})):
        node = IndexNode(id_="i", text="All about payroll.", index_id="inner", obj=obj)
        place = tmp_path / str(len(kept & {"i"}))
        made = CrabPathRetriever.from_nodes([node], embeddings, path=place)
        assert {item.node_id for item in made.retrieve(QUESTION)} == {"n2"}
        assert {item.node_id for item in await made.aretrieve(QUESTION)} == {"n2"}
        assert {i.node_id for i in made.for_namespace("ann").retrieve(QUESTION)} == {"n2"}
        made.memory.close()
        opened = closing(CrabPathRetriever.from_existing(place, embeddings))
        assert {item.node_id for item in opened.retrieve(QUESTION)} == kept
    again = CrabPathRetriever(opened.memory, object_map={"inner": inner})
    assert {item.node_id for item in again.retrieve(QUESTION)} == {"n2"}


def test_fields_that_are_too_large_are_left_out_and_named(embeddings, closing, caplog):
    picture = ImageNode(id_="p", text="The plan.", image="A" * 300_000, image_path="p.png")
    ours = closing(CrabPathRetriever.from_nodes([picture], embeddings))
    assert "node 'p' comes back without image" in caplog.text
    (item,) = ours.retrieve("plan")
    assert isinstance(item.node, ImageNode)
    assert (item.node.image, item.node.image_path) == (None, "p.png")


def test_a_class_that_the_program_does_not_have_comes_back_as_text(embeddings, closing):
    """Nothing is imported because of what is stored; the text and common fields are there."""
    memory = CrabPath.open(embeddings=embeddings)
    made = closing(CrabPathRetriever(memory))
    made.add_nodes([NODES[2]])
    document = memory.get_by_ids(["c"])[0]
    for name in ("gone.module:Clause", "os:system", "llama_index.core.schema:IndexNode"):
        block = {**document.metadata["llama_index"], "class": name}
        document.metadata["llama_index"] = block
        memory.add_documents([document], split=False)
        (item,) = made.retrieve("tenant")
        assert type(item.node).__mro__[2] is TextNode
        assert item.node.get_content(metadata_mode=MetadataMode.NONE) == "The tenant pays."
