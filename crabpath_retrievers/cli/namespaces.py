"""Command group ``crabpath history``."""

from typing import Annotated

import typer
from rich.markup import escape

from crabpath_retrievers.cli.options import (
    DEFAULT_STORE,
    OneNamespace,
    Output,
    Store,
    Within,
    Yes,
    confirm_deletion,
    existing_store,
    make_table,
)
from crabpath_retrievers.core.query import namespace_of
from crabpath_retrievers.core.text import format_time
from crabpath_retrievers.learning.standalone import StandaloneLearner
from crabpath_retrievers.storage.write.namespaces import set_frozen

SnapshotName = Annotated[
    str, typer.Argument(help="Id of the snapshot, or its name in its namespace.")
]


def take_snapshot(
    name: Annotated[str | None, typer.Argument(help="A name to find it by.")] = None,
    *,
    namespace: OneNamespace = "default",
    store: Store = DEFAULT_STORE,
) -> Output:
    """Save all that a namespace has learned up to now."""
    with existing_store(store) as opened:
        identity = StandaloneLearner(opened).recorder.history.snapshot(namespace, name)
    return Output({"snapshot": identity}, [identity])


def delete_snapshot(
    snapshot: SnapshotName,
    namespace: OneNamespace = "default",
    yes: Yes = False,
    store: Store = DEFAULT_STORE,
) -> Output:
    """Delete a snapshot."""
    confirm_deletion(f"Delete the snapshot {snapshot}? This cannot be undone.", yes=yes)
    with existing_store(store) as opened:
        identity = StandaloneLearner(opened).recorder.history.delete(snapshot, namespace)
    return Output({"deleted": identity}, [f"{identity} deleted"])


def list_snapshots(namespace: Within = None, store: Store = DEFAULT_STORE) -> Output:
    """List the snapshots of a namespace, or of all."""
    scope = None if namespace is None else namespace_of(namespace)
    with existing_store(store) as opened:
        snapshots = opened.history.snapshots(scope)
    columns = ("id", "namespace", "name", "taken", "lessons", "bytes")
    rows = [
        (s.id, s.namespace, s.name or "", format_time(s.created), str(s.learned), str(s.size))
        for s in snapshots
    ]
    return Output([snapshot._asdict() for snapshot in snapshots], [make_table(columns, rows)])


def restore_snapshot(
    snapshot: SnapshotName,
    namespace: Within = None,
    yes: Yes = False,
    store: Store = DEFAULT_STORE,
) -> Output:
    """Reset what a namespace has learned to what it was at a snapshot."""
    confirm_deletion(f"Delete all that was learned since the snapshot {snapshot}?", yes=yes)
    with existing_store(store) as opened:
        restored = StandaloneLearner(opened).recorder.history.restore(snapshot, namespace)
    name, lessons = escape(restored.namespace), restored.learned
    text = f"{name} was reset to what it had learned from {lessons} lessons"
    return Output(restored._asdict(), [text])


def freeze_namespace(namespace: OneNamespace = "default", store: Store = DEFAULT_STORE) -> Output:
    """Stop a namespace from learning; queries go on using what it has learned."""
    return _set_frozen(store, namespace, frozen=True)


def unfreeze_namespace(namespace: OneNamespace = "default", store: Store = DEFAULT_STORE) -> Output:
    """Let a frozen namespace learn again."""
    return _set_frozen(store, namespace, frozen=False)


def _set_frozen(store: str, namespace: str, *, frozen: bool) -> Output:
    space = namespace_of(namespace)
    with existing_store(store) as opened:
        opened.write(set_frozen, space, frozen=frozen)
    text = f"{escape(space)} {'learns nothing more' if frozen else 'learns again'}"
    return Output({"namespace": space, "frozen": frozen}, [text])
