"""Tables of PostgreSQL written anew, so that nothing holds what was deleted from them."""

from time import sleep

import sqlalchemy as sa

from crabpath_retrievers.errors import StoreLockedError
from crabpath_retrievers.storage.engine import translate_database_errors

OWN_TABLES = (
    "SELECT oid::regclass::text FROM pg_class WHERE starts_with(relname, 'crabpath_') "
    "AND relkind = 'r' AND pg_table_is_visible(oid)"
)
"""Statement that names the tables of a store."""

_TRIES = 3
_NEXT = "SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS xid) AS text)"
# What a transaction may still read is kept when a table is written anew.
_MAY_READ = sa.text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND backend_type = 'client backend' AND age(backend_xmin) > age(CAST(:deleted AS xid))"
)
# The index of a table's primary key, and what gives all its columns the types that they have.
_PARTS = sa.text(
    "SELECT (SELECT quote_ident(relname) FROM pg_index JOIN pg_class ON oid = indexrelid "
    "WHERE indrelid = attrelid AND indisprimary), string_agg(format('ALTER %I TYPE %s', attname, "
    "format_type(atttypid, atttypmod) || coalesce(' COLLATE ' || "
    "CAST(CAST(nullif(attcollation, 0) AS regcollation) AS text), '')), ', ') "
    "FROM pg_attribute WHERE attrelid = CAST(:name AS regclass) AND attnum > 0 "
    "AND NOT attisdropped GROUP BY attrelid"
)


def rewrite_tables(engine: sa.Engine, time_limit: float) -> bool:
    """Write all tables of a store anew, with their indexes and statistics.

    Queries that come meanwhile wait behind the wait for a table: it ends soon and lets them pass.

    Args:
        engine: Engine with transactions.
        time_limit: Seconds that a query may wait, > 0.

    Returns:
        False if others use a table all the time, or may still read what was deleted.
    """
    with translate_database_errors(engine), engine.begin() as connection:
        names = connection.exec_driver_sql(OWN_TABLES).scalars().all()
        deleted = connection.exec_driver_sql(_NEXT).scalar_one()
    patience = time_limit / 5
    return all(_rewrite_patiently(engine, name, deleted, patience) for name in names)


def _rewrite_patiently(engine: sa.Engine, name: str, deleted: str, patience: float) -> bool:
    for attempt in range(_TRIES):
        sleep(patience if attempt else 0)  # those that waited behind the last one go on
        try:
            with translate_database_errors(engine), engine.begin() as connection:
                limit = max(1, int(patience * 1000))
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = {limit}")
                if not connection.scalar(_MAY_READ, {"deleted": deleted}):
                    _rewrite(connection, name)
                    return True
        except StoreLockedError:
            pass
    return False


def _rewrite(connection: sa.Connection, name: str) -> None:
    key, columns = connection.execute(_PARTS, {"name": name}).one()
    # Not VACUUM FULL: it is never part of a transaction, which alone limits its wait.
    connection.exec_driver_sql(f"CLUSTER {name} USING {key}")
    connection.exec_driver_sql(f"ALTER TABLE {name} SET WITHOUT CLUSTER")
    if connection.exec_driver_sql(f"TABLE {name} LIMIT 1").first() is None:
        # ANALYZE would leave its statistics; those of a column end with its type.
        connection.exec_driver_sql(f"ALTER TABLE {name} {columns}")
    connection.exec_driver_sql(f"ANALYZE {name}")
