"""Tokens of an authorisation server: the whole journey with the official client, and forgeries."""

import asyncio
import base64
import hmac
import json
import secrets
import time
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx
import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.provider import AuthorizationCode
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata, OAuthToken
from pydantic import AnyHttpUrl, AnyUrl
from starlette.applications import Starlette
from starlette.responses import JSONResponse, RedirectResponse
from starlette.routing import Route

from crabpath_retrievers.errors import InvalidInputError, TokenError
from crabpath_server import Access, Issuer, add_token, create_app

BACK = "http://127.0.0.1:1/back"
RSA = [rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2)]


class LateApp:
    """An application that is made once its address is known."""

    app = None

    async def __call__(self, scope, receive, send):
        await self.app(scope, receive, send)


class AuthorisationServer:
    """A small server of OAuth that registers anybody, and asks nobody before it issues tokens."""

    def __init__(self, url):
        self.url, self.keys, self.reads = url, {}, 0
        self.clients, self.codes, self.granted = {}, {}, []
        self.subject = "ann"
        self.add_key("one", RSA[0], "RS256")
        options = ClientRegistrationOptions(enabled=True)
        auth = create_auth_routes(self, AnyHttpUrl(url), client_registration_options=options)
        own = [
            Route("/.well-known/oauth-authorization-server", self.describe),
            Route("/keys", self.list_keys),
        ]
        self.app = Starlette(routes=[*own, *auth])

    def add_key(self, name, key, algorithm):
        self.keys[name] = (key, algorithm)

    async def describe(self, _request):
        places = {"authorization": "authorize", "token": "token", "registration": "register"}
        return JSONResponse(
            {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                **{f"{name}_endpoint": f"{self.url}/{path}" for name, path in places.items()},
            }
        )

    async def list_keys(self, _request):
        self.reads += 1
        keys = []
        for name, (key, algorithm) in self.keys.items():
            kind = jwt.get_algorithm_by_name(algorithm)
            public = key.public_key() if hasattr(key, "public_key") else key
            keys.append({**json.loads(kind.to_jwk(public)), "kid": name, "alg": algorithm})
        return JSONResponse({"keys": keys})

    def issue(self, key="one", *, header=None, without=(), **claims):
        """A token, signed by a key of ours unless ``key`` is another one."""
        signer, algorithm = self.keys[key] if isinstance(key, str) else key
        now = int(time.time())
        body = {
            "iss": self.url,
            "aud": self.audience,
            "sub": self.subject,
            "iat": now,
            "exp": now + 300,
            "scope": "read feedback",
        }
        body = {name: value for name, value in (body | claims).items() if name not in without}
        return jwt.encode(body, signer, algorithm, {"kid": "one", **(header or {})})

    # What the routes of the library ask of a server.

    async def get_client(self, name):
        return self.clients.get(name)

    async def register_client(self, client):
        client.scope = "read feedback teach write admin"  # that it may ask for one day
        self.clients[client.client_id] = client

    async def authorize(self, client, params):
        code = secrets.token_urlsafe()
        self.codes[code] = AuthorizationCode(
            code=code,
            expires_at=time.time() + 60,
            client_id=client.client_id,
            **{**params.model_dump(exclude={"state"}), "scopes": params.scopes or []},
        )
        return f"{params.redirect_uri}?{urlencode({'code': code, 'state': params.state})}"

    async def load_authorization_code(self, _client, code):
        return self.codes.get(code)

    async def exchange_authorization_code(self, _client, code):
        del self.codes[code.code]
        self.granted.append(code.scopes)
        scope = " ".join(code.scopes)
        token = self.issue(aud=code.resource, scope=scope)
        return OAuthToken(access_token=token, expires_in=300, scope=scope)


class Storage:
    """Where the client keeps its token and registration."""

    tokens = client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client_info):
        self.client = client_info


@pytest.fixture
def issuer(serve):
    """A running authorisation server."""
    late = LateApp()
    server = AuthorisationServer(serve(late))
    late.app = server.app
    return server


