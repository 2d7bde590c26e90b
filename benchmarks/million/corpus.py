"""Real passages, and made ones that read like them and lie among them as theirs do.

Real: the texts of data sets, then docstrings of the installed packages, cut at ``WORDS`` words and
embedded. Made: the words of a Markov chain of second order over the real ones, that begins as one
of these does. Its vector is that of this passage ``a`` plus what parts two others of the same
neighbourhood, ``normalise(v[a] + s * (v[b] - v[c]))``, with ``s`` between 0 and ``STEP`` and with
``b`` and ``c`` of those nearest to ``a``: noise of the directions and size that passages there
differ in.
"""

import ast
import json
import random
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from langchain_core.embeddings import Embeddings

from crabpath_lab.datasets import load_beir
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.vectors.embedder import load_default_embeddings

BATCH = 1000
"""Passages that are made at once: the same ones in a corpus of any size."""

WORDS = 48
NEAR = 4
_EVERY = 8  # of the passages are asked for near ones
STEP = 0.8
DIMENSIONS = 384
_FEWEST = 12  # words of a passage
_EMBEDDED_AT_ONCE = 256
_COMPARED = 1000

Numbers = npt.NDArray[np.int64]


def read_passages(folders: Sequence[Path], count: int) -> list[tuple[str, str]]:
    """Titles and texts of real passages: those of the first folder first, the others mixed.

    Args:
        folders: Data sets in BEIR format.
        count: Most passages.
    """
    first, *others = folders
    passages = list(dict.fromkeys(_cut(_read_folder(first))))
    rest = [one for folder in others for one in _cut(_read_folder(folder))]
    for one in _cut(_read_docstrings()):
        if len(passages) + len(rest) > count * 1.1:
            break
        rest.append(one)
    random.Random(0).shuffle(rest)  # noqa: S311  reproducible data
    return list({text: (title, text) for title, text in (*passages, *rest)}.values())[:count]


def _read_folder(folder: Path) -> Iterator[tuple[str, str]]:
    for document in load_beir(folder).documents:
        yield str(document.metadata.get("title") or ""), document.page_content


