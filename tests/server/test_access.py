"""Tokens: where they are kept, what they grant, and when they end."""

import json
import stat
from datetime import datetime, timedelta, timezone

import pytest

from crabpath_retrievers.errors import (
    ConfigurationError,
    ForbiddenError,
    InvalidInputError,
    TokenError,
)
from crabpath_server import Access, add_token


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
    access = Access.from_file(token_file)
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


def test_a_file_that_is_deleted_grants_nothing_until_it_is_back(token_file):
    token = add_token(token_file, ["ann"], ["read"])
    access = Access.from_file(token_file)
    away = token_file.rename(token_file.with_name("away.json"))
    with pytest.raises(TokenError, match="unknown"):
        access.authorise(token)
    away.rename(token_file)
    assert access.authorise(token).namespaces == ("ann",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '[{"sha256": "x", "namespaces": ["a"], "rights": ["read"]}]',
        '[{"sha256": "%s", "namespaces": [], "rights": ["read"]}]' % ("a" * 64),
        '[{"sha256": "%s", "namespaces": [" "], "rights": ["read"]}]' % ("a" * 64),
        '[{"sha256": "%s", "namespaces": ["a"], "rights": ["everything"]}]' % ("a" * 64),
        '[{"sha256": "%s", "namespaces": ["a"], "rights": ["read"], "expires": "soon"}]'
        % ("a" * 64),
        '[{"sha256": "%s", "namespaces": ["a"], "rights": ["read"], "token": "x"}]' % ("a" * 64),
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
    assert [path.name for path in token_file.parent.iterdir()] == [token_file.name]
