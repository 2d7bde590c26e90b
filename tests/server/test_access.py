"""Tokens: where they are kept, what they grant, and when they end."""

import json
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from crabpath_retrievers.errors import (
    ConfigurationError,
    ForbiddenError,
    InvalidInputError,
    TokenError,
)
from crabpath_server import Access, add_token, create_token, list_tokens


def in_seconds(number: float) -> str:
    return (datetime.now(timezone.utc) + timedelta(seconds=number)).isoformat()


def test_a_token_grants_namespaces_and_rights_and_only_its_hash_is_kept(token_file):
    token = add_token(token_file, ["ann", "team"], ["read", "feedback"], in_seconds(60))
    assert token not in token_file.read_text()
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    grant = Access.from_file(token_file).authorise(token)
    assert (grant.choose_namespace(None), grant.choose_namespace("team")) == ("ann", "team")
    grant.require("feedback")
    with pytest.raises(ForbiddenError, match="'bob'"):
        grant.choose_namespace("bob")
    for right in ("write", "admin"):
        with pytest.raises(ForbiddenError, match=right):
            grant.require(right)


def test_all_namespaces_and_none(token_file):
    token = add_token(token_file, ["*"], ["read"])
    grant = Access.from_file(token_file).authorise(token)
    assert (grant.choose_namespace(None), grant.choose_namespace("bob")) == ("default", "bob")
    for wrong in ("", " ", "x" * 513):
        with pytest.raises(InvalidInputError, match="namespace must"):
            grant.choose_namespace(wrong)


def test_unknown_missing_and_expired_tokens_are_refused(token_file):
    over = add_token(token_file, ["ann"], ["read"], in_seconds(-1))
    good = add_token(token_file, ["ann"], ["read"])
    access = Access.from_file(token_file)
    stored = json.loads(token_file.read_text())[1]["sha256"]
    for token, why in (
        (None, "needs a token"),
        ("", "unknown"),
        (good[:-1], "unknown"),
        (good.swapcase(), "unknown"),
        (stored, "unknown"),
        ("\udcff\x00", "unknown"),
        (over, "expired"),
    ):
        with pytest.raises(TokenError, match=why):
            access.authorise(token)
    assert access.authorise(good).namespaces == ("ann",)


def test_a_file_that_changes_counts_at_once_and_a_broken_one_does_not(token_file, caplog):
    old = add_token(token_file, ["ann"], ["read"])
    access = Access.from_file(token_file, check_seconds=0)
    new = add_token(token_file, ["ann"], ["read"])
    access.authorise(new)
    entries = json.loads(token_file.read_text())
    token_file.write_text(json.dumps(entries[1:]))
    with pytest.raises(TokenError):
        access.authorise(old)
    for broken in ("[{", json.dumps([{**entries[1], "namespaces": [" "]}])):
        caplog.clear()
        token_file.write_text(broken)
        access.authorise(new)
        assert "stay as they were" in caplog.text


def test_a_file_is_looked_at_now_and_then(token_file, monkeypatch):
    """At most once a second, whoever asks."""
    first = add_token(token_file, ["ann"], ["read"])
    access = Access.from_file(token_file)
    looked, stat_file = [], Path.stat
    monkeypatch.setattr(Path, "stat", lambda *given, **how: looked.append(1) or stat_file(*given))
    for _ in range(1000):
        access.authorise(first)
    assert len(looked) <= 1
    monkeypatch.undo()
    later = add_token(token_file, ["ann"], ["read"])
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with suppress(TokenError):
            assert access.authorise(later).namespaces == ("ann",)
            return
        time.sleep(0.05)
    pytest.fail("the new token is not known")


def test_tokens_that_are_made_at_once_are_all_kept(token_file):
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: create_token(token_file, [f"n{n}"], ["read"]), range(24)))
    entries = list_tokens(token_file)
    assert {entry.id for entry in entries} == {token.id for token in made}
    access = Access.from_file(token_file)
    assert all(access.authorise(token.secret).token == token.id for token in made)


def test_patterns_of_namespaces(token_file):
    """Only ``*`` has a meaning; a pattern is no namespace of its own."""
    grants = {}
    for names in (["red", "team-*"], ["ann", "*-[x]?"], ["*"]):
        token = add_token(token_file, names, ["read"])
        grants[names[-1]] = Access.from_file(token_file).authorise(token)
    team, odd, every = grants.values()
    assert team.choose_namespace("team-red%0Ablue") == "team-red\nblue"
    for other in ("team", "Team-red", "a team-red", "red-", "*"):
        with pytest.raises(ForbiddenError):
            team.choose_namespace(other)
    assert team.choose_namespace(None) == "red"
    with pytest.raises(InvalidInputError, match=r"the first of namespaces must be a name or '\*'"):
        add_token(token_file, ["team-*"], ["read"])
    assert (odd.choose_namespace(None), odd.choose_namespace("b-[x]?")) == ("ann", "b-[x]?")
    with pytest.raises(ForbiddenError):
        odd.choose_namespace("b-xy")
    assert every.has_all_namespaces
    assert not team.has_all_namespaces


