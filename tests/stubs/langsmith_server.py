"""LangSmith's HTTP interface on this machine, as far as traces and feedback need it."""

import json
import uuid
from typing import Any

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

API_KEY = "key-of-the-tests"
_INGEST = {
    "use_multipart_endpoint": False,
    "size_limit": 100,
    "size_limit_bytes": 20_971_520,
    "scale_up_qsize_trigger": 1000,
    "scale_up_nthreads_limit": 16,
    "scale_down_nempty_trigger": 4,
}


class LangSmithServer:
    """Keeps runs and feedback of one project, and pages through them as LangSmith does."""

    def __init__(self, server: HTTPServer, project: str = "chat") -> None:
        """Answer on ``server`` for a project of this name."""
        self.project, self.project_id = project, str(uuid.uuid4())
        self.runs: dict[str, dict[str, Any]] = {}
        self.feedback: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.page = 2
        self.url = server.url_for("").rstrip("/")
        routes = {
            ("GET", "/info"): self._info,
            ("GET", "/sessions"): self._sessions,
            ("GET", "/feedback"): self._listed,
            ("POST", "/feedback"): self._given,
            ("POST", "/runs/query"): self._queried,
            ("POST", "/runs/batch"): self._traced,
        }
        for (method, path), answer in routes.items():
            handler = self._checked(answer)
            server.expect_request(path, method=method).respond_with_handler(handler)

    def trace(self, *retrievers: uuid.UUID | str) -> str:
        """A trace in which these runs retrieved; its id."""
        root = str(uuid.uuid4())
        for run in (root, *map(str, retrievers)):
            kind = "chain" if run == root else "retriever"
            self.runs[run] = {"id": run, "trace_id": root, "run_type": kind}
        return root

    def say(self, run_id: uuid.UUID | str, **fields: Any) -> str:
        """Feedback as somebody gives it in LangSmith; its id."""
        given = {
            "id": str(uuid.uuid4()),
            "run_id": str(run_id),
            "trace_id": self.runs.get(str(run_id), {}).get("trace_id"),
            "key": "user_score",
            "created_at": "2026-11-01T08:00:00+00:00",
            "modified_at": "2026-11-01T08:00:00+00:00",
            "score": None,
            "correction": None,
            "feedback_source": {"type": "app", "metadata": {}},
            "session_id": self.project_id,
            **fields,
        }
        self.feedback[given["id"]] = given
        return str(given["id"])

    def _checked(self, answer: Any) -> Any:
        def handle(request: Request) -> Response:
            self.asked.append((request.method, request.full_path))
            if request.headers.get("x-api-key") != API_KEY:
                return _json({"detail": "Invalid token"}, 401)
            found = answer(request)
            return found if isinstance(found, Response) else _json(found)

        return handle

    def _info(self, _: Request) -> Any:
        return {"version": "0.12.0", "batch_ingest_config": _INGEST}

    def _sessions(self, request: Request) -> Any:
        if request.args.get("name") != self.project:
            return []
        about = {"id": self.project_id, "name": self.project, "tenant_id": str(uuid.uuid4())}
        return [{**about, "start_time": "2026-10-01T00:00:00", "reference_dataset_id": None}]

    def _listed(self, request: Request) -> Any:
        keys, since = request.args.getlist("key"), request.args.get("min_created_at", "")
        assert request.args.getlist("session") == [self.project_id]
        found = [
            given
            for given in self.feedback.values()
            if given["key"] in keys and given["created_at"] >= since
        ]
        first, size = int(request.args["offset"]), int(request.args["limit"])
        return found[first : first + size]

    def _given(self, request: Request) -> Any:
        given = json.loads(request.get_data())
        about = self.runs.get(given["run_id"], {})
        given.setdefault("trace_id", about.get("trace_id"))
        self.feedback[given["id"]] = given
        return given

    def _queried(self, request: Request) -> Any:
        body = json.loads(request.get_data())
        assert body["session"] == [self.project_id]
        found = [
            {"id": run["id"]}
            for run in self.runs.values()
            if run["trace_id"] == body["trace"] and run["run_type"] == body["run_type"]
        ]
        first = int(body.get("cursor", 0))
        last = first + self.page
        after = str(last) if last < len(found) else None
        return {"runs": found[first:last], "cursors": {"next": after}}

    def _traced(self, request: Request) -> Any:
        body = json.loads(request.get_data())
        for run in (*body.get("post", ()), *body.get("patch", ())):
            known = self.runs.setdefault(run["id"], {})
            known.update({name: value for name, value in run.items() if value is not None})
        return _json({}, 202)


def _json(body: Any, status: int = 200) -> Response:
    return Response(json.dumps(body), status=status, content_type="application/json")
