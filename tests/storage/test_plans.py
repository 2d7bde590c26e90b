"""Reads of one turn, or of a few episodes, touch no others of their namespace."""

import pytest

from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.learned_queries import _EPISODES
from crabpath_retrievers.storage.note_queries import _EXPIRED, _NEAR
from crabpath_retrievers.storage.turn_log import _FIND, _FIND_IN, _WINDOW
from crabpath_retrievers.storage.walk_queries import _HEADS
from crabpath_retrievers.storage.weight_writer import _EDGES, _LAST, _OVERLAY

NAMED = {"asked": "t", "namespace": "n"}
WINDOW = {"namespace": "n", "until": 1.0, "since": 0.0, "turns": 10}


@pytest.fixture
def plan(tmp_path):
    """What SQLite, whose planner knows no statistics here, makes of a hot statement."""
    store = GraphStore(tmp_path)

    def explained(select, parameters):
        with store.reading() as connection:
            select.rows(connection, parameters)
            text = next(t for (d, *_), (t, _) in select._compiled.items() if d == "sqlite")
            cursor = connection.connection.cursor()
            rows = cursor.execute(f"EXPLAIN QUERY PLAN {text}", [1] * text.count("?"))
            return "\n".join(row[3] for row in rows.fetchall())

    yield explained
    store.close()


@pytest.mark.parametrize(
    ("select", "parameters", "index"),
    [
        (_FIND, {"asked": "t"}, "autoindex_crabpath_turns_1 (id=?)"),
        (_FIND_IN, NAMED, "autoindex_crabpath_turns_1 (id=?)"),
        (_EPISODES, {"namespace": 1, "ids": ["e"]}, "autoindex_crabpath_episodes_1 (id=?)"),
    ],
)
def test_ids_are_looked_up_by_id(plan, select, parameters, index):
    """No index of the whole namespace is read, and no table."""
    found = plan(select, parameters)
    assert index in found
    assert "_clock" not in found
    assert "SCAN" not in found


def test_the_window_is_a_range_of_the_clock(plan):
    """The last turns are read, not all of them."""
    assert "ix_crabpath_turns_clock (namespace=? AND clock>?)" in plan(_WINDOW, WINDOW)


def test_nodes_are_looked_up_by_id_or_key_whoever_owns_them(plan):
    """Privacy is checked on the rows that were asked for."""
    found = plan(_HEADS, {"ids": ["a"], "keys": [1], "namespace": 1})
    assert "(id=?)" in found
    assert "PRIMARY KEY (rowid=?)" in found
    assert "SCAN" not in found


@pytest.mark.parametrize("select", [_NEAR, _EXPIRED])
def test_notes_are_looked_up_by_id(plan, select):
    """Not by their namespace, which may have many; and those that wait by their mark."""
    found = plan(select, {"namespace": 1, "ids": ["n"], "since": 0})
    assert "(id=?)" in found
    assert "ix_crabpath_notes_namespace" not in found
    assert "SCAN" not in found


@pytest.mark.parametrize("select", [_EDGES, _OVERLAY, _LAST])
def test_weights_that_move_are_looked_up_by_their_sources(plan, select):
    """Whatever the size of the graph, and of what the namespace has learned."""
    edges = [(1, 2, 3), (4, 5, 6), (7, 8, 9)]
    found = plan(select, {"namespace": 1, "edges": edges, "sources": [1, 4, 7]})
    assert "source=?" in found
    assert "SCAN crabpath" not in found
