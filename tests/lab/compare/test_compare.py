"""``crabpath compare``: two retrievers on one's own documents, judged blind."""

import json
import os
import shutil
import sqlite3
import threading
import urllib.error
import urllib.parse
import urllib.request
from contextlib import closing
from io import BytesIO
from pathlib import Path

import chromadb
import minilm
import pytest
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from PIL import Image
from playwright.sync_api import expect, sync_playwright
from typer.testing import CliRunner

from crabpath_lab import load_sample
from crabpath_lab.compare import Judgements, Page, ask_all, measure, serve_page
from crabpath_retrievers import CrabPath, CrabPathRetriever
from crabpath_retrievers.cli import app
from crabpath_retrievers.errors import InvalidInputError
from tests.stubs.word_sums import WordSums

WORDS = WordSums(64)
TEXTS = {
    "deploy": "Deploy with the release script.",
    "rollback": "Roll back when a deploy fails.",
    "pasta": "Boil pasta for nine minutes.",
    "rice": "Boil rice for fifteen minutes.",
    "badge": "New badges are made at the front desk.",
}
QUESTIONS = ["How do I deploy?", "How long do I boil pasta?", "Where are badges made?"]
CHROMIUM = shutil.which("chromium")
ASSETS = Path(__file__).parents[3] / "docs" / "assets"


def make_store():
    store = InMemoryVectorStore(WORDS)
    store.add_documents([Document(text, id=name) for name, text in TEXTS.items()])
    return store


def make_titled_store():
    store = InMemoryVectorStore(WORDS)
    titled = [Document(text, id=name, metadata={"title": name}) for name, text in TEXTS.items()]
    store.add_documents([*titled, Document("Untitled.", id="none")])
    return store


def make_function():
    return lambda question: [Document(TEXTS["badge"], id="badge")] if "badges" in question else []


def make_broken():
    def fail(question):
        raise LookupError(question)

    return fail


def find_badge(question):
    return make_function()(question)


def make_filtered():
    """A retriever with a number and a filter of its own, over the store of this folder."""
    return fill_chroma("docs").as_retriever(search_kwargs={"k": 1, "filter": {"kind": "work"}})


class LlamaLike:
    """Has what a retriever of LlamaIndex has."""

    def retrieve(self, _question):
        from llama_index.core.schema import NodeWithScore, TextNode

        return [NodeWithScore(node=TextNode(text=TEXTS["pasta"], id_="pasta"), score=0.5)]


