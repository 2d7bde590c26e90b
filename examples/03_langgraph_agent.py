"""A LangGraph agent that learns from corrections.

    pip install 'crabpath-retrievers[local,langgraph]' langchain-openai
    export OPENAI_API_KEY=...            # and OPENAI_BASE_URL for a server of your own
    python examples/03_langgraph_agent.py

The agent reads the documents of its memory before it answers. A user corrects it with the next
message; from then on the memory of that user, in every thread, holds what was right.
"""

import os
from typing import Any

from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from crabpath_retrievers import CrabPathRetriever
from langgraph_crabpath import CrabPathMiddleware, create_crabpath_tool

HANDBOOK = {
    "Deploying": "A deployment starts with `make release`. It needs two reviews and a green build.",
    "Rollback": "`make rollback` brings back the release before. Tell the channel #releases first.",
    "On call": "Who is on call answers within 15 minutes and writes down what happened.",
    "Freeze": "There are no deployments from 20 December to 2 January.",
    "Secrets": "Secrets are kept in the vault. No secret goes into a repository.",
}
QUESTION = "How do I start a deployment?"
CORRECTION = "Since May, deployments start with `ship release`, not with `make release`."


def main() -> None:
    """Ask, correct, and ask again in another thread; then ask as somebody else."""
    documents = [
        Document(text, id=title, metadata={"title": title}) for title, text in HANDBOOK.items()
    ]
    retriever = CrabPathRetriever.from_documents(documents, k=2)
    agent = create_agent(
        ChatOpenAI(model=os.environ.get("OPENAI_MODEL", "gpt-5-mini")),
        tools=[create_crabpath_tool(retriever)],
        system_prompt="Answer in one sentence, from the documents.",
        middleware=[CrabPathMiddleware(retriever)],
        checkpointer=InMemorySaver(),
    )

    def ask(user: str, thread: str, question: str, feedback: str | None = None) -> None:
        """One message of a user, with what the user says about the answer before."""
        said: Any = {"messages": [("user", question)]}
        if feedback is not None:
            said["crabpath_feedback"] = {"correction": feedback}
        result = agent.invoke(said, {"configurable": {"thread_id": thread, "user_id": user}})
        print(f"{user}: {question}" + (f"  [correction: {feedback}]" if feedback else ""))
        read = (" ".join(d.page_content.split()) for d in result["crabpath_documents"])
        print(f"  read: {' | '.join(read)}")
        for receipt in result["crabpath_receipts"]:
            print(f"  learned: {receipt['status']}")
        print(f"  agent: {result['messages'][-1].text}")

    ask("ann", "monday", QUESTION)
    ask("ann", "monday", "Thank you.", feedback=CORRECTION)
    ask("ann", "tuesday", QUESTION)
    ask("bob", "wednesday", QUESTION)
    retriever.memory.close()


if __name__ == "__main__":
    main()
