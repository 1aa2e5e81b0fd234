"""The training of one optimizer by the core's trainer. Internal.

The core does it all but its actions, which torch does: see ``core/api/covey_trainer.h``.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from typing import Any, Callable, List, Mapping, Optional, Sequence

import torch

from covey import _native
from covey.errors import Aborted, CoveyError, InvalidArgument, NotFinite, Timeout, Unsupported
from covey.group import Group
from covey.method import DELTA, GRADIENTS, MODEL, parsed, plans
from covey.notice import warn
from covey.reduce_op import Average, Sum, core_code
from covey.state import state
from covey.torch.ending import Flushed, dropped, say_dropped
from covey.torch.layout import Named, plan_whole
from covey.torch.tensors import CODES
from covey.torch.trainer.actions import TrainerActions
from covey.torch.trainer.ahead import Ahead
from covey.torch.trainer.hypers import read_hypers
from covey.torch.trainer.model_exchange import ModelExchange, relative_distance
from covey.trainer_handle import IN_FINISH, IN_STEP, LOST

_KEEP_BYTES = 64
_UNKNOWN = -1  # How many arrays an optimizer will keep.


class CoreTrainer(TrainerActions):
    """The exchanges of one optimizer, by its whole method."""

    def __init__(self, optimizer: Any, named: Sequence[Named], group: Group) -> None:
        """Every member of the group makes one, with the same parameters and options. Before its
        first step each calls ``begin``, by itself.

        Raises:
            InvalidArgument: (a ValueError) two parameters in the same memory.
            Mismatch, Exhausted: on every rank: the ranks differ; a rank has no room.
        """
        progress = optimizer._covey_progress
        parts = [plan for _, plan in plans(progress.method, group.id)]
        whole = plan_whole(named)
        if not any(plan.in_rounds for plan in parts):  # Contributions of rounds have flags.
            whole = [plan._replace(length=plan.flags_offset) for plan in whole]
        super().__init__(optimizer, whole)
        self._group = group
        self._counts: Mapping[str, Any] = {}
        self._is_left = False  # A step that has taken its gradients was interrupted.
        self._is_due = False  # A finish(), since the last step.
        self._is_shown = False  # The model, to others, where they look at it as it is now.
        self._keep = _native.arena_alloc(_KEEP_BYTES)
        if any(plan.payload != GRADIENTS for plan in parts):
            mine = weakref.proxy(self)
            self._models = ModelExchange(mine, self._optimizer, named, self.plans, self._keep)
        has_versions = any(plan.in_versions and plan.payload == GRADIENTS for plan in parts)
        self._num_hypers = len(read_hypers(optimizer)) if has_versions else 0
        op = optimizer._covey_options["op"]
        self._trainer = _native.trainer_open(
            group.id,
            progress.name_of("trainer"),
            parsed(progress.method),
            core_code(op if op in (Average, Sum) else Average),
            progress.begin,
            tuple(CODES[plan.dtype] for plan in self.plans),
            tuple(plan.length for plan in self.plans),
            self._num_hypers,
            _UNKNOWN,
            0,
            True,
            True,
            True,
            True,
            all(plan.device.type == "cpu" for plan in self.plans),
            False,
        )
        if has_versions:
            state.add_flush(self)
        state.placed.add(self)
        here = weakref.ref(self)  # The statistics outlive it.
        progress.step_stats.refresh = lambda: _refresh(here())

    def begin(self) -> None:
        """The next step is the first: that of ``progress``."""
        progress = self._progress
        here = self.position._replace(
            version=progress.version, step=progress.steps, may_differ=int(progress.is_parted)
        )
        self.restore(here)
        self._enter()
        if self._versions is not None:
            self._versions.ahead.settle()
            state.add_helper(self)

    @property
    def can_move(self) -> bool:
        """Whether ``move_to`` is all there is to do, to be where other steps were done: there are
        no versions, by which rounds count."""
        every = [plan for _, plan in plans(self._progress.method, self._group.id)]
        is_one = len(every) == 1 and not self._progress.plan.in_versions
        return is_one or not any(plan.in_rounds for plan in every)

    def move_to(self, steps: int) -> None:
        self._go_on()
        self.restore(self.position._replace(version=steps, step=steps))
        self._enter()

    def close(self) -> None:
        """This rank leaves; the parameters keep their values."""
        if not self._trainer:
            return
        self.count()
        trainer, self._trainer = self._trainer, 0
        self._close_versions()
        if self._models is not None:
            self._models.close()
        self._models = None
        _native.trainer_close(trainer)

    def move_out(self) -> None:
        """The memory of ranks on one host stays mapped when the runtime ends; between hosts that of
        rounds does not."""
        place = state.place
        if not self._trainer or place is None or place.local_size == place.size:
            return
        for tensors in (self._versions, self._models):
            if tensors is not None:
                tensors.vacate()

    def _close_versions(self) -> None:
        versions, self._versions = self._versions, None
        if versions is not None:
            versions.close()

    def __del__(self) -> None:
        # At the end of the process torch cannot give gradients new memory any more.
        if getattr(self, "_trainer", 0) and not sys.is_finalizing():
            self.close()

    @property
    def ahead(self) -> Optional[Ahead]:
        """When a pass begins, where that matters."""
        return None if self._versions is None else self._versions.ahead

    def synchronize(self) -> None:
        """Has no place where a step may apply several versions of gradients, or none. Else they are
        this rank's own: there is nothing to wait for."""
        if self._versions is not None:
            raise InvalidArgument(
                "optimizer.synchronize() cannot be used with a method that does not wait for all "
                "ranks: a step applies as many versions as were made meanwhile; call "
                "optimizer.step() alone. To clip what was averaged write clip_norm=1.0, of the "
                "method or of DistributedOptimizer; before_update(function) sees it"
            )

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        self._is_due = True
        if self._is_open == IN_FINISH and not self._progress.plan.in_rounds:
            self._finish(True)
        if self._is_left:  # Its gradients were taken: those of this call are for another step.
            self._go_on()
        is_new = self._is_open != IN_STEP
        if is_new or self._versions is not None or not (self._has_taken or self._is_evaluated):
            self._closure, self._loss, self._is_evaluated = closure, None, False
        unfit, hypers = None, ()
        if self._versions is not None or self._progress.plan.payload == DELTA:
            state.add_helper(self)
        if self._versions is not None:
            if closure is not None:
                with torch.enable_grad():
                    self._loss = closure()
            self._versions.ahead.pause()
            unfit, hypers = self._versions.begin()
            if len(hypers) != self._num_hypers:
                raise InvalidArgument(
                    f"the parameter groups hold {len(hypers)} numbers that travel with gradients, "
                    f"and {self._num_hypers} at first: call rebuild_buckets() on all ranks"
                )
        _native.trainer_submit(self._trainer, unfit, hypers or (0.0,) * self._num_hypers)
        self._has_taken = self._has_taken and not is_new
        try:
            self._run()
        except NotFinite:
            if unfit is None:
                raise  # Else the step is done, without these gradients.
        except Timeout:
            raise
        except BaseException:
            self._is_left = self._has_taken and self._is_open == IN_STEP
            raise
        self._has_taken = False
        self._settle_pass()
        return self._loss

    def _settle_pass(self) -> None:
        """From now on nothing but a pass depends on the parameters."""
        if self._versions is not None:
            self._versions.ahead.settle()

    def _go_on(self) -> None:
        """With a step that has not come to its end: there may be new gradients already."""
        self._is_left = False
        if self._is_open != IN_STEP:
            return
        parameters = [parameter for plan in self.plans for parameter in plan.parameters]
        # Not where they lie: that may be a version's memory, which is read elsewhere then.
        gradients = [None if it.grad is None else it.grad.clone() for it in parameters]
        hypers = (0.0,) * self._num_hypers if self._versions is None else self._versions.hypers
        _native.trainer_submit(self._trainer, None, hypers)
        with contextlib.suppress(NotFinite):
            self._run()
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient
        self._has_taken = False

    def finish(self, strict: bool = True) -> None:
        """Makes the parameters the model of all, with the same bits on each rank.

        Without ``strict`` it goes on without ranks that are missing for ``max_wait``; by a method
        in which there is no mean without all, this rank keeps its own model then.

        Raises:
            Timeout: after ``max_wait``; the message names the ranks that are missing. Called again
                it waits on.
            Aborted: with ``strict``, in rounds of models: the mean is of those that live.
        """
        progress, known = self._progress, dropped()
        self._go_on()
        ahead, models = self.ahead, self._models
        is_measured = models is not None and progress.plan.in_rounds and ahead is None
        if ahead is not None:
            ahead.pause()
        if is_measured:
            models.gather()
            before = [numbers.clone() for numbers in models.numbers]
        try:
            self._finish(strict)
        except (Timeout, Aborted) as missing:
            if strict or not progress.plan.ends_alone:
                raise
            # There is no mean of those that are there.
            warn(f"{missing}; finish() ends without a mean: this rank keeps its own model")
        finally:
            say_dropped(known)
        self._is_due = False
        self._settle_pass()
        if is_measured and models.is_here:
            progress.step_stats.distance = relative_distance(before, models.numbers)
        if strict and progress.plan.payload == MODEL and progress.plan.in_versions:
            self._refuse_losses()

    def _finish(self, strict: bool) -> None:
        _native.trainer_finish(self._trainer, strict)
        self._run()

    def _refuse_losses(self) -> None:
        lost: List[int] = []
        with contextlib.suppress(Unsupported):  # Ranks that share no memory cannot tell.
            lost = [rank for rank in self._group.ranks if self.look(rank).state == LOST]
        if lost:
            names = ", ".join(map(str, lost))
            raise Aborted(f"rank {names} has died: finish() was of the others", lost[0])

    def catch_up(self) -> None:
        """Between two steps, before a pass: applies what others have made."""
        versions, position = self._versions, self.position
        assert versions is not None
        if position.catches_up and versions.begin_pass():
            return  # The script adds to gradients: nothing is applied before its step.
        try:
            _native.trainer_begin_pass(self._trainer)
            self._run()
        finally:
            if self.position.begin != position.begin:
                versions.end_pass()

    def help(self) -> None:
        """While its thread waits for whatever else: a state for one that has fallen behind."""
        if not self._trainer:
            return
        # The optimizer may be gone: the caller's list has kept this alone.
        with contextlib.suppress(CoveyError, ReferenceError):
            _native.trainer_serve(self._trainer)
            self._run()

    def flush(self) -> None:
        """For the end of a script that has not called ``finish()``."""
        if not self._is_due or self._versions is None:
            return
        before, failure = self.position.version, ""
        is_first = self._group.rank() == 0
        flushed = Flushed(self._progress.named if is_first else ())
        try:
            self._go_on()
            self._finish(True)
        except CoveyError as error:
            failure = str(error)
        self._is_due = False
        if is_first:
            flushed.tell(self.position.version - before, failure)

    def gather_in(self) -> None:
        """Nothing that this rank has learnt is with others, or in flight, afterwards. In pairs the
        parameters are all that is its own, wherever others had a part of it.

        Raises:
            Timeout: as ``finish``.
        """
        self._go_on()
        _native.trainer_settle(self._trainer)
        self._run()

    def _run(self) -> None:
        """Does what the core asks for until the step, or ``finish``, is over."""
        try:
            self._perform()
        except BaseException:
            with contextlib.suppress(CoveyError):
                self._enter()
            raise
        self._enter()

    def _enter(self) -> None:
        """Makes ready for the next step, or pass."""
        progress, versions, models = self._progress, self._versions, self._models
        if versions is not None:
            versions.end()
        position = self.position
        progress.follow(position)
        self._is_open = position.is_open
        if position.is_open:
            if models is not None:
                models.take_back()
            return
        plan = progress.plan
        if plan.in_versions and plan.payload == GRADIENTS:
            self._open_versions().open(self.spans(of_model=False))
        else:
            self._close_versions()
        if plan.payload != GRADIENTS:
            models.settle(progress.trains_alone)
        elif models is not None:
            models.is_here = False  # The steps that come exchange no model.
        # In rounds others see published models, else the model where it lies.
        is_seen = plan.payload != GRADIENTS and (plan.in_pairs or not plan.in_rounds)
        if not is_seen:
            self._is_shown = False
        elif not self._is_shown:
            self._is_shown = True
            _native.trainer_begin_pass(self._trainer)
            self._perform()

    def count(self) -> None:
        """Tells the statistics of the steps what was exchanged."""
        counts = self.counts() if self._trainer else {}
        if counts:  # Else the runtime has ended.
            stats = self._progress.step_stats
            stats.applied(counts, self._counts)
            stats.came(_native.trainer_arrivals(self._trainer))
            self._counts = counts


def _refresh(trainer: Optional[CoreTrainer]) -> None:
    if trainer is not None:
        trainer.count()
