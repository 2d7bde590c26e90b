"""Judgements of a person, kept in a file line by line, and the figures that follow from them."""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from crabpath_lab.compare.answers import SYSTEMS, AskedQuestion
from crabpath_lab.scoring.statistics import bootstrap_interval
from crabpath_retrievers.errors import InvalidInputError

BETTER = (*SYSTEMS, "neither")
"""Words for the better of two lists."""

_ORDER = ("memory", "present", "neither")
_FEWEST = 5  # judged questions from which the number of missing ones is estimated
_MOST_MORE = 10_000
_NORMAL = float(norm.ppf(0.975))


@dataclass(slots=True)
class QuestionJudgement:
    """Judgement of one question by a person.

    Attributes:
        labels: Whether a document answers, by its key; others of a finished question do not.
        better: The better list, if the person compared lists.
        finished: Whether the person is done with the question.
    """

    labels: dict[str, bool] = field(default_factory=dict)
    better: str | None = None
    finished: bool = False


class Judgements:
    """The judgements of a file. Each is durable before :meth:`add` returns."""

    def __init__(self, path: Path) -> None:
        """Read a file, which is made by the first judgement; it is readable by its owner only.

        Raises:
            InvalidInputError: The file cannot be read, or is no file of judgements.
        """
        self.path = path
        self.by_question: dict[str, QuestionJudgement] = {}
        for line in self._read_lines():
            self._take(line)

    def add(self, question: str, **said: Any) -> None:
        """Keep a judgement: ``key`` with ``answers``, or ``better``, or ``finished``.

        Raises:
            InvalidInputError: The file cannot be written, or ``better`` is no system.
        """
        line = {"question": question, **said}
        if said.get("better") not in (None, *BETTER):
            msg = f"better must be one of {', '.join(BETTER)}, not {said['better']!r}"
            raise InvalidInputError(msg)
        try:
            with open(self.path, "a", encoding="utf-8", opener=_open_private) as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            msg = f"{self.path} cannot be written ({error.strerror}): give another --judgements"
            raise InvalidInputError(msg) from error
        self._take(line)

    def get(self, question: str) -> QuestionJudgement:
        """Judgement of a question so far."""
        return self.by_question.get(question, QuestionJudgement())

    def _read_lines(self) -> Iterator[dict[str, Any]]:
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            msg = f"{self.path} cannot be read as judgements ({error}): give another --judgements"
            raise InvalidInputError(msg) from error
        for number, line in enumerate(lines, 1):
            try:
                found = json.loads(line)
            except ValueError as error:
                if number == len(lines):
                    return  # the process was killed while it wrote
                msg = f"{self.path}:{number} is no judgement: give another --judgements"
                raise InvalidInputError(msg) from error
            if not isinstance(found, dict) or not isinstance(found.get("question"), str):
                msg = f"{self.path}:{number} is no judgement: give another --judgements"
                raise InvalidInputError(msg)
            yield found

    def _take(self, line: Mapping[str, Any]) -> None:
        told = self.by_question.setdefault(line["question"], QuestionJudgement())
        if isinstance(line.get("key"), str):
            told.labels[line["key"]] = bool(line.get("answers"))
        if "better" in line:
            told.better = line["better"] if line["better"] in BETTER else None
        if "finished" in line:
            told.finished = bool(line["finished"])


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class QuestionScore(NamedTuple):
    """Measures of a judged question, by system.

    Attributes:
        ndcg: Normalised discounted cumulative gain of binary labels (Järvelin and Kekäläinen 2002);
            None if the person only compared the lists.
        recall: Share of the documents of the pool that answer; None if none does.
        better: The better system, by the person's word, else by nDCG; "neither" for a tie.
    """

    ndcg: Mapping[str, float] | None
    recall: Mapping[str, float] | None
    better: str


def score_question(question: AskedQuestion, judgement: QuestionJudgement) -> QuestionScore:
    """Score both answers against the labels of their pool."""
    if judgement.better is not None and not judgement.labels:
        return QuestionScore(None, None, judgement.better)
    right = {item.key for item in question.pool if judgement.labels.get(item.key)}
    gains = {
        system: [float(key in right) for key in keys] for system, keys in question.answers.items()
    }
    most = max((len(keys) for keys in question.answers.values()), default=0)
    ideal = _discount([1.0] * min(len(right), most))
    ndcg = {system: _discount(row) / ideal if right else 0.0 for system, row in gains.items()}
    recall = {system: sum(row) / len(right) for system, row in gains.items()} if right else None
    better = judgement.better
    if better is None:
        ahead = ndcg["memory"] - ndcg["present"]
        better = "memory" if ahead > 0 else "present" if ahead < 0 else "neither"
    return QuestionScore(ndcg, recall, better)


def _discount(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(place + 2) for place, gain in enumerate(gains))


