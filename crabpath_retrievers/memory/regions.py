"""Regions of a memory, and what is known of the steps taken in them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from crabpath_retrievers.driver import arun, perform
from crabpath_retrievers.errors import InvalidInputError, NotFoundError
from crabpath_retrievers.feedback.experience import Classify, Episode, Experience, State
from crabpath_retrievers.feedback.receipt import Receipt
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.memory.parts import Parts
from crabpath_retrievers.memory.region_mdp import RegionMDP
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE, learnable
from crabpath_retrievers.query import listed, namespace_of, texts_of
from crabpath_retrievers.regions.models import Models
from crabpath_retrievers.seeds.embedder import unit
from crabpath_retrievers.text import shown, storable


class InRegions(Parts):
    """How a memory knows which kind of step succeeds where."""

    def region_levels(self) -> tuple[int, ...]:
        """The levels in which steps are counted, finest first; none in a very small memory."""
        self._require_open()
        return self._regions.levels()

    def assign_region(self, vector: str | Sequence[float], level: int | None = None) -> str:
        """The region of a text or a vector: id of the nearest hub.

        The same whatever vector store is used and in which order documents came. A new hub takes
        over what is nearer to it.

        Args:
            vector: A text, or a vector of shape ``[d]`` from the memory's own embedder.
            level: 1 has a sixteenth of the nodes as hubs, 2 a sixteenth of these, and so on; None
                is the finest level in which steps are counted.

        Raises:
            NotFoundError: The level has no hub.
            InvalidInputError: The level is none, or the vector cannot be used.
            EmbeddingMismatchError: The vector has another dimension.
        """
        self._require_open()
        hubs = self.region_models().hubs(level)
        if isinstance(vector, str):
            (said,) = _said(vector, "a text")
            self._identity.verify()
            (key,) = hubs.nearest(self.embedder.query(said)[None])
        else:
            (key,) = hubs.nearest(unit(vector)[None])
        return hubs.names[key]

    def region_assignments(self, level: int | None = None) -> dict[str, str]:
        """The region of every document chunk: id of its hub by id.

        Reads the whole corpus, block by block.

        Raises:
            NotFoundError: The level has no hub.
        """
        self._require_open()
        return self.region_models().assignments(level)

    def transition_model(
        self, level: int | None = None, *, namespace: str = DEFAULT_NAMESPACE
    ) -> RegionMDP:
        """What a namespace has learned of steps in regions, as a Markov decision process.

        Args:
            level: One of :meth:`region_levels`; None for the finest.
            namespace: Whose experience.

        Raises:
            NotFoundError: The level has no hub, or steps are not counted on it.
            InvalidInputError: The level is none.
        """
        self._require_open()
        return RegionMDP(self, level, namespace=namespace)

    def learn_episode(
        self,
        states: Sequence[Any] | None = None,
        actions: Sequence[Any] | None = None,
        reward: float | None = None,
        *,
        texts: Sequence[str] | None = None,
        task_type: str | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        classify: Classify | None = None,
        episode_id: str | None = None,
    ) -> Receipt:
        """Learn from an episode of an agent: which actions succeeded in which regions.

        Args:
            states: What was seen, in order: vectors of the memory's embedder, or ids of documents.
            actions: What was done in each state; as many as states, or one less where the last
                state is where the episode ended. None between documents: the kind of the pointer
                from one to the next, else the ``type`` in the metadata of the next one.
            reward: From -1 (failure) to 1 (success); every action is credited with it.
            texts: Instead of states: what was seen, in words.
            task_type: Type of the task, such as "refund".
            namespace: Who learns.
            classify: Says the type of an action; None takes texts as they are.
            episode_id: The same id again changes nothing; ``undo`` takes it.

        Returns:
            ``applied``; ``refused`` where the namespace is frozen.

        Raises:
            InvalidInputError: An empty episode, a reward out of range, or what cannot be used.
            NotFoundError: An id of no document, or a memory that is too small for regions.
            EmbeddingMismatchError: A vector has another dimension.
        """
        self._require_open()
        whose = namespace_of(namespace)
        if classify is not None and not callable(classify):
            msg = f"classify must be a function of one action, not {shown(classify)}"
            raise InvalidInputError(msg)
        self._experience.require_regions()
        seen = self._seen(states, texts, whose)
        if actions is None:
            actions = self._moves([state.node for state in seen], whose)
        given = {} if episode_id is None else {"id": episode_id}
        episode = Episode(
            states=seen,
            actions=[
                action if classify is None else classify(action)
                for action in _listed(actions, "actions")
            ],
            reward=learnable(reward, name="reward"),
            task_type=task_type,
            namespace=whose,
            **given,
        )
        return self._experience.learn(episode)

    async def alearn_episode(self, *args: Any, **options: Any) -> Receipt:
        """As :meth:`learn_episode`, off the event loop."""
        return await arun(perform(self.learn_episode, *args, **options))

    @property
    def _experience(self) -> Experience:
        learning = self.settings.learning
        return Experience(self.store, self._regions, self._undoing.prior, learning)

    def region_models(self) -> Models:
        """Regions and counts as the graph store alone tells them."""
        return Models(self.store, self._regions, self.settings.region)

    def _seen(
        self, states: Sequence[Any] | None, texts: Sequence[str] | None, namespace: str
    ) -> list[State]:
        if (states is None) == (texts is None):
            msg = "give exactly one of states and texts"
            raise InvalidInputError(msg)
        if texts is not None:
            said = _said(texts, "texts")
            self._identity.verify()
            return [State(vector) for vector in self.embedder.documents(said)]
        given = [storable(s) if isinstance(s, str) else s for s in _listed(states, "states")]
        stands = self.store.catalog.answering([state for state in given if isinstance(state, str)])
        given = [stands.get(s, s) if isinstance(s, str) else s for s in given]
        known = self._vectors([state for state in given if isinstance(state, str)], namespace)
        seen = [
            State(known[state], state) if isinstance(state, str) else State(unit(state))
            for state in given
        ]
        self._identity.require_size(state.vector for state in seen)
        return seen

    def _vectors(self, ids: Sequence[str], namespace: str) -> dict[str, Vector]:
        key = self.store.walk.clock(namespace).key
        found = {head.id: head.vector for head in self.store.walk.heads(ids, namespace=key)}
        unknown = [node for node in ids if node not in found]
        if unknown:
            msg = f"there is no document {unknown[0]!r:.250}: pass observations as texts="
            raise NotFoundError(msg)
        return {node: vector.astype(np.float32) for node, vector in found.items()}

    def _moves(self, nodes: Sequence[str | None], namespace: str) -> list[str]:
        """The default actions between documents."""
        known = [node for node in nodes if node is not None]
        if len(known) != len(nodes):
            msg = "give actions: only between documents are they known from the graph"
            raise InvalidInputError(msg)
        clock = self.store.walk.clock(namespace)
        keys = self.store.learned.keys(known)
        pointers, _ = self.store.walk.outgoing(list(keys.values()), clock)
        strongest = {
            (p.source, p.target.id): p.kind.label
            for p in sorted(pointers, key=lambda pointer: pointer.weight)
            if p.weight > 0  # nobody follows one that advises against its target
        }
        documents = self.store.catalog.documents(known, namespace=clock.key)
        return [
            strongest.get((keys[a], b)) or str(documents[b].metadata.get("type") or "read")
            for a, b in pairwise(known)
        ]


def _listed(values: Any, name: str) -> list[Any]:
    """One or several values as a list; a single text is one value, not its characters."""
    return [values] if isinstance(values, str) else listed(name, values)


def _said(texts: Any, name: str) -> list[str]:
    """Texts of which something can be said."""
    said = texts_of(texts, name=name)
    if not all(text.strip() for text in said):
        msg = f"{name} must not be empty: pass what was seen, in words"
        raise InvalidInputError(msg)
    return said