def fill_chroma(name):
    """A collection of the store in this folder, which one process opens in one way only."""
    client = chromadb.PersistentClient(
        str(Path("chroma").resolve()), settings=chromadb.Settings(anonymized_telemetry=False)
    )
    return Chroma(name, embedding_function=WORDS, client=client)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a Chroma store and a file of questions."""
    monkeypatch.chdir(tmp_path)
    store = fill_chroma("docs")
    store.add_documents(
        [
            Document(text, id=name, metadata={"kind": "food" if "Boil" in text else "work"})
            for name, text in TEXTS.items()
        ]
    )
    lines = [QUESTIONS[0], "", f"  {QUESTIONS[0]} ", *QUESTIONS[1:], "   "]
    (tmp_path / "questions.txt").write_text("\ufeff" + "\r\n".join(lines), encoding="utf-8")
    return tmp_path


def run(*arguments, answers=""):
    given = ["compare", "--questions", "questions.txt", *map(str, arguments)]
    return CliRunner().invoke(app, given, input=answers)


def read(*arguments, answers=""):
    result = run(*arguments, "--json", answers=answers)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


STORE = ("--store", "chroma", "--embeddings", f"{__name__}:WORDS")
OWN = ("--with", f"{__name__}:make_store")


def refuse(*arguments):
    result = run(*arguments, "--report")
    assert result.exit_code in (1, 2)
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.split())


def list_rows(place):
    with closing(sqlite3.connect(place / "chroma.sqlite3")) as rows:
        return rows.execute("SELECT embedding_id FROM embeddings ORDER BY 1").fetchall()


def test_without_judgements_it_says_where_both_differ(folder):
    before = list_rows(folder / "chroma")
    found = read(*STORE, "--report", "--k", 2)
    assert found["questions"] == 3  # blank lines and repeats are left out
    differences = found["differences"]
    assert differences["in_both"] + differences["only_memory"] == 6
    assert set(differences["milliseconds"]) == {"present", "memory"}
    assert found["figures"]["judged"] == 0
    assert list_rows(folder / "chroma") == before
    assert sorted(p.name for p in folder.iterdir()) == ["chroma", "questions.txt"]


def test_a_person_judges_in_the_terminal_and_goes_on_later(folder):
    first = read(*STORE, "--terminal", "--k", 2, answers="9\nx\n0 1\n1\n\nq\n")
    assert first["figures"]["judged"] == 1
    again = run(*STORE, "--terminal", "--k", 2, answers="1 2\n0\n")
    assert QUESTIONS[0] not in again.stderr  # it was judged
    assert QUESTIONS[1] in again.stderr
    assert "3 questions judged" in again.stdout
    kept = folder / "compare-judgements.jsonl"
    assert kept.stat().st_mode & 0o077 == 0


def test_labels_become_a_data_set_and_feedback(folder):
    found = read(*OWN, "--terminal", "--k", 2, "--export", "labels", answers="1\n1\n0\n")
    assert (found["exported"], found["figures"]["marked"]) == (2, 2)
    run_eval = ["eval", "beir", "--data", "labels", "--k", "1", "--methods", "lexical", "--json"]
    result = CliRunner().invoke(app, [*run_eval, "figures.json"])
    assert result.exit_code == 0, result.stderr
    lines = (folder / "labels" / "feedback.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["query"] for line in lines} < set(QUESTIONS)
    assert "give --export a new folder" in refuse(*OWN, "--export", "labels")


def test_without_a_marked_document_no_data_set_is_written(folder):
    for answers in ("\n\n\n", "1\n0\n0\n"):  # the same command goes on, and may export
        said = run(*OWN, "--terminal", "--export", "labels", answers=answers)
        assert said.exit_code == 0, said.stderr
        assert (folder / "labels").exists() == ("1" in answers)
        assert ("Nothing was written to labels" in said.stdout) == ("1" not in answers)


def test_titles_that_only_the_memory_embeds_are_named_in_a_note(folder):
    named = ("--with", f"{__name__}:make_titled_store", "--report")
    assert "embeds titles" in " ".join(read(*named)["notes"])
    assert "embeds titles" not in " ".join(read(*OWN, "--report")["notes"])


def test_any_retriever_is_compared_with_a_memory(folder):
    added = CliRunner().invoke(app, ["add", "questions.txt", "--store", "memory", "--json"])
    assert added.exit_code == 0, added.stderr
    for name in ("make_function", "find_badge", "LlamaLike"):
        found = read("--with", f"{__name__}:{name}", "--memory", "memory", "--report")
        assert found["differences"]["only_present"] > 0
    alone = read("--memory", "memory", "--report")
    assert alone["differences"]["in_both"] > 0


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ((), "name what to compare"),
        ((*STORE, *OWN), "--store or --with, not both"),
        (("--store", "nowhere"), "no Chroma store at nowhere"),
        ((*STORE, "--collection", "other"), "one of: docs"),
        (("--store", "chroma"), "are not those of its texts"),
        (("--with", f"{__name__}:make_function"), "give --memory ./memory"),
        (("--with", f"{__name__}:nothing"), "cannot be loaded"),
        (("--with", "nothing"), "module:attribute"),
        (("--with", f"{__name__}:TEXTS"), "does not list its documents"),
        (("--memory", "nowhere"), "there is no memory at"),
        ((*STORE, "--k", 11), "k must be from 1 to 10"),
        ((*OWN, "--questions", "none.txt"), "none.txt cannot be read"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_sentence(folder, given, why):
    assert why in refuse(*given)
    assert not (folder / "compare-judgements.jsonl").exists()
    assert not (folder / "nowhere").exists()


def test_notes_of_a_memory_are_no_documents_of_an_answer(folder):
    with CrabPath.open("memory", embeddings=WORDS) as memory:
        memory.add_documents([Document(text, id=name) for name, text in TEXTS.items()])
        memory.teach("Ask Ann.", query=QUESTIONS[0])
        assert "Ask Ann." in [d.node.content for d in memory.retrieve(QUESTIONS[0]).documents]
    found = read("--memory", "memory", "--embeddings", f"{__name__}:WORDS", "--report")
    assert found["differences"]["in_both"] + found["differences"]["only_memory"] == 12
    assert "never" not in " ".join(found["notes"])


def test_a_retriever_keeps_its_filter_and_both_give_as_many(folder):
    found = read("--with", f"{__name__}:make_filtered", "--report", "--k", 3)
    assert found["differences"]["only_memory"] == 0  # the memory minds the filter
    assert found["differences"]["in_both"] == 9  # of three documents with the filter


def test_a_store_that_fails_is_named_with_the_question(folder):
    CliRunner().invoke(app, ["add", "questions.txt", "--store", "memory"])
    why = refuse("--with", f"{__name__}:make_broken", "--memory", "memory")
    assert "present retriever failed" in why
    assert QUESTIONS[0] in why


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "holds no question"),
        (b"\n \n", "holds no question"),
        (b"x" * 2_001, "of at most 2,000 characters"),
        (b"\n".join(b"question %d" % n for n in range(1_001)), "at most 1,000"),
    ],
)
def test_a_file_without_usable_questions_is_refused(folder, content, why):
    (folder / "questions.txt").write_bytes(content)
    assert why in refuse(*OWN)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "utf-8"])
def test_questions_in_other_encodings_are_read(folder, encoding):
    (folder / "questions.txt").write_bytes("Wo ist die Kantine für Gäste?\n".encode(encoding))
    found = read(*OWN, "--report", "--k", 1)
    assert found["differences"]["most_different"] in ([], ["Wo ist die Kantine für Gäste?"])
    assert found["questions"] == 1


def test_a_large_collection_is_drawn_and_says_so(folder):
    found = read(*STORE, "--report", "--most", 3, "--k", 3)
    assert "holds 5 documents: both systems search the same 3" in found["notes"][0]
    assert found["differences"]["in_both"] == 9


def test_an_empty_collection_is_refused(folder):
    fill_chroma("empty")
    assert "give --collection, one of: docs, empty" in refuse(*STORE)
    assert "is empty" in refuse(*STORE, "--collection", "empty")


def test_a_damaged_file_of_judgements_is_refused_and_a_torn_line_is_not(folder):
    kept = folder / "compare-judgements.jsonl"
    kept.write_text('{"question": "q", "finished": true}\n{"quest', encoding="utf-8")
    assert read(*OWN, "--report")["figures"]["judged"] == 0
    read(*OWN, "--terminal", "--k", 1, answers="1\nq\n")
    assert read(*OWN, "--report", "--k", 1)["figures"]["judged"] == 1
    kept.write_text('nonsense\n{"question": "q", "finished": true}\n', encoding="utf-8")
    assert "is no judgement" in refuse(*OWN)


def test_two_programs_do_not_write_to_one_file(tmp_path):
    question = ask({QUESTIONS[0]: ["deploy"]}, {QUESTIONS[0]: ["rollback"]})[0]
    one, other = (Judgements(tmp_path / "kept.jsonl") for _ in range(2))
    one.finish(question)
    with pytest.raises(InvalidInputError, match="another program has changed"):
        other.prefer(question, "memory")
    one.prefer(question, "present")
    assert Judgements(one.path).get(question).better == "present"


def ask(present, memory, k=2):
    """Questions whose answers are given by the names of texts."""
    searches = {
        name: lambda text, _k, found=found: [Document(TEXTS[n], id=n) for n in found[text]]
        for name, found in (("present", present), ("memory", memory))
    }
    return list(ask_all(present, searches, k))


def judge(kept, question, *right):
    for item in question.pool:
        kept.label(question, item.key, answers=item.document.id in right)
    kept.finish(question)


def test_figures_are_those_of_the_judged_pool(tmp_path):
    asked = ask(
        {"a": ["deploy", "rollback"], "b": ["pasta", "rice"]},
        {"a": ["rollback", "badge"], "b": ["rice", "pasta"]},
    )
    kept = Judgements(tmp_path / "kept.jsonl")
    judge(kept, asked[0], "rollback")
    judge(kept, asked[1], "rice", "pasta")
    found = measure(asked, kept)
    assert (found.judged, found.wins, found.ties, found.losses) == (2, 1, 1, 0)
    assert found.recall == {"present": 1.0, "memory": 1.0}
    assert found.ndcg["memory"] == 1.0
    assert found.ndcg["present"] == pytest.approx((0.6309 + 1.0) / 2, abs=1e-3)


def test_the_better_list_is_a_judgement_of_its_own(tmp_path):
    names = [str(n) for n in range(12)]
    asked = ask({n: ["deploy"] for n in names}, {n: ["pasta"] for n in names})
    kept = Judgements(tmp_path / "kept.jsonl")
    for number, question in enumerate(asked):
        kept.prefer(question, "present" if number == 0 else "memory")
        kept.finish(question)
    found = measure(asked, Judgements(tmp_path / "kept.jsonl"))
    assert (found.wins, found.losses, found.ndcg) == (11, 1, None)
    assert (found.more, found.p) == (0, 0.0063)
    assert "That is decided" in found.describe()
    # Beside marks it counts as well.
    judge(kept, asked[0], "pasta")
    found = measure(asked, kept)
    assert (found.judged, found.wins, found.losses, found.marked) == (12, 11, 1, 1)


def test_a_few_questions_decide_nothing(tmp_path):
    names = [str(n) for n in range(5)]
    asked = ask({n: ["deploy"] for n in names}, {n: ["pasta"] for n in names})
    kept = Judgements(tmp_path / "kept.jsonl")
    for question in asked:
        judge(kept, question, "pasta")
    found = measure(asked, kept)
    assert (found.wins, found.more, found.interval) == (5, 1, None)


def test_a_very_small_p_is_said_as_below_a_thousandth(tmp_path):
    names = [str(n) for n in range(15)]
    asked = ask({n: ["deploy"] for n in names}, {n: ["pasta"] for n in names})
    kept = Judgements(tmp_path / "kept.jsonl")
    for question in asked:
        judge(kept, question, "pasta")
    assert "(sign test, p < 0.001)" in measure(asked, kept).describe()


def test_what_changed_since_is_judged_again(tmp_path):
    """New documents of a pool are not taken for wrong, nor a preference for that of other lists."""
    kept = Judgements(tmp_path / "kept.jsonl")
    before = ask({"a": ["deploy"], "b": ["deploy"]}, {"a": ["pasta"], "b": ["pasta"]})
    judge(kept, before[0], "pasta")
    kept.prefer(before[1], "memory")
    kept.finish(before[1])
    assert measure(before, kept).judged == 2
    after = ask({"a": ["deploy"], "b": ["pasta"]}, {"a": ["pasta", "rice"], "b": ["deploy"]})
    assert (measure(after, kept).judged, kept.count_reopened(after)) == (0, 2)
    assert measure(before, kept).judged == 2  # nothing was lost
    judge(kept, after[0], "rice")
    assert (measure(after, kept).judged, kept.count_reopened(after)) == (1, 1)


def test_it_says_how_many_more_judgements_would_decide(tmp_path):
    names = [str(n) for n in range(10)]
    asked = ask({n: ["deploy", "rice"] for n in names}, {n: ["rice", "deploy"] for n in names})
    kept = Judgements(tmp_path / "kept.jsonl")
    for number, question in enumerate(asked):
        judge(kept, question, "rice" if number < 6 else "deploy")
    found = measure(asked, kept)
    assert found.interval[0] < 0 < found.interval[1]
    assert found.more == 87  # of 97, 58 wins and 39 losses
    assert "some 87 more judgements like these would decide" in found.describe()


@pytest.fixture
def served(tmp_path):
    """A page with three questions, its address and its judgements."""
    asked = ask(
        {q: ["deploy", "rollback"] for q in QUESTIONS},
        {q: ["rollback", "badge"] for q in QUESTIONS},
    )
    path = tmp_path / "kept.jsonl"
    server, address = serve_page(Page(asked, Judgements(path), ["<b>A note</b>"]))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield address, path, asked
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1280, 900), (400, 800)])
def test_a_person_judges_by_keyboard_alone(served, size):
    address, path, asked = served
    errors = []
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": size[0], "height": size[1]})
        page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        expect(page.locator("#notes")).to_have_text("<b>A note</b>")  # texts are no markup
        expect(page.locator("#pool li")).to_have_count(3)
        assert "present" not in page.locator("#pool").inner_text()  # blind
        first = asked[0].pool[0]
        page.keyboard.press("1")
        expect(page.locator("#pool li").first).to_have_attribute("aria-checked", "true")
        assert Judgements(path).get(asked[0]).labels == {first.key: True}  # at once
        page.keyboard.press("1")
        expect(page.locator("#pool li").first).to_have_attribute("aria-checked", "false")
        page.keyboard.press("1")
        page.keyboard.press("Enter")
        expect(page.locator("#place")).to_have_text("Question 2 of 3, 1 done")
        page.reload()  # nothing is lost
        expect(page.locator("#place")).to_have_text("Question 2 of 3, 1 done")
        page.keyboard.press("l")
        expect(page.get_by_role("heading", name="List A")).to_be_visible()
        page.keyboard.down("Enter")  # held down it is pressed once
        page.keyboard.down("Enter")
        expect(page.locator("#place")).to_have_text("Question 3 of 3, 2 done")
        page.keyboard.up("Enter")
        page.keyboard.press("ArrowLeft")
        expect(page.get_by_role("heading", name="List A")).to_be_visible()
        page.keyboard.press("b")
        expect(page.get_by_role("button", name="B is better (b)")).to_have_attribute(
            "aria-pressed", "true"
        )
        page.keyboard.press("Enter")
        page.keyboard.press("t")
        expect(page.locator("#place")).to_have_text("Question 3 of 3, 2 done")
        page.keyboard.press("Enter")
        expect(page.locator("#task")).to_contain_text("All questions are judged")
        page.keyboard.press("ArrowLeft")
        expect(page.locator("#place")).to_have_text("Question 2 of 3, 3 done")  # not blind now
        expect(page.get_by_role("heading", name=f"B: {_show(asked[1].sides[1])}")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        browser.close()
    assert errors == []
    assert Judgements(path).get(asked[1]).better == asked[1].sides[1]
    assert measure(asked, Judgements(path)).judged == 3


@pytest.mark.skipif(os.environ.get("CRABPATH_SCREENSHOTS") != "1", reason="draws for the docs")
@pytest.mark.parametrize("size", [(1280, 760), (400, 860)], ids=["wide", "narrow"])
def test_pictures_for_the_page(tmp_path, size):
    sample = load_sample()
    store = InMemoryVectorStore(minilm.shared())
    store.add_documents(sample.documents)
    memory = CrabPathRetriever.from_documents(sample.documents, minilm.shared())
    searches = {
        "present": store.similarity_search,
        "memory": lambda text, k: memory.invoke(text, k=k),
    }
    asked = [*ask_all([*sample.queries.values()][:12], searches, 4)]
    kept = Judgements(tmp_path / "kept.jsonl")
    for question, right in zip(asked[:9], sample.qrels.values(), strict=False):
        judge(kept, question, *right)
    server, address = serve_page(Page(asked, kept, []))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": size[0], "height": size[1]})
        page.goto(address)
        expect(page.locator("#place")).to_have_text("Question 10 of 12, 9 done")
        page.keyboard.press("1")
        picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
        picture.quantize(256).save(ASSETS / f"compare-{size[0]}.png", optimize=True)
        browser.close()
    server.shutdown()
    server.server_close()
    memory.close()


def _show(system):
    return {"present": "present retriever", "memory": "memory"}[system]


def post(address, body, host=None):
    request = urllib.request.Request(  # noqa: S310  of the test
        address, data=body, headers={"Host": host} if host else {}
    )
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_nobody_else_judges(served):
    address, path, _ = served
    root = address.rsplit("/", 2)[0]
    right = json.dumps({"finished": True}).encode()
    assert post(f"{root}/guess/questions/0", right)[0] == 404
    assert post(f"{address}questions/0", right, host="evil.example")[0] == 404
    for place in ("3", "-1", "0x", "²", "9" * 400):
        assert post(f"{address}questions/{urllib.parse.quote(place)}", right)[0] == 404
    for body in (b"[]", b"{", b"\xff", b'{"better": true}', b'{"better": 2}', b'{"key": "x"}'):
        assert post(f"{address}questions/0", body)[0] == 400
    assert post(f"{address}questions/0", b'{"key": "x", "answers": true}')[0] == 400
    assert post(f"{address}questions/0", b" " * 10_001)[0] == 413
    assert not path.exists()
    assert post(f"{address}questions/0", right)[0] == 200
