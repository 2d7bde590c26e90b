"""Bulk ingest on a Ray cluster of two workers: the graph of one process, whatever is killed."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from corpora import make_linked_corpus, read_graph
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, CrabPathRetriever, InvalidInputError
from crabpath_retrievers.config import LinkSettings
from crabpath_retrievers.errors import ConfigurationError, ServiceError
from crabpath_retrievers.ingest.linkers import SiblingLinker, make_linkers

ray = pytest.importorskip("ray", reason="pip install 'crabpath-retrievers[ray]'")
pytest.importorskip("ray.data", reason="pip install 'crabpath-retrievers[ray]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.sqlite,
    pytest.mark.filterwarnings(r"ignore:::ray\."),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # Ray leaves sockets and logs open
]

EMBEDDINGS = DeterministicFakeEmbedding(size=16)
DOCUMENTS = make_linked_corpus(240)
ROWS = [{"text": page.page_content, "metadata": json.dumps(page.metadata)} for page in DOCUMENTS]


@pytest.fixture(scope="module")
def cluster():
    """A cluster of two workers on this machine."""
    stubs = str(Path(__file__).parents[1] / "stubs")
    paths = os.pathsep.join([stubs, str(Path(__file__).parent), *sys.path])
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )
    yield
    ray.shutdown()


@pytest.fixture
def expected(tmp_path):
    """The graph that one process makes, in other batches and another order."""
    with CrabPath.open(tmp_path / "one", embeddings=EMBEDDINGS) as memory:
        memory.add_documents(DOCUMENTS[::-1])
        return read_graph(memory)


def make_dataset():
    """The corpus as a dataset of several blocks."""
    return ray.data.from_items(ROWS, override_num_blocks=8)


class Spoiled(DeterministicFakeEmbedding):
    """Gives a vector of one number, or of that number alone, for one page."""

    by: float | None = None

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """As usual, but for that page."""
        bad = [1.0] if self.by is None else [self.by] * self.size
        begin = DOCUMENTS[3].page_content[:60]
        vectors = super().embed_documents(texts)
        return [bad if begin in t else v for t, v in zip(texts, vectors, strict=True)]


class KillsItsWorker(DeterministicFakeEmbedding):
    """Kills the process that embeds first, once."""

    mark: str

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """As usual, the second time."""
        is_worker = any(DOCUMENTS[3].page_content[:20] in text for text in texts)
        if is_worker and not os.path.exists(self.mark):  # noqa: PTH110
            Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().embed_documents(texts)


class KillsItsFinder(SiblingLinker):
    """Kills the process that links first, once; ``mark`` is beside the store."""

    mark = ""

    def __reduce__(self):
        """The mark is an attribute of the class."""
        return _make_killer, (self.settings, type(self).mark)

    def find(self, new, store, before=None):
        """As usual, the second time."""
        if not os.path.exists(type(self).mark):  # noqa: PTH110
            Path(type(self).mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().find(new, store, before)


def _make_killer(settings, mark):
    KillsItsFinder.mark = mark
    return KillsItsFinder(settings)


def test_two_workers_make_the_graph_of_one_process(cluster, tmp_path, expected):
    """Nodes, mentions and all edges are equal; a second run embeds nothing."""
    with CrabPath.open(tmp_path / "ray", embeddings=EMBEDDINGS) as memory:
        report = memory.add_dataset(make_dataset())
        assert read_graph(memory) == expected
        assert (report.documents, report.llm_tokens) == (240, 0)
        again = memory.add_dataset(make_dataset())
        assert (again.chunks.added, again.embedded_tokens) == (0, 0)


def test_a_killed_worker_is_replaced(cluster, tmp_path, expected):
    """Its part is made again by another one, in either pass."""
    killing = KillsItsWorker(size=16, mark=str(tmp_path / "embedding"))
    KillsItsFinder.mark = str(tmp_path / "linking")
    settings = LinkSettings()
    linkers = [KillsItsFinder(settings), *make_linkers(settings, lambda *_: ())[1:]]
    with CrabPath.open(tmp_path / "ray", embeddings=killing, linkers=linkers) as memory:
        memory.add_dataset(make_dataset())
        assert (tmp_path / "embedding").exists()
        assert (tmp_path / "linking").exists()
        assert read_graph(memory) == expected


KILL = """
    import sys
    sys.path[:0] = {paths!r}
    import test_ray
    from crabpath_retrievers import CrabPath
    from crabpath_retrievers.ingest import linking, pipeline
    from tests.seams import stop_after
    import ray

    pipeline.PUBLISHED_AT_ONCE, linking._LINKED_AT_ONCE = 50, 64
    stop_after({change!r}, 2)
    ray.init(address={address!r}, log_to_driver=False)
    with CrabPath.open({place!r}, embeddings=test_ray.EMBEDDINGS) as memory:
        memory.add_dataset(test_ray.make_dataset())
