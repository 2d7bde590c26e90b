"""The embedder: its prefixes, unit vectors, queries in batches, and the check that it is the same.

A local model uses all cores for one caller: concurrent calls only slow each other down, and occupy
worker threads that other work needs. So one thread embeds the queued queries together.
"""

import asyncio
import base64
import importlib
import importlib.util
import json
import logging
import re
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, cast

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_retrievers.config import PrefixSettings
from crabpath_retrievers.core.calls import time_embedding
from crabpath_retrievers.core.processes import find_interruption
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.core.text import Floats, clean_text, format_value
from crabpath_retrievers.errors import EmbeddingMismatchError, InvalidInputError, MissingExtraError
from crabpath_retrievers.storage import GraphStore, Reader
from crabpath_retrievers.storage.write.nodes import put_meta


class Prefixes(NamedTuple):
    """Texts that are written before a question and before the text of a document."""

    query: str = ""
    document: str = ""


_LOCAL = frozenset({"HuggingFaceEmbeddings", "MiniLMEmbeddings"})  # compute in this process

# What models expect before a text: prefixes and instructions that their makers document, without
# which such a model finds less. Each is quoted from the card of the model on the Hugging Face hub:
# intfloat/e5-base-v2, intfloat/multilingual-e5-large-instruct, BAAI/bge-base-en-v1.5,
# BAAI/bge-base-zh-v1.5, mixedbread-ai/mxbai-embed-large-v1, WhereIsAI/UAE-Large-V1,
# Snowflake/snowflake-arctic-embed-m, Snowflake/snowflake-arctic-embed-m-v2.0,
# nomic-ai/nomic-embed-text-v1.5, Qwen/Qwen3-Embedding-0.6B, Alibaba-NLP/gte-Qwen2-1.5B-instruct and
# google/embeddinggemma-300m. gte-base, bge-m3, all-MiniLM and others have none.
_SEARCH = "Represent this sentence for searching relevant passages: "
_TASK = "Instruct: Given a web search query, retrieve relevant passages that answer the query\n"
_KNOWN = (  # the first that fits the name in lower case counts
    (r"e5-.*instruct", Prefixes(f"{_TASK}Query: ")),
    (r"(?<![a-z0-9])e5-", Prefixes("query: ", "passage: ")),
    (r"gte-qwen", Prefixes(f"{_TASK}Query: ")),
    (r"qwen3-embedding", Prefixes(f"{_TASK}Query:")),
    (r"bge-(small|base|large)-zh", Prefixes("为这个句子生成表示以用于检索相关文章：")),
    (r"bge-(small|base|large)|mxbai-embed-large|uae-large", Prefixes(_SEARCH)),
    (r"arctic-embed2|arctic-embed.*v2", Prefixes("query: ")),
    (r"arctic-embed", Prefixes(_SEARCH)),
    (r"nomic-embed-text", Prefixes("search_query: ", "search_document: ")),
    (r"embeddinggemma", Prefixes("task: search result | query: ", "title: none | text: ")),
)
# Classes that pass texts on as they are; others, such as NomicEmbeddings, add what is needed.
_PLAIN = frozenset(
    {
        "HuggingFaceEmbeddings",
        "HuggingFaceEndpointEmbeddings",
        "InfinityEmbeddings",
        "LlamaCppEmbeddings",
        "OllamaEmbeddings",
        "OpenAIEmbeddings",
        "XinferenceEmbeddings",
    }
)
_OWN = ("prompt", "prompt_name")  # arguments by which sentence-transformers writes one itself


def is_of_class(embeddings: Embeddings, names: frozenset[str]) -> bool:
    """Whether an embedder is of one of the classes with these names, or of a subclass."""
    return any(base.__name__ in names for base in type(embeddings).__mro__)


def find_prefixes(embeddings: Embeddings, model: str) -> Prefixes:
    """Find the prefixes that an embedder of ``model`` must be given.

    There are none if the model needs none, or the embedder adds them itself.
    """
    if not is_of_class(embeddings, _PLAIN):
        return Prefixes()
    name = model.lower()
    known = next((found for sign, found in _KNOWN if re.search(sign, name)), Prefixes())
    return _leave_own(embeddings, known)


