"""What is no archive, or one with odd contents, is refused in a sentence, and nothing is read in.

Checks with thousands of mutations, and with a bomb: ``make soak ONLY=archives,bomb``, a few of
which ``tests/benchmarks/test_soak.py`` runs.
"""

import json
import zipfile

import pytest
from typer.testing import CliRunner

from crabpath_retrievers import CrabPathError, InvalidInputError, StoreError
from crabpath_retrievers.cli import app
from crabpath_retrievers.errors import SchemaVersionError


@pytest.fixture(params=["whole", "mind"])
def refused(request, targets, sound, tmp_path):
    """Tries an archive of each kind, and says what it is refused with."""
    memory = targets[request.param]
    path = tmp_path / "archive"

    def _refused(spoil):
        spoil(path, dict(sound[request.param]))
        before = memory.info()
        with pytest.raises(CrabPathError) as raised:
            memory.transfer.import_archive(path)
        assert "\n" not in str(raised.value)
        assert memory.info() == before
        assert not memory.store.catalog.has_unfinished_ingest()
        return raised

    return _refused


def one_byte(path, held):
    """One byte of a member is another one."""
    with zipfile.ZipFile(path, "w") as file:
        for name, data in held.items():
            file.writestr(name, data)
        place = file.getinfo("nodes.jsonl").header_offset
    data = bytearray(path.read_bytes())
    data[place + 200] ^= 1
    path.write_bytes(bytes(data))