"""


@pytest.mark.parametrize("change", ["publish_nodes", "put_edges"])
def test_a_killed_driver_is_resumed(cluster, tmp_path, expected, change):
    """The same call in another process goes on, to the same graph."""
    place = str(tmp_path / "ray")
    paths = [str(Path(__file__).parent), *sys.path]
    address = ray.get_runtime_context().gcs_address
    script = textwrap.dedent(KILL).format(paths=paths, change=change, address=address, place=place)
    killed = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    with CrabPath.open(place, embeddings=EMBEDDINGS) as memory:
        assert memory.store.catalog.has_unfinished_ingest()
        report = memory.add_dataset(make_dataset())
        assert report.chunks.unchanged > 0
        assert read_graph(memory) == expected


def test_a_retriever_is_made_of_a_dataset(cluster, tmp_path):
    """``from_dataset`` stands beside ``from_documents``."""
    made = CrabPathRetriever.from_dataset(make_dataset(), EMBEDDINGS, path=tmp_path / "memory")
    with made.memory:
        assert made.memory.info()["nodes"] > 240
        assert made.invoke(DOCUMENTS[3].page_content)


def test_a_row_without_a_vector_is_left_out_by_its_worker(cluster, tmp_path):
    """The report names it; a wrong answer for a row is an error that names it."""
    with CrabPath.open(tmp_path / "memory", embeddings=Spoiled(size=16, by=0.0)) as memory:
        report = memory.add_dataset(make_dataset())
        assert report.chunks.left_out
        assert all(DOCUMENTS[3].metadata["source"] in label for label in report.chunks.left_out)
    refused = pytest.raises(InvalidInputError, match="instead of a vector of 16 numbers for")
    with CrabPath.open(tmp_path / "other", embeddings=Spoiled(size=16)) as memory, refused:
        memory.add_dataset(make_dataset())


def test_bad_datasets_are_refused(cluster, tmp_path):
    """No dataset, rows without text, and a half-written shard are one sentence each."""
    with CrabPath.open(tmp_path / "memory", embeddings=EMBEDDINGS) as memory:
        with pytest.raises(InvalidInputError, match="must be a dataset of Ray"):
            memory.add_dataset(ROWS)
        with pytest.raises(InvalidInputError, match="needs a text"):
            memory.add_dataset(ray.data.from_items([{"title": "no text"}]))
        shards = tmp_path / "shards"
        make_dataset().write_parquet(str(shards))
        written = ray.data.read_parquet(str(shards))
        half = max(shards.glob("*.parquet"))
        whole = half.read_bytes()
        half.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(InvalidInputError, match="run the same ingest again"):
            memory.add_dataset(written)
        half.write_bytes(whole)
        memory.add_dataset(ray.data.read_parquet(str(shards)))
        assert memory.info()["nodes"] > 240


def test_files_are_ingested_on_a_cluster_by_its_address(cluster, tmp_path):
    """As in one process; an address where nothing answers is an error at once."""
    folder = tmp_path / "files"
    folder.mkdir()
    for number, document in enumerate(DOCUMENTS):
        (folder / f"{number:03}.md").write_text(document.page_content)
    with CrabPath.open(tmp_path / "one", embeddings=EMBEDDINGS) as memory:
        memory.ingest(folder)
        expected = read_graph(memory)
    with CrabPath.open(tmp_path / "ray", embeddings=EMBEDDINGS) as memory:
        for address in ("127.0.0.1:9", "nonsense", "ray://127.0.0.1:9"):
            with pytest.raises(ServiceError, match="no Ray cluster answers"):
                memory.ingest(folder, ray=address)
        port = ray.get_runtime_context().gcs_address.rpartition(":")[2]
        report = memory.ingest(folder, ray=f"127.0.0.1:{port}")
        assert report.documents == 240
        assert read_graph(memory) == expected


def test_a_worker_that_does_not_see_the_store_says_so(tmp_path):
    """A directory is on one machine."""
    from crabpath_retrievers.parts.ray import open_for_worker

    with pytest.raises(ConfigurationError, match="PostgreSQL"):
        open_for_worker(str(tmp_path / "elsewhere"))
    assert not (tmp_path / "elsewhere").exists()
