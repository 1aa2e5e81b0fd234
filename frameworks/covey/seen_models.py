"""The models of a training's ranks as others see them, whatever the method. Internal.

payload              the model of a rank that others see
gradients            replicas are equal at equal version: any rank's own; how far the others are
model, all together  where it lies while the rank trains: others can read that
model, in rounds     that which it has published last
model, in pairs      that which it has handed in last, with what others have made of it since

Where ranks share no memory they ask for it.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Iterable, NamedTuple, Optional, Sequence

from covey import trainer_handle
from covey.method import Plan
from covey.trainer_handle import ASKED, CHANGING, CLOSED, LOST, NOTHING, WHOLE, TrainerHandle

_PAUSE_S = 0.0002  # Before a model that is being changed is looked at again.
_ELSEWHERE = (
    "its model lies where others cannot read it: on a device, in memory of its framework, or "
    "beyond COVEY_ARENA_BYTES"
)
_BUSY = "its model was being changed whenever it was looked at (stopped, or slow, in its update)"
_SILENT = "it has not answered: it is stopped or slow, or its host is out of reach"
_AT_FINISH = "it has not taken up the mean that finish() has made"
_WHY = {
    CHANGING: _BUSY,
    CLOSED: "it has closed its optimizer",
    LOST: "it has died, or left",
}


class Seen(NamedTuple):
    """One rank's model was read, of that version; or, if ``why`` says so, not."""

    version: int = 0
    why: str = ""


def version_of(trainer: TrainerHandle, rank: int, timeout: float) -> Seen:
    """How far another rank is. Waits for its answer for so many seconds at most, where it has to be
    asked."""
    deadline = time.monotonic() + timeout
    while True:
        seen = trainer.look(rank)
        if seen.state != ASKED:
            return Seen(seen.version, "" if seen.state == CHANGING else _WHY.get(seen.state, ""))
        if time.monotonic() > deadline:
            return Seen(why=_SILENT)
        time.sleep(_PAUSE_S)


class SeenModels:
    """The models of a trainer's ranks."""

    def __init__(
        self, trainer: TrainerHandle, own: int, plan: Plan, has_mean: bool,
        copy_own: Callable[[], None],
    ) -> None:
        """
        Args:
            own: this rank.
            has_mean: this rank has the mean of all that was made last. A rank that has taken part
                in it has it, too, also where others see only the model it brought along.
            copy_own: copies this rank's model to where the others' are read to.
        """
        self._trainer, self._own, self._plan = trainer, own, plan
        self._has_mean, self._copy_own = has_mean, copy_own
        self._has_answered = False  # Since the read began.
        self._is_elsewhere = False  # By its last answer.

    def read(self, rank: int, to: Sequence[int], timeout: float) -> Seen:
        """Copies the model of ``rank`` to these addresses, by span. Looks again, for so many
        seconds at most, while it is being changed, or is on its way from another host."""
        deadline = time.monotonic() + timeout
        self._has_answered = self._is_elsewhere = False
        while True:
            seen = self._look(rank, to)
            if seen is not None:
                return seen
            if time.monotonic() > deadline:
                busy = _ELSEWHERE if self._is_elsewhere else _BUSY
                return Seen(why=busy if self._has_answered else _SILENT)
            time.sleep(_PAUSE_S)

    def _look(self, rank: int, to: Sequence[int]) -> Optional[Seen]:
        """None: it was changed meanwhile."""
        if self._plan.in_pairs:
            return self._handed_in(rank, to)
        return (self._published if self._plan.in_rounds else self._in_place)(rank, to)

    def _look_at(self, rank: int, to: Sequence[int]) -> trainer_handle.Seen:
        seen = self._trainer.look(rank, to)
        self._has_answered |= seen.state != ASKED
        return seen

    def _published(self, rank: int, to: Sequence[int]) -> Optional[Seen]:
        own_step = self._trainer.look(self._own, to).step if self._has_mean else -1
        seen = self._look_at(rank, to)
        if seen.state == ASKED:
            return None
        if seen.step == own_step or (seen.step == 0 and rank == self._own):
            self._copy_own()
            return Seen(seen.step)
        if seen.step == 0:
            return Seen(why="it has published no model yet")
        if seen.is_superseded:
            return Seen(why=f"an average of all has passed by its model of step {seen.step}")
        return Seen(seen.step) if seen.state == WHOLE else None

    def _handed_in(self, rank: int, to: Sequence[int]) -> Optional[Seen]:
        seen = self._look_at(rank, to)
        if seen.state in (CLOSED, LOST):
            return Seen(why=_WHY[seen.state])
        if seen.is_superseded:
            self._copy_own()
            return Seen(seen.version, "" if self._has_mean else _AT_FINISH)
        return Seen(seen.version) if seen.state == WHOLE else None

    def _in_place(self, rank: int, to: Sequence[int]) -> Optional[Seen]:
        seen = self._look_at(rank, to)
        if seen.state == WHOLE:
            return Seen(seen.version)
        if seen.state == ASKED:
            return None
        # For a moment there is none: before the first step, and where another method begins.
        self._is_elsewhere = seen.state == NOTHING and seen.version > 0
        return Seen(why=_WHY[seen.state]) if seen.state in (CLOSED, LOST) else None