def cut_off(path, held):
    """The end is missing, as after a broken transfer."""
    one_byte(path, held)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def of_somebody_else(path, _held):
    """A zip file of another program."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("word/document.xml", "<xml/>")


def with_manifest(text):
    """Nothing but a manifest of these bytes."""

    def spoil(path, _held):
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("manifest.json", text)

    return spoil


NO_ARCHIVE = "is not a CrabPath archive, or is truncated"
NO_MANIFEST = "is not a CrabPath archive: give a file"


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        pytest.param(cut_off, NO_ARCHIVE, id="cut off"),
        pytest.param(one_byte, r"is damaged: nodes.jsonl cannot be read", id="one byte"),
        pytest.param(lambda path, _: path.write_text("Dear Sir,"), NO_ARCHIVE, id="text"),
        pytest.param(lambda path, _: path.write_bytes(b""), NO_ARCHIVE, id="empty"),
        pytest.param(lambda path, _: None, "cannot be read .No such file", id="gone"),
        pytest.param(lambda path, _: path.mkdir(), "cannot be read .Is a directory", id="folder"),
        pytest.param(of_somebody_else, "it has no readable manifest.json", id="foreign"),
        *(
            pytest.param(with_manifest(text), NO_MANIFEST, id=str(text[:9]))
            for text in (b"{", b"[" * 100_000, b'{"format": Infinity}', b"[1]", b"\xff")
        ),
    ],
)
def test_files_that_are_no_archive(refused, spoil, sentence):
    """One sentence, and the memory is as it was."""
    raised = refused(spoil)
    assert raised.type is InvalidInputError
    raised.match(sentence)


@pytest.mark.parametrize(
    ("manifest", "error", "sentence"),
    [
        ({"format": "docker"}, InvalidInputError, NO_MANIFEST),
        ({"version": 2}, SchemaVersionError, "archive version 2 .* upgrade crabpath-retrievers"),
        ({"schema_version": 99}, SchemaVersionError, "schema version 99, .* upgrade crabpath-retr"),
        *(
            (odd, InvalidInputError, r"its manifest\.json is invalid")
            for odd in (
                {"last": {"nodes": -5}},
                {"last": {"nodes": 2**80}},
                {"last": {"sqlite_master": 5}},
                {"last": [1]},
                {"schema_version": -1},
                {"namespace": 5},
                {"namespace": "\x00"},
                {"created": "x"},
                {"embedder": "{}"},
            )
        ),
    ],
    ids=str,
)
def test_manifests_that_do_not_fit(refused, write, manifest, error, sentence):
    """Newer ones, those of other programs, and those that nobody writes."""
    raised = refused(lambda path, held: write(path, held, **manifest))
    assert raised.type is error
    raised.match(sentence)


def member(name, change):
    """Changes a member."""
    return lambda held: held.update({name: change(held.get(name, b""))})


def first_line_again(data):
    """A row whose key is there already."""
    return data + data.partition(b"\n")[0] + b"\n"


def change_columns(change):
    """Changes the columns of the first row."""

    def spoil(data):
        first, rest = data.split(b"\n", 1)
        row = json.loads(first)
        change(row)
        return json.dumps(row).encode() + b"\n" + rest

    return spoil


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (member("../../evil.jsonl", bytes), r"contains '../../evil.jsonl', which does not"),
        (member("trash.jsonl", bytes), "contains 'trash.jsonl', which does not belong"),
        (lambda held: held.pop("usage.jsonl"), "is damaged: usage.jsonl is missing"),
        (
            member("overlay.jsonl", change_columns(lambda row: row.update(secret=1))),
            "line 1 of overlay.jsonl in .* is not a valid row",
        ),
        (
            member("episodes.jsonl", change_columns(lambda row: row.pop("credit_by_user"))),
            "line 1 of episodes.jsonl in .* is not a valid row",
        ),
        (
            member("overlay.jsonl", lambda data: data + b'{"source": 1}\n'),
            r"line \d+ of overlay.jsonl in .* is not a valid row",
        ),
        (member("namespaces.jsonl", lambda _: b""), "does not contain namespace 'default'"),
        (member("overlay.jsonl", first_line_again), "the store refused an operation"),
    ],
)
def test_members_that_do_not_fit(sound, targets, write, tmp_path, change, sentence):
    """Of other places, missing, or with odd rows."""
    held, memory = dict(sound["mind"]), targets["mind"]
    change(held)
    write(tmp_path / "archive", held)
    before = memory.info()
    with pytest.raises(StoreError if "refused" in sentence else InvalidInputError, match=sentence):
        memory.transfer.import_archive(tmp_path / "archive")
    assert memory.info() == before


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("turns", "record", "[" * 100_000),
        ("turns", "created", 1e300),
        ("overlay", "kind", 77),
        ("overlay", "weight", 1e9),
        ("episodes", "documents", '{"a": NaN}'),
        ("feedback", "status", "lost"),
        ("feedback", "payload", '{"turn_id": null, "outcome": 7}'),
        ("namespaces", "name", " "),
        ("namespaces", "model", '{"ranker": {}}'),
        ("nodes", "mentions", -1),
        ("nodes", "id", "a\x00b"),
        ("nodes", "id", ""),
        ("episodes", "id", ""),
        ("nodes", "terms", "YQ=="),
        ("nodes", "embedding", 5),
        ("nodes", "embedding", "YQ=="),
        ("nodes", "embedding", "no base64"),
        ("usage", "wins", -9.0),
        ("snapshots", "content", "eJwDAAAAAAE="),
        ("meta", "name", "schema_version"),
    ],
)
def test_values_that_nobody_could_read(sound, targets, write, tmp_path, table, column, value):
    """The line is named, and nothing is half written."""
    held, memory = dict(sound["whole"]), targets["whole"]
    first, rest = held[f"{table}.jsonl"].split(b"\n", 1)
    row = json.dumps({**json.loads(first), column: value}).encode()
    write(tmp_path / "archive", {**held, f"{table}.jsonl": row + b"\n" + rest})
    with pytest.raises(InvalidInputError, match=f"line 1 of {table}.jsonl in .* is not a valid"):
        memory.transfer.import_archive(tmp_path / "archive")
    assert memory.info()["nodes"] == 0


def test_sound_ones_are_read(sound, open_memory, write, tmp_path):
    """Written again by the helper of these tests, unchanged, they are archives."""
    write(tmp_path / "archive", sound["whole"])
    found = open_memory(tmp_path / "there").transfer.import_archive(tmp_path / "archive")
    assert found.rows["nodes"] == 41


def test_the_command_makes_nothing_of_a_bad_one(tmp_path):
    """No directory stays behind."""
    letter, there = tmp_path / "letter", tmp_path / "there"
    letter.write_text("Dear Sir or Madam,")
    result = CliRunner().invoke(app, ["transfer", "import", str(letter), str(there)])
    assert result.exit_code == 2
    assert "is not a CrabPath archive" in " ".join(result.stderr.split())
    assert not there.exists()
