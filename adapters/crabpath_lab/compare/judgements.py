"""Judgements of a person, kept in a file line by line, and the figures that follow from them."""

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from crabpath_lab.compare.answers import SYSTEMS, AskedQuestion, make_key
from crabpath_retrievers.errors import InvalidInputError

BETTER = (*SYSTEMS, "neither")
"""Words for the better of two lists."""

_DECIDED = 0.05
_LEAST_SAID = 0.001  # p with three places
_FEWEST = 5  # judged questions from which an interval and the number of missing ones are said
_FEWEST_DIFFERENT = 6  # wins without a loss that the sign test takes for decided
_MOST_MORE = 10_000
_NORMAL = NormalDist().inv_cdf(0.975)


@dataclass(slots=True)
class QuestionJudgement:
    """Judgement of one question by a person.

    Attributes:
        labels: Whether a document answers, by its key.
        better: The better list, if the person compared lists.
        finished: Whether the person is done with the question.
        seen: Keys of the pool that was shown when the person was done.
        compared: Keys of both lists when the person compared them, by system.
    """

    labels: dict[str, bool] = field(default_factory=dict)
    better: str | None = None
    finished: bool = False
    seen: frozenset[str] = frozenset()
    compared: dict[str, list[str]] = field(default_factory=dict)


