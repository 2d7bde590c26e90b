"""Episodes that cannot be learned from: one sentence each, and nothing is half written."""

import pytest
import sqlalchemy as sa
import tables as s

from crabpath_retrievers import EmbeddingMismatchError, Feedback, InvalidInputError, NotFoundError

ONE = ["d1"]
BAD = [
    ({}, InvalidInputError, "exactly one of states and texts"),
    ({"states": ONE, "texts": ["x"]}, InvalidInputError, "exactly one of states and texts"),
    ({"states": []}, InvalidInputError, "at least one state and one action"),
    ({"texts": []}, InvalidInputError, "at least one state and one action"),
    ({"texts": ["seen", " "]}, InvalidInputError, "texts must not be empty"),
    ({"states": 5}, InvalidInputError, "states must be a list, not 5"),
    ({"actions": []}, InvalidInputError, "at least one state and one action"),
    ({"actions": 5}, InvalidInputError, "actions must be a list, not 5"),
    ({"actions": ["a", "b"]}, InvalidInputError, "an episode of 1 states has as many actions"),
    ({"states": ["d1", "d2", "d3"]}, InvalidInputError, "or one fewer .* not 1"),
    ({"actions": [None]}, InvalidInputError, "an action must be a text of 1 to 200"),
    ({"actions": [{"name": "x"}]}, InvalidInputError, "an action must be a text"),
    ({"actions": [""]}, InvalidInputError, "an action must be a text"),
    ({"actions": ["a" * 201]}, InvalidInputError, "an action must be a text of 1 to 200"),
    ({"classify": len}, InvalidInputError, "an action must be a text of 1 to 200 .* not 4"),
    ({"task_type": "t" * 201}, InvalidInputError, "task_type must be a text of 1 to 200"),
    ({"task_type": 5}, InvalidInputError, "task_type must be a text"),
    ({"reward": 1.5}, InvalidInputError, "reward must be a number from -1 .* not 1.5"),
    ({"reward": float("nan")}, InvalidInputError, "reward must be a number .* not nan"),
    ({"reward": float("-inf")}, InvalidInputError, "reward must be a number .* not -inf"),
    ({"reward": "x"}, InvalidInputError, "reward must be a number .* not 'x'"),
    ({"reward": None}, InvalidInputError, "reward must be a number"),
    ({"reward": True}, InvalidInputError, "reward must be a number"),
    ({"states": ["unknown"]}, NotFoundError, "there is no document 'unknown'"),
    ({"states": ["\ud83d"]}, NotFoundError, "there is no document"),
    ({"states": ["d1\x00"], "actions": None}, InvalidInputError, "at least one state"),
    ({"states": [[1.0, 2.0]]}, EmbeddingMismatchError, "2 dimensions, the memory 16"),
    ({"states": [[float("nan")] * 16]}, InvalidInputError, "must be a finite vector"),
    ({"states": [[0.0] * 16]}, InvalidInputError, "not all zero"),
    ({"states": [None]}, InvalidInputError, "must be a finite vector"),
    ({"states": [[1.0] * 16] * 2, "actions": None}, InvalidInputError, "give actions"),
    ({"namespace": ""}, InvalidInputError, "namespace must be a non-empty text"),
    ({"namespace": 5}, InvalidInputError, "namespace must be a non-empty text, not 5"),
    ({"namespace": "n" * 513}, InvalidInputError, "at most 512 characters"),
    ({"episode_id": ""}, InvalidInputError, "episode_id must have 1 to 200 characters, not 0"),
    ({"episode_id": "e" * 201}, InvalidInputError, "episode_id must have 1 to 200 .* not 201"),
]


def rows(memory):
    """How many rows every table has."""
    with memory.store.open_reader() as connection:
        return {
            table.name: connection.scalar(sa.select(sa.func.count()).select_from(table))
            for table in s.metadata.sorted_tables
        }


@pytest.mark.parametrize(("given", "error", "words"), BAD)
def test_what_cannot_be_learned_from(atlas, namespace, given, error, words):
    """And nobody has to read the source to know what to do."""
    options = {"actions": ["find"], "reward": 1.0, "namespace": namespace, **given}
    if not {"texts", "states"} & set(given) and given:
        options["states"] = ONE
    before = rows(atlas)
    with pytest.raises(error, match=words) as raised:
        atlas.regions.learn_episode(**options)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 600
    assert rows(atlas) == before


def test_ids_of_feedback_of_others_are_taken(atlas, namespace):
    """Neither feedback nor an episode of another namespace is told apart."""
    turn = atlas.retrieve("Text 5", namespace=namespace).turn.id
    atlas.record(Feedback(turn, 1.0, feedback_id=f"f {namespace}"))
    atlas.regions.learn_episode(
        ONE, ["find"], 1.0, namespace=namespace, episode_id=f"e {namespace}"
    )
    before = rows(atlas)
    for taken in (f"f {namespace}", f"e {namespace}"):
        with pytest.raises(InvalidInputError, match="is taken: give another one, or none"):
            atlas.regions.learn_episode(
                ONE, ["find"], 1.0, namespace=f"{namespace}2", episode_id=taken
            )
    assert rows(atlas) == before


def test_notes_of_others_are_unknown(atlas, namespace):
    """By their id no one learns of them; their own namespace may have seen them."""
    note = atlas.teach("Only for Ann.", namespace=namespace)
    with pytest.raises(NotFoundError, match="there is no document"):
        atlas.regions.learn_episode([note], ["find"], 1.0, namespace=f"{namespace}2")
    assert (
        atlas.regions.learn_episode([note], ["find"], 1.0, namespace=namespace).status == "applied"
    )
    atlas.forget(note)


def test_a_failing_classifier_is_heard(atlas, namespace):
    """It is the caller's own; nothing is learned."""

    def fail(action):
        msg = f"no type for {action}"
        raise KeyError(msg)

    before = rows(atlas)
    with pytest.raises(KeyError, match="no type for find"):
        atlas.regions.learn_episode(ONE, ["find"], 1.0, namespace=namespace, classify=fail)
    assert rows(atlas) == before


def test_a_closed_memory_learns_nothing(open_memory):
    """It says so."""
    memory = open_memory()
    memory.close()
    with pytest.raises(Exception, match="closed"):
        memory.regions.learn_episode(ONE, ["find"], 1.0)
