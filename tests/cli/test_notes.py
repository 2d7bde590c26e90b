"""``crabpath teach`` and ``crabpath correct`` as a user runs them."""

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers.vectors import embedder

TEXT = "Never skip CI for hotfixes."


@pytest.fixture(autouse=True)
def document(tmp_path, monkeypatch, cli):
    """A memory of one document, under vectors that mean nothing."""
    vectors = DeterministicFakeEmbedding(size=16)
    monkeypatch.setattr(embedder, "load_default_embeddings", lambda: vectors)
    (tmp_path / "deploy.md").write_text("# Deploying\n\nWatch the pipeline.\n")
    assert cli("add", "deploy.md").exit_code == 0


def test_a_turn_is_named_by_its_option(cli, read):
    """A turn in the place of something else is understood, or the sentence names ``--turn``."""
    turn = read("query", "How do I deploy?")["turn_id"]
    for given, sentence in (
        (["correct", turn, "Only on Sundays."], "crabpath correct TEXT --turn TURN"),
        (["undo"], "a feedback id, --turn, or --user, --source and --token"),
        (["undo", turn, "--turn", turn], "one of the three"),
    ):
        refused = cli(*given)
        assert refused.exit_code == 2
        assert sentence in " ".join(refused.stderr.split())
    for given in ([turn], ["--turn", turn]):
        read("feedback", turn, "--outcome", "down")
        assert read("undo", *given)["status"] == "undone"


@pytest.mark.slow
def test_teach_ask_correct_and_forget(cli, read):
    """A note answers its question; a correction comes before what it corrects."""
    question = "May I skip the pipeline?"
    answer = read("query", question, "-k", "1")
    (document,) = answer["documents"]
    given = ("--query", question, "--related", document["id"], "--title", "Rules")
    note = read("teach", TEXT, *given)["id"]
    assert read("teach", TEXT, *given)["id"] == note
    found = read("query", question, "-k", "2")
    assert [item["id"] for item in found["documents"]] == [note, document["id"]]
    fixed = read("correct", "Only on Sundays.", "--turn", answer["turn_id"])["id"]
    again = read("query", question, "-k", "3")["documents"]
    assert again[0]["id"] == fixed  # what was told last of this question
    assert note not in {item["id"] for item in again[:2]}
    assert ")\n      Correction of the answer to" in cli("query", question, "-k", "3").output
    assert read("info")["notes"] == 2
    assert read("forget", note)["removed"] == 1

    rank = ("--kind", "directive", "--authority", "constitutional")
    assert read("teach", TEXT, *rank, "-n", "ann", "--id", "ci") == {"id": "ci"}
    for namespace, expected in (("ann", True), ("bob", False)):
        found = read("query", TEXT, "-n", namespace)["documents"]
        assert ("ci" in {item["id"] for item in found}) is expected
    assert "Kept as teaching:" in cli("teach", TEXT).output
    assert "Kept as correction:" in cli("correct", TEXT, "--query", "May I?").output


def test_unusable_input_is_one_sentence_and_exit_code_2(refuse):
    for arguments in (
        ("teach", ""),
        ("teach", TEXT, "--kind", "correction"),
        ("teach", TEXT, "--authority", "divine"),
        ("teach", TEXT, "--related", "nowhere"),
        ("correct", TEXT, "--turn", "never"),
        ("correct", TEXT, "--wrong", "nowhere"),
        ("teach", TEXT, "--store", "nowhere"),
    ):
        assert refuse(*arguments).startswith("Error:"), arguments
