"""The exchanges of one optimizer by the core's trainer. Internal.

The core does it all but the updates: see ``core/api/covey_trainer.h``.
"""

from __future__ import annotations

import contextlib
import sys
import time
import weakref
from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple

import torch

from covey import _native
from covey.errors import CoveyError, InvalidArgument, NotFinite, Timeout
from covey.group import Group
from covey.method import GRADIENTS, MODEL, parsed
from covey.reduce_op import core_code
from covey.state import state
from covey.torch.ahead import Ahead
from covey.torch.averager import refuse_shared_memory, relative_distance
from covey.torch.clip import clipped_step
from covey.torch.ending import dropped, say_dropped
from covey.torch.flushed import Flushed
from covey.torch.hypers import Hypers
from covey.torch.layout import Named, plan_whole
from covey.torch.mirror import wait_for
from covey.torch.model_place import ModelPlace
from covey.torch.tensors import CODES
from covey.torch.trainer_handle import Parts, TrainerHandle
from covey.torch.version_gradients import VersionGradients

# covey_verb of core/api/covey_trainer.h.
_COLLECT_GRADIENTS, _COLLECT_MODEL, _UPDATE, _LOAD_MODEL, _DONE, _PACK, _UNPACK = range(1, 8)
_KEEP_BYTES = 64


