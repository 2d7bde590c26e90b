"""CrabPath in LangGraph: nodes, agent middleware and a retrieval tool."""
