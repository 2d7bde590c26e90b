"""Public data sets are fetched from a server, drawn, and compared with what was measured."""

import gzip
import hashlib
import io
import json
import re
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crabpath_lab import (
    fetch_set,
    load_beir,
    load_hotpotqa,
    load_multihoprag,
    load_musique,
    read_published_sets,
)
from crabpath_retrievers import InvalidInputError
from crabpath_retrievers.cli import app
from crabpath_retrievers.errors import ServiceError

ROOT = Path(__file__).parents[3]
# Their pages come from Debian; `.` is a folder of several sets.
NOT_FETCHED = {"manuals", "sqlite", "."}


def encode(value):
    return json.dumps(value).encode()


def encode_lines(*values):
    return b"".join(encode(value) + b"\n" for value in values)


def make_archive(**files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "/").replace("_DOT_", "."), data)
    return buffer.getvalue()


def ask(name):
    """A question of HotpotQA."""
    return {
        "_id": name,
        "question": f"Who is {name}?",
        "answer": "x",
        "context": [[f"Page {name}", [f"{name} is.", " It ends."]], ["Other", ["Text."]]],
        "supporting_facts": [[f"Page {name}", 0]],
    }


@pytest.fixture
def site():
    """A server of files by path; a file in ``broken`` ends in the middle."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            data = server.files.get(self.path)
            server.asked.append(self.path)
            self.send_response(404 if data is None else 200)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write((data or b"")[: 10 if self.path in server.broken else None])

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.broken, server.asked = {}, set(), []
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def hotpotqa(site):
    """A set of one file, of which the first two questions are drawn."""
    data = site.files["/v1/dev.json"] = encode([ask("a"), ask("b"), ask("c")])
    return {
        "path": "hotpotqa/first",
        "format": "hotpotqa",
        "licence": "CC0",
        "files": [
            {"url": f"{site.url}/v1/dev.json", "sha256": hashlib.sha256(data).hexdigest()},
        ],
        "draw": "hotpotqa",
        "first": 2,
        "questions": 2,
        "documents": 3,
        "checksum": "8d2f82aef77490361a591a373ee09bc912283cc578932ee280a1e5023c892895",
    }


def list_files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def official(site, tmp_path):
    """A folder with the published file."""
    (tmp_path / "official").mkdir()
    (tmp_path / "official" / "dev.json").write_bytes(site.files["/v1/dev.json"])
    return tmp_path / "official"


def test_a_set_is_fetched_once_and_drawn(site, hotpotqa, tmp_path):
    data, told = tmp_path / "data", []
    path = fetch_set(hotpotqa, data, tell=told.append)
    drawn = load_hotpotqa(path)
    assert path == data / "hotpotqa" / "first"
    assert drawn.queries == {"a": "Who is a?", "b": "Who is b?"}
    assert sorted(drawn.answers.values()) == ["x", "x"]
    assert len(drawn.documents) == 3
    assert told == [f"{site.url}/v1/dev.json"]
    # What is there is checked, and the published file serves other samples.
    assert fetch_set(hotpotqa, data) == path
    fetch_set({**hotpotqa, "path": "again"}, data)
    assert site.asked == ["/v1/dev.json"]
    assert not [name for name in list_files(data) if ".drawing" in name or ".part" in name]


def test_another_address_and_a_folder_stand_in_for_the_published_place(
    site, hotpotqa, official, tmp_path
):
    site.files["/mirror/dev.json"] = site.files["/v1/dev.json"]
    fetch_set(hotpotqa, tmp_path / "mirrored", f"{site.url}/mirror/")
    fetch_set(hotpotqa, tmp_path / "local", str(official))
    assert site.asked == ["/mirror/dev.json"]
    with pytest.raises(InvalidInputError, match=r"dev.json does not exist: give --from the folder"):
        fetch_set(hotpotqa, tmp_path / "none", str(tmp_path / "nowhere"))


def test_a_file_that_does_not_come_whole_leaves_nothing(site, hotpotqa, tmp_path):
    data = tmp_path / "data"
    site.broken.add("/v1/dev.json")
    with pytest.raises(ServiceError, match=r"dev\.json cannot be fetched .*--from"):
        fetch_set(hotpotqa, data)
    assert list_files(data) == []
    site.broken.clear()
    assert fetch_set(hotpotqa, data).is_dir()


def test_a_missing_file_and_a_missing_server_are_said(site, hotpotqa, tmp_path):
    with pytest.raises(ServiceError, match="404"):
        fetch_set(hotpotqa, tmp_path / "data", f"{site.url}/v2")
    with pytest.raises(ServiceError, match="cannot be fetched"):
        fetch_set(hotpotqa, tmp_path / "data", "http://127.0.0.1:1")
    with pytest.raises(ServiceError, match="cannot be fetched"):
        fetch_set(hotpotqa, tmp_path / "data", "file:///tmp")
    assert not any((tmp_path / "data").iterdir())


def test_another_version_of_a_file_is_refused(site, hotpotqa, official, tmp_path):
    site.files["/v1/dev.json"] += b" "
    with pytest.raises(InvalidInputError, match=r"not the file that was measured \(sha256 \w{12}…"):
        fetch_set(hotpotqa, tmp_path / "data")
    assert list_files(tmp_path / "data") == []
    (official / "dev.json").write_text("<html>", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="not the file that was measured"):
        fetch_set(hotpotqa, tmp_path / "data", str(official))


def test_another_sample_is_refused(hotpotqa, tmp_path):
    data = tmp_path / "data"
    with pytest.raises(InvalidInputError, match="not what was measured: nothing was written"):
        fetch_set({**hotpotqa, "first": 3}, data)
    assert not (data / "hotpotqa" / "first").exists()
    with pytest.raises(InvalidInputError, match=r"lacks 1 of 2 questions .* such as z"):
        fetch_set({**hotpotqa, "draw": "rows", "ids": "a z"}, data)


def test_what_stands_at_the_place_is_left_alone(hotpotqa, tmp_path):
    mine = tmp_path / "data" / "hotpotqa" / "first" / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="exists and is not what was measured"):
        fetch_set(hotpotqa, tmp_path / "data")
    assert list_files(tmp_path / "data") == ["hotpotqa/first/mine.txt"]


def test_a_file_that_is_no_archive_is_refused(site, hotpotqa, tmp_path):
    hotpotqa["files"][0]["member"] = "dev.json"
    with pytest.raises(InvalidInputError, match="is no zip archive"):
        fetch_set({**hotpotqa, "draw": "rows"}, tmp_path / "data")


def draw(kind, tmp_path, files, target="drawn", load=load_beir, **others):
    """Draw from files in their official format, and load what was drawn."""
    member = {"member": others.pop("member")} if "member" in others else {}
    listed = []
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
        listed.append({"url": f"https://there/{name}", "sha256": sha256, **member})
    published = {"path": f"data/{target}", "format": "beir", "licence": "", "draw": kind}
    return load(fetch_set({**published, **others, "files": listed}, tmp_path, str(tmp_path)))


def describe(data):
    """Texts of the gold documents by question, in order."""
    texts = {document.id: document.page_content for document in data.documents}
    return [(data.queries[q], sorted(texts[d] for d in gold)) for q, gold in data.qrels.items()]


def test_cosqa_is_its_code_with_its_test_questions(tmp_path):
    files = {
        "map.txt": encode({"def a(): 1": 0, "def b(): 2": 1}),
        "test.json": encode([{"idx": "t-9", "doc": "b in python", "retrieval_idx": 1}]),
    }
    assert describe(draw("cosqa", tmp_path, files)) == [("b in python", ["def b(): 2"])]


def test_stackfaq_asks_the_first_paraphrases_first(tmp_path):
    threads = [
        {"question": "A", "answer": ["yes", "no"], "rephr": ["a1", "*", "a2"]},
        {"question": "B", "answer": "maybe", "rephr": ["b1", None]},
    ]
    drawn = draw("stackfaq", tmp_path, {"f.json": encode({"root": {"qapair": threads}})})
    assert describe(drawn) == [
        ("a1", ["A\nno", "A\nyes"]),
        ("b1", ["B\nmaybe"]),
        ("a2", ["A\nno", "A\nyes"]),
    ]


def test_ultratool_is_tools_with_their_arguments(tmp_path):
    arguments = {"properties": {"path": {"description": "where"}, "mode": {}}}
    tool = {"name": "write", "description": "Writes.", "arguments": arguments}
    rows = [{"question": " Save it\n", "tools": [tool]}, {"question": "Other", "tools": []}]
    drawn = draw("ultratool", tmp_path, {"test.json": encode_lines(*rows)}, ids="0")
    assert describe(drawn) == [("Save it", ["write\nWrites. path: where; mode: "])]


SQUAD = {
    "data": [
        {
            "title": site,
            "paragraphs": [
                {"context": f"{site} {n}", "qas": [{"id": f"{site}{n}", "question": "Why? "}]}
                for n in (1, 2)
            ],
        }
        for site in ("a.com", "b.com")
    ]
}


def test_squad_has_a_question_for_each_of_its_paragraphs(tmp_path):
    drawn = draw("squad", tmp_path, {"dev.json": encode(SQUAD)}, ids="3 0")
    assert describe(drawn) == [("Why?", ["b.com\nb.com 2"]), ("Why?", ["a.com\na.com 1"])]
    assert len(drawn.documents) == 4
    bare = draw("untitled_squad", tmp_path, {"dev.json": encode(SQUAD)}, "bare", ids="2")
    assert describe(bare) == [("Why?", ["b.com 1"])]


def test_policyqa_asks_a_question_once_for_each_site(tmp_path):
    drawn = draw("policyqa", tmp_path, {"test.json": encode(SQUAD)}, ids="1")
    assert describe(drawn) == [("b.com: Why?", ["b.com\nb.com 1", "b.com\nb.com 2"])]
    assert len(drawn.documents) == 2  # of the site that is asked about


def test_chunks_of_texts_answer_where_they_overlap_a_reference(tmp_path):
    text = "A" * 500 + ".\n\n" + "B" * 900 + " the end"
    references = json.dumps([{"content": "A", "start_index": 499, "end_index": 510}])
    quoted = references.replace('"', '""')
    files = {
        "questions.csv": f'question,references,corpus_id\nWhere?,"{quoted}",one\n'.encode(),
        "one.md": text.encode(),
        "two.md": b"C" * 600,
    }
    drawn = draw("chroma_chunks", tmp_path, files)
    assert [len(document.page_content) for document in drawn.documents] == [501, 800, 108, 600]
    assert describe(drawn) == [("Where?", ["A" * 500 + ".", "B" * 800])]


def test_an_archive_in_beir_form_is_asked_its_training_questions(tmp_path):
    files = {
        "s__corpus_DOT_jsonl": encode_lines({"_id": "d", "title": "T", "text": "x"}),
        "s__queries_DOT_jsonl": encode_lines(*({"_id": n, "text": f"q{n}"} for n in "123")),
        "s__qrels__train_DOT_tsv": "query-id\tcorpus-id\tscore\n1\td\t1\n3\td\t1\n",
        "s__qrels__test_DOT_tsv": "query-id\tcorpus-id\tscore\n2\td\t1\n",
    }
    drawn = draw("beir_train", tmp_path, {"s.zip": make_archive(**files)}, ids="3 1")
    assert describe(drawn) == [("q3", ["T\nx"]), ("q1", ["T\nx"])]


def test_rows_of_a_member_are_chosen_by_their_ids(tmp_path):
    row = {"question": "q", "paragraphs": []}
    lines = encode_lines(
        *(
            {
                **row,
                "id": name,
                "question": name,
                "paragraphs": [{"title": "T", "paragraph_text": name, "is_supporting": True}],
            }
            for name in "abc"
        )
    )
    archive = make_archive(data__m_DOT_jsonl=lines, __MACOSX__m_DOT_txt=b"", _m_DOT_jsonl=b"no")
    options = {
        "target": "m.jsonl.gz",
        "load": load_musique,
        "format": "musique",
        "member": "m.jsonl",
        "ids": "c a",
    }
    drawn = draw("rows", tmp_path, {"m.zip": archive}, **options)
    assert list(drawn.queries) == ["c", "a"]


def test_multihoprag_keeps_all_articles_and_chooses_questions_by_their_texts(tmp_path):
    articles = [{"title": name, "body": "text", "url": name} for name in "ab"]
    rows = [
        {"query": name, "evidence_list": [{"title": name, "fact": "text", "url": name}]}
        for name in "ab"
    ]
    chosen = hashlib.sha256(b"b").hexdigest()[:12]
    files = {"corpus.json": encode(articles), "MultiHopRAG.json": encode(rows)}
    drawn = draw(
        "multihoprag", tmp_path, files, load=load_multihoprag, format="multihoprag", ids=chosen
    )
    assert list(drawn.queries.values()) == ["b"]
    assert len(drawn.documents) == 2


def test_runs_of_tau_bench_become_steps(tmp_path):
    call = {"function": {"name": "book", "arguments": "{}"}}
    run = {
        "task_id": 1,
        "trial": 0,
        "reward": 1.0,
        "info": {"task": {"instruction": "Book it."}},
        "traj": [
            {"role": "system", "content": "policy"},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "b" * 700},
            {"role": "assistant", "content": "Done."},
            {"role": "user", "content": "###STOP###"},
        ],
    }
    (tmp_path / "runs.json").write_bytes(encode([run]))
    sha256 = hashlib.sha256(encode([run])).hexdigest()
    published = {
        "path": "data/runs.jsonl.gz",
        "files": [{"url": "https://there/runs.json", "sha256": sha256}],
        "draw": "tau_bench",
    }
    path = fetch_set(published, tmp_path, str(tmp_path))
    (line,) = gzip.decompress(path.read_bytes()).splitlines()
    assert json.loads(line)["steps"] == [
        {"action": "book", "arguments": "{}", "observation": "b" * 600},
        {"action": "respond", "arguments": "", "observation": "Done."},
        {"action": "user", "arguments": "", "observation": "###STOP###"},
    ]


def test_files_taken_whole_are_copied_to_their_places(site, tmp_path):
    contents = {"corpus.jsonl": b"c", "test.tsv": b"t"}
    site.files.update({f"/{name}": data for name, data in contents.items()})
    files = [
        {"url": f"{site.url}/{name}", "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in contents.items()
    ]
    files[1]["to"] = "qrels/test.tsv"
    published = {"path": "whole", "licence": "", "files": files, "draw": "copy"}
    path = fetch_set(published, tmp_path / "data")
    assert list_files(path) == ["corpus.jsonl", "qrels/test.tsv"]
    (path / "corpus.jsonl").write_bytes(b"changed")
    with pytest.raises(InvalidInputError, match="exists and is not what was measured"):
        fetch_set(published, tmp_path / "data")


@pytest.fixture
def shell():
    return lambda *words: CliRunner().invoke(app, ["fetch", *map(str, words)])


def test_the_command_fetches_and_says_the_licence(shell, hotpotqa, tmp_path, monkeypatch):
    listed = "crabpath_lab.commands.fetching.read_published_sets"
    monkeypatch.setattr(listed, lambda: {"mine": hotpotqa})
    done = shell("mine", "--data", tmp_path / "data")
    said = " ".join(done.output.split())
    assert done.exit_code == 0
    assert "as measured, 2 questions, 3 documents" in said
    assert "licence: CC0. For measuring only: do not ship it." in said
    assert "crabpath eval hotpotqa --data" in said
    done = shell("yours")
    assert (done.exit_code, "choose among mine" in done.output) == (2, True)
    done = shell("mine", "--data", tmp_path / "other", "--from", "http://127.0.0.1:1")
    assert (done.exit_code, "cannot be fetched" in " ".join(done.output.split())) == (1, True)


def test_the_command_lists_the_sets(shell):
    done = shell()
    assert done.exit_code == 0
    assert all(name in done.output for name in read_published_sets())


def test_every_row_of_the_table_says_all_that_is_needed():
    sets = read_published_sets()
    assert len({of["path"] for of in sets.values()}) == len(sets)
    for name, of in sets.items():
        assert of["licence"], name
        for file in of["files"]:
            assert re.fullmatch(r"[0-9a-f]{64}", file["sha256"]), name
            assert file.get("name") or re.search(r"/[\w.-]+$", file["url"]), name
            on_github = re.match(
                r"https://raw\.githubusercontent\.com/[\w.-]+/[\w.-]+/", file["url"]
            )
            assert not on_github or re.match(r"[0-9a-f]{40}/", file["url"][on_github.end() :]), name
        ids = of.get("ids", "").split()
        assert len(ids) == len(set(ids)), name
        left_out = 71 if name == "multihoprag" else 0  # null queries
        assert not ids or len(ids) == of["questions"] + left_out, name
        assert of["draw"] == "copy" or len(of["checksum"]) == 64, name


def test_every_set_of_the_figures_can_be_fetched():
    figures = json.loads((ROOT / "docs" / "figures.json").read_text(encoding="utf-8"))
    options = r"--(?:data|hotpotqa|2wiki|multihoprag|tau-bench) (\S+)"
    used = {path for run in figures.values() for path in re.findall(options, run["command"])}
    assert used > {"hotpotqa/dev_first500", "toollens"}
    assert used - {of["path"] for of in read_published_sets().values()} <= NOT_FETCHED
