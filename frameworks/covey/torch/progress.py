"""Where an optimizer stands, and the exchange of its method there. Internal.

The core says for each step what travels: the gradients before the update, the parameters after it,
or nothing. Nothing here knows a method by name.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, TypeVar

import torch

from covey.errors import InvalidArgument, Timeout
from covey.group import Group, world
from covey.method import FOREVER, GRADIENTS, MODEL, NOTHING, Plan, plan, row
from covey.names import next_prefix
from covey.reduce_op import Max
from covey.step_stats import StepStats
from covey.topology import Row
from covey.torch.averager import Averager, Waiting
from covey.torch.codecs import codec_of
from covey.torch.crossing import Board, Crossing, limit_of
from covey.torch.equal_start import EqualStart
from covey.torch.layout import Named
from covey.torch.moved import Moved
from covey.torch.ops import allreduce
from covey.torch.own_update import OwnUpdate
from covey.torch.unchanged import Unchanged
from covey.torch.window import Mark, Window

T = TypeVar("T")


class Progress:
    """The steps of one optimizer.

    Attributes:
        version: updates done; the next one is this one, counted from 0.
        steps: calls of ``step()``: the same, unless the method goes in rounds.
        plan: the exchange of the next one.
        clip_norm: the largest norm of its gradients; None: any.
        is_shared: whether there is a rank to exchange with.
        named: the parameters that are trained.
        step_stats: counts what happens.
        unfit: why its last gradients were no good: raised when the step is over.
        differs: whether optimizers may keep different things since ``steps`` were last alike.
        window: the view of this rank for others; None: there is no need, all are alike.
        is_parted: the ranks' models may differ since the last average of all.
        is_viewed: the parameters are not this rank's own just now (``view.py``).
        crossing: by what ranks go on to the next part; None: they are in one.
        start: compares what the ranks begin with; None: there is nothing.
    """

    def __init__(self, method: str, group: Group) -> None:
        """``method`` is the full text. Without another rank nothing is exchanged."""
        self.method = method
        self.version = 0
        self.steps = 0
        self.plan = Plan(NOTHING, False, FOREVER)
        # A rank outside of its group trains alone, and clips as all do.
        self._plan_group = group.id if group.included() else world.id
        self.clip_norm = plan(method, self._plan_group, 0).clip_norm
        self.differs = False
        self.unfit = ""
        self.step_stats = StepStats(method, group.ranks)
        self._group = group
        self._averagings = 0
        self.named: Sequence[Named] = ()
        self.unchanged = Unchanged()
        self._own_update = OwnUpdate(())
        self._prefix = ""
        self._names: Dict[str, str] = {}
        self._averager: Optional[Averager] = None
        self.is_shared = False
        self._mixed_at = -1  # The step in which models were averaged with neighbors last,
        self._updated_at = -1  # and the last one whose update was done.
        self._mixing: Optional[Crossing] = None  # By which they are, where a rank was missing.
        self._finishing: Optional[Crossing] = None  # Likewise, finish().
        self._exchanges = 0  # Of models, by all together, that are over.
        self._is_apart = False  # Steps were done alone since the last exchange.
        self.start: Optional[EqualStart] = None
        self.window: Optional[Window] = None
        self.is_parted = False
        self.is_viewed = False
        self._is_changing = False
        self.crossing: Optional[Crossing] = None
        self.board: Optional[Board] = None  # There once something with a max_wait needs it.

    def share(self, named: Sequence[Named]) -> None:
        """From now on the parameters ``named`` are trained together with the other members. If
        there are none, nothing is exchanged."""
        self.is_shared = bool(named)
        self.named = named
        self.unchanged = Unchanged(named)
        self._own_update = OwnUpdate([parameter for _, parameter in named])
        self._prefix = next_prefix("model", self._group.ranks)
        self._averager = None
        self._close_window()
        self.plan = plan(self.method, self._group.id, self.steps)
        if not self.is_shared:
            self.plan = Plan(NOTHING, False, FOREVER)

    def name_of(self, word: str) -> str:
        """The same each time: what is opened anew has the name that it had."""
        if word not in self._names:
            self._names[word] = next_prefix(word, self._group.ranks)
        return self._names[word]

    def open_window(self) -> None:
        """From now on others can see this rank, if they may differ. Every member calls it."""
        if not self.is_shared or self.reduces:
            return
        if self.trains_alone:
            self._averager = self._averager or self._make_averager()
            self._averager.gather()
        if self.window is None or (self.trains_alone and not self.window.has_model):
            flats = self._averager.flats if self.trains_alone and self._averager else []
            name = f"{self._prefix}.window"
            mark = self._mark()
            window = self.together(name, lambda: Window(name, self._group, flats, mark))
            self._close_window()
            self.window = window

    def open_board(self) -> None:
        """From now on all see the ranks missing at a meeting. Every member calls it."""
        is_limited = self._limit() is not None
        if self.board is not None or not (self.plan.in_rounds or is_limited):
            return
        is_of_models = self.plan.payload == MODEL and not self.plan.in_pairs
        if self.plan.until < FOREVER or is_of_models:
            name = f"{self._prefix}.board"
            self.board = self.together(name, lambda: Board(name, self._group.ranks, self._group))

    def together(self, what: str, call: Callable[[], T]) -> T:
        """``call()``, which every member does, and waits for all in."""
        return call() if self.crossing is None else self.crossing.run(what, call)

    @property
    def moved(self) -> List[Moved]:
        """The codec's state in averages of models, by dtype and device."""
        return [] if self._averager is None else self._averager.moved

    def _close_window(self) -> None:
        if self.window is not None:
            self.window.close()
        self.window = None

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Within it parameters, or the version, change.

        Raises:
            InvalidArgument: (a ValueError) they are not this rank's own.
        """
        if self.is_viewed:
            raise InvalidArgument(
                "inside covey.consensus() the parameters are not this rank's own: end the `with` "
                "before the next step() or finish()"
            )
        if self.window is None:
            yield
            return
        self.window.begin()
        self._is_changing = True
        try:
            yield
        finally:
            self._is_changing = False
            if self.trains_alone and self._averager is not None:
                self._averager.gather()
            self.window.end(self._mark())

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """Within it this rank waits for all in an exchange: until all have come, others may look at
        its model as it is."""
        if self.window is None or not self._is_changing:
            yield
            return
        self.window.end(self._mark(waits=True))
        try:
            yield
        finally:
            self.window.begin()

    @property
    def begun(self) -> int:
        """How many exchanges of models with all this rank has begun."""
        return self._exchanges + self._is_between

    @property
    def _is_between(self) -> bool:
        """Whether one was waited for in vain: it goes on by itself."""
        return self._mixing is not None or self._finishing is not None

    def _mark(self, waits: bool = False) -> Mark:
        return Mark(self.version, self._exchanges, waits or self._is_between)

    @property
    def reduces(self) -> bool:
        """Whether the gradients of this step are reduced by all ranks together."""
        return self.plan.payload == GRADIENTS and not self.plan.in_rounds

    @property
    def trains_alone(self) -> bool:
        """Whether it is part of local steps, all of which end with an average of models."""
        return self.plan.payload != GRADIENTS and not self.plan.in_rounds

    @property
    def is_over(self) -> bool:
        """Whether the plan has ended: another method holds from here on, or a warm-up is over."""
        return self.steps >= self.plan.until

    @property
    def hands_over(self) -> bool:
        """Whether it ends with a version: rounds, of a warm-up or up to ``then=``, from whose last
        step on versions wait for all. A rank that has applied it goes on with the next part."""
        return self.plan.in_versions and self.plan.until < FOREVER

    def move(self, steps: int) -> None:
        """So many steps, and updates, were done; the next step is step ``steps``."""
        self.version = self.steps = steps
        self._mixed_at = self._updated_at = -1
        found = plan(self.method, self._plan_group, steps)
        self.clip_norm = found.clip_norm
        if self.is_shared:
            self.plan = found

    def position(self) -> Dict[str, Any]:
        """Where this rank is, for ``take_up``."""
        return {
            "steps": self.steps,
            "version": self.version,
            "apart": self._is_apart,
            "parted": self.is_parted,
            "differs": self.differs,
        }

    def take_up(self, position: Dict[str, Any]) -> None:
        """This rank is where ``position`` says."""
        self.move(int(position["steps"]))
        self.turn(int(position["version"]))
        self._is_apart = bool(position["apart"])
        self.is_parted, self.differs = bool(position["parted"]), bool(position["differs"])

    def renew(self) -> None:
        """Rounds begin anew here. Where they have an end, which is a version, a rank that has done
        fewer steps than others is where all are."""
        version = self.version
        self.move(self.steps)
        if self.hands_over or self.plan.warmup > 0:
            self.move(version)
        self.turn(version)

    def turn(self, version: int) -> None:
        """So many updates were done; in rounds a step may do several, or go on from elsewhere."""
        self.version = version

    def begin_step(self) -> None:
        """``step()`` begins. Raises InvalidArgument (a ValueError): a parameter has changed."""
        self.unchanged.check(self.plan.in_rounds)
        self.step_stats.begin_step()
        if self.start is not None:
            self.start.step(self.steps == self.version == 0)
        self.differs |= self.plan.payload != GRADIENTS
        self.is_parted |= self.plan.payload != GRADIENTS
        if self.is_shared and self.plan.payload != NOTHING and not self.plan.in_rounds:
            self.step_stats.arrived(self.steps, self._group.size())

    def before_update(self, reads_parameters: bool) -> None:
        """The gradients of an update are there: exchanges models if that comes before it; an update
        that ``reads_parameters`` finds this rank's own all the same."""
        if not self.plan.with_neighbors or self._mixed_at == self.steps:
            return
        neighbors, adapts_first = row(self.method, self._group, self.steps)
        if adapts_first:
            return
        if reads_parameters:
            self._own_update.begin()
        self._mix(neighbors)
        self._own_update.take_back()

    @property
    def has_updated(self) -> bool:
        """Whether the update of this step was done, and what comes after it was waited for in
        vain: ``step()`` goes on from there."""
        return self._updated_at == self.steps

    @property
    def is_mixing(self) -> bool:
        """Whether this step waits for neighbors, one of which was missing."""
        return self._mixing is not None

    def after_update(self) -> None:
        """Ends an update: exchanges models if it is time."""
        self._own_update.add()
        self.version += not self.has_updated  # A step in rounds may have many.
        if self.plan.with_neighbors:
            self._updated_at = self.steps
        if self.plan.in_rounds:
            return
        if self.plan.with_neighbors:
            if self._mixed_at != self.steps:
                self._mix(row(self.method, self._group, self.steps)[0])
            self._is_apart = self.is_parted = True
        elif self.plan.payload == MODEL:
            self._average()
        elif self.plan.payload == NOTHING:
            self._is_apart = True

    def finish(self) -> None:
        """Makes the replicas equal, if a member has done steps alone. Every member calls it."""
        if not self.is_shared:
            return
        apart = torch.tensor(int(self._is_apart))
        name = f"DistributedOptimizer.finish.{self._prefix}"
        crossing = self._finishing = self._finishing or self._wait_by("finish()")
        crossing.begin()
        try:
            with self._waiting():
                is_apart = crossing.run(
                    "finish()",
                    lambda: allreduce(apart, name=name, op=Max, process_set=self._group),
                )
            if is_apart:
                crossing.run("the mean of all", lambda: self._average(whole=True))
        except Timeout:
            raise
        except BaseException:
            self._finishing = None
            raise
        self._finishing = None

    def have_met(self) -> None:
        """All have ended a finish() together: they are equal."""
        self._exchanges += 1
        self.is_parted = False
        self.step_stats.finished()
        if self.start is not None:
            self.start.look()

    def _limit(self) -> Optional[float]:
        """How long a step waits for neighbors; None: for ever, or it waits for none."""
        if not self.plan.with_neighbors:
            return None
        return limit_of(self.plan)

    def _wait_by(self, what: str) -> Crossing:
        return Crossing(what, self._limit(), self.board)

    def _mix(self, neighbors: Row) -> None:
        self._averager = self._averager or self._make_averager()
        averager, codec, step = self._averager, codec_of(self.plan), self.steps
        if self._mixing is None:
            averager.gather()
        crossing = self._mixing = self._mixing or self._wait_by(f"step {step} (dpsgd)")
        crossing.begin()
        key = "averaging with neighbors"
        try:
            with self._waiting():
                crossing.run(key, lambda: averager.average(neighbors, codec, step=step))
        except Timeout:
            raise
        except BaseException:  # Which is not waited for any more: it is tried anew.
            self._mixing, self._updated_at = None, -1
            self._own_update.forget()
            raise
        self._mixing = None
        self._exchanges += 1
        self._mixed_at = self.steps

    def settle_mixing(self) -> None:
        """Waits on for the neighbors of a step."""
        if self.is_mixing:
            self._mix(row(self.method, self._group, self.steps)[0])
            self._own_update.take_back()
            self._own_update.add()  # Its update, if there is one yet, finds the average.

    def _average(self, whole: bool = False) -> None:
        """``whole``: nothing is left out by a codec. So too where a part ends."""
        codec = None if self.steps + 1 >= self.plan.until else codec_of(self.plan)
        self._averager = self._averager or self._make_averager()
        self._averagings += 1
        waiting: Waiting = contextlib.nullcontext if self._is_between else self._waiting
        # How far apart models are costs a copy of them: looked at ever more rarely.
        if self._averagings & (self._averagings - 1) == 0:
            distance = self._averager.average_and_measure(codec, whole, self.steps, waiting)
            self.step_stats.distance = distance
        else:
            self._averager.average(None, codec, whole, self.steps, waiting)
        self._exchanges += 1
        self._is_apart = self.is_parted = False

    def _make_averager(self) -> Averager:
        return Averager(self.named, self._prefix, self._group)
