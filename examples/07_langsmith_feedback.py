"""Learn from what people say in LangSmith: trace a chain, judge its answer, pull, ask again.

    export LANGSMITH_API_KEY=...   # and LANGSMITH_ENDPOINT, where it is not the public one
    export LANGSMITH_PROJECT=chat  # must exist
    python examples/07_langsmith_feedback.py

In production the judgement is given in LangSmith or by your front end, and
``crabpath learn --from-langsmith chat --store ./memory`` runs from a schedule.
"""

import os
import time
import uuid

from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_core.tracers import LangChainTracer
from langsmith import Client

from crabpath_retrievers import CrabPathRetriever
from crabpath_retrievers.parts.langsmith import PullReport, pull

PROJECT = os.environ.get("LANGSMITH_PROJECT", "default")
QUESTION = "How do I roll back a release?"
DOCUMENTS = {
    "deploy": "A release is deployed with `ship release`; it takes five minutes.",
    "rollback-old": "To roll back a release, restore last night's backup.",
    "rollback": "`ship undo` brings the release before this one back at once.",
    "oncall": "Who is on call rolls releases back and tells the team.",
}


def answer(prompt: object) -> str:
    """Stand in for your chat model: repeats the first passage that it is given."""
    return str(prompt.to_string()).splitlines()[0]  # type: ignore[attr-defined]


def parse_text(documents: list[Document]) -> str:
    """The passages, one a line."""
    return "\n".join(" ".join(document.page_content.split()) for document in documents)


def pulled(client: Client, retriever: CrabPathRetriever) -> PullReport:
    """Pull until LangSmith has stored what was said; it takes some seconds."""
    for _ in range(30):
        found = pull(client, retriever.memory, PROJECT)
        if found.learned:
            return found
        time.sleep(1)
    return found


def main() -> None:
    """Ask, judge, pull, ask again."""
    client = Client()
    documents = [Document(id=name, page_content=text) for name, text in DOCUMENTS.items()]
    retriever = CrabPathRetriever.from_documents(documents, k=2)
    prompt = ChatPromptTemplate.from_template("{context}\n{question}")
    found = {"context": retriever | parse_text, "question": RunnablePassthrough()}
    chain = found | prompt | RunnableLambda(answer) | StrOutputParser()

    run_id = uuid.uuid4()
    tracer = LangChainTracer(project_name=PROJECT, client=client)
    print("before:", chain.invoke(QUESTION, {"run_id": run_id, "callbacks": [tracer]}))
    client.flush()

    right = "Roll back a release with `ship undo`; never restore a backup."
    project = client.read_project(project_name=PROJECT).id
    judged = {"score": 0, "correction": {"text": right}, "session_id": project}
    client.create_feedback(run_id, "user_score", **judged)
    print("pulled:", pulled(client, retriever))
    print("after: ", chain.invoke(QUESTION))


if __name__ == "__main__":
    main()
