"""The schema version of a store and the way forward from older ones, on both databases."""

import json
from dataclasses import replace

import numpy as np
import pytest
import sqlalchemy as sa
from tables import feedback, taught

from crabpath_retrievers.changes import (
    AdjustWeights,
    AdvanceClock,
    ConsumeFeedback,
    Freeze,
    KeepEpisode,
    KeepFeedback,
    PutMeta,
    WeightDelta,
)
from crabpath_retrievers.changes.autotune import SetKnobs
from crabpath_retrievers.changes.history import Taught, TaughtEpisode, UndoFeedback
from crabpath_retrievers.changes.maintenance import Merged, MergeNodes
from crabpath_retrievers.changes.notes import KeepNote, SetAuthority
from crabpath_retrievers.errors import SchemaVersionError
from crabpath_retrievers.graph import Authority, EdgeKind
from crabpath_retrievers.outcome import Feedback
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.fulltext import full_text
from crabpath_retrievers.storage.history_queries import Giver
from crabpath_retrievers.storage.migrations import VERSION, prepare, stored_version

OF_VERSION_3 = ["moves", "taught", "snapshots", "notes"]
TABLES = ["feedback", "consumed", "counts", "usage", "episodes", *OF_VERSION_3]


def migrate(store, *, version, migrations):
    """Prepare the store's database as a release with this version would."""
    with store._engine.begin() as connection:
        prepare(connection, full_text(store.dialect), version=version, migrations=migrations)


def version_of(store):
    """The schema version written in the store."""
    with store.reading() as connection:
        return stored_version(connection)


def as_version_3(store):
    """Take from a store what version 4 brought."""
    with store._engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE crabpath_episodes RENAME COLUMN turns TO wins"))
        connection.execute(sa.text("ALTER TABLE crabpath_episodes DROP COLUMN told"))
    store.apply([PutMeta((("schema", "3"),))])


def as_version_2(store):
    """Take from a store what versions 3 and 4 brought."""
    as_version_3(store)
    with store._engine.begin() as connection:
        for table in OF_VERSION_3:
            connection.execute(sa.text(f"DROP TABLE crabpath_{table}"))
        for table, column in (
            ("namespaces", "notes"),
            ("nodes", "owner"),
            ("nodes", "authority"),
            ("feedback", "embedding"),
        ):
            connection.execute(sa.text(f"ALTER TABLE crabpath_{table} DROP COLUMN {column}"))
    store.apply([PutMeta((("schema", "2"),))])


def test_a_new_store_has_the_current_version(store):
    """The version is written when the tables are made."""
    assert version_of(store) == VERSION


def test_opening_again_changes_nothing(location, store, graph, make):
    """A store of the current version is opened as it is."""
    graph.publish(make("a"))
    before = graph.contents()
    GraphStore(location).close()
    assert graph.contents() == before


def test_a_newer_store_is_refused(location, store):
    """A release does not touch what a newer one wrote, and says what to do."""
    store.apply([PutMeta((("schema", str(VERSION + 1)),))])
    with pytest.raises(SchemaVersionError, match="upgrade crabpath-retrievers"):
        GraphStore(location)


def test_migrations_run_in_order(store):
    """Every step between the stored version and the wanted one runs once, in order."""
    seen = []
    steps = {n: lambda _connection, n=n: seen.append(n) for n in range(VERSION + 3)}
    migrate(store, version=VERSION + 3, migrations=steps)
    migrate(store, version=VERSION + 3, migrations=steps)
    assert seen == [VERSION, VERSION + 1, VERSION + 2]
    assert version_of(store) == VERSION + 3


def test_a_migration_reaches_the_tables(store, graph, make):
    """A step can change the tables and keeps the rows."""
    graph.publish(make("a"))

    def widen(connection):
        connection.execute(sa.text("ALTER TABLE crabpath_nodes ADD COLUMN language TEXT"))

    migrate(store, version=VERSION + 1, migrations={VERSION: widen})
    with store.reading() as connection:
        query = sa.text("SELECT id, language FROM crabpath_nodes")
        assert [tuple(row) for row in connection.execute(query)] == [("a", None)]


