"""Directories that a run writes into."""

import pytest

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.evaluation.output import make_folder


def test_a_missing_folder_is_made(tmp_path):
    """With all above it; one that is there stays as it is."""
    folder = make_folder(tmp_path / "made" / "here", "hold the report")
    (folder / "file").write_text("")
    assert make_folder(folder, "hold the report") == folder
    assert (folder / "file").exists()


def test_a_file_is_no_folder(tmp_path):
    """The sentence names the place, its use and the reason."""
    (tmp_path / "file").write_text("")
    sentence = r"file cannot hold the report \(File exists\): give a writable directory"
    with pytest.raises(InvalidInputError, match=sentence):
        make_folder(tmp_path / "file", "hold the report")
