"""Learning from judged turns: what is read, and all the changes that follow from it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crabpath_retrievers.changes import Change, ConsumeFeedback, KeepEpisode, NoteFeedback
from crabpath_retrievers.config import Settings
from crabpath_retrievers.feedback.harvest import Harvest
from crabpath_retrievers.feedback.lessons import Lessons
from crabpath_retrievers.feedback.surroundings import Surroundings, Surveyor
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.knobs import tuned
from crabpath_retrievers.learning.blame import Blame, blame
from crabpath_retrievers.learning.delta import LearnedDelta
from crabpath_retrievers.learning.fair import decays, hindsight, shared_out
from crabpath_retrievers.learning.givers import allowed_share
from crabpath_retrievers.learning.hebbian import co_use
from crabpath_retrievers.learning.policy_gradient import policy_gradient
from crabpath_retrievers.learning.remembered import remembered
from crabpath_retrievers.learning.routes import known_credit
from crabpath_retrievers.learning.steps import steps_of_turn
from crabpath_retrievers.learning.together import succeeded_together
from crabpath_retrievers.learning.trust import ADVICE, advised, spoken
from crabpath_retrievers.learning.typed import Situation, typed_edges
from crabpath_retrievers.mind import Mind
from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.rerank.features import FEATURES
from crabpath_retrievers.rerank.posterior import Posterior
from crabpath_retrievers.seeds.episodes import Episodes, Remembered
from crabpath_retrievers.seeds.notes import Notes
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.learned_queries import Episode, Learned
from crabpath_retrievers.text import question_id
from crabpath_retrievers.trajectory import Turn


@dataclass(frozen=True, slots=True)
class Judged:
    """A turn with its unit query vector, and what feedback says about it."""

    turn: Turn
    credit: Credit
    vector: Vector | None


@dataclass(frozen=True, slots=True)
class Scene:
    """What a judged turn is to be seen by.

    Attributes:
        around: Regions of its query and documents.
        stood: The same for typed edges, and what the turn before it used.
        fair: Its credit, each blame as far as its document answers for a failure.
        baseline: Mean credit where it took place, in [-1, 1].
        decays: What it takes from rewards, in nats by node id.
    """

    around: Surroundings
    stood: Situation
    fair: Credit
    baseline: float
    decays: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Learner:
    """Computes the changes that follow from judged turns; it applies nothing."""

    store: GraphStore
    episodes: Episodes
    notes: Notes
    regions: Regions
    prior: Posterior
    settings: Settings

    def changes(
        self,
        namespace: str,
        feedback_id: str,
        judged: Sequence[Judged],
        noted: Sequence[Change] = (),
        user: str | None = None,
    ) -> list[Change]:
        """All that follows from one feedback about turns of one namespace.

        Args:
            namespace: That.
            feedback_id: The feedback.
            judged: The turns.
            noted: What it adds to notes, to be taken back with all else.
            user: Who gave it; None where that is not known.

        Returns:
            Changes for one call of ``GraphStore.apply``; it raises ``ConflictError`` when the
            namespace has learned in the meantime.
        """
        known = self.store.learned.learned(namespace)
        own = replace(self, settings=tuned(self.settings, known.knobs))
        return own._changes(namespace, feedback_id, judged, noted, known, user)  # noqa: SLF001

    def _changes(
        self,
        namespace: str,
        feedback_id: str,
        judged: Sequence[Judged],
        noted: Sequence[Change],
        known: Learned,
        user: str | None,
    ) -> list[Change]:
        before = mind = Mind.from_json(known.mind, self.prior)
        harvest = Harvest(noted=noted)
        usual = [_usual(item) for item in judged]
        counted: list[Judged] = []
        for one, credit in zip(judged, usual, strict=True):
            item, scene, change = self._heard(namespace, one, known.version, mind, noted, user)
            counted.append(item)
            self._move(namespace, item, scene, harvest)
            self._count(item, scene, harvest, credit)
            if change:
                harvest.remember(change)
            mind = self._taught(mind, item, credit)
        pairs = [(item.turn, item.credit) for item in counted]
        full = float(before.posterior.mean[FEATURES.index(ADVICE)])
        said = spoken(pairs) | advised(pairs, full, before.trust.believed())
        mind = replace(mind, trust=mind.trust.plus(said))
        learning = self.settings.learning
        decay = math.log(2.0) / learning.half_life if learning.decay else 0.0
        consumed = ConsumeFeedback(
            namespace,
            feedback_id,
            tuple(item.turn.id for item in judged),
            known.version,
            mind.to_json(),
            decay * len(judged),
            harvest.taught(usual, before.baseline.count, said, mind.gained(before)),
        )
        found = [consumed, *harvest.changes(namespace, feedback_id)]
        if note := _bounded(judged, counted):
            found.append(NoteFeedback(feedback_id, note))
        return found

    def _heard(
        self,
        namespace: str,
        judged: Judged,
        version: int,
        mind: Mind,
        noted: Sequence[Change],
        user: str | None,
    ) -> tuple[Judged, Scene, Remembered | None]:
        """A turn as far as what is said of it counts beside what other users said."""
        share = self.settings.learning.max_user_share
        corrected = bool(noted)
        scene = self._scene(namespace, judged, mind.baseline.mean)
        change = self._remembered(namespace, judged, scene, version, user, corrected=corrected)
        if user is None or share is None or change is None or change.known is None:
            return judged, scene, change
        voices = self.store.learned.voices(change.known.id)
        counts = allowed_share(change.change.documents, user, voices, share)
        if counts == 1.0:
            return judged, scene, change
        weight = judged.credit.weight * counts
        judged = replace(judged, credit=replace(judged.credit, weight=weight))
        scene = self._scene(namespace, judged, mind.baseline.mean)
        change = self._remembered(namespace, judged, scene, version, user, corrected=corrected)
        return judged, scene, change

    def _scene(self, namespace: str, judged: Judged, usual: float) -> Scene:
        learning, turn, credit = self.settings.learning, judged.turn, judged.credit
        clock = self.store.walk.clock(namespace)
        surveyor = Surveyor(self.store, self.regions, self.settings.region, clock)
        placed = learning.regions or learning.typed
        around = surveyor.around(turn, judged.vector if placed else None)
        standings = surveyor.standings(turn, credit)
        quality = around.quality(turn.task_type)
        fair, baseline = credit, usual
        if learning.reward_decay == "context":
            fair = shared_out(credit, standings, quality, turn)
        if learning.regions and learning.region_baseline:
            baseline = around.baseline(usual)
        stood = self._situation(namespace, judged, around)
        taken = decays(turn, fair, learning)
        return Scene(around, stood, fair, baseline, taken)

    def _move(self, namespace: str, judged: Judged, scene: Scene, harvest: Harvest) -> None:
        """Weights of pointers, and uses of documents."""
        learning, turn, credit = self.settings.learning, judged.turn, judged.credit
        lessons = Lessons.of(self.store, namespace, turn, credit, scene.stood)
        deltas = list[LearnedDelta]()
        if learning.policy_gradient:
            stop = self.settings.policy.stop_score
            # A bare outcome says the same of every document: what one of them did is a share of it.
            share = 1.0 if credit.documents else 1.0 / max(1, len(turn.returned))
            careful = learning.replace(learning_rate=learning.learning_rate * share)
            deltas += policy_gradient(turn, scene.fair, scene.baseline, careful, stop=stop)
        if learning.hebbian:
            known = lessons.weights, lessons.protos, learning
            habitual, against = self.settings.tiers.habitual, Blame()
            if credit.documents:
                together = co_use(credit, *known, habitual=habitual)
                against = blame(turn, scene.fair, lessons.weights, lessons.blamed, learning)
            else:
                together = succeeded_together(turn, credit, *known, habitual=habitual)
            deltas += [*together.deltas, *against.deltas]
            counted = lessons.counted(together.counted, against.counted)
            harvest.count(counted, lessons.counts)
        if learning.typed:
            rate = learning.typed_rate
            deltas += typed_edges(turn, credit, scene.fair, scene.stood, lessons.weights, rate)
        harvest.deltas += lessons.known(deltas)
        if learning.usage:
            harvest.use(lessons.use(credit, scene.decays))

    def _count(self, judged: Judged, scene: Scene, harvest: Harvest, usual: float) -> None:
        """Steps in regions."""
        around = scene.around
        if self.settings.learning.regions and around.places:
            where = around.places, around.documents
            harvest.steps += steps_of_turn(judged.turn, judged.credit, *where, usual)

    def _remembered(
        self,
        namespace: str,
        judged: Judged,
        scene: Scene,
        version: int,
        user: str | None,
        *,
        corrected: bool,
    ) -> Remembered | None:
        """The episode that a turn is, or adds to; None where it is not to be remembered."""
        learning, turn, vector = self.settings.learning, judged.turn, judged.vector
        if not learning.episodes or vector is None or not judged.credit.outcome:
            return None
        clock = self.store.walk.clock(namespace)._replace(learned=version)
        single = np.asarray(vector, dtype=np.float32)
        known = self.episodes.known(namespace, clock, turn.query, single)
        followed = self._followed(judged, scene, known, corrected=corrected)
        everything = learning.experience == "all"
        before = known.documents if known else {}
        said = remembered(turn, judged.credit, followed, before=before, all_experience=everything)
        if not said:
            return None
        # A failure may bring a document back for its own question, and for no other one.
        told = judged.credit.told and (judged.credit.outcome > 0 or everything)
        new = (question_id(namespace, turn.query), turn.query, single)
        whose = (known.id, known.query, known.vector) if known else new
        kept = KeepEpisode(namespace, *whose, 1.0, float(told), said, user=user)
        return Remembered(kept, known)

    def _followed(
        self, judged: Judged, scene: Scene, known: Episode | None, *, corrected: bool
    ) -> Mapping[str, float]:
        """What a turn says of documents that it followed, for its own question.

        Who says what would have been right, has judged them: nothing is to be found out then.
        """
        credit, context = judged.credit, self.settings.learning.reward_decay == "context"
        if context and credit.outcome < 0 and credit.told and not corrected:
            before = known.documents if known and known.told > 0 else {}
            return hindsight(judged.turn, credit, scene.fair, before)
        return {node: scene.fair.documents[node] for node, v in credit.documents.items() if v}

    def _situation(self, namespace: str, judged: Judged, around: Surroundings) -> Situation:
        """What typed edges need to know of where a turn stood."""
        learning, turn = self.settings.learning, judged.turn
        if not learning.typed:
            return Situation()
        before: list[str] = []
        if any(judged.credit.documents.values()):
            before = self.store.typed.used_before(
                namespace,
                turn.clock,
                turn.created,
                turns=learning.window_turns,
                seconds=learning.window_seconds,
            )
        return Situation(around.home, around.homes, before)

    def _taught(self, mind: Mind, judged: Judged, usual: float) -> Mind:
        credit = judged.credit
        taught = replace(mind, baseline=mind.baseline.updated(usual))
        shown = [r for r in judged.turn.returned if r.node in credit.documents]
        if not self.settings.learning.ranker or not shown:
            return taught
        matrix = np.array([[r.features.get(name, 0.0) for name in FEATURES] for r in shown])
        used = np.array([max(0.0, credit.documents[r.node]) for r in shown])
        return taught.seen(matrix, used, credit.weight)


def _bounded(judged: Sequence[Judged], counted: Sequence[Judged]) -> str | None:
    """What to tell whoever spoke against others; None where all that they said counts."""
    pairs = zip(judged, counted, strict=True)
    if all(said.credit.weight == heard.credit.weight for said, heard in pairs):
        return None
    full, left = (sum(item.credit.weight for item in items) for items in (judged, counted))
    return f"other users said something else: it counts {left / full:.0%} of what it would alone"


def _usual(judged: Judged) -> float:
    """What decisions are compared with: the mean credit of what was returned, in [-1, 1]."""
    known = known_credit(judged.turn, judged.credit).values()
    return sum(known) / len(known) if known else judged.credit.outcome
