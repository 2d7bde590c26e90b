"""Command group ``crabpath history``, and ``lift``: what a namespace has learned."""

from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer
from rich.markup import escape

from crabpath_retrievers.cli.commands import (
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
from crabpath_retrievers.core.query import parse_namespace
from crabpath_retrievers.core.text import format_time
from crabpath_retrievers.learning.standalone import StandaloneLearner
from crabpath_retrievers.learning.undo import LearningHistory
from crabpath_retrievers.parts.operation.lift import Lift, ShadowLift, measure_lift, measure_shadow
from crabpath_retrievers.parts.operation.snapshots import (
    delete_snapshot,
    list_snapshots,
    restore_snapshot,
    take_snapshot,
)
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.write.history import set_frozen

_OF_SHADOW = (
    "Documents that only the memory would have shown are hardly ever called used, and then count "
    "for nobody: this favours the present retriever."
)


def show_report(
    *,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="What a shadow of another retriever would change.")
    ] = False,
    namespace: Within = None,
    by: Annotated[str, typer.Option(help="namespace, source or week.")] = "namespace",
    store: Store = DEFAULT_STORE,
) -> Output:
    """Show what learning gained; or what the memory would change as a shadow.

    On feedback that does not depend on what was shown; of a shadow also on used documents.
    """
    scope, grouping = None if namespace is None else parse_namespace(namespace), cast("Any", by)
    with existing_store(store) as opened:
        if shadow:
            return _show_shadow(measure_shadow(opened, scope, grouping))
        return _show_lift(measure_lift(opened, scope, grouping), by)


def _show_lift(found: Sequence[Lift], by: str) -> Output:
    rows = [
        (
            *(row.group, row.labels, str(row.turns), str(row.wins), str(row.losses)),
            *(f"{row.frozen:.3f}", f"{row.learned:.3f}", f"{row.lift:+.3f}"),
            _format_interval(row.low, row.high, "+.3f"),
        )
        for row in found
    ]
    columns = (by, "labels", "turns", "wins", "losses", "frozen", "learned", "lift", "95 %")
    none = (
        "no turn since the first lesson has feedback that names relevant documents, or use of "
        "what both rankings drafted (learning.trial_share)"
    )
    shown = make_table(columns, rows) if rows else none
    lost = dict.fromkeys(row.group for row in found if row.has_lost)
    told = [f"{name} is answered by the ranking before any lesson" for name in lost]
    return Output([row._asdict() for row in found], [shown, *told])


def _show_shadow(found: Sequence[ShadowLift]) -> Output:
    lines = [
        f"{escape(row.group)}: {row.documents} used documents of {row.turns} turns. The memory "
        f"would have placed {row.higher} of them higher ({row.share:.0%}; 95 %: "
        f"{_format_interval(row.share_low, row.share_high, '.0%')}), {row.equal} equally, "
        f"{row.lower} lower, and {row.missing} not among as many. Mean gain in reciprocal place "
        f"{row.gain:+.3f} (95 %: {_format_interval(row.low, row.high, '+.3f')})."
        for row in found
    ]
    none = "no turn of a shadow has feedback that names used or relevant documents"
    return Output([row._asdict() for row in found], [*lines, _OF_SHADOW] if lines else [none])


def _format_interval(low: float | None, high: float | None, form: str) -> str:
    return "too few" if low is None else f"{low:{form}} to {high:{form}}"


SnapshotName = Annotated[
    str, typer.Argument(help="Id of the snapshot, or its name in its namespace.")
]


def run_snapshot(
    name: Annotated[str | None, typer.Argument(help="A name to find it by.")] = None,
    *,
    namespace: OneNamespace = "default",
    store: Store = DEFAULT_STORE,
) -> Output:
    """Save all that a namespace has learned up to now."""
    with existing_store(store) as opened:
        identity = take_snapshot(_get_history(opened), namespace, name)
    return Output({"snapshot": identity}, [identity])


def _get_history(store: GraphStore) -> LearningHistory:
    return StandaloneLearner(store).recorder.history


def run_delete_snapshot(
    snapshot: SnapshotName,
    namespace: OneNamespace = "default",
    yes: Yes = False,
    store: Store = DEFAULT_STORE,
) -> Output:
    """Delete a snapshot."""
    confirm_deletion(f"Delete the snapshot {snapshot}? This cannot be undone.", yes=yes)
    with existing_store(store) as opened:
        identity = delete_snapshot(_get_history(opened), snapshot, namespace)
    return Output({"deleted": identity}, [f"{identity} deleted"])


def show_snapshots(namespace: Within = None, store: Store = DEFAULT_STORE) -> Output:
    """List the snapshots of a namespace, or of all."""
    scope = None if namespace is None else parse_namespace(namespace)
    with existing_store(store) as opened:
        snapshots = list_snapshots(opened, scope)
    columns = ("id", "namespace", "name", "taken", "lessons", "bytes")
    rows = [
        (s.id, s.namespace, s.name or "", format_time(s.created), str(s.learned), str(s.size))
        for s in snapshots
    ]
    return Output([snapshot._asdict() for snapshot in snapshots], [make_table(columns, rows)])


def run_restore(
    snapshot: SnapshotName,
    namespace: Within = None,
    yes: Yes = False,
    store: Store = DEFAULT_STORE,
) -> Output:
    """Reset what a namespace has learned to what it was at a snapshot."""
    confirm_deletion(f"Delete all that was learned since the snapshot {snapshot}?", yes=yes)
    with existing_store(store) as opened:
        restored = restore_snapshot(_get_history(opened), snapshot, namespace)
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
    space = parse_namespace(namespace)
    with existing_store(store) as opened:
        opened.write(set_frozen, space, frozen=frozen)
    text = f"{escape(space)} {'learns nothing more' if frozen else 'learns again'}"
    return Output({"namespace": space, "frozen": frozen}, [text])
