"""The plan of an evaluation, validated before anything is computed."""

from dataclasses import dataclass, replace
from pathlib import Path

from crabpath_lab.datasets import DATASETS, Dataset
from crabpath_lab.datasets.sample import load_small_sample
from crabpath_lab.streams.prequential import STREAM_KINDS, StreamKind
from crabpath_lab.streams.simulated_feedback import FEEDBACK_KINDS, FeedbackKind
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.vectors.embedder import DEFAULT_MODEL

SAMPLE = "sample"
"""Name of the data set that ships with the package: no ``data`` is given for it."""
LEARNER_NAMES = ("learned", "knn", "beta", "average", "cache")  # methods that only a stream has
SETTINGS = ("pooled", "closed")
_SHORTEST = 4  # questions of a stream, one a quarter
LEVELS = ("document", "chunk")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPlan:
    """One run of the evaluation: the options of ``crabpath eval``, as its help describes them.

    Attributes:
        methods: Names of methods, or ``module:attribute``; all are asked to the same depth.
        learners: What learns from a stream, likewise; names of learners may stand in ``methods``.
        ks: Cut-offs of recall and full evidence, rising.
        limit, seed: Most questions, and what draws them and the resamples; None takes the first.
        split: Cut passages into chunks, as long pages are.
        shown: At least the largest cut-off; None is that cut-off.
        noise: In [0, 0.5].
        dropped: In [0, 1).
        explored: Share of a stream's places that are explored, in [0, 0.5].
        passive_rate, skip_penalty: What a stream learns without outcomes, in [0, 1].
        router, reranker: What the additional methods use; None leaves these out.
        prices: Of the router, in US dollars per million tokens of input and of output.
    """

    dataset: str
    data: Path | None = None
    methods: tuple[str, ...] = ("dense", "lexical", "hybrid", "cold")
    learners: tuple[str, ...] = ()
    ks: tuple[int, ...] = (2, 5, 10)
    limit: int | None = None
    split: bool = False
    seed: int | None = None
    embedding: str = DEFAULT_MODEL
    cache: Path | None = None
    setting: str = "pooled"
    level: str = "document"
    stream: StreamKind | None = None
    feedback: FeedbackKind = "used"
    shown: int | None = None
    noise: float = 0.0
    epochs: int = 1
    dropped: float = 0.0
    explored: float = 0.0
    passive_rate: float = 0.0
    skip_penalty: float = 0.0
    router: str | None = None
    reranker: str | None = None
    prices: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        """Validate names and ranges; InvalidInputError says what to give instead."""
        _require_known("data set", self.dataset, (SAMPLE, *DATASETS))
        if (self.data is None) != (self.dataset == SAMPLE):
            msg = f"the data set {self.dataset!r} needs --data: crabpath fetch gets public ones"
            if self.data is not None:
                msg = f"the data set {self.dataset!r} has its own data: leave out --data"
            raise InvalidInputError(msg)
        _require_known("--setting", self.setting, SETTINGS)
        _require_known("--level", self.level, LEVELS)
        if self.seed is not None and self.seed < 0:
            msg = f"--seed must be at least 0, not {self.seed}"
            raise InvalidInputError(msg)
        self._require_stream()

    def _require_stream(self) -> None:
        _require_known("--feedback", self.feedback, FEEDBACK_KINDS)
        if self.stream is not None:
            _require_known("--stream", self.stream, STREAM_KINDS)
        learners = self.list_learners()
        if learners and self.stream is None:
            msg = f"{learners[0]!r} learns from a stream: add --stream prequential"
            raise InvalidInputError(msg)
        if self.stream and not learners:
            known = ", ".join(LEARNER_NAMES)
            msg = f"a stream needs a learner: give --learners one of {known}, or module:attribute"
            raise InvalidInputError(msg)
        if self.stream and (self.setting, self.level) != ("pooled", "document"):
            msg = "a stream is measured on pooled documents: leave out --setting and --level"
            raise InvalidInputError(msg)
        bounds = {"--noise": (self.noise, 0.0, 0.5), "--dropped": (self.dropped, 0.0, 0.9)}
        bounds["--explored"] = (self.explored, 0.0, 0.5)
        bounds["--passive-rate"] = (self.passive_rate, 0.0, 1.0)
        bounds["--skip-penalty"] = (self.skip_penalty, 0.0, 1.0)
        for name, (value, least, most) in bounds.items():
            if not least <= value <= most:
                msg = f"{name} must be from {least} to {most}, not {value}"
                raise InvalidInputError(msg)
        lowest_of = {"--epochs": (self.epochs, 1), "--shown": (self.shown, max(self.ks))}
        for name, (number, lowest) in lowest_of.items():
            if number is not None and number < lowest:
                msg = f"{name} must be at least {lowest}, not {number}"
                raise InvalidInputError(msg)
        given = [name for name, (value, _, _) in bounds.items() if value]
        given += ["--epochs"] * (self.epochs > 1) + ["--shown"] * (self.shown is not None)
        if given and self.stream is None:
            msg = f"{given[0]} is of a stream: add --stream prequential, or leave it out"
            raise InvalidInputError(msg)

    def list_learners(self) -> tuple[str, ...]:
        """Learners of a stream, each once."""
        named = [name for name in self.methods if name in LEARNER_NAMES]
        return tuple(dict.fromkeys([*named, *self.learners]))

    def load(self) -> Dataset:
        """Load the questions to ask; InvalidInputError where the data do not allow the plan."""
        if self.data is None:
            dataset = load_small_sample().sample(self.limit, self.seed)
        else:
            dataset = load_labelled(self.dataset, self.data, self.limit, self.seed)
        dataset = replace(dataset, split=dataset.split or self.split)
        if self.setting == "closed" and not dataset.candidates:
            msg = (
                f"{self.data} does not tell which paragraphs belong to a question: "
                "--setting closed needs the official JSON"
            )
            raise InvalidInputError(msg)
        if self.level == "chunk" and not dataset.facts:
            msg = f"{self.dataset} has no gold sentences: --level chunk is for multihoprag"
            raise InvalidInputError(msg)
        self._require_reachable(dataset)
        return dataset

    def _require_reachable(self, dataset: Dataset) -> None:
        own = max(map(len, dataset.candidates.values()), default=0)
        size = own if self.setting == "closed" else len(dataset.documents)
        option, asked = max(("--k", max(self.ks)), ("--shown", self.shown or 0), key=lambda o: o[1])
        if asked > size:
            msg = (
                f"{option} {asked} is beyond the corpus, which has {size} documents"
                f"{' a question' if self.setting == 'closed' else ''}: give at most {size}"
            )
            raise InvalidInputError(msg)
        if self.stream and len(dataset.queries) < _SHORTEST:
            msg = f"a stream needs at least {_SHORTEST} questions, not {len(dataset.queries)}"
            raise InvalidInputError(msg)


def load_labelled(name: str, data: Path, limit: int | None, seed: int | None = None) -> Dataset:
    """Load a data set of ``DATASETS`` with labelled questions, at most ``limit`` of them.

    A seed draws these, None takes the first. A file that cannot be read, or holds no such question,
    raises InvalidInputError.
    """
    dataset = DATASETS[name](data).sample(limit, seed)
    if not dataset.queries:
        msg = (
            f"{data} holds no question with relevant documents, so nothing can be "
            "measured: give a file with labels, such as the development set"
        )
        raise InvalidInputError(msg)
    return dataset


def _require_known(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        msg = f"there is no {what} {value!r}: choose among {', '.join(allowed)}"
        raise InvalidInputError(msg)
