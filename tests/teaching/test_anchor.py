"""Anchors: set by the host, or named in the metadata of documents."""

import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from tables import nodes

from crabpath_retrievers import InvalidInputError, NotFoundError


@pytest.fixture
def ranks(memory):
    """The authority of nodes as it is stored."""

    def read(*ids):
        with memory.store.open_reader() as connection:
            query = sa.select(nodes.c.id, nodes.c.authority).where(nodes.c.id.in_(ids))
            found = {node: rank for node, rank in connection.execute(query)}
        return [found[node] for node in ids]

    return read


def test_documents_and_notes_are_anchored(memory, ranks):
    """And let go again."""
    note = memory.teach("A rule.", namespace="ann")
    assert memory.learning.anchor(["a", note], namespace="ann") == 2
    assert ranks("a", "b", note) == [2, 0, 2]
    assert memory.learning.anchor("a", "canonical") == 1
    assert memory.learning.anchor("a", "overlay") == 1
    assert ranks("a", note) == [0, 2]


def test_a_whole_document_is_anchored(memory, ranks):
    """All of its chunks."""
    text = "# One\n\nFirst part.\n\n# Two\n\nSecond part.\n"
    memory.add_documents([Document(text, id="guide.md")])
    assert memory.learning.anchor("guide.md") == 2


@pytest.mark.parametrize(
    ("ids", "authority", "error"),
    [
        (["a", "nowhere"], "canonical", NotFoundError),
        ("", "canonical", NotFoundError),
        (["a"], "", InvalidInputError),
        (["a"], None, InvalidInputError),
        (["a"], 2, InvalidInputError),
        (["a"], float("nan"), InvalidInputError),
        (7, "overlay", InvalidInputError),
    ],
)
def test_what_cannot_be_anchored_is_refused(memory, ranks, ids, authority, error):
    """And none of it is."""
    with pytest.raises(error):
        memory.learning.anchor(ids, authority)
    assert ranks("a") == [0]


def test_metadata_names_an_authority(memory, ranks):
    """At ingest; other values mean something else to their owners, and are left alone."""
    given = {"d": "constitutional", "e": "canonical", "f": "NHS England", "g": ["canonical"]}
    memory.add_documents(
        [Document(f"Text {i}.", id=i, metadata={"authority": v}) for i, v in given.items()]
    )
    assert ranks(*given) == [2, 1, 0, 0]


def test_an_anchor_outlives_an_update(memory, ranks):
    """Unless the document itself says something else."""
    memory.learning.anchor(["a", "b"])
    memory.add_documents([Document("Apples may be green.", id="a")])
    memory.add_documents([Document("Dusk.", id="b", metadata={"authority": "overlay"})])
    assert ranks("a", "b") == [2, 0]
