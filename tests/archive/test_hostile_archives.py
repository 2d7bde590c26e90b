"""Archives whose sums agree and whose contents are odd: refused in a sentence, or harmless."""

import json
import random
import subprocess
import sys
import zipfile
from hashlib import sha256

import pytest
from langchain_core.vectorstores import InMemoryVectorStore
from learned_memory import EMBEDDINGS, corpus, teach

from crabpath_retrievers import CrabPath, CrabPathError, Feedback, InvalidInputError
from crabpath_retrievers.errors import SchemaVersionError

ODD = [
    *(None, -1, 2**31, 2**63, 2**70, 1.5, float("nan"), float("inf"), True, [], {}, {"a": 1}),
    *("x", "", "\ud83d", "\x00", "../../x", "'; DROP TABLE crabpath_nodes;--", "a" * 3000),
]
MUTATIONS = 8  # thousands of them were tried, on both databases


def in_a_sentence(error):
    """Whether an error is told in one line."""
    return "\n" not in str(error)


def members(path):
    """All members by name."""
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def write(path, held, **manifest):
    """Write members, and what the manifest says of them."""
    said = {**json.loads(held["manifest.json"]), **manifest}
    for name, data in held.items():
        if name in said["members"]:
            said["members"][name] |= {"size": len(data), "sha256": sha256(data).hexdigest()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in {**held, "manifest.json": json.dumps(said).encode()}.items():
            file.writestr(name, data)


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The archives of a memory and of a namespace, with all that there is to spoil."""
    place = tmp_path_factory.mktemp("sound")
    vectors = InMemoryVectorStore(EMBEDDINGS)
    with CrabPath.open(place / "here", embeddings=EMBEDDINGS, vectors=vectors) as memory:
        memory.add_documents(corpus(), split=False)
        teach(memory)
        for user in ("ann", "eve"):
            turn = memory.retrieve("How is the harbour?").turn.id
            memory.record(Feedback(turn, 1.0, used=None, answer="The harbour.", user=user))
        memory.namespaces.snapshot(name="then")
        memory.maintenance.health()
        whole = memory.transfer.export(place / "all").path
        mind = memory.transfer.export(place / "mind", namespace="default").path
    return {"whole": members(whole), "mind": members(mind)}


def spoil(value, rng):
    """A value with something odd in it, also within JSON that it holds."""
    if isinstance(value, str) and value[:1] == "{" and rng.random() < 0.8:
        return json.dumps(spoil(json.loads(value), rng))
    if not isinstance(value, (dict, list)) or not value or rng.random() < 0.2:
        return rng.choice(ODD)
    place = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
    if isinstance(value, dict) and rng.random() < 0.1:
        del value[place]
    else:
        value[place] = spoil(value[place], rng)
    return value


def mutated(held, rng):
    """Members of which one row, or the manifest, says something odd."""
    if rng.random() < 0.1:
        said = json.loads(held["manifest.json"])
        said[rng.choice(sorted(said.keys() - {"members"}))] = rng.choice(ODD)
        return {**held, "manifest.json": json.dumps(said).encode()}
    name = rng.choice(sorted(n for n, data in held.items() if n.endswith(".jsonl") and data))
    rows = held[name].splitlines()
    place = rng.randrange(len(rows))
    if rng.random() < 0.15:
        rows[place : place + 1] = rng.choice([[], [rows[place]] * 2])
    else:
        row = json.loads(rows[place])
        column = rng.choice(list(row))
        row[column] = spoil(row[column], rng)
        rows[place] = json.dumps(row).encode()
    return {**held, name: b"".join(row + b"\n" for row in rows)}


def live(memory, namespace):
    """What a namespace is used for after it came."""
    for snapshot in memory.namespaces.snapshots(namespace):
        memory.namespaces.restore(snapshot.id, namespace=namespace)
    answer = memory.retrieve("How is the harbour?", namespace=namespace, k=9)
    memory.record(Feedback(answer.turn.id, 1.0, user="ann"))
    memory.learning.learn_waiting()
    memory.maintenance.health(namespace=namespace)
    memory.learning.undo_all(user="eve", namespace=namespace)
    memory.info()


def test_whatever_an_archive_says(sound, open_memory, location, tmp_path):
    """Reading it raises nothing of others' making, and neither does what follows."""
    rng, came, refused = random.Random(1), 0, []  # noqa: S311  no secret
    target = open_memory(location)
    target.add_documents(corpus(), split=False)
    for number in range(MUTATIONS):
        kind, name = rng.choice(["whole", "mind"]), f"mind{number}"
        write(tmp_path / "archive", mutated(sound[kind], rng))
        try:
            target.transfer.import_archive(tmp_path / "archive", namespace="default", rename=name)
        except CrabPathError as error:
            refused.append((error, name in target.info()["namespaces"]))
            continue
        came += 1
        live(target, name)
    assert refused
    assert came
    assert all(in_a_sentence(error) and not there for error, there in refused)


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
        ("usage", "wins", -9.0),
        ("snapshots", "content", "eJwDAAAAAAE="),
        ("meta", "name", "schema_version"),
    ],
)
def test_values_that_nobody_could_read(sound, open_memory, tmp_path, table, column, value):
    """The line is named, and nothing is half written."""
    held = dict(sound["whole"])
    first, rest = held[f"{table}.jsonl"].split(b"\n", 1)
    row = json.dumps({**json.loads(first), column: value}).encode()
    write(tmp_path / "archive", {**held, f"{table}.jsonl": row + b"\n" + rest})
    memory = open_memory(tmp_path / "there")
    with pytest.raises(
        InvalidInputError, match=f"line 1 of {table}.jsonl in .* is not a valid row"
    ):
        memory.transfer.import_archive(tmp_path / "archive")
    assert memory.info()["nodes"] == 0


