"""all-MiniLM-L6-v2 with its weights inside: runs on onnxruntime, without torch."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from langchain_core.embeddings import Embeddings
from tokenizers import Tokenizer

__all__ = ["MiniLMEmbeddings"]

_FOLDER = Path(__file__).parent
_MOST_TOKENS = 256  # of a text, as in sentence-transformers
_BATCH = 8  # texts of similar length per call; larger batches are slower, and take more memory


class MiniLMEmbeddings(Embeddings):
    """LangChain embeddings by all-MiniLM-L6-v2: unit vectors of 384 numbers.

    Attributes:
        model_name: Name of the model on the Hugging Face hub.
    """

    model_name = "sentence-transformers/all-MiniLM-L6-v2"

    def __init__(self) -> None:
        """Load the model, in a quarter of a second."""
        self._tokenizer = Tokenizer.from_file(str(_FOLDER / "tokenizer.json"))
        self._tokenizer.enable_truncation(_MOST_TOKENS)
        self._tokenizer.no_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = _count_threads()
        # Threads that wait for the next call would take the cores of everything else.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(
            _FOLDER / "model.onnx", options, providers=["CPUExecutionProvider"]
        )

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts as unit vectors."""
        return self._embed(texts)

    def embed_query(self, text: str) -> list[float]:
        """Embed a question as a unit vector."""
        return self._embed([text])[0]

    def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        tokens = [self._tokenizer.encode(text).ids for text in texts]
        order = sorted(range(len(texts)), key=lambda place: len(tokens[place]))
        found: list[list[float]] = [[]] * len(texts)
        for start in range(0, len(texts), _BATCH):
            places = order[start : start + _BATCH]
            vectors = self._run([tokens[place] for place in places])
            for place, vector in zip(places, vectors, strict=True):
                found[place] = vector
        return found

    def _run(self, batch: Sequence[Sequence[int]]) -> list[list[float]]:
        """Compute vectors of texts, given as tokens."""
        lengths = np.array([len(tokens) for tokens in batch])
        is_token = np.arange(lengths.max()) < lengths[:, None]
        padded = np.zeros(is_token.shape, dtype=np.int64)
        padded[is_token] = np.concatenate(batch)
        given = {"input_ids": padded, "attention_mask": is_token.astype(np.int64)}
        (vectors,) = self._session.run(["vectors"], given)
        rows: list[list[float]] = vectors.tolist()
        return rows


def _count_threads() -> int:
    """Return OMP_NUM_THREADS, else the number of cores that this process may use."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if wanted.isdecimal() and int(wanted):
        return int(wanted)
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
    return len(affinity(0)) if affinity else os.cpu_count() or 1