def test_a_failing_migration_changes_nothing(store):
    """When a later step fails the earlier ones are taken back with it."""

    def fail(connection):
        connection.execute(sa.text("CREATE TABLE half_done (x INTEGER)"))
        msg = "a migration that fails"
        raise RuntimeError(msg)

    steps = {VERSION: lambda _connection: None, VERSION + 1: fail}
    with pytest.raises(RuntimeError):
        migrate(store, version=VERSION + 2, migrations=steps)
    assert version_of(store) == VERSION
    assert not sa.inspect(store._engine).has_table("half_done")


def test_a_gap_in_the_migrations_is_refused(store):
    """A store that no step leads on from is refused, with the step that is missing."""
    with pytest.raises(SchemaVersionError, match=f"schema {VERSION} to {VERSION + 1}"):
        migrate(store, version=VERSION + 1, migrations={})


def test_a_store_without_learning_learns_after_migration(location, store, graph, make):
    """Version 1 had neither feedback nor what follows from it; its documents and turns stay."""
    graph.publish(make("a"))
    with store._engine.begin() as connection:
        for table in TABLES:
            connection.execute(sa.text(f"DROP TABLE crabpath_{table}"))
        for table, column in (
            ("namespaces", "learned"),
            ("namespaces", "frozen"),
            ("namespaces", "mind"),
            ("turns", "embedding"),
            ("namespaces", "notes"),
            ("nodes", "owner"),
            ("nodes", "authority"),
        ):
            connection.execute(sa.text(f"ALTER TABLE crabpath_{table} DROP COLUMN {column}"))
    store.apply([PutMeta((("schema", "1"),))])
    migrated = GraphStore(location)
    migrated.apply([Freeze("ann", frozen=True)])
    assert version_of(migrated) == VERSION
    assert migrated.learned.learned("ann") == (0, None, True, None)
    assert [node.id for node in migrated.catalog.known(ids=["a"])] == ["a"]
    migrated.close()


def test_namespaces_of_version_5_have_no_knobs(location, store):
    """They follow the settings, and can be set."""
    store.apply([AdvanceClock("ann", turns=3)])
    with store._engine.begin() as connection:
        for column in ("knobs", "tuning"):
            connection.execute(sa.text(f"ALTER TABLE crabpath_namespaces DROP COLUMN {column}"))
    store.apply([PutMeta((("schema", "5"),))])
    migrated = GraphStore(location)
    assert version_of(migrated) == VERSION
    assert migrated.walk.clock("ann")[1:] == (3, 0.0, 0, 0, 0, None)
    migrated.apply([SetKnobs("run", "ann", '{"reflex": 0.9}', None, (None, None))])
    assert migrated.walk.clock("ann").knobs == '{"reflex": 0.9}'
    migrated.close()


def test_weights_of_version_2_stay_when_a_feedback_is_undone(location, store, graph, make):
    """What moved them is not known; what moves them from now on can be taken back."""
    a, b = graph.publish(make("a"), make("b"))
    store.apply([AdjustWeights("ann", (WeightDelta(a, b, EdgeKind.CO_USED, 0.5),), "old")])
    as_version_2(store)
    migrated = GraphStore(location)
    assert version_of(migrated) == VERSION
    migrated.apply(
        [
            KeepFeedback(Feedback(None, 1.0, feedback_id="f", namespace="ann")),
            ConsumeFeedback("ann", "f", (), 0, "{}"),
            AdjustWeights("ann", (WeightDelta(a, b, EdgeKind.CO_USED, 0.2),), "f"),
        ]
    )
    edge = (a, b, EdgeKind.CO_USED)
    assert migrated.learned.weights("ann", [a]) == {edge: pytest.approx(0.7)}
    migrated.apply([UndoFeedback("ann", "f", 1, "{}", "note")])
    assert migrated.learned.weights("ann", [a]) == {edge: pytest.approx(0.5)}
    migrated.close()


def test_a_store_without_notes_is_taught_after_migration(location, store, graph, make):
    """Version 2 had neither notes nor authority; what waits and is remembered there stays."""
    graph.publish(make("a"))
    store.apply([KeepFeedback(Feedback("t", 1.0, feedback_id="f"))])
    store.apply([KeepEpisode("ann", "e", "who?", np.ones(4), 2.0, 2.0, {"a": 1.0})])
    as_version_2(store)
    migrated = GraphStore(location)
    assert version_of(migrated) == VERSION
    note = replace(make("n", "a note"), document="", source="")
    (key,) = migrated.learned.keys(["a"]).values()
    migrated.apply([KeepNote("ann", note, "teaching"), SetAuthority((key,), Authority.CANONICAL)])
    ann = migrated.walk.clock("ann")
    assert {head.id for head in migrated.walk.heads(["a", "n"], namespace=ann.key)} == {"a", "n"}
    assert [head.id for head in migrated.walk.heads(["a", "n"])] == ["a"]
    (episode,) = migrated.learned.episodes(ann.key, ["e"])
    assert (episode.turns, episode.documents) == (2.0, {"a": 1.0})
    assert migrated.learned.feedback("f").vector is None
    migrated.close()


