"""Where an optimizer stands, and the exchange of its method there. Internal.

The core says for each step what travels: the gradients before the update, the parameters after it,
or nothing. Nothing here knows a method by name.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from covey.errors import InvalidArgument, Unsupported
from covey.group import Group, world
from covey.method import FOREVER, GRADIENTS, NOTHING, Plan, plan
from covey.names import next_prefix
from covey.step_stats import StepStats
from covey.torch.equal_start import EqualStart
from covey.torch.layout import Named
from covey.trainer_handle import Position

_Made = Tuple[torch.nn.Parameter, torch.Size, torch.dtype, torch.device, str]


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
        is_parted: the ranks' models may differ since the last average of all.
        is_viewed: the parameters are not this rank's own just now (``view.py``).
        is_mixed: ranks of other frameworks train too (``mixed.py``).
        adds_updates: those of all ranks, by Adasum, and not their gradients.
        start: compares what the ranks begin with; None: there is nothing.
        is_idle: why it does not train now, in an elastic job; "": it does.
    """

    def __init__(self, method: str, group: Group) -> None:
        """``method`` is the full text. Without another rank nothing is exchanged."""
        self.method = method
        self.version = 0
        self.steps = 0
        self.plan = Plan(NOTHING, False, FOREVER)
        self._planned = -1  # The version whose plan that is; -1: another one's.
        # A rank outside of its group trains alone, and clips as all do.
        self._plan_group = group.id if group.included() else world.id
        self.clip_norm = plan(method, self._plan_group, 0).clip_norm
        self.unfit = ""
        self.step_stats = StepStats(method, group.ranks)
        self._group = group
        self.named: Sequence[Named] = ()
        self._as_made: List[_Made] = []
        self._names: Dict[str, str] = {}
        self.is_shared = False
        self.start: Optional[EqualStart] = None
        self.is_parted = False
        self.is_viewed = False
        self.is_mixed = False
        self.adds_updates = False
        self.is_idle = ""

    def begin_anew(self, steps: int) -> None:
        """In another runtime, with other ranks, all of which have equal parameters after so many
        steps."""
        group = self._group
        self._plan_group = group.id if group.included() else world.id
        self.step_stats = StepStats(self.method, group.ranks)
        self._names, self.unfit, self.is_idle = {}, "", ""
        self.is_parted = self.is_mixed = False
        self._planned = -1
        self.move(steps)

    def share(self, named: Sequence[Named]) -> None:
        """From now on the parameters ``named`` are trained together with the other members. If
        there are none, nothing is exchanged."""
        self.is_shared = bool(named)
        self.named = named
        self._as_made = [(it, it.shape, it.dtype, it.device, name) for name, it in named]
        self.plan = Plan(NOTHING, False, FOREVER)
        self._planned = -1
        self.move(self.steps)

    def name_of(self, word: str) -> str:
        """The same each time: what is opened anew has the name that it had."""
        if word not in self._names:
            self._names[word] = next_prefix(word, self._group.ranks)
        return self._names[word]

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
        yield

    def refuse_mixed(self, what: str) -> None:
        """Raises Unsupported (a ValueError) where ranks of other frameworks train too."""
        if self.is_mixed:
            raise Unsupported(f"{what}: the ranks of this training have several frameworks")

    @property
    def reduces(self) -> bool:
        """Whether the gradients of this step are reduced by all ranks together."""
        if self.is_mixed or self.adds_updates:
            return False
        return self.plan.payload == GRADIENTS and not self.plan.in_rounds

    @property
    def trains_alone(self) -> bool:
        """Whether it is part of local steps, all of which end with an average of models."""
        return self.plan.payload != GRADIENTS and not self.plan.in_rounds

    def move(self, steps: int) -> None:
        """So many steps, and updates, were done; the next step is step ``steps``."""
        self.version = self.steps = steps
        self._plan_by(steps)

    def follow(self, position: Position) -> None:
        """The trainer is there. Within a call the next step is not known."""
        if not position.is_open:
            self._plan_by(position.planned)
        self.version, self.steps = position.version, position.step
        self.is_parted = bool(position.may_differ)

    def _plan_by(self, version: int) -> None:
        if version == self._planned:
            return
        self._planned = version
        found = plan(self.method, self._plan_group, version)
        self.clip_norm = None if self.is_mixed else found.clip_norm  # The core does it then.
        if self.is_shared:
            self.plan = found

    def position(self) -> Dict[str, Any]:
        return {"steps": self.steps, "version": self.version, "parted": self.is_parted}

    def take_up(self, position: Dict[str, Any]) -> None:
        self.move(int(position["steps"]))
        self.version, self.is_parted = int(position["version"]), bool(position["parted"])

    @property
    def begin(self) -> int:
        """The step with which a trainer begins here. Where versions are counted, a rank that has
        done fewer steps is where all are."""
        return self.version if self.plan.in_versions else self.steps

    def check_unchanged(self) -> None:
        """Parameters are what they were when the optimizer was made: their places in memory that
        ranks share are made for that. Some 0.15 us per parameter.

        Raises:
            InvalidArgument: (a ValueError) ``half()``, ``double()``, ``to(device)`` or the like has
                changed one; it names the first.
        """
        for parameter, shape, dtype, device, name in self._as_made:
            if (
                parameter.dtype is not dtype
                or parameter.shape != shape
                or parameter.device != device
            ):
                rebuild = "call optimizer.rebuild_buckets()"
                again = "make it again" if self.plan.in_rounds else rebuild
                raise InvalidArgument(
                    f"{name} is {_words(parameter.shape, parameter.dtype, parameter.device)}, and "
                    f"was {_words(shape, dtype, device)} when the optimizer was made: change a "
                    f"model before that, or {again} afterwards, on every rank"
                )

    def begin_step(self) -> None:
        """``step()`` begins.

        Raises:
            InvalidArgument: (a ValueError) a parameter has changed, or ``is_idle``.
        """
        if self.is_idle:
            raise InvalidArgument(self.is_idle)
        self.check_unchanged()
        self.step_stats.begin_step()
        if self.start is not None:
            self.start.step(self.steps == self.version == 0)
        # The core counts the arrivals of all other plans.
        if self.is_shared and self.plan.payload == GRADIENTS and not self.plan.in_rounds:
            self.step_stats.arrived(self.steps, self._group.size())

    def have_met(self) -> None:
        """All have ended a finish() together: they are equal."""
        self.step_stats.finished()
        if self.start is not None:
            self.start.look()


def _words(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> str:
    return f"{str(dtype).partition('.')[2]} {list(shape)} on {device}"
