"""Command ``crabpath compare``: is the memory better than what is there, on one's own documents?"""

import sys
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich.markup import escape

from crabpath_lab.compare import (
    SYSTEMS,
    AskedQuestion,
    Judgements,
    Page,
    Place,
    ask_all,
    export_judgements,
    judge_in_terminal,
    measure,
    open_systems,
    read_questions,
    serve_page,
)
from crabpath_retrievers.cli.commands import (
    EmbedderName,
    Output,
    catch_signals,
    dim,
    errors,
    make_table,
)
from crabpath_retrievers.core.text import to_printable
from crabpath_retrievers.errors import InvalidInputError

_EXAMPLES = 5  # questions of which the differences are shown

Questions = Annotated[Path, typer.Option(help="A text file, one question a line.")]
ChromaStore = Annotated[
    str | None,
    typer.Option("--store", help="Directory or address of a Chroma store that you have."),
]
Collection = Annotated[str | None, typer.Option(help="Its collection, unless there is only one.")]
Present = Annotated[
    str | None,
    typer.Option("--with", help="module:attribute of your vector store, retriever or function."),
]
Memory = Annotated[
    str | None,
    typer.Option(help="A memory over the same documents; else one is built, and deleted."),
]
Shown = Annotated[int, typer.Option("--k", "-k", help="Documents of each answer, at most 10.")]
JudgementFile = Annotated[
    Path, typer.Option(help="File that keeps your judgements, to go on with later.")
]
Export = Annotated[
    Path | None,
    typer.Option(help="New folder for the labels: BEIR files, and feedback.jsonl for replay."),
]
InTerminal = Annotated[bool, typer.Option("--terminal", help="Judge here, not in a browser.")]
OnlyReport = Annotated[
    bool, typer.Option("--report", help="Judge nothing: print what differs, and the figures.")
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 for a free one.")]
Most = Annotated[
    int, typer.Option(min=1, help="Of a larger Chroma store, so many documents are drawn.")
]


def run_compare(  # noqa: PLR0913, PLR0917  options of a command
    questions: Questions,
    chroma: ChromaStore = None,
    collection: Collection = None,
    present: Present = None,
    memory: Memory = None,
    embeddings: EmbedderName = None,
    k: Shown = 4,
    judgements: JudgementFile = Path("compare-judgements.jsonl"),
    export: Export = None,
    terminal: InTerminal = False,
    report: OnlyReport = False,
    port: Port = 0,
    most: Most = 10_000,
) -> Output:
    """Compare your retriever with a memory over the same documents; you judge, blind."""
    texts = read_questions(questions)
    kept = Judgements(judgements)
    if export is not None and export.exists() and any(export.iterdir()):
        msg = f"{export} holds files already: give --export a new folder"
        raise InvalidInputError(msg)
    place = Place(chroma, collection, present, memory, embeddings, most)
    with open_systems(place) as systems:
        asked = list(ask_all(texts, systems.searches, k))
        notes = [*systems.notes, *_list_doubts(asked, kept, len(texts), k)]
        corpus = list(systems.list_corpus()) if export is not None else []
    if terminal:
        judge_in_terminal(asked, kept, _read_line, _show)
    elif not report:
        _judge_on_page(asked, kept, notes, port)
    exported = None if export is None else export_judgements(export, asked, kept, corpus)
    figures = measure(asked, kept)
    differences = describe_differences(asked)
    examples = [line for question in _list_differing(asked) for line in _show_difference(question)]
    lines: list[Any] = [*notes, _draw_table(differences), *examples, figures.describe()]
    if exported:
        lines.append(f"Questions with labels, {exported} of them, are in {export}.")
    elif exported == 0:
        lines.append(f"Nothing was written to {export}: mark a document that answers first.")
    data = {
        "questions": len(asked),
        "k": k,
        "notes": notes,
        "differences": differences,
        "figures": figures._asdict(),
        "judgements": str(judgements),
        "exported": exported,
    }
    return Output(data, lines)


def _show(text: str) -> None:
    """Print a text on standard error: standard output is for the figures."""
    typer.echo(to_printable(text), err=True)


def _read_line(prompt: str) -> str:
    typer.echo(prompt, err=True, nl=False)
    if not (line := sys.stdin.readline()):
        raise EOFError
    return line


def _judge_on_page(
    asked: Sequence[AskedQuestion], kept: Judgements, notes: Sequence[str], port: int
) -> None:
    """Serve the page until Ctrl-C."""
    server, address = serve_page(Page(asked, kept, notes), port)
    with server:
        errors.print(f"Judge at {address} (Ctrl-C ends, and prints the figures)", soft_wrap=True)
        if sys.stderr.isatty():
            webbrowser.open(address)
        with catch_signals() as stopped:
            server.timeout = 0.2
            server.daemon_threads = True
            while not stopped.is_set():
                server.handle_request()


def _list_doubts(
    asked: Sequence[AskedQuestion], kept: Judgements, given: int, k: int
) -> Iterator[str]:
    """Yield sentences on why the figures may say less than they seem to."""
    if failed := given - len(asked):
        yield f"{failed} of {given} questions could not be asked: a retriever failed, see above."
    if asked and not any({*q.answers["present"]} & {*q.answers["memory"]} for q in asked):
        yield (
            "The two answers never share a document: are both over the same texts? Documents that "
            "one of them changes show which it is."
        )
    short = sum(len(question.answers["present"]) < k for question in asked)
    if short:
        yield (
            f"The present retriever returned fewer than {k} different texts for {short} of "
            f"{len(asked)} questions: equal texts count once."
        )
    if reopened := kept.count_reopened(asked):
        yield (
            f"The answers to {reopened} judged questions have changed since: they count again when "
            "you have seen what is new."
        )


def _list_differing(asked: Sequence[AskedQuestion]) -> list[AskedQuestion]:
    """List the five questions whose answers have the fewest documents in common."""
    shared = [len({*q.answers["present"]} & {*q.answers["memory"]}) for q in asked]
    order = sorted(range(len(asked)), key=shared.__getitem__)
    differing = [asked[i] for i in order if len(asked[i].pool) > shared[i]]
    return differing[:_EXAMPLES]


def _show_difference(question: AskedQuestion) -> Iterator[str]:
    """Yield a question, and the documents that only one of both systems found."""
    yield escape(to_printable(f"\n{question.text}"))
    for system, other in (SYSTEMS, SYSTEMS[::-1]):
        only = {*question.answers[system]} - {*question.answers[other]}
        for item in question.pool:
            if item.key in only:
                data = item.document.metadata
                name = data.get("title") or data.get("source") or item.document.page_content
                shown = to_printable(" ".join(str(name).split()))[:60]
                yield dim(f"  only {system}: {shown} ({to_printable(str(item.document.id))[:40]})")


def describe_differences(asked: Sequence[AskedQuestion]) -> dict[str, Any]:
    """Describe how the answers differ without any judgement: overlap, and median times."""
    both = [[set(question.answers[system]) for system in SYSTEMS] for question in asked]
    return {
        "same_documents": sum(present == memory for present, memory in both),
        "same_first": sum(
            question.answers["present"][:1] == question.answers["memory"][:1] for question in asked
        ),
        "only_present": sum(len(present - memory) for present, memory in both),
        "only_memory": sum(len(memory - present) for present, memory in both),
        "in_both": sum(len(memory & present) for present, memory in both),
        "milliseconds": {
            system: round(median(question.milliseconds[system] for question in asked), 2)
            for system in SYSTEMS
        },
        "most_different": [question.text for question in _list_differing(asked)],
    }


def _draw_table(found: Mapping[str, Any]) -> Any:
    spent = found["milliseconds"]
    rows = [
        ("questions with the same documents", found["same_documents"]),
        ("questions with the same first document", found["same_first"]),
        ("documents that both found", found["in_both"]),
        ("only the present retriever found", found["only_present"]),
        ("only the memory found", found["only_memory"]),
        ("median ms of the present retriever", spent["present"]),
        ("median ms of the memory", spent["memory"]),
    ]
    return make_table(("what", "figure"), [(name, str(value)) for name, value in rows])