def test_episodes_of_version_3_were_told_and_can_be_undone(location, store, graph, make):
    """They remembered what was used, and lessons did not say of how many turns that is known."""
    graph.publish(make("a"))
    store.apply([KeepEpisode("ann", "e", "who?", np.ones(4), 1.0, 1.0, {"a": 1.0})])
    lesson = Taught(episodes=(TaughtEpisode("e", 2.0, 2.0, {"a": 2.0}),))
    store.apply(
        [
            KeepFeedback(Feedback(None, 1.0, feedback_id="f", namespace="ann")),
            ConsumeFeedback("ann", "f", (), 0, "{}", taught=lesson),
            KeepEpisode("ann", "e", "who?", np.ones(4), 2.0, 2.0, {"a": 2.0}),
        ]
    )
    with store._engine.begin() as connection:
        record = json.loads(connection.scalar(sa.select(taught.c.record)))
        record["episodes"] = [episode[:4] for episode in record["episodes"]]
        connection.execute(taught.update().values(record=json.dumps(record)))
    as_version_3(store)
    migrated = GraphStore(location)
    namespace = migrated.walk.clock("ann").key
    (episode,) = migrated.learned.episodes(namespace, ["e"])
    assert (episode.turns, episode.told) == (3.0, 3.0)
    migrated.apply([UndoFeedback("ann", "f", 1, "{}", "note")])
    (episode,) = migrated.learned.episodes(namespace, ["e"])
    assert (episode.turns, episode.told, episode.documents) == (1.0, 1.0, {"a": 1.0})
    migrated.close()


def test_a_store_of_version_6_knows_of_nobody_who_stands_for_others(location, store, graph, make):
    """Its documents stay; from then on they may be merged."""
    graph.publish(make("a"), make("b"))
    before = graph.contents()
    with store._engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE crabpath_replaced"))
    store.apply([PutMeta((("schema", "6"),))])
    migrated = GraphStore(location)
    assert version_of(migrated) == VERSION
    assert graph.contents() == before
    keys = migrated.learned.keys(["a", "b"])
    migrated.apply([MergeNodes("run", (Merged(keys["b"], keys["a"]),))])
    assert migrated.catalog.answering(["a", "b"]) == {"b": "a"}
    migrated.close()


def test_feedback_of_version_7_is_found_by_its_source(location, store):
    """Who gave it was not known; in what quality they did, it says itself."""
    said = [
        Feedback(None, 1.0, feedback_id="h", namespace="ann", answer='"source": "teacher"'),
        Feedback(None, -1.0, feedback_id="s", namespace="ann", source="self"),
    ]
    store.apply([KeepFeedback(one) for one in said])
    with store._engine.begin() as connection:
        for index in ("user", "namespace"):
            connection.execute(sa.text(f"DROP INDEX ix_crabpath_feedback_{index}"))
        for column in ("user", "source"):
            connection.execute(sa.text(f'ALTER TABLE crabpath_feedback DROP COLUMN "{column}"'))
    store.apply([PutMeta((("schema", "7"),))])
    migrated = GraphStore(location)
    assert version_of(migrated) == VERSION
    of_source = migrated.history.given(Giver(source="self"), 9)
    assert [(one.feedback_id, one.user) for one in of_source] == [("s", None)]
    assert [one.feedback_id for one in migrated.history.given(Giver(source="human"), 9)] == ["h"]
    migrated.apply([KeepFeedback(Feedback(None, 1.0, feedback_id="n", user="eve"))])
    assert [one.feedback_id for one in migrated.history.given(Giver(user="eve"), 9)] == ["n"]
    names = {index["name"] for index in sa.inspect(migrated._engine).get_indexes(feedback.name)}
    assert {"ix_crabpath_feedback_user", "ix_crabpath_feedback_namespace"} <= names
    migrated.close()
