"""What is no archive, or not all of one, is told in a sentence, and nothing of it is read in."""

import io
import json
import shutil
import zipfile
from hashlib import sha256

import numpy as np
import pytest
from learned_memory import corpus
from typer.testing import CliRunner

from crabpath_retrievers import InvalidInputError, SchemaVersionError, StoreError
from crabpath_retrievers.cli import app


def members(path):
    """All members by name."""
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def write(path, held, **changed):
    """Write members again, and what the manifest says of them when it is to agree."""
    manifest = json.loads(held["manifest.json"])
    for name, data in changed.pop("agreeing", {}).items():
        held[name] = data
        described = manifest["members"].setdefault(name, {"rows": 1, "columns": []})
        described.update(size=len(data), sha256=sha256(data).hexdigest())
    held["manifest.json"] = json.dumps({**manifest, **changed}).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, data in held.items():
            file.writestr(name, data)


def cut_off(path):
    """The end is missing, as after a broken transfer."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def one_byte(path):
    """One byte of a member is another one."""
    with zipfile.ZipFile(path) as file:
        place = file.getinfo("nodes.npy").header_offset + 200
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(bytes(data))


def text(path):
    """Something else altogether."""
    path.write_text("Dear Sir or Madam,")


def empty(path):
    """Nothing at all."""
    path.write_bytes(b"")


def gone(path):
    """No file."""
    path.unlink()


def folder(path):
    """A directory."""
    path.unlink()
    path.mkdir()


def foreign(path):
    """A zip file of somebody else."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("word/document.xml", "<xml/>")


def of_another_program(path):
    """A manifest of somebody else."""
    write(path, members(path), format="docker")


def no_json(path):
    """A manifest that cannot be read."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("manifest.json", "{")


def newer_format(path):
    """Written by a release to come."""
    write(path, members(path), version=2)


def newer_schema(path):
    """From a store of a release to come."""
    write(path, members(path), schema_version=99)


def climbing(path):
    """A member that would lie outside."""
    write(path, members(path), agreeing={"../../evil.jsonl": b"{}\n"})


def unlisted(path):
    """A member that the manifest does not tell of."""
    write(path, {**members(path), "trash.jsonl": b"{}\n"})


def hidden(path):
    """A known member that the manifest does not tell of."""
    held = members(path)
    del held["usage.jsonl"]
    write(path, held)


def replaced(path):
    """A whole member is another one."""
    held = members(path)
    write(path, {**held, "overlay.jsonl": held["overlay.jsonl"].replace(b"0.", b"1.")})


def pickled(path):
    """An array that would run code when it is read."""
    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    write(path, members(path), agreeing={"nodes.npy": file.getvalue()})


def short_vectors(path):
    """An array that says it is longer than it is."""
    held = members(path)
    write(path, held, agreeing={"nodes.npy": held["nodes.npy"][:-32]})


def odd_column(path):
    """A column that no release knows."""
    manifest = json.loads(members(path)["manifest.json"])["members"]
    manifest["overlay.jsonl"]["columns"].append("secret")
    write(path, members(path), members=manifest)


def odd_row(path):
    """A line that is no row."""
    held = members(path)
    write(path, held, agreeing={"overlay.jsonl": held["overlay.jsonl"] + b'{"source": 1}\n'})


def odd_value(path):
    """A number where the database wants a text, for a key that is there already."""
    held = members(path)
    first, _, _ = held["overlay.jsonl"].partition(b"\n")
    again = held["overlay.jsonl"] + first + b"\n"
    write(path, held, agreeing={"overlay.jsonl": again})


CASES = [
    (cut_off, InvalidInputError, "is not a CrabPath archive, or is truncated"),
    (one_byte, InvalidInputError, "is damaged: nodes.npy"),
    (text, InvalidInputError, "is not a CrabPath archive, or is truncated"),
    (empty, InvalidInputError, "is not a CrabPath archive, or is truncated"),
    (gone, InvalidInputError, "cannot be read .No such file"),
    (folder, InvalidInputError, "cannot be read .Is a directory"),
    (foreign, InvalidInputError, "it has no readable manifest.json"),
    (of_another_program, InvalidInputError, "is not a CrabPath archive: give a file"),
    (no_json, InvalidInputError, "is not a CrabPath archive: give a file"),
    (newer_format, SchemaVersionError, "archive version 2 .* upgrade crabpath-retrievers"),
    (newer_schema, SchemaVersionError, "schema version 99, .* upgrade crabpath-retrievers"),
    (
        climbing,
        InvalidInputError,
        r"contains '../../evil.jsonl', which does not belong in an archive",
    ),
    (unlisted, InvalidInputError, "contains 'trash.jsonl', which does not belong"),
    (hidden, InvalidInputError, "is damaged: usage.jsonl is missing"),
    (replaced, InvalidInputError, "is damaged: overlay.jsonl was changed"),
    (pickled, InvalidInputError, "is damaged: nodes.npy cannot be read"),
    (short_vectors, InvalidInputError, "is damaged: nodes.npy cannot be read"),
    (odd_column, InvalidInputError, "an unknown column 'secret' in overlay.jsonl"),
    (odd_row, InvalidInputError, r"line \d+ of overlay.jsonl in .* is not a valid row"),
    (odd_value, StoreError, "the store refused an operation"),
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """An archive, made once, with the number of its learned weights."""
    from langchain_core.vectorstores import InMemoryVectorStore
    from learned_memory import EMBEDDINGS, teach

    from crabpath_retrievers import CrabPath

    place = tmp_path_factory.mktemp("sound")
    vectors = InMemoryVectorStore(EMBEDDINGS)
    with CrabPath.open(place / "here", embeddings=EMBEDDINGS, vectors=vectors) as memory:
        memory.add_documents(corpus(), split=False)
        teach(memory)
        whole, mind = (
            memory.transfer.export(place / "all"),
            memory.transfer.export(place / "mind", namespace="default"),
        )
    return {"whole": whole, "mind": mind}


@pytest.mark.parametrize("kind", ["whole", "mind"])
@pytest.mark.parametrize(
    ("spoil", "error", "sentence"), CASES, ids=lambda case: getattr(case, "__name__", "")
)
def test_nothing_is_read_in(sound, open_memory, tmp_path, kind, spoil, error, sentence):
    """One sentence, and the memory is as it was."""
    path = tmp_path / "archive"
    shutil.copy(sound[kind].path, path)
    spoil(path)
    memory = open_memory(tmp_path / "there")
    if kind == "mind":
        memory.add_documents(corpus(), split=False)
    before = memory.info()
    with pytest.raises(error, match=sentence) as raised:
        memory.transfer.import_archive(path)
    assert "\n" not in str(raised.value)
    assert memory.info() == before
    assert not memory.store.catalog.has_unfinished_ingest()


def test_sound_ones_are_read(sound, open_memory, tmp_path):
    """Written again by the helper of these tests, unchanged, they are archives."""
    path = tmp_path / "archive"
    write(path, members(sound["whole"].path))
    assert open_memory(tmp_path / "there").transfer.import_archive(path).rows == sound["whole"].rows


def test_the_command_makes_nothing_of_a_bad_one(tmp_path):
    """No directory stays behind."""
    text(tmp_path / "letter")
    result = CliRunner().invoke(
        app, ["transfer", "import", str(tmp_path / "letter"), str(tmp_path / "there")]
    )
    assert result.exit_code == 2
    assert "is not a CrabPath archive" in " ".join(result.stderr.split())
    assert not (tmp_path / "there").exists()
