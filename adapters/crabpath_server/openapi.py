"""The OpenAPI description, built from the table of endpoints and their models."""

import re
from collections.abc import Iterable
from typing import Any

from pydantic import ConfigDict, Field
from pydantic.json_schema import models_json_schema

from crabpath_retrievers import __version__
from crabpath_retrievers.core.feedback import Receipt
from crabpath_retrievers.memory.services import Readiness
from crabpath_server.answers import ApiOutput, Download, Sent, find_model
from crabpath_server.endpoints import NAMESPACE_HEADER, ApiInput, Endpoint
from crabpath_server.problems import PROBLEM
from crabpath_server.repeats import IDEMPOTENCY_KEY

STATUSES = {
    400: "Something cannot be used as given.",
    401: "The token is missing, unknown or expired.",
    403: "The token does not grant this.",
    404: "It does not exist.",
    405: "The path has no such method.",
    408: "The body did not come in time.",
    409: "The store is locked, or another change or verdict stands against it.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    429: "The token has sent too much for now; try again after Retry-After seconds.",
    500: "The server failed.",
    503: "A store or the server is not available now; try again later.",
    504: "There was no answer in time.",
}
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")


class Problem(ApiOutput):
    """The answer to a request that failed, as RFC 9457 has it."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    type: str = Field(description="Address of a page that says what kind of error it is.")
    title: str = Field(description="The kind in words.")
    status: int
    detail: str = Field(description="One sentence: what is wrong, and what to do.")
    instance: str = Field(description="Path of the request.")
    request_id: str = Field(description="Its X-Request-Id, which the log names too.")
    receipt: Sent[Receipt] | None = Field(None, description="That of refused feedback.")


def describe_api(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Describe some endpoints as OpenAPI 3.1; those without a route are left out."""
    table = [one for one in endpoints if one.route is not None]
    inputs = [e.input for e in table if e.input is not None and e.method == "POST"]
    modes: list[Any] = [(model, "validation") for model in dict.fromkeys(inputs)]
    outputs = [Problem, *(e.output for e in table)]
    outputs += [find_model(e.event) for e in table if e.event is not None]
    modes += [(model, "serialization") for model in dict.fromkeys(outputs)]
    references, definitions = models_json_schema(modes, ref_template="#/components/schemas/{model}")
    schemas = {model: schema for (model, _), schema in references.items()}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in table:
        path = _PARAMETER.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _describe(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "CrabPath",
            "version": __version__,
            "description": "Retrieval over a graph of documents that learns from outcomes.",
        },
        "paths": paths,
        "components": {
            "schemas": {n: _drop_titles(model) for n, model in definitions["$defs"].items()},
            "responses": {
                _name_error(status): {
                    "description": description,
                    "content": {PROBLEM: {"schema": schemas[Problem]}},
                }
                for status, description in STATUSES.items()
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _name_error(status: int) -> str:
    return f"Error{status}"


def _drop_titles(model: dict[str, Any]) -> dict[str, Any]:
    """Remove the titles of fields, which repeat their names, from a model's schema."""
    fields, summary = model.get("properties", {}), model.get("description", "").split("\n")[0]
    plain = {n: {k: v for k, v in field.items() if k != "title"} for n, field in fields.items()}
    return {**model, "description": summary, "properties": plain} if fields else model


def _describe(endpoint: Endpoint, schemas: dict[Any, Any]) -> dict[str, Any]:
    """Describe one method of a path."""
    summary = (endpoint.answer.__doc__ or "").split("\n")[0]
    described: dict[str, Any] = {
        "operationId": endpoint.answer.__name__,
        "summary": summary,
        "parameters": _describe_parameters(endpoint),
        "responses": _describe_answers(endpoint, schemas),
        "security": [] if endpoint.right is None else [{"token": []}],
    }
    if endpoint.right is not None:
        described["description"] = f"Right: {endpoint.right}."
    if endpoint.event is not None:  # no content of its own: each answer would be a text or that
        described["description"] += (
            " With Accept: text/event-stream the answer is server-sent events, each with a "
            f"{endpoint.event.__name__} as data; the last one is answer with a "
            f"{endpoint.output.__name__}, or error with a Problem."
        )
    if endpoint.method == "POST" and endpoint.input is not None:
        content = {"application/json": {"schema": schemas[endpoint.input]}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _describe_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1},
            "description": "Percent-encoded; it may contain slashes.",
        }
        for name in _PARAMETER.findall(endpoint.path)
    ]
    if endpoint.right is not None:
        parameters.append(
            {
                "name": NAMESPACE_HEADER,
                "in": "header",
                "schema": {"type": "string", "minLength": 1, "maxLength": 512},
                "description": "Another namespace of the token than its first; percent-encoded.",
            }
        )
    if endpoint.has_key:
        parameters.append(
            {
                "name": IDEMPOTENCY_KEY,
                "in": "header",
                "schema": {"type": "string", "minLength": 1, "maxLength": 255},
                "description": "The same request again with the same key has the former answer.",
            }
        )
    if endpoint.input is not None and endpoint.method != "POST":
        parameters += _describe_query(endpoint.input)
    return parameters


def _describe_query(model: type[ApiInput]) -> list[dict[str, Any]]:
    schema = model.model_json_schema()
    needed = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in needed, "schema": _drop_null(field)}
        for name, field in schema["properties"].items()
    ]


def _drop_null(field: dict[str, Any]) -> dict[str, Any]:
    """Remove null from the schema of a parameter: it is left out instead."""
    options = [option for option in field.get("anyOf", ()) if option != {"type": "null"}]
    rest = {key: value for key, value in field.items() if key not in {"anyOf", "title"}}
    if rest.get("default", ...) is None:
        del rest["default"]
    return {**rest, **options[0]} if len(options) == 1 else field


def _describe_answers(endpoint: Endpoint, schemas: dict[Any, Any]) -> dict[str, Any]:
    output = {"schema": schemas[endpoint.output]}
    content: dict[str, Any] = {"application/json": output}
    if endpoint.output is Download:
        content = {"application/zip": {"schema": {"type": "string", "format": "binary"}}}
    answers: dict[str, Any] = {
        "200": {"description": _first_line(endpoint.output), "content": content}
    }
    for status in STATUSES:
        answers[str(status)] = {"$ref": f"#/components/responses/{_name_error(status)}"}
    if endpoint.output is find_model(Readiness):
        answers["503"] = {"description": STATUSES[503], "content": {"application/json": output}}
    return answers


def _first_line(model: type[ApiOutput]) -> str:
    return (model.__doc__ or "").split("\n")[0]
