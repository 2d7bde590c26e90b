"""``memory.regions``: regions of a memory, and which kind of step succeeds in which of them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from typing_extensions import TypedDict, Unpack

from crabpath_retrievers.core.calls import AsyncView, limit_waiting, off_loop
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE, Receipt, validate_outcome
from crabpath_retrievers.core.query import (
    parse_namespace,
    parse_text,
    parse_texts,
    require_count,
    require_list,
)
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.core.text import format_value, to_storable
from crabpath_retrievers.errors import InvalidInputError, NotFoundError
from crabpath_retrievers.memory.services import MemoryPart, Services
from crabpath_retrievers.parts.region_mdp.agent_episodes import (
    ActionClassifier,
    AgentEpisode,
    EpisodeState,
    learn_from_episode,
    make_state_id,
    require_regions,
)
from crabpath_retrievers.parts.region_mdp.mdp import PastState, RegionModel
from crabpath_retrievers.parts.region_mdp.models import RegionLevel, RegionModels
from crabpath_retrievers.parts.region_mdp.overview import RegionMap, draw_map
from crabpath_retrievers.parts.typed_graph.derive import TypedGraphs
from crabpath_retrievers.regions import Hubs
from crabpath_retrievers.vectors.embedder import to_unit_vector


class EpisodeFields(TypedDict, total=False):
    """Optional fields of an episode: see :meth:`MemoryRegions.learn_episode`."""

    texts: Sequence[str] | None
    task_type: str | None
    classify: ActionClassifier | None
    episode_id: str | None


class MemoryRegions(MemoryPart):
    """Assign texts to regions, learn from episodes, and read the region MDP."""

    def levels(self) -> tuple[int, ...]:
        """The levels on which steps are counted, finest first; empty for a very small memory."""
        return self._services.regions.levels()

    def assign(self, vector: str | Sequence[float], level: int | None = None) -> str:
        """Find the region of a text or a vector: the id of the nearest hub.

        It does not depend on the vector store or on the order in which documents were added. A
        new hub takes over the nodes that are nearer to it.

        Args:
            vector: A text, or a vector of shape ``[d]`` from the memory's own embedder.
            level: 1 has a sixteenth of the nodes as hubs, 2 a sixteenth of these, and so on; None
                is the finest level on which steps are counted.

        Raises:
            NotFoundError: The level has no hub.
            InvalidInputError: There is no such level, or the vector cannot be used.
            EmbeddingMismatchError: The vector has another dimension.
        """
        return _find_region(self._services, vector, self.models().hubs(level))

    def assignments(self, level: int | None = None) -> dict[str, str]:
        """Return the region of every document chunk: id of its hub by id of the chunk.

        Reads the whole corpus, block by block. ``level`` None is the finest on which steps are
        counted.

        Raises:
            NotFoundError: The level has no hub.
        """
        return self.models().assignments(level)

    def map(self, level: int | None = None, *, namespace: str = DEFAULT_NAMESPACE) -> RegionMap:
        """All regions of a level in two dimensions, with what a namespace has learned in each.

        Similar regions are near each other, as far as two principal components can tell.

        Args:
            level: One of :meth:`levels`; None for the finest.
            namespace: The namespace whose experience counts.

        Raises:
            NotFoundError: The level has no hub, or steps are not counted on it.
            InvalidInputError: There is no such level.

        Example::

            if memory.regions.levels():
                largest = max(memory.regions.map().regions, key=lambda region: region.size)
        """
        with limit_waiting(self._services.settings.time_limit):
            return draw_map(self.models(), parse_namespace(namespace), level)

    def mdp(self, level: RegionLevel = None, *, namespace: str = DEFAULT_NAMESPACE) -> "RegionMDP":
        """Markov decision process of steps in regions, as a namespace has learned it.

        Args:
            level: One of :meth:`levels`; None for the finest. ``"states"`` are no regions of
                documents, but what agents saw in their episodes.
            namespace: The namespace whose experience counts.

        Raises:
            NotFoundError: The level has no hub, or steps are not counted on it.
            InvalidInputError: There is no such level.
        """
        return RegionMDP(self, level, namespace=namespace)

    def find_states(
        self,
        text: str,
        k: int = 4,
        *,
        task_type: str | None = None,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> list[PastState]:
        """Find the states of won episodes most similar to an agent's, with their next actions.

        Args:
            text: What it sees.
            k: Most states.
            task_type: Type of its task; None for any.
            namespace: The namespace that learned.

        Returns:
            States, most similar first; none before an episode in words was won.

        Raises:
            InvalidInputError: An empty text, or a k below 1.
        """
        (text,) = _checked_texts(parse_text("text", text), "a text")
        most, services = require_count("k", k), self._services
        mdp = self.mdp("states", namespace=namespace)
        same = make_state_id(mdp.namespace, text)
        with limit_waiting(services.settings.time_limit):
            return mdp.find_states(services.query_vector(text), most, task_type, same=same)

    def learn_episode(
        self,
        states: Sequence[Any] | None = None,
        actions: Sequence[Any] | None = None,
        reward: float | None = None,
        *,
        texts: Sequence[str] | None = None,
        task_type: str | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        classify: ActionClassifier | None = None,
        episode_id: str | None = None,
    ) -> Receipt:
        """Learn from an episode of an agent which actions succeed in which regions.

        What an agent saw in words is not compared with documents: each text is a region of its own,
        ``mdp("states")`` reads what was learned there, and :meth:`find_states` finds it again.
        Vectors and documents lie in the regions of the documents, see :meth:`mdp`.

        Args:
            states: The observations, in order: vectors of the memory's embedder, or ids of
                documents. None if ``texts`` are given.
            actions: The action in each state; as many as states, or one fewer where the episode
                ended in the last state. None between documents: the kind of the edge from one to
                the next, else the ``type`` in the metadata of the next one.
            reward: From -1 (failure) to 1 (success); every action is credited with it.
            texts: Instead of states: the observations as texts; None if ``states`` are given.
            task_type: Type of the task, such as "refund"; None for none.
            namespace: The namespace that learns.
            classify: Gives the type of an action; None takes texts as they are.
            episode_id: The same id again changes nothing; ``CrabPath.undo`` takes it. None makes
                one.

        Returns:
            ``applied``; ``refused`` where the namespace is frozen.

        Raises:
            InvalidInputError: An empty episode, a reward out of range, or a state or action that
                cannot be used.
            NotFoundError: An id of no document, or documents too few for regions.
            EmbeddingMismatchError: A vector has another dimension.
        """
        name = parse_namespace(namespace)
        if classify is not None and not callable(classify):
            msg = f"classify must be a function of one action, not {format_value(classify)}"
            raise InvalidInputError(msg)
        services = self._services
        if texts is None:
            require_regions(services.regions)
        checked_states = self._checked_states(states, texts, name)
        if actions is None:
            actions = self._default_actions([state.node for state in checked_states], name)
        fields = {} if episode_id is None else {"id": episode_id}
        episode = AgentEpisode(
            states=checked_states,
            actions=[a if classify is None else classify(a) for a in _as_list(actions, "actions")],
            reward=validate_outcome(reward, name="reward"),
            task_type=task_type,
            namespace=name,
            **fields,
        )
        graphs = TypedGraphs(services.regions, services.settings.learning)
        return learn_from_episode(
            services.recorder, services.regions, episode, graphs.compute_episode_changes
        )

    def models(self) -> RegionModels:
        """Regions and counts, read from the graph store alone."""
        services = self._services
        return RegionModels(services.store, services.regions, services.settings.region)

    def _checked_states(
        self, states: Sequence[Any] | None, texts: Sequence[str] | None, namespace: str
    ) -> list[EpisodeState]:
        if (states is None) == (texts is None):
            msg = "give exactly one of states and texts"
            raise InvalidInputError(msg)
        services = self._services
        if texts is not None:
            observed = _checked_texts(texts, "texts")
            services.identity.verify()
            seen = zip(services.embedder.documents(observed), observed, strict=True)
            return [EpisodeState(vector, text=text) for vector, text in seen]
        values = [to_storable(s) if isinstance(s, str) else s for s in _as_list(states, "states")]
        vectors = self._vectors([s for s in values if isinstance(s, str)], namespace)
        checked = [
            EpisodeState(vectors[s], s) if isinstance(s, str) else EpisodeState(to_unit_vector(s))
            for s in values
        ]
        services.identity.require_size(state.vector for state in checked)
        return checked

    def _vectors(self, ids: Sequence[str], namespace: str) -> dict[str, Vector]:
        walk = self._services.store.walk
        heads = walk.get_nodes(ids, namespace=walk.get_clock(namespace).key)
        vectors = {head.id: head.vector.astype(np.float32) for head in heads}
        unknown = [node for node in ids if node not in vectors]
        if unknown:
            msg = f"there is no document {unknown[0]!r:.250}: pass observations as texts="
            raise NotFoundError(msg)
        return vectors

    def _default_actions(self, nodes: Sequence[str | None], namespace: str) -> list[str]:
        """Find the actions from each document to the next, from edges or metadata."""
        known = [node for node in nodes if node is not None]
        if len(known) != len(nodes):
            msg = "give actions: only between documents are they known from the graph"
            raise InvalidInputError(msg)
        store = self._services.store
        clock = store.walk.get_clock(namespace)
        keys = store.learned.keys(known, clock.key)
        pointers, _ = store.walk.get_outgoing_edges(list(keys.values()), clock)
        strongest = {
            (p.source, p.target.id): p.kind.label
            for p in sorted(pointers, key=lambda pointer: pointer.weight)
            if p.weight > 0  # an inhibitory edge is never followed
        }
        documents = store.catalog.documents(known, namespace=clock.key)
        return [
            strongest.get((keys[a], b)) or str(documents[b].metadata.get("type") or "read")
            for a, b in pairwise(known)
        ]


class AsyncMemoryRegions(AsyncView[MemoryRegions]):
    """``memory.aio.regions``: :class:`MemoryRegions`, awaited."""

    levels = off_loop(MemoryRegions.levels)
    assign = off_loop(MemoryRegions.assign)
    assignments = off_loop(MemoryRegions.assignments)
    map = off_loop(MemoryRegions.map)
    mdp = off_loop(MemoryRegions.mdp)
    find_states = off_loop(MemoryRegions.find_states)
    learn_episode = off_loop(MemoryRegions.learn_episode)


class RegionMDP(RegionModel):
    """A Markov decision process: states are regions, actions types of steps ([CVX RFC-013], A).

    The reward is the outcome of the episode. It is learned from every turn with feedback and from
    :meth:`learn_episode`, and is always up to date with what its namespace has learned.
    """

    def __init__(
        self,
        memory: Any,
        level: RegionLevel = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> None:
        """Read what a namespace has learned.

        Args:
            memory: A ``CrabPath``, or its ``regions``.
            level: One of :meth:`MemoryRegions.levels`; None for the finest; ``"states"`` for what
                agents saw in their episodes.
            namespace: The namespace whose experience counts.

        Raises:
            NotFoundError: The level has no hub, or steps are not counted on it.
            InvalidInputError: There is no such level.
        """
        regions = getattr(memory, "regions", memory)
        if not isinstance(regions, MemoryRegions):
            msg = f"RegionMDP needs an open CrabPath memory, not {format_value(memory)}"
            raise InvalidInputError(msg)
        self._memory_regions, models = regions, regions.models()
        self._services = regions._services  # noqa: SLF001  the class above
        name, counted = parse_namespace(namespace), models.counted_level(level)
        hubs = models.reader(name, counted)
        super().__init__(models.store, hubs, models.settings, name, counted)

    def assign(self, state: str | Sequence[float]) -> str:
        """Find the region of a text, or of a vector of shape ``[d]``: the id of its hub.

        Raises:
            NotFoundError: No agent has seen anything in this namespace, on level ``"states"``.
            InvalidInputError: The state cannot be used.
            EmbeddingMismatchError: The vector has another dimension.
        """
        hubs = self.read_hubs()
        if isinstance(state, str) and (same := make_state_id(self.namespace, state)) in hubs.ids:
            return same  # embedders read the beginning of a long text alone
        return _find_region(self._services, state, hubs)

    def learn_episode(
        self,
        states: Sequence[Any] | None = None,
        actions: Sequence[Any] | None = None,
        reward: float | None = None,
        **fields: Unpack[EpisodeFields],
    ) -> Receipt:
        """Learn from an episode of this namespace; as :meth:`MemoryRegions.learn_episode`."""
        learn = self._memory_regions.learn_episode
        return learn(states, actions, reward, namespace=self.namespace, **fields)


def _find_region(services: Services, vector: str | Sequence[float], hubs: Hubs) -> str:
    """Find the id of that of the hubs that is nearest to a text or a vector.

    Raises:
        NotFoundError: There are no hubs.
    """
    if isinstance(vector, str):
        _checked_texts(vector, "a text")
    if not hubs.keys:
        msg = "no agent has seen anything in this namespace yet: see learn_episode(texts=…)"
        raise NotFoundError(msg)
    (key,) = hubs.nearest(services.query_vector(vector)[None])
    return hubs.names[key]


def _as_list(values: Any, name: str) -> list[Any]:
    """List one or several values; a single text is one value, not its characters.

    ``name`` is that of the argument in errors.
    """
    return [values] if isinstance(values, str) else require_list(name, values)


def _checked_texts(texts: Any, name: str) -> list[str]:
    """List one or several texts; ``name`` is that of the argument in errors.

    Raises:
        InvalidInputError: One of them is empty.
    """
    checked = parse_texts(texts, name=name)
    if not all(text.strip() for text in checked):
        msg = f"{name} must not be empty: pass what was seen, in words"
        raise InvalidInputError(msg)
    return checked