@pytest.mark.parametrize(
    "manifest",
    [
        {"last": {"nodes": -5}},
        {"last": {"nodes": 2**80}},
        {"last": {"sqlite_master": 5}},
        {"last": [1]},
        {"schema_version": -1},
        {"namespace": 5},
        {"namespace": "\x00"},
        {"created": "x"},
        {"embedder": "{}"},
    ],
    ids=str,
)
def test_manifests_that_nobody_writes(sound, open_memory, tmp_path, manifest):
    """They are refused before any member is read."""
    write(tmp_path / "archive", sound["whole"], **manifest)
    with pytest.raises(InvalidInputError, match=r"its manifest\.json is invalid"):
        open_memory(tmp_path / "there").transfer.import_archive(tmp_path / "archive")


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"format": Infinity}', b"[1]", b"\xff"])
def test_manifests_that_are_none(sound, open_memory, tmp_path, text):
    """Also those that are deeper than Python can read."""
    with zipfile.ZipFile(tmp_path / "archive", "w") as file:
        file.writestr("manifest.json", text)
    with pytest.raises(InvalidInputError, match="is not a CrabPath archive"):
        open_memory(tmp_path / "there").transfer.import_archive(tmp_path / "archive")


BOMB = 128 << 20
MEASURE = """
import resource, sys
from crabpath_retrievers.transfer.archive_reader import open_archive
from crabpath_retrievers import InvalidInputError
from pathlib import Path
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    with open_archive(Path(sys.argv[1])) as archive:
        list(archive.blocks(["turns"]))
except InvalidInputError as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error)
"""


@pytest.mark.slow
def test_a_bomb_does_not_fill_the_memory(sound, tmp_path):
    """A line of 128 MiB in an archive of one: little of it is ever held."""
    piece, total = b" " * (1 << 20), sha256()
    for _ in range(BOMB >> 20):
        total.update(piece)
    said = json.loads(sound["whole"]["manifest.json"])
    said["members"]["turns.jsonl"] |= {"size": BOMB, "sha256": total.hexdigest()}
    path = tmp_path / "archive"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, data in sound["whole"].items():
            if name not in {"turns.jsonl", "manifest.json"}:
                file.writestr(name, data)
        with file.open("turns.jsonl", "w") as member:
            for _ in range(BOMB >> 20):
                member.write(piece)
        file.writestr("manifest.json", json.dumps(said))
    assert path.stat().st_size < 2 << 20
    command = [sys.executable, "-c", MEASURE, str(path)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    grown, _, sentence = told.partition(" ")
    assert "turns.jsonl" in sentence
    assert int(grown) * (1024 if sys.platform != "darwin" else 1) < 100 << 20


@pytest.mark.parametrize("kind", ["whole", "mind"])
@pytest.mark.parametrize("version", [1, 8])
def test_archives_from_before_the_first_release(sound, open_memory, tmp_path, kind, version):
    """They are refused with what to do, whatever their version of the schema was called."""
    held = dict(sound[kind])
    said = json.loads(held["manifest.json"])
    said["schema"] = version
    del said["schema_version"]
    held["manifest.json"] = json.dumps(said).encode()
    write(tmp_path / "archive", held)
    with pytest.raises(SchemaVersionError, match=r"add the documents to a new store$"):
        open_memory(tmp_path / "there").transfer.import_archive(tmp_path / "archive")


@pytest.mark.parametrize("kind", ["whole", "mind"])
def test_rows_without_a_column(sound, open_memory, tmp_path, kind):
    """Every member lists all columns of its table."""
    held = dict(sound[kind])
    said = json.loads(held["manifest.json"])
    said["members"]["episodes.jsonl"]["columns"].remove("credit_by_user")
    held["manifest.json"] = json.dumps(said).encode()
    write(tmp_path / "archive", held)
    with pytest.raises(InvalidInputError, match="lacks the column 'credit_by_user'"):
        open_memory(tmp_path / "there").transfer.import_archive(tmp_path / "archive")