class ModelMean:
    """The mean of models that come one after the other, and how far they are from it.

    In double precision, by B. P. Welford (1962, doi:10.1080/00401706.1962.10490022): the mean of
    equal models is that model, bit for bit, and their distance 0.

    Attributes:
        means: of each array of the model, in memory that the caller gave.
        count: how many models there are in it.
        spread: the sum of the squares of their distances from the mean.
    """

    def __init__(self, zeros: Sequence[Any], widened: Callable[[Any], Any]) -> None:
        """``zeros``: arrays of float64, which become the means; ``widened`` gives an array in
        float64."""
        self.means, self._widened = list(zeros), widened
        self.count, self.spread = 0, 0.0

    def add(self, model: Iterable[Any]) -> None:
        """One more model, of arrays of the same shapes."""
        self.count += 1
        for mean, array in zip(self.means, model):
            change = self._widened(array) - mean
            mean += change / self.count
            if self.count > 1:
                self.spread += float((change * (self._widened(array) - mean)).sum())

    def square(self) -> float:
        """Of the mean's norm."""
        return sum(float((mean * mean).sum()) for mean in self.means)


class Consensus:
    """The models in the mean of a ``with covey.consensus(model)``: see :func:`covey.consensus`.

    Attributes:
        distance: how far the models are apart: the root of the mean, over the models in it, of
            the square of a model's distance from the mean, in parts of the norm of the mean; both
            by the Euclidean norm over all parameters that are trained. 0: they are equal. (The
            consensus distance of Kong et al., 2021, arXiv:2102.04828, divided by that norm.)
        norm: that norm of the mean; ``distance * norm`` is the distance in the parameters' unit.
        ages: by rank that is in it: by how many of its own steps (with ``eager``: versions) it is
            behind the furthest of them.
        missing: by rank that is not in it: why.
    """

    def __init__(self) -> None:
        self.distance = 0.0
        self.norm = 0.0
        self.ages: Dict[int, int] = {}
        self.missing: Dict[int, str] = {}

    def __repr__(self) -> str:
        return (
            f"Consensus(distance={self.distance:.3g}, ages={self.ages}, missing={self.missing})"
        )

    def note(self, seen: Dict[int, Seen]) -> None:
        """Adds the looks at each rank. Internal."""
        newest = max((one.version for one in seen.values() if not one.why), default=0)
        for rank, one in seen.items():
            if one.why:
                self.missing[rank] = one.why
            else:
                self.ages[rank] = max(newest - one.version, self.ages.get(rank, 0))

    def measure(self, squares: Iterable[float], norm_squares: Iterable[float]) -> None:
        """By part of the parameters: the mean square of the models' distances from the mean, and
        the square of the mean's norm. Internal."""
        square = sum(norm_squares)
        self.norm = square**0.5
        self.distance = (sum(squares) / square) ** 0.5 if square > 0 else 0.0
