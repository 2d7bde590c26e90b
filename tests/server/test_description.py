"""The OpenAPI description, and what is made from it for users, are those of the server."""

import json
import re
from pathlib import Path

import pytest

# What is no part of the interface, or describes itself.
UNDESCRIBED = {"/", "/static", "/mcp", "/metrics", "/docs", "/openapi.json"}
REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_the_committed_description_is_that_of_the_server(client):
    """``make openapi`` writes it."""
    committed = json.loads((REFERENCE / "openapi.json").read_text())
    assert committed == client.get("/openapi.json").json()


def test_the_page_of_the_api_names_every_operation_and_field_and_its_links_lead_somewhere(client):
    described = client.get("/openapi.json").json()
    answer = client.get("/docs")
    assert answer.headers["content-type"].startswith("text/html")
    page = answer.text
    names = {
        one["operationId"] for methods in described["paths"].values() for one in methods.values()
    }
    places = re.findall(r' id="([^"]+)"', page)
    assert len(places) == len(set(places))
    assert names | described["components"]["schemas"].keys() <= set(places)
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(places)
    for model in described["components"]["schemas"].values():
        assert all(f"<code>{field}</code>" in page for field in model.get("properties", {}))
    assert "<script" not in page
    assert "{&quot;text&quot;: &quot;…&quot;}" in page  # the example of a question


@pytest.mark.parametrize("path", ["/openapi.json", "/docs", "/"])
def test_what_is_always_the_same_is_sent_again_with_and_without_compression(client, path):
    zipped = [client.get(path, headers={"Accept-Encoding": "gzip"}) for _ in range(2)]
    plain = client.get(path, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert {one.text for one in zipped} == {plain.text}


def test_the_types_of_typescript_have_every_path_model_and_field(client):
    types = (REFERENCE / "crabpath.d.ts").read_text()
    described = client.get("/openapi.json").json()
    for path in described["paths"]:
        assert f'"{path}": {{' in types
    for name, model in described["components"]["schemas"].items():
        body = types[types.index(f"        {name}: ") :]
        for field in model.get("properties", {}):
            assert re.search(rf'^ {{12}}"?{field}"?\??:', body, re.MULTILINE), (name, field)


def test_bodies_of_typescript_need_only_what_the_server_needs(client):
    """Else ``tsc --strict`` refuses the bodies of the page about REST."""
    types = (REFERENCE / "crabpath.d.ts").read_text()
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    for name in ("QueryBody", "FeedbackBody", "DocumentsBody", "GivenDocument", "CorrectBody"):
        body = types[types.index(f"        {name}: ") :].partition("\n        };")[0]
        needed = re.findall(r"^ {12}(\w+):", body, re.MULTILINE)
        assert needed == schemas[name]["required"], name


def test_every_endpoint_is_described_once_with_its_right_and_errors(client):
    described = client.get("/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    operations = [one for methods in described["paths"].values() for one in methods.values()]
    paths = {re.sub(r":\w+}", "}", route.path) for route in client.app.routes}
    assert paths - described["paths"].keys() == UNDESCRIBED
    assert len({one["operationId"] for one in operations}) == len(operations)
    for operation in operations:
        assert operation["summary"].endswith(".")
        assert {"200", "400", "401", "403", "404", "503"} <= set(operation["responses"])
    names = described["components"]
    for kind, name in re.findall(r'"#/components/(\w+)/(\w+)"', json.dumps(described)):
        assert name in names[kind]
