"""The schema version and the way forward from each older one."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

import sqlalchemy as sa
from sqlalchemy.schema import CreateColumn

from crabpath_retrievers.errors import SchemaVersionError
from crabpath_retrievers.levels import level_of
from crabpath_retrievers.outcome import RewardSource
from crabpath_retrievers.storage.fulltext import FullText
from crabpath_retrievers.storage.schema import (
    contents,
    episodes,
    feedback,
    meta,
    metadata,
    namespaces,
    nodes,
    turns,
    usage,
)
from crabpath_retrievers.storage.weight_writer import unknown_moves

VERSION = 8

Migration = Callable[[sa.Connection], None]


def _learning(connection: sa.Connection) -> None:
    """Version 2 keeps feedback and what was learned from it."""
    _add(connection, _OF_LEARNING)
    metadata.create_all(connection)


def _going_back(connection: sa.Connection) -> None:
    """Version 3 keeps notes, the authority of nodes, and what moved a weight.

    Of weights that are older it is not known what moved them.
    """
    _add(connection, _OF_TEACHING)
    metadata.create_all(connection)
    connection.execute(unknown_moves())


def _telling(connection: sa.Connection) -> None:
    """Version 4 counts all turns of an episode, and those of which somebody said what was used.

    Older ones remembered what was used.
    """
    _rename(connection, episodes.c.turns, "wins")
    _add(connection, (episodes.c.told,))
    connection.execute(episodes.update().values(told=episodes.c.turns))


def _regions(connection: sa.Connection) -> None:
    """Version 5 knows the level of each node, what became of steps, and decayed rewards."""
    _add(connection, (nodes.c.level, usage.c.decay))
    metadata.create_all(connection)
    _index(connection, nodes, "ix_crabpath_nodes_level")
    own = sa.select(nodes.c.key, nodes.c.id).where(nodes.c.owner == 0)
    hubs = [
        {"hub": key, "at": level}
        for key, node_id in connection.execute(own)
        if (level := level_of(node_id))
    ]
    if hubs:
        update = nodes.update().where(nodes.c.key == sa.bindparam("hub"))
        connection.execute(update.values(level=sa.bindparam("at")), hubs)
        # Else queries and learning take the corpus for one without hubs until the next one comes.
        connection.execute(meta.insert().values(name="hubs", value=str(len(hubs))))


def _health(connection: sa.Connection) -> None:
    """Version 6 keeps reports on health and knobs, and finds nodes that were split off others."""
    _add(connection, (contents.c.split_from, namespaces.c.knobs, namespaces.c.tuning))
    metadata.create_all(connection)
    _index(connection, contents, "ix_crabpath_contents_split_from")


def _replacing(connection: sa.Connection) -> None:
    """Version 7 knows which documents others stand for."""
    metadata.create_all(connection)


def _giving(connection: sa.Connection) -> None:
    """Version 8 knows who gave feedback, finds it by that, and knows what each said."""
    _add(connection, (feedback.c.user, feedback.c.source, episodes.c.voices))
    for name in ("ix_crabpath_feedback_user", "ix_crabpath_feedback_namespace"):
        _index(connection, feedback, name)
    for source in get_args(RewardSource):
        said = feedback.c.payload.contains(f'"source": "{source}"', autoescape=True)
        connection.execute(feedback.update().where(said).values(source=source))


_OF_LEARNING = (*(namespaces.c[n] for n in ("learned", "frozen", "mind")), turns.c.embedding)
_OF_TEACHING = (nodes.c.owner, nodes.c.authority, namespaces.c.notes, feedback.c.embedding)


def _add(connection: sa.Connection, columns: Iterable[sa.Column[Any]]) -> None:
    """Add columns; a table that an earlier step made has those of later versions already."""
    for column in columns:
        known = sa.inspect(connection).get_columns(column.table.name)
        if column.name not in {one["name"] for one in known}:
            text = CreateColumn(column).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {column.table.name} ADD COLUMN {text}")


def _index(connection: sa.Connection, table: sa.Table, name: str) -> None:
    """Make an index of a table that is older than it."""
    next(i for i in table.indexes if i.name == name).create(connection, checkfirst=True)


def _rename(connection: sa.Connection, column: sa.Column[Any], former: str) -> None:
    """Give a column its name; a table that an earlier step made has it already."""
    table = column.table.name
    if former in {one["name"] for one in sa.inspect(connection).get_columns(table)}:
        rename = f"ALTER TABLE {table} RENAME COLUMN {former} TO {column.name}"
        connection.exec_driver_sql(rename)


# MIGRATIONS[n] leads from version n to n + 1.
MIGRATIONS: Mapping[int, Migration] = {
    1: _learning,
    2: _going_back,
    3: _telling,
    4: _regions,
    5: _health,
    6: _replacing,
    7: _giving,
}


def prepare(
    connection: sa.Connection,
    fulltext: FullText,
    *,
    version: int = VERSION,
    migrations: Mapping[int, Migration] = MIGRATIONS,
) -> None:
    """Create the tables of a new store, or bring an older one up to date.

    Raises:
        SchemaVersionError: The store is newer than this program, or no migration leads on.
    """
    found = stored_version(connection)
    if found is None:
        metadata.create_all(connection)
        fulltext.create(connection)
        connection.execute(meta.insert().values(name="schema", value=str(version)))
        return
    if found > version:
        msg = (
            f"the store has schema {found}, this release knows {version}: "
            "upgrade crabpath-retrievers"
        )
        raise SchemaVersionError(msg)
    for step in range(found, version):
        if step not in migrations:
            msg = f"no migration leads from schema {step} to {step + 1}: export and re-add the data"
            raise SchemaVersionError(msg)
        migrations[step](connection)
        connection.execute(meta.update().where(meta.c.name == "schema").values(value=str(step + 1)))


def stored_version(connection: sa.Connection) -> int | None:
    """The schema version of a store, or None when it has no tables yet."""
    if not sa.inspect(connection).has_table(meta.name):
        return None
    value = connection.scalar(sa.select(meta.c.value).where(meta.c.name == "schema"))
    return None if value is None else int(value)
