"""The page on which a person judges: a server on loopback for one browser, without dependencies."""

import json
import secrets
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from threading import Lock
from typing import Any

from crabpath_lab.compare.answers import AskedQuestion
from crabpath_lab.compare.judgements import Judgements, measure
from crabpath_retrievers.errors import CrabPathError, InvalidInputError

_MOST_BYTES = 10_000
_MOST_SHOWN = 20_000  # characters of a document
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Page:
    """Questions, judgements and notes of one comparison, as the page shows them."""

    def __init__(
        self, questions: Sequence[AskedQuestion], judgements: Judgements, notes: Sequence[str]
    ) -> None:
        """Show these questions, judgements and notes."""
        self.questions = questions
        self.judgements = judgements
        self.notes = notes
        self.lock = Lock()

    def describe(self) -> dict[str, Any]:
        """Describe the state of all questions, and the figures so far."""
        said = [self.judgements.get(question) for question in self.questions]
        figures = measure(self.questions, self.judgements)
        return {
            "questions": [
                {"text": question.text, "finished": told.finished}
                for question, told in zip(self.questions, said, strict=True)
            ],
            "notes": list(self.notes),
            "figures": figures._asdict() | {"text": figures.describe()},
        }

    def show(self, place: int) -> dict[str, Any]:
        """Return one question: pool, labels and both lists, whose systems are named at the end."""
        question = self.questions[place]
        told = self.judgements.get(question)
        is_end = all(self.judgements.get(each).finished for each in self.questions)
        return {
            "text": question.text,
            "finished": told.finished,
            "better": _to_side(question, told.better),
            "pool": [
                {
                    "key": item.key,
                    "title": str(item.document.metadata.get("title") or ""),
                    "source": str(item.document.metadata.get("source") or ""),
                    "text": item.document.page_content[:_MOST_SHOWN],
                    "hidden": max(0, len(item.document.page_content) - _MOST_SHOWN),
                    "answers": bool(told.labels.get(item.key)),
                }
                for item in question.pool
            ],
            "lists": [list(question.answers[system]) for system in question.sides],
            "sides": list(question.sides) if is_end else None,
        }

    def judge(self, place: int, said: dict[str, Any]) -> None:
        """Keep what a person said of a question.

        Raises:
            InvalidInputError: It is no judgement of this question.
        """
        question = self.questions[place]
        match said:
            case {"key": str(key), "answers": bool(answers)} if len(said) == 2:  # noqa: PLR2004
                if key not in {item.key for item in question.pool}:
                    msg = "the document is not in the pool of this question"
                    raise InvalidInputError(msg)
                self.judgements.label(question, key, answers=answers)
            case {"better": 0 | 1 | None as side} if len(said) == 1 and not isinstance(side, bool):
                word = "neither" if side is None else question.sides[side]
                self.judgements.prefer(question, word)
            case {"finished": bool(finished)} if len(said) == 1:
                self.judgements.finish(question, finished=finished)
            case _:
                msg = "give key and answers, or better, or finished"
                raise InvalidInputError(msg)


def _to_side(question: AskedQuestion, better: str | None) -> int | str | None:
    return question.sides.index(better) if better in question.sides else better


def serve_page(page: Page, port: int = 0) -> tuple[ThreadingHTTPServer, str]:
    """Make the server, which the caller runs and closes, and the address of the page.

    The address holds a secret: other users and pages of this machine cannot judge.

    Raises:
        InvalidInputError: The port is taken.
    """
    secret = secrets.token_urlsafe(16)
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, page, secret))
    except OSError as error:
        msg = f"port {port} cannot be used ({error.strerror}): give another --port"
        raise InvalidInputError(msg) from error
    return server, f"http://127.0.0.1:{server.server_port}/{secret}/"


class _Handler(BaseHTTPRequestHandler):
    server: ThreadingHTTPServer
    timeout = 30

    def __init__(self, page: Page, secret: str, *args: Any) -> None:
        self._page = page
        self._secret = secret
        super().__init__(*args)

    def do_GET(self) -> None:
        if (path := self._find_path()) is None:
            return
        if path == "":
            text = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
            self._send(HTTPStatus.OK, text.encode(), "text/html; charset=utf-8")
        elif path == "state":
            self._send_json(self._page.describe())
        elif (place := self._find_place(path)) is not None:
            self._send_json(self._page.show(place))

    def do_POST(self) -> None:
        if (path := self._find_path()) is None or (place := self._find_place(path)) is None:
            return
        try:
            size = int(self.headers.get("Content-Length", ""))
        except ValueError:
            size = -1
        if not 0 <= size <= _MOST_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the judgement is too long")
            return
        try:
            said = json.loads(self.rfile.read(size))
            if not isinstance(said, dict):
                said = {}
            with self._page.lock:
                self._page.judge(place, said)
                found = self._page.show(place) | {"state": self._page.describe()}
        except CrabPathError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except (ValueError, RecursionError):
            self._refuse(HTTPStatus.BAD_REQUEST, "the judgement is no JSON")
        else:
            self._send_json(found)

    def _find_path(self) -> str | None:
        """Return the path below the secret; None, after an error response, for a wrong secret."""
        port = self.server.server_port
        hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        first, _, path = self.path.split("?")[0].removeprefix("/").partition("/")
        known = secrets.compare_digest(first.encode(), self._secret.encode())
        if not known or self.headers.get("Host") not in hosts:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing here: use the printed address")
            return None
        return path

    def _find_place(self, path: str) -> int | None:
        kind, _, number = path.partition("/")
        known = {str(place) for place in range(len(self._page.questions))}
        if kind == "questions" and number in known:
            return int(number)
        self._refuse(HTTPStatus.NOT_FOUND, "there is no such question")
        return None

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self.close_connection = True
        self._send_json({"detail": why}, status)

    def _send_json(self, data: object, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(status, json.dumps(data).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        headers = _HEADERS | {"Content-Type": kind, "Content-Length": str(len(body))}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Print nothing: the secret is part of every path."""
