"""Corrections reach paraphrases of their question and few other questions, with an embedder."""

import minilm
import pytest

from benchmarks.corrections import measure_corrections


@pytest.mark.slow
def test_a_correction_stands_before_the_text_that_it_corrects():
    counts = measure_corrections(minilm.shared())
    assert counts.paraphrases == 50
    assert counts.corrected_returned >= 48
    assert counts.note_first >= 46
    assert counts.note_kept == counts.places_kept == 50
    assert counts.others >= 200
    assert counts.others_with_note <= 25
    assert counts.foreign <= 1
