"""A web service: ask, then send a thumb for the answer. OpenAI makes the embeddings.

export OPENAI_API_KEY=...
uvicorn --app-dir examples 09_fastapi_thumb:app
curl 'localhost:8000/ask?question=Who+must+I+name+when+a+release+goes+out'
curl 'localhost:8000/thumb' --json '{"turn_id": "...", "up": true, "used": ["Change log"]}'
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from langchain_core.documents import Document
from langchain_openai import OpenAIEmbeddings
from pydantic import BaseModel

from crabpath_retrievers import CrabPathError, CrabPathRetriever, Settings

PAGES = {
    "Release checklist": "Two reviews, green tests, and a note in the Change log.",
    "Change log": "Every entry names its author and the ticket.",
}


@asynccontextmanager
async def open_memory(app: FastAPI) -> AsyncIterator[None]:
    """Open the memory once per process; adding the same pages again changes nothing."""
    app.state.retriever = retriever = CrabPathRetriever.from_documents(
        [Document(text, id=title, metadata={"title": title}) for title, text in PAGES.items()],
        OpenAIEmbeddings(model="text-embedding-3-small", check_embedding_ctx_length=False),
        path=os.environ.get("CRABPATH_STORE", "memory"),
        vectors=os.environ.get("CRABPATH_VECTORS"),
        settings=Settings(learning={"apply": os.environ.get("CRABPATH_LEARN", "inline")}),
    )
    yield
    retriever.memory.close()


app = FastAPI(lifespan=open_memory)


class Thumb(BaseModel):
    """What a person says about an answer."""

    turn_id: str
    up: bool
    used: list[str] | None = None
    user: str = "default"  # take it from your authentication, not from the request


@app.get("/ask")
async def ask(question: str, user: str = "default") -> dict[str, object]:
    """Documents for a question, in the memory of a user."""
    found = await app.state.retriever.ainvoke(question, namespace=user)
    turn_id = found[0].metadata["crabpath"]["turn_id"] if found else None  # a blank question
    return {"turn_id": turn_id, "pages": [{"id": d.id, "text": d.page_content} for d in found]}


@app.post("/thumb")
async def learn(thumb: Thumb) -> dict[str, str | None]:
    """Learn from a thumb."""
    said = {"used": thumb.used, "namespace": thumb.user, "user": thumb.user, "source": "human"}
    receipt = await app.state.retriever.arecord(thumb.turn_id, thumb.up, **said)
    return {"status": receipt.status, "note": receipt.note}


@app.get("/ready")
async def report_readiness() -> JSONResponse:
    """For a probe: whether database and vector store answer."""
    state = await app.state.retriever.memory.aio.ready()
    return JSONResponse(state.to_dict(), 200 if state.ready else 503)


@app.exception_handler(CrabPathError)
async def explain(_request: Request, error: CrabPathError) -> JSONResponse:
    """Say in one sentence what to do."""
    return JSONResponse({"detail": str(error)}, 400)