@pytest.fixture
def served(memory, issuer, serve, token_file):
    """The address of a server that takes its tokens, and those of a file."""
    late = LateApp()
    url = serve(late)
    issuer.audience = f"{url}/mcp"
    add_token(token_file, ["bob"], ["read"])
    trusted = Issuer(issuer.url, issuer.audience)
    access = Access.from_issuer(trusted, Access.from_file(token_file, check_seconds=0))
    late.app = create_app(memory, access=access)
    return url


@pytest.fixture
def get(served):
    """Asks the server by HTTP, with a token."""

    def ask(token, path="/v1/session", **options):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.get(f"{served}{path}", headers=headers, **options)

    return ask


def connect(url, storage):
    """The official client, whose user agrees to everything."""
    answers = []

    async def visit(address):
        async with httpx2.AsyncClient() as browser:
            answer = await browser.get(address)
            assert answer.status_code == 302, answer.text
            answers.append(dict(parse_qsl(urlsplit(answer.headers["location"]).query)))

    async def come_back():
        given = answers.pop()
        return AuthorizationCodeResult(code=given["code"], state=given["state"])

    metadata = OAuthClientMetadata(redirect_uris=[AnyUrl(BACK)], client_name="test")
    auth = OAuthClientProvider(url, metadata, storage, visit, come_back)

    @asynccontextmanager
    async def open_client():
        async with (
            httpx2.AsyncClient(auth=auth) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            yield client

    return open_client()


async def test_a_client_finds_its_way_to_the_tools_by_itself(memory, issuer, served):
    """It is refused, reads who issues tokens, registers, has its user agree, and comes back."""
    storage = Storage()
    async with connect(f"{served}/mcp", storage) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert {"search", "fetch", "record_outcome"} < tools
        assert not tools & {"teach", "forget"}
        found = (await client.call_tool("search", {"query": "sky"})).structured_content["results"]
        outcome = {"turn_id": found[0]["turn_id"], "outcome": 1, "source": "human"}
        await client.call_tool("record_outcome", outcome)
    assert issuer.granted == [["read", "feedback"]]
    (said,) = memory.learning.feedback(namespace="ann")
    assert (said.user, said.token, said.source) == ("ann", "oauth ann", "human")
    async with connect(f"{served}/mcp", storage) as again:  # with the token that it has
        assert (await again.list_tools()).tools
    assert len(issuer.granted) == 1


async def test_a_call_beyond_the_scopes_says_which_one_to_ask_for(memory, issuer, served):
    """The client asks its user for more, and the call goes on."""
    storage = Storage()
    async with connect(f"{served}/mcp", storage) as client:
        await client.call_tool("teach", {"text": "Pears are green."})
    assert issuer.granted == [["read", "feedback"], ["read", "feedback", "teach"]]
    assert [note.token for note in memory.notes(namespace="ann")] == ["oauth ann"]


def test_a_token_without_scopes_is_told_which_to_ask_for(issuer, served):
    """Else a host would show a connector without tools."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {
        "Authorization": f"Bearer {issuer.issue(scope='openid')}",
        "Accept": "application/json, text/event-stream",
    }
    refused = httpx.post(f"{served}/mcp", json=body, headers=headers)
    assert refused.status_code == 403
    assert 'error="insufficient_scope", scope="read"' in refused.headers["www-authenticate"]


def test_what_clients_are_told(issuer, served, get):
    described = get(None, "/.well-known/oauth-protected-resource/mcp")
    assert described.json() == {
        "resource": issuer.audience,
        "authorization_servers": [issuer.url],
        "scopes_supported": ["read", "feedback", "teach", "write", "admin"],
        "bearer_methods_supported": ["header"],
        "resource_name": "CrabPath",
    }
    assert get(None, "/.well-known/oauth-protected-resource").json() == described.json()
    where = f'resource_metadata="{served}/.well-known/oauth-protected-resource/mcp"'
    asked = f'Bearer scope="read feedback", {where}'
    for path in ("/v1/session", "/metrics", "/v1/turns/x"):
        assert get(None, path).headers["www-authenticate"] == asked
        told = get("nothing", path).headers["www-authenticate"]
        assert told == asked.replace("Bearer ", 'Bearer error="invalid_token", ')
    refused = get(issuer.issue(), "/v1/snapshots")
    assert refused.status_code == 403
    more = f'Bearer error="insufficient_scope", scope="read feedback admin", {where}'
    assert refused.headers["www-authenticate"] == more


def test_rights_and_namespace_are_those_of_the_claims(issuer, get):
    """No scope and no header adds to them."""
    session = get(issuer.issue()).json()
    assert (session["namespaces"], session["rights"]) == (["ann"], ["feedback", "read"])
    session = get(issuer.issue(sub="bob|1", scope="openid admin *", scp=["write"])).json()
    assert (session["namespaces"], session["rights"]) == (["bob|1"], ["admin"])
    assert get(issuer.issue(scp=["read", "x"], without=["scope"])).json()["rights"] == ["read"]
    assert get(issuer.issue(scope=7)).json()["rights"] == []


@pytest.mark.parametrize("subject", ["ann\0", "\0ann", " ann", "ann\t", "ann\ud800"])
def test_a_subject_that_would_be_another_one_is_refused(issuer, get, subject):
    """What is not stored of a name does not make two users one."""
    assert get(issuer.issue(sub=subject)).status_code == 401


def test_another_claim_may_name_the_namespaces(memory, issuer, served):
    trusted = Issuer(issuer.url, issuer.audience, namespace="teams")
    access = Access.from_issuer(trusted)

    def authorise(**claims):
        token = issuer.issue(**claims)
        asyncio.run(access.prepare(token))
        return access.authorise(token)

    grant = authorise(teams=["red", "blue"])
    assert (grant.namespaces, grant.user) == (("red", "blue"), "ann")
    for wrong in (None, [], [7], "", " ", "*", ["red", "a*"], {"red": 1}):
        with pytest.raises(TokenError, match=r"namespace|'\*'"):
            authorise(teams=wrong)


def test_a_token_of_a_file_works_beside(token_file, get):
    token = add_token(token_file, ["bob"], ["read"])
    assert get(token).json()["namespaces"] == ["bob"]


def forge(issuer):
    """Tokens that nobody issued for this server, by what is wrong with them."""
    public = RSA[0].public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    now = int(time.time())
    yield "expired", issuer.issue(exp=now - 60)
    yield "not yet", issuer.issue(nbf=now + 600)
    yield "issued later", issuer.issue(iat=now + 600)
    yield "for ever", issuer.issue(without=["exp"])
    yield "of nobody", issuer.issue(without=["sub"])
    yield "of no name", issuer.issue(sub="")
    yield "of a pattern", issuer.issue(sub="*")
    yield "of a number", issuer.issue(sub=7)
    yield "for anybody", issuer.issue(without=["aud"])
    yield "for another server", issuer.issue(aud="https://elsewhere.example/mcp")
    yield "for a part of it", issuer.issue(aud=issuer.audience[:-4])
    yield "of another issuer", issuer.issue(iss="https://elsewhere.example")
    yield "of no issuer", issuer.issue(without=["iss"])
    yield "by another key", issuer.issue((RSA[1], "RS256"))
    yield "by an unknown key", issuer.issue((RSA[1], "RS256"), header={"kid": "unknown"})
    yield "by no key", issuer.issue((None, "none"))
    head, body, _ = issuer.issue().split(".")
    none = base64.urlsafe_b64encode(b'{"alg":"none","kid":"one"}').rstrip(b"=").decode()
    yield "without a signature", f"{none}.{body}."
    yield "with the signature cut off", f"{head}.{body}."
    claims = jwt.decode(issuer.issue(), options={"verify_signature": False})
    forged = hs256({"alg": "HS256", "kid": "one"}, claims, pem)
    yield "by the public key as a secret", forged
    for header in (
        {"jku": "https://elsewhere.example/keys"},
        {"x5u": "https://elsewhere.example/x"},
        {"jwk": json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA[1].public_key()))},
    ):
        yield (
            f"by a key of its own in {next(iter(header))}",
            issuer.issue((RSA[1], "RS256"), header=header),
        )
    yield "with a condition that we do not know", issuer.issue(header={"crit": ["x"], "x": 1})
    yield "that is no JSON", "e30.e30.e30"
    yield "of dots", "..."
    yield "of a number as key", hs256({"alg": "RS256", "kid": 7}, claims, pem)
    nested = base64.urlsafe_b64encode(b"[" * 30_000).rstrip(b"=").decode()
    yield "nested deeply", f"{nested}.e30.e30"
    yield "until the end of time", issuer.issue(exp=10**400)


def hs256(header, claims, secret):
    """A token by a shared secret; the library refuses to sign by a public key."""
    parts = [json.dumps(part).encode() for part in (header, claims)]
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    digest = hmac.digest(secret, text, "sha256")
    return (text + b"." + base64.urlsafe_b64encode(digest).rstrip(b"=")).decode()


def test_forged_tokens_are_refused(issuer, get):
    assert get(issuer.issue()).status_code == 200
    for what, token in forge(issuer):
        answer = get(token)
        assert answer.status_code == 401, what
        assert answer.json()["type"].endswith("#tokenerror"), what
        assert "resource_metadata" in answer.headers["www-authenticate"], what


def test_keys_rotate(issuer, get):
    """A new one is fetched when a token names it; what was fetched is kept; nobody can flood."""
    old = issuer.issue()
    assert get(old).status_code == 200
    assert issuer.reads == 1
    issuer.keys.clear()
    issuer.add_key("two", RSA[1], "PS256")
    new = issuer.issue("two", header={"kid": "two"})
    assert [get(new).status_code for _ in range(3)] == [200] * 3
    assert issuer.reads == 2
    assert get(old).status_code == 401  # its key was withdrawn
    for number in range(40):
        get(issuer.issue("two", header={"kid": str(number)}))
    assert issuer.reads <= 6
    assert get(new).status_code == 200


def test_keys_of_all_kinds(issuer, get):
    issuer.add_key("curve", ec.generate_private_key(ec.SECP256R1()), "ES256")
    issuer.add_key("ed", ed25519.Ed25519PrivateKey.generate(), "EdDSA")
    for name in ("curve", "ed", "one"):
        assert get(issuer.issue(name, header={"kid": name})).status_code == 200, name
    # The header names the key of one kind, and the algorithm of another.
    crossed = issuer.issue("ed", header={"kid": "curve"})
    assert get(crossed).status_code == 401


def test_an_issuer_that_does_not_answer(memory, serve, get, issuer):
    """Its tokens are neither right nor wrong; keys that were read still count."""
    audience = "https://memory.example/mcp"
    for broken in (
        lambda _: JSONResponse({"issuer": "https://elsewhere.example", "jwks_uri": issuer.url}),
        lambda _: JSONResponse(["x"]),
        lambda _: JSONResponse({"x": "y" * 300_000}),
        lambda _: RedirectResponse(f"{issuer.url}/keys"),
    ):
        url = serve(Starlette(routes=[Route("/{path:path}", broken)]))
        app = create_app(memory, access=Access.from_issuer(Issuer(url, audience)))
        answer = httpx.get(
            f"{serve(app)}/v1/session", headers={"Authorization": f"Bearer {issuer.issue()}"}
        )
        assert answer.status_code == 503
        assert "keys of the issuer" in answer.json()["detail"]


def test_addresses_that_can_be_changed_on_the_way_are_refused():
    good = "https://auth.example"
    for wrong in (
        "http://auth.example",
        "auth.example",
        "",
        "https://",
        "https://a/?x",
        'https://a"',
    ):
        with pytest.raises(InvalidInputError, match="https://"):
            Issuer(wrong, good)
        with pytest.raises(InvalidInputError, match="https://"):
            Issuer(good, wrong)
