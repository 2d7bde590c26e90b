"""PostgreSQL as hosts run it: behind a pooler of transactions, serializable, with other URLs.

``CRABPATH_TEST_POOLER=1`` runs all tests of PostgreSQL behind such a pooler.
"""

import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import sqlalchemy as sa
from databases import POSTGRES, empty_database, empty_schema
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from benchmarks.pooler import PGBOUNCER, serve_pooler
from crabpath_retrievers import (
    ConfigurationError,
    CrabPath,
    CrabPathRetriever,
    Settings,
    StoreUnavailableError,
)
from crabpath_retrievers.storage import GraphStore
from tests.seams import make_change

pytestmark = pytest.mark.slow

VECTORS = DeterministicFakeEmbedding(size=16)
TEXTS = [f"Page {n} is about topic{n}." for n in range(20)]
THREADS = 8
HOLD = """
import sys
from crabpath_retrievers.storage import GraphStore
with GraphStore(sys.argv[1]).hold_ingest_lock() as held:
    print(held, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def pooled():
    """URL of an empty database behind a pooler with four connections."""
    with empty_database() as url:
        yield url


def bypass(url, **parts):
    """The same database without the pooler."""
    direct = sa.make_url(POSTGRES).set(database=sa.make_url(url).database, **parts)
    return direct.render_as_string(hide_password=False)


def execute(url, *lines):
    """Execute statements, each by itself; the first value of the last one."""
    engine = sa.create_engine(url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        found = [connection.execute(sa.text(line)) for line in lines][-1]
        return found.scalar() if found.returns_rows else None


def work(url, rounds, **options):
    """Ask and record in eight threads; the memory afterwards shows what it kept."""
    place = {"path": url, "vectors": InMemoryVectorStore(VECTORS)}
    with CrabPathRetriever.from_texts(TEXTS, VECTORS, k=3, **place, **options).memory as memory:
        retriever = CrabPathRetriever(memory=memory, k=3)

        def ask(number):
            found = retriever.invoke(f"topic{number % 20}?", namespace=f"n{number % 3}")
            (receipt,) = retriever.record(found, "up", used=found[:1], namespace=f"n{number % 3}")
            return receipt.status

        with ThreadPoolExecutor(THREADS) as threads:
            said = [*threads.map(ask, range(rounds))]
        info = memory.info()
    return said, sum(info["namespaces"].values())


@pytest.mark.slow
@pytest.mark.parametrize("options", ["", "?pgbouncer=true", "?prepare_threshold=1"])
def test_every_call_succeeds_behind_a_pooler(pooled, options):
    """Noticed, told by the URL, and even where the URL insists on prepared statements."""
    said, turns = work(pooled + options, 120)
    assert (said, turns) == (["applied"] * 120, 120)
    if not options:  # nothing is left on the connections that others will have
        assert execute(pooled, "SELECT count(*) FROM pg_prepared_statements") == 0
        assert execute(pooled, "SHOW random_page_cost") == "4"


@pytest.mark.slow
@pytest.mark.parametrize("behind", [False, True], ids=["direct", "pooler"])
def test_no_turn_is_lost_where_transactions_are_serializable(pooled, behind):
    """Whatever isolation the server has for who asks for none."""
    line = "ALTER DATABASE {} SET default_transaction_isolation = 'serializable'"
    execute(bypass(pooled), line.format(sa.make_url(pooled).database))
    said, turns = work(pooled if behind else bypass(pooled), 120)
    assert (said, turns) == (["applied"] * 120, 120)


@pytest.mark.slow
def test_one_process_ingests_at_a_time_behind_a_pooler(pooled):
    """Those that wait take no connection; when a process dies, the right is free."""
    command = [sys.executable, "-c", HOLD, pooled]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "True\n"
    with ExitStack() as stack:
        stores = [GraphStore(pooled) for _ in range(8)]
        for store in stores:
            stack.callback(store.close)
            with store.hold_ingest_lock(wait=False) as right:
                assert not right

        def ingest(store):
            with store.hold_ingest_lock() as right:
                store.apply([make_change("put_meta", {"holder": str(id(store))})])
                return right and store.catalog.meta()["holder"] == str(id(store))

        with ThreadPoolExecutor(len(stores)) as threads:
            waiting = [threads.submit(ingest, store) for store in stores]
            stores[0].apply([make_change("put_meta", {"others": "go on"})])
            other.kill()
            other.communicate()
            assert all(one.result(60) for one in waiting)


@pytest.mark.slow
@pytest.mark.parametrize("settings", ["", "ignore_startup_parameters = options"])
def test_a_schema_that_a_pooler_drops_is_refused(settings):
    """Two memories in schemas of one database would be one: nothing is created."""
    if PGBOUNCER is None:
        pytest.skip("install pgbouncer")
    with serve_pooler(POSTGRES, settings=settings) as url:
        place = url.update_query_dict({"options": "-csearch_path=apart"}).render_as_string()
        with pytest.raises(ConfigurationError, match=r"ALTER ROLE .* SET search_path"):
            GraphStore(place)


@pytest.mark.slow
def test_a_role_has_a_schema_of_its_own_behind_a_pooler(pooled):
    """As the message says; two roles have two memories in one database."""
    direct, found = bypass(pooled), []
    names = [f"{sa.make_url(pooled).database}_{n}" for n in "ab"]
    with ExitStack() as stack:
        for name in names:
            execute(
                direct,
                f"CREATE ROLE {name} LOGIN SUPERUSER",
                f"CREATE SCHEMA {name}",
                f"ALTER ROLE {name} SET search_path = {name}",
            )
            stack.callback(execute, direct, f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")
            url = stack.enter_context(serve_pooler(bypass(pooled, username=name)))
            store = GraphStore(url.render_as_string())
            store.apply([make_change("put_meta", {"name": name})])
            found.append(store.catalog.meta()["name"])
            store.close()
        assert found == names
        tables = "SELECT count(*) FROM pg_tables WHERE tablename = 'crabpath_meta'"
        assert execute(direct, tables) == len(names)


def test_a_process_takes_no_more_connections_than_it_may(postgres_url):
    """One setting for all that a memory does, in however many threads."""
    most, sign = 6, f"crabpath_{uuid.uuid4().hex}"
    url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}application_name={sign}"
    place = {"path": url, "vectors": InMemoryVectorStore(VECTORS)}
    settings, taken = Settings(max_connections=most), []
    query = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{sign}'"
    with CrabPathRetriever.from_texts(TEXTS, VECTORS, settings=settings, **place).memory as memory:
        retriever = CrabPathRetriever(memory=memory)

        def ask(number):
            retriever.record(retriever.invoke(f"topic{number}"), "up")
            taken.append(execute(POSTGRES, query))

        with ThreadPoolExecutor(3 * most) as threads:
            list(threads.map(ask, range(40)))
    assert 0 < max(taken) <= most


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme", ["postgres", "postgresql", "postgresql+asyncpg", "postgresql+psycopg2", "POSTGRESQL"]
)
@pytest.mark.parametrize(
    "options", ["", "?pgbouncer=true", "?prepared_statement_cache_size=0", "?ssl=disable"]
)
def test_urls_of_other_drivers_are_understood(scheme, options, postgres_url):
    """As hosts show them, with the options of theirs; the driver is psycopg."""
    url = sa.make_url(postgres_url)
    path = url.query.get("options")
    own = options + ("&?"[not options] + f"options={path}" if path else "")
    place = f"{scheme}://{postgres_url.partition('://')[2].partition('?')[0]}{own}"
    store = GraphStore(place)
    try:
        assert store.location.startswith("postgresql+psycopg://")
        GraphStore(store.location).close()
    finally:
        store.close()


@pytest.mark.parametrize("scheme", ["postgres", "postgresql+asyncpg", "POSTGRESQL"])
def test_urls_of_other_drivers_are_understood_with_other_arguments(scheme):
    """Beside ``vectors="pgvector"`` and a replica; nobody listens at this port."""
    url = f"{scheme}://someone@127.0.0.1:1/nothing"
    for given in ({"vectors": "pgvector"}, {"vectors": "pgvector", "replica": url}):
        with pytest.raises(StoreUnavailableError, match="cannot be reached"):
            CrabPath.open(url, embeddings=VECTORS, **given)


@pytest.mark.parametrize(
    ("options", "words"),
    [("?prepare_threshold=many", "number, or None"), ("?connection_limit=1", "connection_limit")],
)
def test_options_that_are_not_known_are_named(options, words):
    with empty_schema() as url:
        place = f"{url.partition('?')[0]}{options}"
        with pytest.raises(ConfigurationError, match=words):
            GraphStore(place)