def _leave_own(embeddings: Any, known: Prefixes) -> Prefixes:
    """Return the ``known`` prefixes without those that sentence-transformers writes itself.

    A model's own ``prompts`` replace the known ones; sentence-transformers writes them only if an
    argument names them.
    """
    client = getattr(embeddings, "_client", None)
    prompts = getattr(client, "prompts", None)
    if isinstance(prompts, Mapping) and any(prompts.values()):
        named = prompts.get("document") or prompts.get("passage") or ""
        known = Prefixes(prompts.get("query") or "", named)
    if getattr(client, "default_prompt_name", None):
        return Prefixes()
    of_documents = getattr(embeddings, "encode_kwargs", None) or {}
    of_queries = getattr(embeddings, "query_encode_kwargs", None) or of_documents
    return Prefixes(
        "" if any(name in of_queries for name in _OWN) else known.query,
        "" if any(name in of_documents for name in _OWN) else known.document,
    )


_log = logging.getLogger(__name__)
EmbedTexts = Callable[[Sequence[str]], Sequence[Vector]]


class QueryBatcher:
    """Batches queued queries for one embedder, first in, first out."""

    def __init__(self, embed: EmbedTexts, batch: int) -> None:
        """Keep the function to call, with at most ``batch`` texts per call."""
        self._embed, self._batch = embed, batch
        self._queue: deque[tuple[str, Future[Vector]]] = deque()
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="crabpath-embedding")

    async def embed(self, text: str) -> Vector:
        """Embed a text, together with others that wait; may be awaited on any event loop."""
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
_PROBE = "The quick brown fox jumps over the lazy dog."
_BATCH = 8  # queries per call; all of them wait for the longest
_UNRELATED = (
    "The cat slept on the warm windowsill all afternoon.",
    "Interest rates rose by a quarter of a point in March.",
    "Preheat the oven and butter a round baking tin.",
    "The goalkeeper saved two penalties in the final.",
    "Photosynthesis turns light into chemical energy.",
    "Press the red button to restart the printer.",
    "The cathedral was finished in the fourteenth century.",
    "Children under six travel free of charge.",
    "The function returns an empty list if no file matches.",
    "Her first novel was translated into nine languages.",
    "Heavy rain is expected along the coast tonight.",
    "The patient should rest and drink plenty of water.",
    "Tighten the bolts of the rear wheel by hand.",
    "The court rejected the appeal on formal grounds.",
    "A string quartet has two violins, a viola and a cello.",
    "The asteroid passed between the Earth and the Moon.",
)
# The same contents in other words, of which each text has most.
_RELATED = (
    "All afternoon a cat lay sleeping on the windowsill, which was warm.",
    "In March the rates of interest rose a quarter of a point.",
    "Butter a round tin for baking and preheat the oven.",
    "In the final two penalties were saved by the goalkeeper.",
    "Light is turned into chemical energy by photosynthesis.",
    "To restart the printer, press its red button.",
    "In the fourteenth century the cathedral was finished.",
    "Free of charge travel children who are under six.",
    "If no file matches, an empty list is returned by the function.",
    "Into nine languages they translated her first novel.",
    "Along the coast, heavy rain is expected for tonight.",
    "Plenty of water and rest is what the patient should have.",
    "By hand, tighten the rear wheel's bolts.",
    "On formal grounds the appeal was rejected by the court.",
    "Two violins, a viola and a cello make a string quartet.",
    "Between the Moon and the Earth an asteroid passed.",
)
_LEAST_FOUND = 8  # of them by their other words, of 16; at random 1 is found
_APART = 0.9699  # mean distance, 1 - cosine, of these sentences in all-MiniLM-L6-v2
_LEAST_APART = 1e-3  # distance from which two texts are told apart
_SAME = 0.99  # cosine of one sentence embedded twice; batching changes the last digits


def load_default_embeddings() -> Embeddings:
    """Load all-MiniLM-L6-v2 by onnxruntime, else by sentence-transformers: the same vectors.

    Raises:
        MissingExtraError: Neither is installed.
    """
    if importlib.util.find_spec("crabpath_minilm") is not None:
        from crabpath_minilm import MiniLMEmbeddings

        return MiniLMEmbeddings()
    try:
        from langchain_huggingface import HuggingFaceEmbeddings
    except ImportError as error:
        msg = (
            "no embeddings were given and the local model is not installed: "
            "pass embeddings=..., or pip install 'crabpath-retrievers[local]'"
        )
        raise MissingExtraError(msg) from error
    with _hide_loading_bars():
        return HuggingFaceEmbeddings(
            model_name=DEFAULT_MODEL, encode_kwargs={"normalize_embeddings": True}
        )


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


