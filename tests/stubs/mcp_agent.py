"""An agent of LangGraph with the tools of an MCP server, by langchain-mcp-adapters.

Usage: ``mcp_agent.py URL TOKEN MODEL_URL QUESTION``; prints the names of the tools and the answer.
A process of its own: langchain-mcp-adapters needs release 1 of mcp, and the server release 2.
"""

import asyncio
import json
import sys

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI


async def ask(url, token, model_url, question):
    """The names of the tools, and what the agent answers in the end."""
    headers = {"Authorization": f"Bearer {token}"}
    memory = {"transport": "streamable_http", "url": url, "headers": headers}
    tools = await MultiServerMCPClient({"memory": memory}).get_tools()
    model = ChatOpenAI(model="m", base_url=model_url, api_key="x", max_retries=0)
    state = await create_agent(model, tools).ainvoke({"messages": [("user", question)]})
    return [tool.name for tool in tools], state["messages"][-1].text


if __name__ == "__main__":
    print(json.dumps(asyncio.run(ask(*sys.argv[1:]))))  # noqa: T201  read by the test
