"""Every part of ``make bench-sync`` runs, on a small scale; the edits are what they say."""

import pytest
from maintained import Bag

from benchmarks.sync_retention.edits import EditRates, edit_tree, read_tree, write_tree
from benchmarks.sync_retention.study import measure_retention

pytestmark = pytest.mark.slow

WORDS = ["amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "heath", "islet", "jetty"]


@pytest.fixture
def docs(tmp_path):
    """Ten files with four sections, each of words of its own."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for file in range(10):
        text = "".join(
            f"# {WORDS[file]} {part}\n\n"
            + " ".join(f"{WORDS[n % 10]}{chr(97 + file)}{chr(97 + part)}" for n in range(40))
            + ".\n\n"
            for part in range(4)
        )
        (folder / f"{WORDS[file]}.md").write_text(text)
    return folder


def test_edits_are_seeded_and_say_what_they_did(docs, tmp_path):
    """The same seed edits alike; what is not named as touched or deleted stands as it stood."""
    before = read_tree(docs)
    after = edit_tree(before, EditRates(), seed=3)
    assert after == edit_tree(before, EditRates(), seed=3)
    assert after != edit_tree(before, EditRates(), seed=4)
    assert len(after.deleted) == 3
    now = {p.number: (name, p.text) for name, pieces in after.tree.items() for p in pieces}
    for name, pieces in before.items():
        for piece in pieces:
            if piece.number in after.deleted:
                assert piece.number not in now
            elif piece.number not in after.touched:
                assert now[piece.number] == (name, piece.text)
            else:
                assert now[piece.number] != (name, piece.text)
    write_tree(after.tree, tmp_path / "new")
    assert sorted(map(str, read_tree(tmp_path / "new"))) == sorted(
        n for n, p in after.tree.items() if p
    )


def test_sync_keeps_more_than_deleting_and_adding(docs):
    found = measure_retention(docs, 0, Bag(), questions=12)
    sync, fresh = found["sync"], found["delete_and_add"]
    for what in ("use", "episodes"):  # questions about one section move no weight
        assert sync["kept"][what] > 0.9
        assert fresh["kept"][what] < 0.8
    assert sync["carried_to_another_section"] == 0
    assert sync["returned_again"] >= fresh["returned_again"] > 0
    assert sync["asked_section_returned_before"] > 0.8
