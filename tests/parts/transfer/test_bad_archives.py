"""What is no archive, or one with odd contents, is refused in a sentence, and nothing is read in.

Checks with thousands of mutations, and with a bomb: ``make soak ONLY=archives,bomb``, a few of
which ``tests/benchmarks/test_soak.py`` runs.
"""

import json
import zipfile

import pytest
from typer.testing import CliRunner

from crabpath_retrievers import CrabPathError, InvalidInputError, StoreError, examine
from crabpath_retrievers.cli import app
from crabpath_retrievers.errors import SchemaVersionError


def write(path, held, compression=zipfile.ZIP_STORED):
    """Write members as an archive."""
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in held.items():
            file.writestr(name, data)


def flip_bit(compression):
    """One bit of a member is another one."""

    def spoil(path, held):
        write(path, held, compression)
        with zipfile.ZipFile(path) as file:
            start = file.getinfo("nodes.jsonl").header_offset
        data = bytearray(path.read_bytes())
        data[start + 100] ^= 1
        path.write_bytes(bytes(data))

    return spoil


def cut_off(path, held):
    """The end is missing, as after a broken transfer."""
    write(path, held)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def write_manifest(text):
    """Nothing but a manifest of these bytes."""
    return lambda path, _: write(path, {"manifest.json": text})


def change_manifest(**values):
    """Other values in the manifest."""
    return change_member("manifest.json", lambda data: json.dumps({**json.loads(data), **values}))


def change_member(name, change):
    """Another content of a member, or a new one."""
    return lambda path, held: write(path, {**held, name: change(held.get(name, b""))})


def change_row(table, change):
    """Another first row."""

    def spoil(data):
        first, rest = data.split(b"\n", 1)
        return json.dumps(change(json.loads(first))).encode() + b"\n" + rest

    return change_member(f"{table}.jsonl", spoil)


def without(row, column):
    """A row that lacks a column."""
    return {name: value for name, value in row.items() if name != column}


NO_ARCHIVE = "is not a CrabPath archive, or is truncated"
NO_MANIFEST = "is not a CrabPath archive: give a file"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["whole", "mind"])
@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (cut_off, NO_ARCHIVE),
        (flip_bit(zipfile.ZIP_STORED), "is damaged: nodes.jsonl cannot be read"),
        (flip_bit(zipfile.ZIP_DEFLATED), "is damaged: .* cannot be read"),
        (lambda path, _: path.write_text("Dear Sir,"), NO_ARCHIVE),
        (lambda path, _: None, "cannot be read .No such file"),
        (lambda path, _: path.mkdir(), "cannot be read .Is a directory"),
        (lambda path, _: write(path, {"a.xml": "<xml/>"}), "it has no readable manifest.json"),
        *(
            (write_manifest(text), NO_MANIFEST)
            for text in (b"{", b"[" * 100_000, b'{"format": Infinity}', b"[1]", b"\xff")
        ),
        (change_manifest(format="docker"), NO_MANIFEST),
        (change_manifest(version=2), "archive version 2 .* upgrade crabpath-retrievers"),
        (change_manifest(schema_version=99), "schema version 99, .* upgrade crabpath-retr"),
        *(
            (change_manifest(**odd), r"its manifest\.json is invalid")
            for odd in (
                *({"last": last} for last in ({"nodes": -5}, {"nodes": 2**80}, {"usage": 5}, [1])),
                *({"last": {"sqlite_master": 5}}, {"schema_version": -1}, {"namespace": 5}),
                *({"namespace": "\x00"}, {"created": "x"}, {"embedder": "{}"}),
            )
        ),
        (change_member("../../evil.jsonl", bytes), r"contains '../../evil.jsonl', which does not"),
        (change_member("trash.jsonl", bytes), "contains 'trash.jsonl', which does not belong"),
        (
            lambda path, held: write(path, without(held, "usage.jsonl")),
            "is damaged: usage.jsonl is missing",
        ),
        (
            change_row("overlay", lambda row: {**row, "secret": 1}),
            "line 1 of overlay.jsonl in .* is not a valid row",
        ),
        (
            change_row("episodes", lambda row: without(row, "credit_by_user")),
            "line 1 of episodes.jsonl in .* is not a valid row",
        ),
        (
            change_member("overlay.jsonl", lambda data: data + data.partition(b"\n")[0] + b"\n"),
            "the store refused an operation",
        ),
    ],
)
def test_archives_that_cannot_be_read(sound, targets, tmp_path, kind, spoil, sentence):
    """One sentence that says what is wrong, and the memory is as it was."""
    path, memory = tmp_path / "archive", targets[kind]
    spoil(path, sound[kind])
    before = memory.info()
    with pytest.raises(CrabPathError, match=sentence) as raised:
        memory.transfer.import_archive(path)
    others = {"upgrade": SchemaVersionError, "refused": StoreError}
    expected = (error for word, error in others.items() if word in sentence)
    assert raised.type is next(expected, InvalidInputError)
    assert "\n" not in str(raised.value)
    assert memory.info() == before
    assert not memory.store.catalog.has_unfinished_ingest()


