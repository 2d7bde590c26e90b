"""A log of training questions teaches what is asked later."""

import json

from word_sums import WordSums

from benchmarks.warm_start import measure_warm_start


def write_folder(folder):
    """A BEIR folder in which requests name by a nickname what no text says."""
    texts = {str(n): f"Tool {n} lists books, songs and maps." for n in range(12)}
    queries = {"t1": "Give me the zork now", "t2": "Give me the blim now", "q": "The zork please"}
    for name, rows in (("corpus", texts), ("queries", queries)):
        lines = (json.dumps({"_id": key, "text": text}) for key, text in rows.items())
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    (folder / "qrels").mkdir()
    head = "query-id\tcorpus-id\tscore\n"
    (folder / "qrels" / "train.tsv").write_text(f"{head}t1\t11\t1\nt2\t3\t1\n")
    (folder / "qrels" / "test.tsv").write_text(f"{head}q\t11\t1\n")


def test_what_the_log_says_is_found_for_new_questions(tmp_path):
    write_folder(tmp_path)
    for taught, learned, share in ((0, 0, 0.0), (None, 2, 1.0)):
        found = measure_warm_start(tmp_path, WordSums(64), taught=taught, asked=None)
        assert (found["learned"], found["refused"], found["asked"]) == (learned, 0, 1)
        assert found["full@3"]["mean"] == share
