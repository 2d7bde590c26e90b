"""Finds the turns behind retrieved documents, and matches citations with the documents."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crabpath_retrievers.metadata import read_answer_block


@dataclass(frozen=True, slots=True)
class RetrievedTurn:
    """A turn, as recorded in the metadata of its documents.

    Attributes:
        turn_id: Id of the turn.
        namespace: Namespace of the turn.
        run_id: Id of the host's retriever run.
        place: LangGraph task of the run; empty elsewhere.
        names: Names of each document (id, sources, title), in rank order.
    """

    turn_id: str
    namespace: str
    run_id: str
    place: str
    names: tuple[tuple[str, ...], ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the documents, in rank order."""
        return tuple(names[0] for names in self.names)

    def select_used(self, cited: Sequence[str | int], *, places: bool) -> tuple[str, ...] | None:
        """Return the ids of the cited documents; None if the citations say nothing.

        Citations of all documents say nothing: some chains list their whole context.

        Args:
            cited: Ids, sources, titles or positions.
            places: Whether numbers may be positions of documents.
        """
        wanted = {str(item) for item in cited}
        ids = {names[0] for names in self.names if wanted.intersection(names)}
        if not ids and places:
            ids = set(self._find_at_positions([item for item in cited if _is_number(item)]))
        if not ids or len(ids) == len(self.names) > 1:
            return None
        return tuple(name for name in self.ids if name in ids)

    def _find_at_positions(self, numbers: Iterable[str | int]) -> list[str]:
        """Return documents at positions, if it is clear whether they count from 0 or from 1."""
        given, count = {int(number) for number in numbers}, len(self.names)
        if 0 in given and max(given) < count:
            return [self.names[number][0] for number in given]
        if count in given and min(given) > 0 and max(given) == count:
            return [self.names[number - 1][0] for number in given]
        return []


def find_turns(documents: Any, run_id: str, place: str) -> list[RetrievedTurn]:
    """Find the turns of retrieved documents; none if another retriever returned them."""
    turns: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for document in documents if isinstance(documents, (list, tuple)) else ():
        metadata = getattr(document, "metadata", None) or {}
        block = read_answer_block(metadata)
        if block is not None:
            names = (
                block["id"],
                block.get("source"),
                metadata.get("source"),
                metadata.get("title"),
            )
            key = (str(block["turn_id"]), str(block["namespace"]))
            turns.setdefault(key, []).append(tuple(str(name) for name in names if name))
    return [
        RetrievedTurn(turn, space, run_id, place, tuple(names))
        for (turn, space), names in turns.items()
    ]


def find_turns_in_state(state: Any) -> list[RetrievedTurn]:
    """Find the turns of documents in the state of a graph, or in its messages."""
    if not isinstance(state, Mapping):
        return []
    lists = [value for value in state.values() if isinstance(value, list)]
    artifacts = [getattr(item, "artifact", None) for value in lists for item in value]
    turns = {
        turn.turn_id: turn for given in (*artifacts, *lists) for turn in find_turns(given, "", "")
    }
    return list(turns.values())


def _is_number(item: str | int) -> bool:
    return isinstance(item, int) or item.isdecimal()
