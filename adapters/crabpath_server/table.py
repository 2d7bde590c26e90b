"""The table of endpoints, from which HTTP, tools of language models and descriptions are made."""

from crabpath_retrievers.core.records import Hop
from crabpath_server import insight, routes, tools
from crabpath_server.endpoints import Endpoint, Tool

ENDPOINTS = (
    Endpoint("GET /health", None, routes.check_health),
    Endpoint("GET /ready", None, routes.check_readiness),
    Endpoint("GET /v1/session", "any", routes.describe_session),
    Endpoint("POST /v1/query", "read", routes.ask, stream=routes.ask_with_hops, event=Hop),
    Endpoint("POST /v1/search", "read", routes.search),
    Endpoint("GET /v1/documents", "read", routes.list_chunks),
    Endpoint("POST /v1/documents", "write", routes.add_documents, is_slow=True),
    Endpoint("DELETE /v1/documents", "write", routes.delete_source, is_slow=True),
    Endpoint("GET /v1/documents/{id:path}", "read", routes.read_document),
    Endpoint("DELETE /v1/documents/{id:path}", "write", routes.delete_document, is_slow=True),
    Endpoint("GET /v1/sources", "read", routes.list_sources),
    Endpoint("POST /v1/feedback", "feedback", routes.give_feedback),
    Endpoint("GET /v1/feedback", "read", routes.read_feedback),
    Endpoint("POST /v1/undo", "feedback", routes.retract_feedback, tools.UNDO_TOOL),
    Endpoint(None, "read", tools.search_titles, Tool("search", "Search the memory")),
    Endpoint(None, "read", tools.fetch_document, Tool("fetch", "Read a document")),
    Endpoint(None, "read", tools.explain_search, Tool("explain", "Explain a search")),
    Endpoint(None, "feedback", tools.judge_search, tools.OUTCOME_TOOL),
    Endpoint("POST /v1/correct", "feedback", routes.correct, tools.CORRECT_TOOL),
    Endpoint("POST /v1/teach", "write", routes.teach, tools.TEACH_TOOL),
    Endpoint(None, "write", tools.delete_all, tools.FORGET_TOOL),
    Endpoint("GET /v1/notes", "read", routes.read_notes),
    Endpoint("GET /v1/turns", "read", routes.read_turns),
    Endpoint("GET /v1/turns/{id:path}", "read", insight.read_turn),
    Endpoint("GET /v1/namespaces", "read", insight.read_namespaces),
    Endpoint("GET /v1/graph/neighbors", "read", insight.list_neighbors),
    Endpoint("GET /v1/graph/changes", "read", insight.list_changes),
    Endpoint("POST /v1/graph/edges", "write", insight.set_edge),
    Endpoint("POST /v1/graph/authority", "write", insight.anchor_nodes),
    Endpoint("GET /v1/learning", "read", insight.report_learning),
    Endpoint("GET /v1/learning/lift", "read", insight.report_lift, tools.LIFT_TOOL, is_slow=True),
    Endpoint("GET /v1/maintenance", "admin", insight.plan_maintenance, is_slow=True),
    Endpoint("POST /v1/maintenance", "admin", insight.maintain, is_slow=True),
    Endpoint("GET /v1/regions", "read", insight.draw_regions),
    Endpoint("POST /v1/namespaces/freeze", "admin", insight.freeze),
    Endpoint("POST /v1/namespaces/unfreeze", "admin", insight.unfreeze),
    Endpoint("GET /v1/snapshots", "admin", insight.read_snapshots),
    Endpoint("POST /v1/snapshots", "admin", insight.save_snapshot, is_slow=True),
    Endpoint("POST /v1/snapshots/restore", "admin", insight.reset_to_snapshot, is_slow=True),
)
"""All endpoints of a server."""
