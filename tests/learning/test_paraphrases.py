"""Corrections reach paraphrases of the question that was corrected, with a real embedder."""

import minilm
import pytest

from benchmarks.corrections import measure_corrections


@pytest.mark.slow
def test_a_correction_stands_before_the_text_that_it_corrects():
    counts = measure_corrections(minilm.shared())
    assert counts.paraphrases == 50
    assert counts.corrected_returned >= 48
    assert counts.note_first >= 48
    assert counts.note_kept == counts.places_kept == 50
