"""What adding a document costs depends on the document, not on what is there already."""

import json
from pathlib import Path

import sqlalchemy as sa
from langchain_core.documents import Document

SAMPLE = Path(__file__).parents[2] / "examples" / "hotpotqa_sample" / "corpus.jsonl"
TEXT = "Ed Wood was a film by Tim Burton, and so was the one about Scott Derrickson."


def test_statements_per_document_do_not_grow_with_the_corpus(memory):
    """Adding one document takes no more SQL statements among 300 others than among 30."""
    with SAMPLE.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line, _ in zip(lines, range(300), strict=False)]
    documents = [Document(r["text"], id=r["_id"], metadata={"title": r["title"]}) for r in rows]
    statements = []
    for engine in (memory.store._engine, memory.store._reader):
        sa.event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))

    def cost():
        memory.forget("new")
        statements.clear()
        memory.add_documents([Document(TEXT, id="new", metadata={"title": "Scott Derrickson"})])
        return len(statements)

    memory.add_documents(documents[:30])
    few = cost()
    memory.add_documents(documents[30:])
    assert cost() <= few < 100