class CoreTrainer(TrainerHandle):
    """The exchanges of one optimizer in parts of its training."""

    def __init__(self, optimizer: Any, named: Sequence[Named], group: Group, parts: Parts) -> None:
        """Every member of the group makes one, with the same parameters and options. Before its
        first step each calls ``begin``, by itself.

        Raises:
            InvalidArgument: (a ValueError) two parameters in the same memory.
            Mismatch, Exhausted: on every rank: the ranks differ; a rank has no room.
        """
        super().__init__(plan_whole(named))
        self._optimizer = optimizer
        self._group = group
        self._part = parts.begin
        self._closure: Optional[Callable[[], Any]] = None
        self._loss: Any = None
        self._counts: Mapping[str, Any] = {}
        self._came = 0.0  # To the last exchange.
        self._is_offered = False  # The model, in it.
        self._loaded: Tuple[int, ...] = ()  # Where it was loaded from since.
        self._has_turned = False  # The next part has begun.
        self._is_open = False  # A step that has not come to its end,
        self._has_taken = False  # its gradients, which are in an update or published,
        self._is_left = False  # and that was interrupted.
        self._is_due = False  # A finish(), since the last step.
        self._keep = _native.arena_alloc(_KEEP_BYTES)
        self._versions: Optional[VersionGradients] = None
        self._places: List[ModelPlace] = []
        if parts.has_models:
            refuse_shared_memory(named)
            self._places = [ModelPlace(plan, self._keep) for plan in self.plans]
        progress, options = optimizer._covey_progress, optimizer._covey_options
        asked = (
            group.id,
            progress.name_of(parts.word),
            parsed(parts.method),
            core_code(options["op"]),
            parts.begin,
            tuple(CODES[plan.dtype] for plan in self.plans),
            tuple(plan.length for plan in self.plans),
            len(Hypers(optimizer).read()) if parts.has_versions else 0,
            0,
            parts.end,
            True,
            True,
        )
        self._num_hypers = asked[7]
        self._trainer = progress.together(asked[1], lambda: _native.trainer_open(*asked))
        if parts.has_versions:
            self._versions = VersionGradients(self, optimizer, self.plans, self._keep)
            state.add_flush(self)
        here = weakref.ref(self)  # The statistics outlive it.
        progress.step_stats.refresh = lambda: _refresh(here())

    def begin(self) -> None:
        """The next step is the first."""
        if self._versions is not None:
            self._versions.open(self.spans(of_model=False))
            self._versions.ahead.settle()
            state.add_helper(self)
            return
        self._gather()
        _native.trainer_begin_pass(self._trainer)
        self._run()

    def close(self) -> None:
        """This rank leaves; the parameters keep their values."""
        if not self._trainer:
            return
        self.count()
        trainer, self._trainer = self._trainer, 0
        self._close_versions()
        wait_for(place.mirror for place in self._places)
        for place in self._places:
            place.release()
        self._places = []
        _native.trainer_close(trainer)

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
        """A step: updates, and the exchanges for which it is time."""
        self._is_due = True
        if self._is_left:  # Its gradients were taken: those of this call are for another step.
            self._go_on()
        self._closure, self._loss = closure, None
        unfit, hypers = None, ()
        if self._versions is not None:
            state.add_helper(self)
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
        _native.trainer_submit(self._trainer, unfit, hypers)
        self._has_taken, self._is_open = self._has_taken and self._is_open, True
        try:
            self._run()
        except NotFinite:
            if unfit is None:
                raise
            self._note()  # The step is done, without these gradients.
        except Timeout:
            raise
        except BaseException:
            self._is_left = self._has_taken
            raise
        self._is_open = self._has_taken = False
        self._settle_pass()
        return self._loss

    def _settle_pass(self) -> None:
        """From now on nothing but a pass depends on the parameters."""
        if self._versions is not None:
            self._versions.ahead.settle()

    def _go_on(self) -> None:
        """With a step that was left, if its gradients were taken: there may be new ones already."""
        if not (self._is_open and self._has_taken):
            return
        slots = [slot for plan in self.plans for slot in plan.slots]
        # Not where they lie: that may be a version's memory, which is read elsewhere then.
        gradients = [None if s.parameter.grad is None else s.parameter.grad.clone() for s in slots]
        hypers = () if self._versions is None else self._versions.hypers
        _native.trainer_submit(self._trainer, None, hypers)
        with contextlib.suppress(NotFinite):
            self._run()
        for slot, gradient in zip(slots, gradients):
            slot.parameter.grad = gradient
        self._is_open = self._is_left = self._has_taken = False

    def finish(self, strict: bool = True) -> None:
        """Makes the parameters the model of all, with the same bits on each rank.

        Without ``strict`` it goes on without ranks that are missing for ``max_wait``.

        Raises:
            Timeout: after ``max_wait``; the message names the ranks that are missing. Called again
                it waits on.
            Aborted: with ``strict``, in rounds of models: the mean is of those that live.
        """
        progress, known = self._optimizer._covey_progress, dropped()
        self._go_on()
        ahead = self.ahead
        if ahead is not None:
            ahead.pause()
        else:
            self._gather()
        before = [place.numbers.clone() for place in self._places if ahead is None]
        _native.trainer_finish(self._trainer, strict)
        try:
            self._run(is_step=False)
        finally:
            say_dropped(known)
        self._is_due = False
        self._settle_pass()
        if ahead is None:
            after = [place.numbers for place in self._places]
            progress.step_stats.distance = relative_distance(before, after)
        if strict and progress.plan.payload == MODEL and progress.plan.in_versions:
            progress.board.refuse_losses()

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
        with contextlib.suppress(CoveyError):
            _native.trainer_serve(self._trainer)
            self._run()

    def flush(self) -> None:
        """For the end of a script that has not called ``finish()``."""
        if not self._is_due or self._versions is None:
            return
        before, failure = self.position.version, ""
        is_first = self._group.rank() == 0
        flushed = Flushed(self._optimizer._covey_progress.named if is_first else ())
        try:
            self._go_on()
            _native.trainer_finish(self._trainer, True)
            self._run()
        except CoveyError as error:
            failure = str(error)
        self._is_due = False
        if is_first:
            flushed.tell(self.position.version - before, failure)

    def settle(self) -> None:
        """Makes the parameters all that is this rank's own, wherever others had a part of it.

        Raises:
            Timeout: as ``finish``.
        """
        _native.trainer_settle(self._trainer)
        self._run()

    def takes_turn(self) -> bool:
        """Whether it has gone on with the next of its parts, since this was asked."""
        has_turned, self._has_turned = self._has_turned, False
        return has_turned

    def _run(self, is_step: bool = True) -> None:
        """Does what the core asks for until the step, or ``finish``, is over."""
        try:
            while True:
                action = _native.trainer_next(self._trainer, self._num_hypers)
                if action[0] == _DONE:
                    break
                try:
                    self._do(*action)
                except BaseException:
                    _native.trainer_ack(self._trainer, action[1], False)
                    raise
                self._has_taken |= action[0] in (_UPDATE, _COLLECT_GRADIENTS)
                _native.trainer_ack(self._trainer, action[1], True)
        except BaseException:
            with contextlib.suppress(CoveyError):
                self._take_back()
            raise
        self._take_back()
        self._note(is_step)

    def _do(
        self, verb: int, _: int, hypers: Tuple[float, ...], image: int, length: int, own: int
    ) -> None:
        progress, versions = self._optimizer._covey_progress, self._versions
        if verb == _UPDATE and (own or versions is None):
            self._loss = clipped_step(self._optimizer, self._closure)
            progress.turn(progress.version + 1)
        elif verb == _COLLECT_MODEL:
            self._came, self._is_offered, self._loaded = time.monotonic(), True, ()
            self._offer()
        elif verb == _LOAD_MODEL:
            self._loaded = self._open()
            for place in self._places:
                place.load()
            progress.step_stats.exchanged()
        elif versions is None:
            raise AssertionError(f"an action that was not expected: {verb}")
        elif verb == _COLLECT_GRADIENTS:
            self._came = time.monotonic()
            versions.open(self.spans(of_model=False))
            versions.collect()
        elif verb == _UPDATE:
            version = self.position.version  # There may have been empty ones, or a snapshot.
            progress.turn(version)
            versions.apply(self.spans(of_model=False), hypers)
            progress.turn(version + 1)
            progress.step_stats.exchanged()
        elif verb == _PACK:
            _, *parts = kept = versions.pack()
            _native.trainer_give(self._trainer, *parts)
            del kept
        elif verb == _UNPACK:
            versions.unpack(image, length)

    def _take_back(self) -> None:
        """No memory that the core reads is trained on."""
        if self._is_offered and self.spans(of_model=True) != self._loaded:
            self._gather()
        self._is_offered = False
        if self._versions is None:
            return
        self._versions.end()
        if not self._places or self.position.payload == GRADIENTS:
            self._versions.open(self.spans(of_model=False))
        else:
            self._close_versions()
            self._has_turned, self._part = True, self._optimizer._covey_progress.plan.until
            self._gather()

    def _note(self, is_step: bool = True) -> None:
        """A step, or whatever has exchanged something, is over."""
        progress = self._optimizer._covey_progress
        came, self._came = self._came, 0.0
        if progress.plan.in_pairs:
            return
        position = self.position
        if came and is_step:
            needed = self._group.size() if position.of_all else progress.plan.needed
            key = ((self._part + 1) << 32) + position.published  # Apart from other parts.
            progress.step_stats.arrived(key, needed, came)
        if self._versions is not None:
            progress.turn(position.version)
        elif came and progress.plan.in_versions:
            progress.turn(position.begin + position.own_steps)
            progress.is_parted = bool(position.may_differ)

    def _open(self) -> Tuple[int, ...]:
        addresses = self.spans(of_model=True)
        for place, address in zip(self._places, addresses):
            place.open(address)
        return addresses

    @torch.no_grad()
    def _gather(self) -> None:
        self._open()
        for place in self._places:
            place.gather()

    @torch.no_grad()
    def _offer(self) -> None:
        self._open()
        for place in self._places:
            place.offer()
        wait_for(place.mirror for place in self._places)

    def count(self) -> None:
        """Tells the statistics of the steps what was exchanged."""
        counts = self.counts() if self._trainer else {}
        if counts:  # Else the runtime has ended.
            self._optimizer._covey_progress.step_stats.applied(counts, self._counts)
            self._counts = counts


def _refresh(trainer: Optional[CoreTrainer]) -> None:
    if trainer is not None:
        trainer.count()
