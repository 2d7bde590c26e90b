"""The schema version of a store, on both databases: written once, and checked at every opening."""

import pytest
import sqlalchemy as sa
from tables import meta

from crabpath_retrievers.core.changes import PutMeta
from crabpath_retrievers.errors import SchemaVersionError
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.store import SCHEMA_VERSION, UNRELEASED, read_schema_version


def read_version(store):
    with store.open_reader() as connection:
        return read_schema_version(connection)


def test_a_new_store_has_the_current_version_and_opens_unchanged(location, store, graph, make):
    assert read_version(store) == SCHEMA_VERSION == 1
    graph.publish(make("a"))
    before = graph.contents()
    GraphStore(location).close()
    assert graph.contents() == before


def test_a_newer_store_is_refused(location, store, graph, make):
    """A release does not touch what a newer one wrote, and says what to do."""
    graph.publish(make("a"))
    store.apply([PutMeta((("schema_version", str(SCHEMA_VERSION + 1)),))])
    before = graph.contents()
    with pytest.raises(SchemaVersionError, match=r"version 2, .* upgrade crabpath-retrievers$"):
        GraphStore(location)
    assert graph.contents() == before


@pytest.mark.parametrize("version", [1, 8])
def test_a_store_from_before_the_first_release_is_refused(location, store, graph, make, version):
    """Its versions 1 to 8 are never taken for ours; nothing is changed, and no table is added."""
    graph.publish(make("a"))
    with store._engine.begin() as connection:
        connection.execute(meta.delete().where(meta.c.name == "schema_version"))
        connection.execute(meta.insert().values(name="schema", value=str(version)))
        connection.execute(sa.text("DROP TABLE crabpath_health_reports"))
    assert read_version(store) == UNRELEASED < SCHEMA_VERSION
    with pytest.raises(SchemaVersionError, match=r"add the documents to a new store$"):
        GraphStore(location)
    assert "crabpath_health_reports" not in sa.inspect(store._engine).get_table_names()
    assert store.catalog.all_ids() == ["a"]