class Judgements:
    """The judgements of a file. Each is on disk before it is used."""

    def __init__(self, path: Path) -> None:
        """Read a file, which is made by the first judgement; it is readable by its owner only.

        Raises:
            InvalidInputError: The file cannot be read, or is no file of judgements.
        """
        self.path = path
        self._by_question: dict[str, QuestionJudgement] = {}
        self._size = self._whole = 0  # bytes of the file, and of its whole lines
        for line in self._read_lines():
            self._take(line)

    def label(self, question: AskedQuestion, key: str, *, answers: bool) -> None:
        """Keep whether a document of the pool answers a question."""
        self._add({"question": question.text, "key": key, "answers": answers})

    def prefer(self, question: AskedQuestion, better: str) -> None:
        """Keep which list is better: ``better`` is a word of ``BETTER``."""
        self._add({"question": question.text, "better": better, "lists": _list_answers(question)})

    def finish(self, question: AskedQuestion, *, finished: bool = True) -> None:
        """Keep that the person is done with a question, or is not."""
        seen = [item.key for item in question.pool]
        self._add({"question": question.text, "finished": finished, "pool": seen})

    def get(self, question: AskedQuestion) -> QuestionJudgement:
        """Return the judgement of a question, as far as it is about these answers.

        A question whose pool has new documents is not finished, and a preference between other
        lists is none.
        """
        said = self._by_question.get(question.text, QuestionJudgement())
        known = said.seen | said.labels.keys()
        better = said.better if said.compared == _list_answers(question) else None
        is_left = better is None and said.better is not None and not any(said.labels.values())
        finished = said.finished and not is_left and known.issuperset(i.key for i in question.pool)
        return replace(said, better=better, finished=finished)

    def count_reopened(self, questions: Iterable[AskedQuestion]) -> int:
        """Count questions that were finished, but with other answers than now."""
        return sum(
            not self.get(question).finished
            for question in questions
            if self._by_question.get(question.text, QuestionJudgement()).finished
        )

    def _add(self, line: dict[str, Any]) -> None:
        """Write a line.

        Raises:
            InvalidInputError: The file cannot be written, or another program has written to it.
        """
        try:
            with open(self.path, "ab", opener=_open_private) as file:
                if file.tell() != self._size:
                    msg = f"another program has changed {self.path}: end it, and start this again"
                    raise InvalidInputError(msg)
                file.truncate(self._whole)
                file.write(_encode(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
                self._size = self._whole = file.tell()
        except OSError as error:
            msg = f"{self.path} cannot be written ({error.strerror}): give another --judgements"
            raise InvalidInputError(msg) from error
        self._take(line)

    def _read_lines(self) -> Iterator[dict[str, Any]]:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            msg = f"{self.path} cannot be read ({error.strerror}): give another --judgements"
            raise InvalidInputError(msg) from error
        *lines, torn = content.split(b"\n")
        if torn and not lines and not torn.startswith(b"{"):
            lines = [torn]
        self._size = len(content)
        self._whole = self._size - len(torn)  # a process may have been killed while it wrote
        for number, line in enumerate(lines, 1):
            try:
                found = json.loads(line)
            except ValueError:
                found = None
            if not isinstance(found, dict) or not isinstance(found.get("question"), str):
                msg = f"{self.path}:{number} is no judgement: give another --judgements"
                raise InvalidInputError(msg)
            yield found

    def _take(self, line: Mapping[str, Any]) -> None:
        told = self._by_question.setdefault(line["question"], QuestionJudgement())
        if isinstance(line.get("key"), str):
            told.labels[line["key"]] = bool(line.get("answers"))
        if line.get("better") in BETTER:
            told.better, told.compared = line["better"], dict(line.get("lists") or {})
        if "finished" in line:
            told.finished = bool(line["finished"])
            told.seen |= frozenset(line.get("pool") or ())


def _list_answers(question: AskedQuestion) -> dict[str, list[str]]:
    """List the documents of both answers, by system."""
    return {system: list(keys) for system, keys in question.answers.items()}


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class QuestionScore(NamedTuple):
    """Measures of a judged question, by system.

    Attributes:
        better: The better system, by the person's word, else by nDCG; "neither" for a tie.
        ndcg: Normalised discounted cumulative gain of binary labels (Järvelin and Kekäläinen 2002);
            None if no document of the pool is marked.
        recall: Share of the marked documents that were found; None without one.
    """

    better: str
    ndcg: Mapping[str, float] | None = None
    recall: Mapping[str, float] | None = None


def score_question(question: AskedQuestion, judgement: QuestionJudgement) -> QuestionScore:
    """Score both answers against the labels of their pool."""
    right = {item.key for item in question.pool if judgement.labels.get(item.key)}
    if not right:
        return QuestionScore(judgement.better or "neither")
    gains = {
        system: [float(key in right) for key in keys] for system, keys in question.answers.items()
    }
    most = max(len(keys) for keys in question.answers.values())
    ideal = _discount([1.0] * min(len(right), most))
    ndcg = {system: _discount(row) / ideal for system, row in gains.items()}
    recall = {system: sum(row) / len(right) for system, row in gains.items()}
    ahead = ndcg["memory"] - ndcg["present"]
    word = "memory" if ahead > 0 else "present" if ahead < 0 else "neither"
    return QuestionScore(judgement.better or word, ndcg, recall)


def _discount(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains))


class Figures(NamedTuple):
    """Figures of the judged questions; differences are memory minus present.

    Attributes:
        judged: Number of judged questions.
        wins: Questions at which the memory is better.
        ties: Questions at which neither is.
        losses: Questions at which the present retriever is better.
        p: Two-sided p of wins and losses by the exact sign test; 1 without any.
        more: Estimated number of further judged questions after which p is below .05, if they go
            on as those did; 0 if it is; None if that cannot be said, or is above 10,000.
        marked: Judged questions with a marked document, over which the following are.
        recall: Mean recall over the pool by system.
        ndcg: Mean nDCG by system.
        difference: Mean difference of nDCG.
        interval: Its 95 % interval by BCa bootstrap; None of fewer than 5 questions, or equal ones.
    """

    judged: int
    wins: int
    ties: int
    losses: int
    p: float
    more: int | None
    marked: int
    recall: dict[str, float] | None
    ndcg: dict[str, float] | None
    difference: float | None
    interval: list[float] | None

    def describe(self) -> str:
        """Describe the figures in some sentences for a person."""
        if not self.judged:
            return "Nothing is judged yet."
        text = (
            f"{_count(self.judged, 'question')} judged: the memory is better at {self.wins}, equal "
            f"at {self.ties}, worse at {self.losses}. "
        )
        if self.more == 0:
            shown = f"< {_LEAST_SAID}" if self.p < _LEAST_SAID else f"= {self.p:.3f}"
            text += f"That is decided (sign test, p {shown})."
        elif self.more is None:
            text += f"Not decided (p = {self.p:.2f})."
        else:
            more = _count(self.more, "more judgement")
            text += f"Not decided (p = {self.p:.2f}): some {more} like these would decide."
        if self.ndcg and self.recall:
            ends = self.interval
            spread = f", 95% {ends[0]:+.3f} to {ends[1]:+.3f}" if ends else ""
            text += (
                f" Over the {self.marked} with a marked document: nDCG "
                f"{self.ndcg['present']:.3f} → {self.ndcg['memory']:.3f} "
                f"({self.difference:+.3f}{spread}), recall {self.recall['present']:.3f} → "
                f"{self.recall['memory']:.3f}."
            )
        return text


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def measure(questions: Iterable[AskedQuestion], judgements: Judgements) -> Figures:
    """Compute the figures of the questions whose judgement is finished."""
    # Every command of the shell imports this module: scipy takes half a second.
    from scipy.stats import binomtest

    from crabpath_lab.statistics import bootstrap_interval

    told = ((question, judgements.get(question)) for question in questions)
    scores = [score_question(question, said) for question, said in told if said.finished]
    better = Counter(score.better for score in scores)
    wins, losses = better["memory"], better["present"]
    p = float(binomtest(wins, wins + losses).pvalue) if wins + losses else 1.0
    ndcg = [score.ndcg for score in scores if score.ndcg is not None]
    differences = np.array([row["memory"] - row["present"] for row in ndcg])
    return Figures(
        judged=len(scores),
        wins=wins,
        ties=better["neither"],
        losses=losses,
        p=round(p, 4),
        more=_estimate_more(wins, losses, len(scores), p),
        marked=len(ndcg),
        recall=_average([score.recall for score in scores if score.recall is not None]),
        ndcg=_average(ndcg),
        difference=round(float(differences.mean()), 4) if ndcg else None,
        interval=bootstrap_interval(differences) if len(ndcg) >= _FEWEST else None,
    )


def _average(rows: Sequence[Mapping[str, float]]) -> dict[str, float] | None:
    if not rows:
        return None
    return {name: round(sum(row[name] for row in rows) / len(rows), 4) for name in SYSTEMS}


def _estimate_more(wins: int, losses: int, judged: int, p: float) -> int | None:
    """Estimate how many more questions the sign test needs, at the present rates; None if many."""
    if p < _DECIDED:
        return 0
    if wins == losses or judged < _FEWEST:
        return None
    needed = max(_FEWEST_DIFFERENT, (_NORMAL / (wins - losses)) ** 2 * (wins + losses) ** 2)
    more = max(1, math.ceil(needed * judged / (wins + losses)) - judged)
    return more if more <= _MOST_MORE else None


def export_judgements(
    folder: Path,
    questions: Sequence[AskedQuestion],
    judgements: Judgements,
    corpus: Iterable[Any],
) -> int:
    """Write labels as a BEIR folder, and as ``feedback.jsonl`` for ``crabpath replay``.

    Without any document that answers, nothing is written.

    Args:
        folder: Made if it does not exist.
        questions: The questions that were asked.
        judgements: What was said of them.
        corpus: All documents of the memory; marked ones with another text are added. All documents
            with a marked text are relevant.

    Returns:
        The number of exported questions: those with a document that answers.

    Raises:
        InvalidInputError: The folder holds files of an export already, or cannot be written.
    """
    known = {str(document.id): document for document in corpus}
    by_text: dict[str, list[str]] = {}
    for name, document in known.items():
        by_text.setdefault(make_key(document), []).append(name)
    rows, qrels, feedback = [], ["query-id\tcorpus-id\tscore"], []
    for number, question in enumerate(questions, 1):
        said = judgements.get(question)
        marked = [item for item in question.pool if said.finished and said.labels.get(item.key)]
        for item in marked:
            if item.key not in by_text:
                by_text[item.key] = [str(item.document.id or item.key)]
                known[by_text[item.key][0]] = item.document
        if right := [name for item in marked for name in by_text[item.key]]:
            rows.append({"_id": f"q{number}", "text": question.text})
            qrels += [f"q{number}\t{name}\t1" for name in right]
            feedback.append({"query": question.text, "relevant": right})
    if not rows:
        return 0
    documents = (
        {"_id": name, "title": str(doc.metadata.get("title") or ""), "text": doc.page_content}
        for name, doc in known.items()
    )
    files = {
        "corpus.jsonl": map(_encode, documents),
        "queries.jsonl": map(_encode, rows),
        "qrels/test.tsv": qrels,
        "feedback.jsonl": map(_encode, feedback),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / "qrels").mkdir(exist_ok=True, mode=0o700)
        for name, lines in files.items():
            with open(folder / name, "x", encoding="utf-8", opener=_open_private) as file:
                file.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        msg = f"{folder} cannot be written ({error.strerror}): give --export a new folder"
        raise InvalidInputError(msg) from error
    return len(rows)


def _encode(row: object) -> str:
    return json.dumps(row, ensure_ascii=False)