def test_an_archive_without_its_namespace(sound, targets, tmp_path):
    """Only that of a namespace has to hold one."""
    change_member("namespaces.jsonl", lambda _: b"")(tmp_path / "archive", sound["mind"])
    with pytest.raises(InvalidInputError, match="not contain namespace 'default': it contains no"):
        targets["mind"].transfer.import_archive(tmp_path / "archive")


@pytest.mark.slow
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
        ("usage", "wins", -9.0),
        ("snapshots", "content", "eJwDAAAAAAE="),
        ("meta", "name", "schema_version"),
        ("meta", "value", '{"model": "another", "dimension": 0, "probe": ""}'),
    ],
)
def test_values_that_nobody_could_read(sound, targets, tmp_path, table, column, value):
    """The line is named, and nothing is half written."""
    memory = targets["whole"]
    change_row(table, lambda row: {**row, column: value})(tmp_path / "archive", sound["whole"])
    with pytest.raises(InvalidInputError, match=f"line 1 of {table}.jsonl in .* is not a valid"):
        memory.transfer.import_archive(tmp_path / "archive")
    assert memory.info()["nodes"] == 0


def test_sound_ones_are_read(sound, open_memory, tmp_path):
    """Written again by the helper of these tests, unchanged, they are archives."""
    write(tmp_path / "archive", sound["whole"])
    found = open_memory(tmp_path / "there").transfer.import_archive(tmp_path / "archive")
    assert found.rows["nodes"] == 41


def test_one_of_an_older_schema_is_read(learned, open_memory, tmp_path):
    """Its notes do not say when they were said last; what made them can be undone."""

    def make_older(line):
        row = {n: v for n, v in json.loads(line).items() if n not in {"said", "said_directly"}}
        if "record" in row:
            record = json.loads(row["record"])
            record["notes"] = [{n: note[n] for n in ("note", "query")} for note in record["notes"]]
            row["record"] = json.dumps(record, separators=(",", ":"))
        return json.dumps(row).encode() + b"\n"

    turn = learned.retrieve("Which page is last?").turn
    learned.record(turn.id, outcome=False, correction="The last is Page 40.", feedback_id="said")
    made = learned.transfer.export(tmp_path / "new", namespace="default").path
    with zipfile.ZipFile(made) as file:
        held = {name: file.read(name) for name in file.namelist()}
    for member in ("notes.jsonl", "feedback_effects.jsonl"):
        held[member] = b"".join(map(make_older, held[member].splitlines()))
    write(tmp_path / "old", held)
    there = open_memory(tmp_path / "there", documents=40)
    there.transfer.import_archive(tmp_path / "old", rename="copy")
    before = [note.text for note in there.notes(namespace="copy")]
    assert there.undo("said", namespace="copy").status == "undone"
    assert [note.text for note in there.notes(namespace="copy")] == before[1:]
    assert before[0] == "The last is Page 40."


@pytest.mark.parametrize("level", [0, 1, 30])
def test_levels_of_regions_follow_from_ids(sound, open_memory, tmp_path, level):
    """Those of an archive do not count: regions would have no hubs, or queries other ones."""
    spoil = change_row("nodes", lambda row: {**row, "level": level})
    spoil(tmp_path / "archive", sound["whole"])
    there = open_memory(tmp_path / "there")
    there.transfer.import_archive(tmp_path / "archive")
    findings = examine(tmp_path / "there").findings
    assert not [one.message for one in findings if one.check == "regions"]
    assert there.regions.map().regions


def test_the_command_makes_nothing_of_a_bad_one(tmp_path):
    """No directory stays behind."""
    letter, there = tmp_path / "letter", tmp_path / "there"
    letter.write_text("Dear Sir or Madam,")
    result = CliRunner().invoke(app, ["transfer", "import", str(letter), str(there)])
    assert result.exit_code == 2
    assert "is not a CrabPath archive" in " ".join(result.stderr.split())
    assert not there.exists()