def resolve_embeddings(given: Embeddings | str | None) -> Embeddings | None:
    """Make the embedder that an argument ``embeddings`` describes.

    Args:
        given: An embedder; the ``"provider:model"`` of one that LangChain's ``init_embeddings``
            makes, such as ``"openai:text-embedding-3-small"``; or None.

    Returns:
        The embedder; None for None, which leaves the choice to the memory.

    Raises:
        InvalidInputError: ``given`` is none of these, or the provider refuses it, for instance
            without a key.
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


_UNSET = PrefixSettings()
_PARTS = ("name", "_is_default", "_wanted", "_prefixes", "_given", "_size", "_batcher")


class Embedder:
    """A LangChain ``Embeddings`` that returns unit vectors.

    Attributes:
        name: ``"provider:model"`` if it is known by that; it is remembered in the store.
    """

    def __init__(
        self,
        embeddings: Embeddings | str | None,
        prefix: PrefixSettings = _UNSET,
    ) -> None:
        """Keep an embedder; None loads a model at first use, see :meth:`use_by_default`.

        Args:
            prefix: Prefixes of texts. Where one is None, what the store remembers is used, else
                what the model is known to need.
        """
        self.name = embeddings if isinstance(embeddings, str) else None
        self._is_default = embeddings is None
        self._wanted = (prefix.query, prefix.document)
        self._prefixes: Prefixes | None = None
        self._given = resolve_embeddings(embeddings)
        self._lock = threading.Lock()
        self._size: int | None = None
        self._batcher = self._create_batcher()

    def use_by_default(self, stored: "EmbedderIdentity | None", *, plain: bool = False) -> None:
        """Use the model and prefixes that a store remembers, unless others were given.

        Args:
            stored: Embedder that the store remembers; None for all-MiniLM-L6-v2.
            plain: Whether texts of a new store get only prefixes that are asked for: texts in a
                vector store of others were embedded without.
        """
        if stored is not None and self._given is None and stored.name is not None:
            self.name, self._batcher = stored.name, None
        if stored is not None or plain:
            self._prefixes = self._choose_prefixes(stored.prefixes if stored else Prefixes())

    @property
    def prefixes(self) -> Prefixes:
        """Prefixes of questions and of texts of documents."""
        if self._prefixes is None:
            known = find_prefixes(self.embeddings, self.model)
            self._prefixes = self._choose_prefixes(known)
        return self._prefixes

    def _choose_prefixes(self, others: Prefixes) -> Prefixes:
        """Choose the prefixes of the caller; where there are none, those of ``others``."""
        pairs = zip(self._wanted, others, strict=True)
        return Prefixes(*(other if wanted is None else wanted for wanted, other in pairs))

    @property
    def embeddings(self) -> Embeddings:
        """The LangChain embedder."""
        if self._given is None:
            with self._lock:
                if self._given is None:
                    self._given = resolve_embeddings(self.name) or load_default_embeddings()
                    self._batcher = self._batcher or self._create_batcher()
        return self._given

    def become(self, other: "Embedder") -> None:
        """Embed from now on as the embedder ``other`` does."""
        with self._lock:
            for part in _PARTS:
                setattr(self, part, getattr(other, part))

    @property
    def source(self) -> Embeddings | str | None:
        """Name or object from which another process makes this embedder; None for the default."""
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
                return name
        return type(self._given).__name__

    def documents(self, texts: Sequence[str]) -> list[Vector]:
        """Embed texts as unit vectors, each of shape ``[d]``."""
        return _require_usable(self.try_documents(texts))

    def queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed questions as unit vectors, in one call if a local model embeds both kinds alike."""
        local = is_of_class(self.embeddings, _LOCAL)
        if local and not getattr(self.embeddings, "query_encode_kwargs", None):
            return self._queries(texts)
        return [self.query(text) for text in texts]

    def _queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed questions as unit vectors, by a model that embeds them like documents."""
        return _require_usable(self.try_documents(texts, prefix=self.prefixes.query))

    def try_documents(
        self,
        texts: Sequence[str],
        describe: Callable[[int], str] = "text {}".format,
        *,
        prefix: str | None = None,
    ) -> list[Vector | None]:
        """Embed texts as :meth:`documents`, with None for a vector that is all zero or not finite.

        Args:
            describe: Describes one of them, by its place from 0, in errors.
            prefix: Written before each; None for that of documents.
        """
        if not texts:  # some embedders refuse an empty list
            return []
        before = self.prefixes.document if prefix is None else prefix
        model = self.embeddings
        with time_embedding("documents" if prefix is None else "query"):
            answer: Any = model.embed_documents([before + clean_text(t) for t in texts])
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
        """Embed a query as a unit vector, shape ``[d]``."""
        model, asked = self.embeddings, self.prefixes.query + clean_text(text)
        with time_embedding("query"):
            answer = model.embed_query(asked)
        return self._to_query_vector(answer)

    def _to_query_vector(self, answer: Any) -> Vector:
        vector = to_unit_vector(answer)
        _require_query_size(self._size or vector.size, vector)
        return vector

    def _create_batcher(self) -> QueryBatcher | None:
        """Create the batcher of a local model; None for a remote one."""
        if self._given is None:  # the default model embeds queries like documents
            return QueryBatcher(self._queries, _BATCH)
        kind = type(self._given)
        blocking = getattr(kind, "aembed_query", None) is Embeddings.aembed_query
        if blocking and is_of_class(self._given, _LOCAL):
            return QueryBatcher(lambda texts: [self.query(text) for text in texts], 1)
        return None

    @property
    def has_async(self) -> bool:
        """Whether :meth:`aquery` is more than :meth:`query` in a thread."""
        if self._given is None or self._batcher is not None:
            return True
        return type(self._given).aembed_query is not Embeddings.aembed_query

    def aquery(self, text: str) -> Awaitable[Vector]:
        """Embed a query as :meth:`query`, batched for a local model, else by its async method."""
        if self._batcher is not None:
            return self._batcher.embed(text)

        async def embed() -> Vector:
            if self._given is None:  # loading a model takes seconds
                await asyncio.to_thread(lambda: self.embeddings)
            asked = self.prefixes.query + clean_text(text)
            with time_embedding("query"):
                answer = await self.embeddings.aembed_query(asked)
            return self._to_query_vector(answer)

        return embed()

    def identify(self) -> "EmbedderIdentity":
        """Identify this embedder; its scale is not measured."""
        self._size = None  # the answer may be wrong, and is compared with what is known
        (probe,) = self.documents([_PROBE])
        return EmbedderIdentity(self.model, probe, self.name, prefixes=self.prefixes)

    def measure_scale(self) -> tuple[float, bool]:
        """Measure the scale of the vectors, and whether they are informative, on fixed sentences.

        Returns:
            The factor that stretches distances of unrelated texts to those of all-MiniLM-L6-v2: at
            least 1, to one decimal. And whether, for half of the texts, the same in other words is
            nearer than unrelated texts, which random vectors fail. Sentences that share one vector,
            such as those of a stub that knows none of their words, tell nothing.
        """
        if self._is_default and self.name is None:  # all-MiniLM-L6-v2 itself
            return 1.0, True
        rows = np.stack(self.documents([*_UNRELATED, *_RELATED]))
        count = len(_UNRELATED)
        cosines = rows[:count] @ rows.T
        apart = 1.0 - cosines[:, :count][np.triu_indices(count, 1)]
        apart = apart[apart > _LEAST_APART]
        stretch = max(1.0, round(_APART / float(apart.mean()), 1)) if len(apart) else 1.0
        others = cosines[:, count:]
        found = np.diag(others) > others.max(axis=1) - _LEAST_APART
        return stretch, int(found.sum()) >= _LEAST_FOUND


def _require_usable(vectors: Sequence[Vector | None]) -> list[Vector]:
    found = [v for v in vectors if v is not None]
    if len(found) < len(vectors):
        raise InvalidInputError(_NO_VECTOR)
    return found


def to_unit_vector(vector: Any) -> Vector:
    """Scale a vector to length 1, as float32 of shape ``[d]``."""
    found = _scale(_to_array(vector))
    if found is None:
        raise InvalidInputError(_NO_VECTOR)
    return found


_NO_VECTOR = "an embedding must be a finite vector of numbers that are not all zero"


def _to_array(vector: Any) -> Floats:
    """Convert a vector to numbers; an empty array if it is no vector of numbers."""
    try:
        # In single precision, squares of large and small numbers overflow and vanish.
        array = np.asarray(vector, dtype=np.float64)
    except Exception as error:  # any error of any object
        if found := find_interruption(error, None):
            raise found from None
        return np.zeros(0)
    return array if array.ndim == 1 else np.zeros(0)


def _scale(array: Floats) -> Vector | None:
    """Scale a vector to length 1, as float32; None if it has no direction."""
    length = float(np.linalg.norm(array))
    return (array / length).astype(np.float32) if np.isfinite(length) and length else None


class EmbedderIdentity(NamedTuple):
    """The embedder that a store was built with.

    Attributes:
        model: Name of its model, for people.
        probe: Its vector of one fixed sentence, shape ``[d]``.
        name: ``"provider:model"``, by which it can be made again; None if it is not known.
        stretch: See :meth:`Embedder.measure_scale`.
        informative: Whether its vectors are informative; see there.
        prefixes: What is written before its texts.
    """

    model: str
    probe: Vector
    name: str | None = None
    stretch: float = 1.0
    informative: bool = True
    prefixes: Prefixes = Prefixes()


_OPEN_WITH_SAME = (
    "open it with the embedder it was built with (embeddings=...; in the shell --embeddings "
    "PROVIDER:MODEL)"
)


def are_same(stored: EmbedderIdentity, current: EmbedderIdentity) -> bool:
    """Whether two embedders, ``stored`` and ``current``, are the same up to rounding of vectors."""
    try:
        require_same_embedder(stored, current)
    except EmbeddingMismatchError:
        return False
    return True


def require_same_embedder(stored: EmbedderIdentity, current: EmbedderIdentity) -> None:
    """Refuse the embedder ``current`` if the store was built with another one, ``stored``."""
    if stored.probe.shape != current.probe.shape:
        what = f"{stored.probe.size} dimensions, not {current.probe.size}"
    elif stored.prefixes != current.prefixes:
        query, document = stored.prefixes
        what = f"the prefixes {query!r} of questions and {document!r} of documents"
    elif float(stored.probe @ current.probe) < _SAME:
        what = f"model {stored.model!r}; the embedder given is {current.model!r}"
    else:
        return
    with_prefix = stored.prefixes != current.prefixes
    advice = "set settings.prefix to these" if with_prefix else _OPEN_WITH_SAME
    msg = (
        f"the store was built with {what}: {advice}, or change the embedder of the store with "
        "crabpath reembed"
    )
    raise EmbeddingMismatchError(msg)


def parse_identity(text: str) -> EmbedderIdentity:
    """Parse the embedder that a store was built with, from its metadata."""
    data = json.loads(text)
    return EmbedderIdentity(
        str(data["model"]),
        np.frombuffer(base64.b64decode(data["probe"], validate=True), dtype="<f4"),
        data.get("name"),
        float(data.get("stretch", 1.0)),
        data.get("informative", True),
        Prefixes(data.get("query_prefix", ""), data.get("document_prefix", "")),
    )


def read_identity(meta: Mapping[str, str]) -> EmbedderIdentity | None:
    """Read the embedder from a store's metadata; None before its first text."""
    if "embedder" not in meta or not {"nodes", "notes"} & set(meta):
        return None
    return parse_identity(meta["embedder"])