def test_two_entries_of_one_token_are_refused(token_file):
    add_token(token_file, ["ann"], ["read"])
    (entry,) = json.loads(token_file.read_text())
    for other in ({"sha256": "b" * 64}, {"id": "other"}):
        token_file.write_text(json.dumps([entry, {**entry, **other}]))
        with pytest.raises(ConfigurationError, match="two tokens have"):
            Access.from_file(token_file)


def test_a_token_fixes_the_user(token_file):
    free, fixed = (
        Access.from_file(token_file).authorise(made.secret)
        for user in (None, "ann")
        for made in [create_token(token_file, ["ann"], ["feedback"], user=user)]
    )
    assert free.choose_user("eve") == "eve"
    assert free.choose_user(None) == f"token {free.token}"
    assert fixed.choose_user(None) == fixed.choose_user("ann") == "ann"
    with pytest.raises(ForbiddenError, match="'ann' only"):
        fixed.choose_user("eve")


def test_a_file_that_is_deleted_grants_nothing_until_it_is_back(token_file, caplog):
    """And the log names it: else all that an operator sees is that every token is unknown."""
    token = add_token(token_file, ["ann"], ["read"])
    access = Access.from_file(token_file, check_seconds=0)
    away = token_file.rename(token_file.with_name("away.json"))
    with pytest.raises(TokenError, match="unknown"):
        access.authorise(token)
    assert f"{token_file} is gone" in caplog.text
    away.rename(token_file)
    assert access.authorise(token).namespaces == ("ann",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '[{"id": "a", "sha256": "x", "namespaces": ["a"], "rights": ["read"]}]',
        '[{"sha256": "%s", "namespaces": ["a"], "rights": ["read"]}]' % ("a" * 64),
        '[{"id": "a", "sha256": "%s", "namespaces": [], "rights": ["read"]}]' % ("a" * 64),
        '[{"id": "a", "sha256": "%s", "namespaces": [" "], "rights": ["read"]}]' % ("a" * 64),
        '[{"id": "a", "sha256": "%s", "namespaces": ["a"], "rights": ["everything"]}]' % ("a" * 64),
        '[{"id": "a", "sha256": "%s", "namespaces": ["a"], "rights": ["read"], "expires": "soon"}]'
        % ("a" * 64),
        '[{"id": "a", "sha256": "%s", "namespaces": ["a"], "rights": ["read"], "token": "x"}]'
        % ("a" * 64),
    ],
)
def test_files_that_cannot_be_used(token_file, text):
    token_file.write_text(text)
    token_file.chmod(0o600)
    with pytest.raises(ConfigurationError, match=r"tokens\.json cannot be used") as caught:
        Access.from_file(token_file)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="CRABPATH_TOKENS"):
        Access.from_environment({"CRABPATH_TOKENS": text})
    with pytest.raises(ConfigurationError, match=r"tokens\.json cannot be used"):
        add_token(token_file, ["ann"], ["read"])
    assert token_file.read_text() == text


def test_a_file_that_others_may_read_is_refused(token_file):
    add_token(token_file, ["ann"], ["read"])
    token_file.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        Access.from_file(token_file)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Access.from_file(token_file.parent / "missing.json")


def test_tokens_from_the_environment(token_file):
    token = add_token(token_file, ["ann"], ["read"])
    access = Access.from_environment({"CRABPATH_TOKENS": token_file.read_text()})
    assert access.authorise(token).namespaces == ("ann",)
    assert Access.from_environment({}) is None


def test_a_new_token_that_would_be_none_leaves_the_file_as_it_was(token_file):
    add_token(token_file, ["ann"], ["read"])
    before = token_file.read_text()
    for namespaces, rights, expires in (
        (["ann"], ["all"], None),
        ([], ["read"], None),
        ([" "], ["read"], None),
        (["ann"], ["read"], "tomorrow"),
    ):
        with pytest.raises(InvalidInputError):
            add_token(token_file, namespaces, rights, expires)
    assert token_file.read_text() == before
    assert not list(token_file.parent.glob("tokens.json.????????"))  # half written
