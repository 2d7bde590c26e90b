"""The schema version of a store, on both databases: written once, and checked at every opening."""

import pytest
import sqlalchemy as sa
from tables import meta

from crabpath_retrievers.errors import SchemaVersionError
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.store import SCHEMA_VERSION, read_schema_version


def read_version(store):
    with store.open_reader() as connection:
        return read_schema_version(connection)


def test_a_new_store_has_the_current_version_and_opens_unchanged(location, store, graph, make):
    assert read_version(store) == SCHEMA_VERSION == 1
    graph.publish(make("a"))
    before = graph.contents()
    GraphStore(location).close()
    assert graph.contents() == before


@pytest.mark.parametrize(
    ("name", "version", "sentence"),
    [
        ("schema_version", SCHEMA_VERSION + 1, r"version 2, .* upgrade crabpath-retrievers$"),
        ("schema", 1, r"add the documents to a new store$"),
        ("schema", 8, r"add the documents to a new store$"),
    ],
)
def test_another_version_is_refused(location, store, graph, make, name, version, sentence):
    """A newer one, and those from before the first release; nothing is changed or added."""
    graph.publish(make("a"))
    with store._engine.begin() as connection:
        connection.execute(meta.delete().where(meta.c.name == "schema_version"))
        connection.execute(meta.insert().values(name=name, value=str(version)))
        connection.execute(sa.text("DROP TABLE crabpath_health_reports"))
    with pytest.raises(SchemaVersionError, match=sentence):
        GraphStore(location)
    assert "crabpath_health_reports" not in sa.inspect(store._engine).get_table_names()
    assert store.catalog.all_ids() == ["a"]