class EmbedderFingerprint:
    """The embedder of a store: its name and its vector of one fixed sentence."""

    def __init__(self, store: GraphStore, embedder: Embedder) -> None:
        """Keep the store, and ``embedder``, to compare it with the one recorded there."""
        self._store, self._embedder = store, embedder
        self._lock = threading.Lock()
        self._stored: EmbedderIdentity | None = None
        self._is_same = False
        self._version = 0
        self._corpus: int | None = None
        self._settled = threading.Event()
        self._settled.set()

    @property
    def size(self) -> int | None:
        """Dimension of the store's vectors; None while unknown."""
        return None if self._stored is None else self._stored.probe.size

    def fits(self, vector: Vector | None) -> bool:
        """Whether the embedder is verified; for a query vector, whether its dimension fits.

        ``vector`` is None if the embedder itself is to be used.
        """
        if vector is None:
            return self._is_same
        return self._stored is not None and vector.shape == self._stored.probe.shape

    @property
    def version(self) -> int:
        """Number of changes of the embedder in this process; waits while one is going on."""
        self._settled.wait()
        return self._version

    def is_current(self, corpus: int | None) -> bool:
        """Whether this version of the corpus is known to use the same embedder."""
        return corpus == self._corpus or self._stored is None

    def require_current(self, corpus: int | None = None, read: Reader | None = None) -> None:
        """Refuse to go on if another process has changed the embedder.

        ``corpus`` is the version of the corpus that was read, and is then known to be current;
        ``read`` reads the metadata, None takes the store.
        """
        now = read_identity((read or self._store).catalog.meta())
        if self._stored is not None and now is not None and not are_same(self._stored, now):
            msg = (
                f"the embedder of {self._store.name} was changed to {now.model!r} while it was "
                "open: open it again with that embedder"
            )
            raise EmbeddingMismatchError(msg)
        self._corpus = corpus

    @contextmanager
    def change(self, embedder: Embedder, identity: EmbedderIdentity | None) -> Iterator[None]:
        """Change to ``embedder`` at the end of a block; queries that end meanwhile are asked again.

        ``identity`` is recorded already; None lets the first document record one, as in a new
        memory.
        """
        with self._lock:
            self._settled.clear()
            try:
                yield
                self._embedder.become(embedder)
                self._stored, self._is_same = identity, identity is not None
                self._corpus = None
                self._store.forget_scale()
            finally:
                self._version += 1
                self._settled.set()

    def verify(self, vector: Vector | None = None) -> None:
        """Compare the embedder with the recorded one; if none is recorded, record this one.

        ``vector``, that of a query, shape ``[d]``, is used instead of asking the embedder; None
        asks.

        Raises:
            EmbeddingMismatchError: The vectors in the store are of another embedder.
        """
        with self._lock:
            self._stored = self._stored or read_identity(self._store.catalog.meta())
            if vector is not None:
                _require_query_size(self.size or vector.size, vector)
            elif self._is_same:
                self.require_current(self._corpus)
            else:
                self._compare(self._stored)

    def require_size(self, vectors: Iterable[Vector]) -> None:
        """Refuse vectors ``[d]`` of other dimensions than the store's."""
        size = json.loads(self._store.catalog.meta()["embedder"])["dimension"]
        for vector in vectors:
            if vector.size != size:
                msg = (
                    f"a vector given has {vector.size} dimensions, the memory {size}: "
                    "pass the embedder that made the vectors"
                )
                raise EmbeddingMismatchError(msg)

    def embed_text(self, text: str) -> Vector:
        """Embed a text by the store's embedder, as a unit vector of shape ``[d]``."""
        self.verify()
        return self._embedder.documents([text])[0]

    def _compare(self, stored: EmbedderIdentity | None) -> None:
        found = self._embedder.identify()
        if stored:
            require_same_embedder(stored, found)
            self._is_same = True
            if found.name is None or found.name == stored.name:
                return
            identity = stored._replace(name=found.name)
        else:
            identity = measure_identity(self._embedder, found)
        self._store.write(put_meta, {"embedder": encode_identity(identity)})


