"""The page of the REST API at ``/docs``: the OpenAPI description as HTML, without scripts."""

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

Schema = Mapping[str, Any]

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>CrabPath REST API</title>
<link rel="icon" href="static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="static/style.css">
</head>
<body>
<header>
<h1><a href="./"><img src="static/icon.svg" alt="" width="26" height="26">
 CrabPath REST API</a></h1>
</header>
<main>
"""


def render_api(description: Schema) -> str:
    """Render an OpenAPI description: operations with an example of each body, then the models."""
    operations = [
        (method.upper(), path, operation)
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    models: Schema = description["components"]["schemas"]
    index = "".join(
        f'<li><a href="#{one["operationId"]}"><code>{method} {escape(path)}</code></a> '
        f"{_to_html(one['summary'])}</li>"
        for method, path, one in operations
    )
    info = description["info"]
    return "".join(
        [
            _HEAD,
            f"<p>Version {escape(info['version'])}. Requests and answers are JSON. A token goes ",
            "into <code>Authorization: Bearer …</code>. ",
            'The same is there as <a href="openapi.json">OpenAPI</a>.</p>',
            f'<nav aria-label="Operations"><ul>{index}</ul></nav>',
            *(_render_operation(*one, models) for one in operations),
            "<h2>Failed requests</h2>",
            _render_table(
                "Answers to failed requests",
                ("Status", "Why"),
                (
                    (name.removeprefix("Error"), escape(answer["description"]))
                    for name, answer in description["components"]["responses"].items()
                ),
            ),
            "<h2>Models</h2>",
            *(_render_model(name, model) for name, model in models.items()),
            "</main>\n</body>\n</html>\n",
        ]
    )


def _render_operation(method: str, path: str, operation: Schema, models: Schema) -> str:
    parts = [
        f'<section class="card" id="{operation["operationId"]}">',
        f"<h2><code>{method} {escape(path)}</code></h2><p>{_to_html(operation['summary'])} ",
        f"{_to_html(operation.get('description', 'No token is needed.'))}</p>",
    ]
    if parameters := operation["parameters"]:
        rows = (
            (
                _name_field(one["name"], is_needed=one.get("required", False)),
                escape(one["in"]),
                _spell(one["schema"]),
                _to_html(one.get("description") or one["schema"].get("description", "")),
            )
            for one in parameters
        )
        parts.append(_render_table("Parameters", ("Name", "In", "Type", "Meaning"), rows))
    body = operation.get("requestBody")
    if body is not None:
        schema = body["content"]["application/json"]["schema"]
        example = json.dumps(make_example(schema, models), ensure_ascii=False)
        parts.append(f"<p>Body: {_spell(schema)}, for example</p><pre>{escape(example)}</pre>")
    for kind, answer in operation["responses"]["200"]["content"].items():
        parts.append(f"<p>Answer: {_spell(answer['schema'])} as <code>{kind}</code></p>")
    return "".join([*parts, "</section>"])


def _render_model(name: str, model: Schema) -> str:
    needed = model.get("required", ())
    rows = (
        (
            _name_field(field, is_needed=field in needed),
            _spell(schema),
            _to_html(schema.get("description", "")),
        )
        for field, schema in model.get("properties", {}).items()
    )
    table = _render_table(f"Fields of {name}", ("Field", "Type", "Meaning"), rows)
    shown = table if model.get("properties") else f"<p>{_spell(model)}</p>"
    about = _to_html(model.get("description", ""))
    return (
        f'<section class="card" id="{name}"><h3>{escape(name)}</h3><p>{about}</p>{shown}</section>'
    )


def _name_field(name: str, *, is_needed: bool) -> str:
    return f"<code>{escape(name)}</code>{' (needed)' if is_needed else ''}"


def _render_table(caption: str, heads: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """Render a table of HTML cells; the style sheet shows the heads in each cell where narrow."""
    top = "".join(f'<th scope="col">{head}</th>' for head in heads)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td data-head="{head}"><span>{cell}</span></td>'
            for head, cell in zip(heads, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _to_html(text: str) -> str:
    """Escape a text; what stands between double backquotes becomes code."""
    parts = escape(text).split("``")
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))


def _spell(schema: Schema) -> str:
    """Spell the type of a schema, with a link to a model."""
    if "$ref" in schema:
        name = _find_model(schema)
        return f'<a href="#{name}">{escape(name)}</a>'
    if options := schema.get("anyOf", schema.get("oneOf")):
        return " or ".join(map(_spell, options))
    if (values := schema.get("enum", [schema["const"]] if "const" in schema else None)) is not None:
        return " or ".join(f"<code>{escape(json.dumps(value))}</code>" for value in values)
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"list of {_spell(schema.get('items', {}))}"
    bounds = [
        f"{word} {schema[name]:,}"
        for name, word in (
            ("minimum", "from"),
            ("maximum", "to"),
            ("exclusiveMinimum", "above"),
            ("exclusiveMaximum", "below"),
            ("maxLength", "at most"),
        )
        if name in schema
    ]
    default = schema.get("default")
    if default is not None:
        bounds.append(f"default {escape(json.dumps(default))}")
    return ", ".join([escape(str(kind)), *bounds])


def _find_model(schema: Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def make_example(schema: Schema, models: Schema) -> Any:
    """Make a value that a schema allows; objects have the needed fields alone."""
    if "$ref" in schema:
        return make_example(models[_find_model(schema)], models)
    if options := schema.get("anyOf", schema.get("oneOf")):
        return make_example(options[0], models)
    values = schema.get("examples") or schema.get("enum")
    if values or "const" in schema:
        return values[0] if values else schema["const"]
    if "properties" in schema:
        needed, fields = schema.get("required", ()), schema["properties"]
        return {name: make_example(fields[name], models) for name in fields if name in needed}
    if "items" in schema:
        return [make_example(schema["items"], models)]
    number = schema.get("minimum", 1)
    return {"boolean": True, "integer": number, "number": number}.get(str(schema.get("type")), "…")