def _read_docstrings() -> Iterator[tuple[str, str]]:
    for path in sorted(Path(sysconfig.get_path("purelib")).rglob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, SyntaxError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                yield f"{path.stem}.{node.name}", ast.get_docstring(node) or ""


def _cut(texts: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for title, text in texts:
        words = text.split()
        for part, start in enumerate(range(0, len(words), WORDS)):
            cut = words[start : start + WORDS]
            if len(cut) >= _FEWEST:
                yield f"{title} {part + 1}" if part else title, " ".join(cut)


def embed(folder: Path, texts: Sequence[str], embeddings: Embeddings) -> Vector:
    """Unit vectors of texts; a folder keeps them, so that an interrupted run goes on."""
    file = folder / "embedded.f32"
    with file.open("ab") as kept:
        for start in range(kept.tell() // (4 * DIMENSIONS), len(texts), _EMBEDDED_AT_ONCE):
            part = [*texts[start : start + _EMBEDDED_AT_ONCE]]
            np.array(embeddings.embed_documents(part), dtype=np.float32).tofile(kept)
            kept.flush()
    return np.fromfile(file, np.float32, len(texts) * DIMENSIONS).reshape(-1, DIMENSIONS)


def load_corpus(
    folder: Path, data: Sequence[Path], embedded: int
) -> tuple["Corpus", list[str], Vector]:
    """The corpus, and the questions of the first data set with their unit vectors.

    Args:
        folder: Keeps what was read and embedded.
        data: Data sets in BEIR format.
        embedded: Most real passages.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "passages.json"
    if not file.exists():
        file.write_text(json.dumps(read_passages(data, embedded)), encoding="utf-8")
    passages = [(title, text) for title, text in json.loads(file.read_text(encoding="utf-8"))]
    embeddings = load_default_embeddings()
    texts = [f"{title}\n{text}" for title, text in passages[:embedded]]
    vectors = embed(folder, texts, embeddings)
    questions = [*load_beir(data[0]).queries.values()]
    asked = np.array(embeddings.embed_documents(questions), dtype=np.float32)
    return Corpus(passages, vectors), questions, asked


class Passage(NamedTuple):
    """A passage: its number from 0, title and text."""

    number: int
    title: str
    text: str

    @property
    def id(self) -> str:
        """The id of its document."""
        return f"p{self.number}"


class Corpus:
    """Passages in batches, the same in every process: first the real ones, then the made ones.

    Made passage n begins as the real passage n % ``count``.

    Attributes:
        count: Number of real passages, a multiple of ``BATCH``.
    """

    def __init__(self, passages: Sequence[tuple[str, str]], vectors: Vector) -> None:
        """Keep real passages and their unit vectors ``[n, d]``."""
        self.count = len(vectors) // BATCH * BATCH
        self._real, self._vectors = passages[: self.count], vectors[: self.count]
        self._chain = _Chain([text for _, text in self._real])
        self._near = _find_near(self._vectors)

    def make_batch(self, batch: int) -> tuple[list[Passage], Vector]:
        """The passages of a batch and their unit vectors, shape ``[BATCH, d]``."""
        first = batch * BATCH
        numbers = np.arange(first, first + BATCH)
        if first < self.count:
            real = [Passage(number, *self._real[number]) for number in numbers.tolist()]
            return real, self._vectors[numbers]
        rng = np.random.default_rng(batch)
        begun, others = numbers % self.count, rng.integers(0, self.count, BATCH)
        named = zip(numbers.tolist(), begun.tolist(), others.tolist(), strict=True)
        titles = [
            " ".join((*self._real[a][0].split()[:1], *self._real[b][0].split()[-1:], str(number)))
            for number, a, b in named
        ]
        texts = self._chain.write(begun, rng)
        place, apart = rng.integers(0, NEAR, BATCH), rng.integers(1, NEAR, BATCH)
        ends = self._near[begun, place], self._near[begun, (place + apart) % NEAR]
        one, other = (self._vectors[end] for end in ends)
        steps = rng.uniform(0.0, STEP, (BATCH, 1)).astype(np.float32)
        vectors = self._vectors[begun] + steps * (one - other)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return list(map(Passage, numbers.tolist(), titles, texts)), vectors

    def measure_neighbours(self) -> tuple[Vector, Vector]:
        """Mean cosines of the first, tenth and hundredth neighbour, of the real and the made.

        Each passage among as many of its own kind as there are real ones.
        """
        batches = range(self.count // BATCH, 2 * self.count // BATCH)
        made = np.concatenate([self.make_batch(batch)[1] for batch in batches])
        chosen = np.random.default_rng(0).choice(self.count, _COMPARED, replace=False)
        real, other = (_rank_cosines(all_of, all_of[chosen]) for all_of in (self._vectors, made))
        return real, other


class _Chain:
    """A Markov chain of second order: what follows two words is what followed them in a text."""

    def __init__(self, texts: Sequence[str]) -> None:
        words = [text.split() for text in texts]
        known: dict[str, int] = {}
        self._ids = np.array([known.setdefault(w, len(known)) for text in words for w in text])
        self._words = np.array(list(known), dtype=object)
        lengths = np.array([len(text) for text in words])
        ends = np.cumsum(lengths)
        self._starts = ends - lengths
        pairs = self._ids * len(known) + np.append(self._ids[1:], 0)
        follows = np.ones(len(pairs), dtype=bool)  # two more words of the text
        follows[ends - 1] = follows[ends - 2] = False
        places = np.flatnonzero(follows)
        self._sorted = places[np.argsort(pairs[places], kind="stable")]
        unique, sizes = np.unique(pairs[places], return_counts=True)
        group = np.minimum(np.searchsorted(unique, pairs), len(unique) - 1)
        self._first = (np.cumsum(sizes) - sizes)[group]
        self._alike = np.where(unique[group] == pairs, sizes[group], 0)

    def write(self, begun: Numbers, rng: np.random.Generator) -> list[str]:
        """Write texts that begin as texts with these numbers do."""
        places = self._starts[begun]
        columns = [self._ids[places], self._ids[places + 1]]
        for _ in range(WORDS - 2):
            goes_on = self._alike[places] > 0  # else nothing ever followed
            drawn = self._first[places] + rng.integers(0, np.maximum(self._alike[places], 1))
            chosen = self._sorted[drawn]
            columns.append(np.where(goes_on, self._ids[chosen + 2], -1))
            places = np.where(goes_on, chosen + 1, places)
        rows = np.stack(columns, axis=1)
        return [" ".join(self._words[row[row >= 0]]) for row in rows]


def _rank_cosines(vectors: Vector, asked: Vector) -> Vector:
    found = []
    for start in range(0, len(asked), _EMBEDDED_AT_ONCE):
        cosines = asked[start : start + _EMBEDDED_AT_ONCE] @ vectors.T
        found.append(np.sort(np.partition(cosines, -101, axis=1)[:, -101:], axis=1)[:, ::-1])
    ranked: Vector = np.concatenate(found)[:, [1, 10, 100]].mean(axis=0)
    return ranked


def _find_near(vectors: Vector) -> Numbers:
    """Some near passages of each, of every eighth one."""
    found = []
    for start in range(0, len(vectors), BATCH):
        part = vectors[start : start + BATCH]
        cosines = part @ vectors[::_EVERY].T
        own = np.arange(start, start + len(part))
        inside = own % _EVERY == 0
        cosines[inside, own[inside] // _EVERY] = -2.0
        found.append(np.argpartition(-cosines, NEAR, axis=1)[:, :NEAR] * _EVERY)
    return np.concatenate(found)