def _require_query_size(size: int, vector: Vector) -> None:
    if vector.size != size:
        msg = (
            f"the query vector has {vector.size} dimensions, the memory {size}: "
            "use the embedder that the memory was built with"
        )
        raise EmbeddingMismatchError(msg)


def measure_identity(embedder: Embedder, found: EmbedderIdentity | None = None) -> EmbedderIdentity:
    """Measure the identity of an embedder for the store; warn if its vectors tell nothing.

    ``found`` is the identity without a measured scale; None asks the embedder for it.
    """
    found = found or embedder.identify()
    stretch, informative = embedder.measure_scale()
    if not informative:
        _log.warning(
            "the vectors of the embedder %r do not tell what texts are about: questions are "
            "answered by words and names alone",
            found.model,
        )
    return found._replace(stretch=stretch, informative=informative)


def encode_identity(identity: EmbedderIdentity) -> str:
    """Encode an identity as text that :func:`parse_identity` reads."""
    probe = base64.b64encode(identity.probe.astype("<f4").tobytes()).decode()
    facts: dict[str, Any] = {"model": identity.model, "dimension": int(identity.probe.size)}
    facts |= {"probe": probe, "stretch": identity.stretch}
    query, document = identity.prefixes
    others = {"name": identity.name, "query_prefix": query, "document_prefix": document}
    facts |= {name: value for name, value in others.items() if value}
    return json.dumps(facts if identity.informative else {**facts, "informative": False})
