"""The table of endpoints, from which HTTP, tools of language models and descriptions are made."""

from crabpath_retrievers.core.records import Hop
from crabpath_server import insight, routes, tools
from crabpath_server.endpoints import Endpoint, Tool

ENDPOINTS = (
    Endpoint("GET /health", None, routes.check_health),
    Endpoint("GET /ready", None, routes.check_readiness),
    Endpoint("GET /session", "any", routes.describe_session),
    Endpoint("POST /query", "read", routes.ask, stream=routes.ask_with_hops, event=Hop),
    Endpoint("POST /search", "read", routes.search),
    Endpoint("GET /documents", "read", routes.list_chunks),
    Endpoint("POST /documents", "write", routes.add_documents, is_slow=True),
    Endpoint("DELETE /documents", "write", routes.delete_source, is_slow=True),
    Endpoint("GET /documents/{id:path}", "read", routes.read_document),
    Endpoint("DELETE /documents/{id:path}", "write", routes.delete_document, is_slow=True),
    Endpoint("GET /sources", "read", routes.list_sources),
    Endpoint("POST /feedback", "feedback", routes.give_feedback),
    Endpoint("GET /feedback", "read", routes.read_feedback),
    Endpoint("POST /undo", "feedback", routes.retract_feedback),
    Endpoint(None, "read", tools.search_titles, Tool("search", "Search the memory")),
    Endpoint(None, "read", tools.fetch_document, Tool("fetch", "Read a document")),
    Endpoint(None, "read", tools.explain_search, Tool("explain", "Explain a search")),
    Endpoint(None, "feedback", tools.judge_search, tools.OUTCOME_TOOL),
    Endpoint("POST /correct", "feedback", routes.correct, tools.CORRECT_TOOL),
    Endpoint("POST /teach", "teach", routes.teach, tools.TEACH_TOOL),
    Endpoint(None, "write", tools.delete_all, tools.FORGET_TOOL),
    Endpoint("GET /notes", "read", routes.read_notes),
    Endpoint("GET /turns", "read", routes.read_turns),
    Endpoint("GET /turns/{id:path}", "read", insight.read_turn),
    Endpoint("GET /namespaces", "read", insight.read_namespaces),
    Endpoint("GET /graph/neighbors", "read", insight.list_neighbors),
    Endpoint("GET /graph/changes", "read", insight.list_changes),
    Endpoint("POST /graph/edges", "write", insight.set_edge),
    Endpoint("POST /graph/authority", "write", insight.anchor_nodes),
    Endpoint("GET /learning", "read", insight.report_learning),
    Endpoint("GET /learning/lift", "read", insight.report_lift, is_slow=True),
    Endpoint("GET /maintenance", "admin", insight.plan_maintenance, is_slow=True),
    Endpoint("POST /maintenance", "admin", insight.maintain, is_slow=True),
    Endpoint("GET /regions", "read", insight.draw_regions),
    Endpoint("POST /namespaces/freeze", "admin", insight.freeze),
    Endpoint("POST /namespaces/unfreeze", "admin", insight.unfreeze),
    Endpoint("GET /journal", "admin", insight.read_journal),
    Endpoint("GET /snapshots", "admin", insight.read_snapshots),
    Endpoint("POST /snapshots", "admin", insight.save_snapshot, is_slow=True),
    Endpoint("POST /snapshots/restore", "admin", insight.reset_to_snapshot, is_slow=True),
)
"""All endpoints of a server."""