class Figures(NamedTuple):
    """Figures of the judged questions; differences are memory minus present.

    Attributes:
        judged: Number of judged questions.
        unanswered: Those with labels of which no document of the pool answers.
        wins: Questions at which the memory is better.
        ties: Questions at which neither is.
        losses: Questions at which the present retriever is better.
        recall: Mean recall over the pool by system; None before a question with an answer.
        ndcg: Mean nDCG by system; None before a question with labels.
        difference: Mean difference of nDCG; without labels, share of wins less share of losses.
        interval: Its 95 % interval by BCa bootstrap; None if too few questions differ.
        more: Estimated number of further judged questions after which the interval excludes 0; 0 if
            it does; None if that cannot be estimated or is above 10,000.
    """

    judged: int
    unanswered: int
    wins: int
    ties: int
    losses: int
    recall: dict[str, float] | None
    ndcg: dict[str, float] | None
    difference: float | None
    interval: list[float] | None
    more: int | None

    def describe(self) -> str:
        """One or two sentences for a person."""
        if self.difference is None:
            return "Nothing is judged yet."
        text = (
            f"{_count(self.judged, 'question')} judged: the memory is better at {self.wins}, equal "
            f"at {self.ties}, worse at {self.losses}. "
        )
        if self.ndcg is None:
            text += f"Wins less losses ({self.difference:+.3f}"
        else:
            means = f"{self.ndcg['present']:.3f} → {self.ndcg['memory']:.3f}"
            text += f"nDCG {means} ({self.difference:+.3f}"
        text += (
            f", 95% {self.interval[0]:+.3f} to {self.interval[1]:+.3f})" if self.interval else ")"
        )
        if self.recall:
            text += f", recall {self.recall['present']:.3f} → {self.recall['memory']:.3f}"
        if self.more == 0:
            return f"{text}. The interval excludes 0: this is decided."
        if self.more is None:
            return f"{text}. Not decided; too little differs to say how many more would."
        return f"{text}. Not decided: some {_count(self.more, 'more judgement')} would."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def measure(questions: Iterable[AskedQuestion], judgements: Judgements) -> Figures:
    """Figures of the questions whose judgement is finished."""
    told = ((question, judgements.get(question.text)) for question in questions)
    scores = [score_question(question, said) for question, said in told if said.finished]
    wins, losses, ties = (sum(score.better == word for score in scores) for word in _ORDER)
    labelled = [score.ndcg for score in scores if score.ndcg is not None]
    recalls = [score.recall for score in scores if score.recall is not None]
    gains = [row["memory"] - row["present"] for row in labelled]
    words = [float(score.better == "memory") - (score.better == "present") for score in scores]
    differences = np.array(gains or words)
    interval = bootstrap_interval(differences) if len(differences) > 1 else None
    return Figures(
        judged=len(scores),
        unanswered=len(labelled) - len(recalls),
        wins=wins,
        ties=ties,
        losses=losses,
        recall=_average(recalls),
        ndcg=_average(labelled),
        difference=round(float(differences.mean()), 4) if len(differences) else None,
        interval=interval,
        more=_estimate_more(differences, interval),
    )


def _average(rows: Sequence[Mapping[str, float]]) -> dict[str, float] | None:
    if not rows:
        return None
    return {name: round(sum(row[name] for row in rows) / len(rows), 4) for name in SYSTEMS}


def _estimate_more(differences: Any, interval: Sequence[float] | None) -> int | None:
    """Questions still to judge until a normal interval of the mean would exclude 0."""
    if interval is not None and len(differences) >= _FEWEST and interval[0] * interval[1] > 0:
        return 0
    if len(differences) < _FEWEST or not differences.mean():
        return None
    needed = (_NORMAL * differences.std(ddof=1) / differences.mean()) ** 2
    more = max(1, math.ceil(needed) - len(differences))
    return more if more <= _MOST_MORE else None


def export_judgements(
    folder: Path,
    questions: Sequence[AskedQuestion],
    judgements: Judgements,
    corpus: Iterable[Any],
) -> int:
    """Write labels as a BEIR folder, and as ``feedback.jsonl`` for ``crabpath replay``.

    Args:
        folder: Made if it does not exist.
        questions: The questions that were asked.
        judgements: What was said of them.
        corpus: All documents; those of the pools are added if they are not among them.

    Returns:
        The number of exported questions: those with a document that answers.

    Raises:
        InvalidInputError: The folder holds files of an export already, or cannot be written.
    """
    known: dict[str, Any] = {}
    for document in corpus:
        known[str(document.id)] = document
    rows, qrels, feedback = [], ["query-id\tcorpus-id\tscore"], []
    for number, question in enumerate(questions, 1):
        said = judgements.get(question.text)
        if not said.finished:
            continue
        names = {item.key: str(item.document.id or item.key) for item in question.pool}
        for item in question.pool:
            known.setdefault(names[item.key], item.document)
        right = [names[item.key] for item in question.pool if said.labels.get(item.key)]
        if not right:
            continue
        rows.append({"_id": f"q{number}", "text": question.text})
        qrels += [f"q{number}\t{name}\t1" for name in right]
        feedback.append({"query": question.text, "relevant": right})
    documents = [
        {"_id": name, "title": str(doc.metadata.get("title") or ""), "text": doc.page_content}
        for name, doc in known.items()
    ]
    files = {
        "corpus.jsonl": [json.dumps(row, ensure_ascii=False) for row in documents],
        "queries.jsonl": [json.dumps(row, ensure_ascii=False) for row in rows],
        "qrels/test.tsv": qrels,
        "feedback.jsonl": [json.dumps(row, ensure_ascii=False) for row in feedback],
    }
    if existing := next((name for name in files if (folder / name).exists()), None):
        msg = f"{folder / existing} exists: give --export a new folder"
        raise InvalidInputError(msg)
    try:
        (folder / "qrels").mkdir(parents=True, exist_ok=True)
        for name, lines in files.items():
            (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    except OSError as error:
        msg = f"{folder} cannot be written ({error.strerror}): give --export another folder"
        raise InvalidInputError(msg) from error
    return len(rows)
