"""An optimizer whose steps wait for enough ranks instead of all. Internal.

``step()`` publishes this rank's gradients, waits until the version of its step has been made, and
then applies every version it has not applied yet, in order: gradients and hyper-parameters from the
version's record. So all ranks do the same updates, and their parameters are equal at equal version,
whichever rank was late. Versions are made by the core while ranks wait: see
``core/partial/README.md``. A rank that skips ahead also applies them before it begins a pass: see
``ahead.py``.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import Any, Callable, Optional, Sequence, Tuple

import torch

from covey import _native
from covey.errors import CoveyError, Exhausted, InvalidArgument, Timeout, Unsupported
from covey.method import parsed
from covey.notice import warn
from covey.state import state
from covey.torch.afar import spans_of
from covey.torch.ahead import Ahead
from covey.torch.beat import Beat
from covey.torch.bucket import Reduction
from covey.torch.clip import prepare
from covey.torch.ending import LEFT, Ending, finish_rounds, say_left
from covey.torch.flushed import Flushed
from covey.torch.hypers import Hypers
from covey.torch.layout import BucketPlan
from covey.torch.look import is_on, unfit
from covey.torch.options import check_rounds
from covey.torch.overdue import Overdue
from covey.torch.own import take_scale
from covey.torch.results import Results
from covey.torch.snapshot import State, addresses_of
from covey.torch.tensors import CODES
from covey.torch.update import update
from covey.torch.version_course import VersionCourse

DONE, _ASKED = 0, 1  # covey_round_event; the other is that there is something to apply.
_FINISH, MEET = -1, -2
_KEEP_BYTES = 64
_OUTCOME = "it has kept up for 3 steps; its gradients count when it publishes them"


class RoundTrainer:
    """The rounds of one optimizer."""

    def __init__(
        self,
        optimizer: Any,
        plans: Sequence[BucketPlan],
        reduction: Reduction,
    ) -> None:
        """Every member of the group makes one, with the same parameters and options.

        Raises:
            Unsupported: (a ValueError) an option that this method does not go with.
            Mismatch, Exhausted: on every rank: the ranks differ; a rank has no room.
        """
        options = optimizer._covey_options
        check_rounds(optimizer, options)
        self._optimizer = optimizer
        self._group = reduction.group
        self._densify = options["sparse_as_dense"]
        self._hypers = Hypers(optimizer)
        self._state = State(optimizer, options["model"])
        self.applied = 0
        self.recovered = 0  # How often this rank went on from another one's snapshot.
        self.ending = Ending()
        self._has_given = True  # A version, since the last step was published.
        self._is_whole = True  # Its state is that of the version ``applied``.
        self._thread = threading.get_ident()  # That does its steps.
        state.add_flush(self)
        self._is_late = False  # Its last step was for a version that had ended.
        self.beat = Beat()
        self._skips = optimizer._covey_progress.plan.skips_ahead
        progress = optimizer._covey_progress
        self._step_stats = progress.step_stats
        self.overdue = Overdue(self._group, self._step_stats, _OUTCOME)
        self._course = VersionCourse(progress, self._group.size())
        self._is_too_late = False  # The last step was for a version after the end.
        self._steps: Sequence[Tuple[int, int]] = ()  # By member: in the last version applied.
        self._given = -1  # The last version of which it has given a snapshot.
        asked = (
            self._group.id,
            progress.name_of("rounds"),
            parsed(progress.method),
            progress.steps,
            reduction.op_code,
            len(self._hypers.read()),
            tuple(CODES[plan.dtype] for plan in plans),
            tuple(plan.length for plan in plans),
        )
        self._rounds = progress.together(asked[1], lambda: _native.rounds_open(*asked))
        self.ahead = Ahead(self, options["model"])
        keep = _native.arena_alloc(_KEEP_BYTES)
        self._spans = spans_of(plans, keep)
        self.parameters = [parameter for span in self._spans for parameter in span.parameters]
        self._results = Results(self._rounds, self._spans)
        self._open()
        self.ahead.settle()
        state.add_helper(self)  # Now that it is whole.

    def close(self) -> None:
        """This rank leaves."""
        rounds, self._rounds = self._rounds, 0
        if rounds:
            if hasattr(self, "ahead"):  # Else it has failed before it was made, or its spans were.
                self.ahead.close()
            for span in getattr(self, "_spans", ()):
                span.close()
            _native.rounds_close(rounds)

    def __del__(self) -> None:
        # At the end of the process torch cannot give gradients new memory any more.
        if getattr(self, "_rounds", 0) and not sys.is_finalizing():
            self.close()

    def synchronize(self) -> None:
        """It has no place here: a step may apply several versions, or none."""
        raise InvalidArgument(
            "optimizer.synchronize() cannot be used with a method that does not wait for all "
            "ranks: a step applies as many versions as were made meanwhile; call optimizer.step() "
            "alone. To clip what was averaged write clip_norm=1.0, of the method or of "
            "DistributedOptimizer; before_update(function) sees it"
        )

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """One step of the optimizer, or several when this rank was late. See the module."""
        loss = None
        self._thread = threading.get_ident()
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.ahead.pause()
        if self.is_over and self._optimizer._covey_next is not None:
            self._is_too_late = True  # It has seen so at the begin of the pass.
            return loss
        self.beat.end()
        scale, is_whole = take_scale(self._optimizer)
        why = self._find_unfit() if is_whole and is_on() else ""
        self._optimizer._covey_progress.unfit = why
        self.ending.is_due, self.ending.is_to_meet = True, False
        has_some = is_whole and not why
        if has_some:
            self._write(scale)
        self._ready()
        # With nothing it has come all the same, so that no rank waits for it.
        step = _native.rounds_publish(self._rounds, self._hypers.read() if has_some else None)
        self._open()
        self._has_given = False
        self._is_late = step <= _native.rounds_executed(self._rounds)
        try:
            self._step_stats.arrived(self._course.key(step), self._course.needed(step))
            self._wait(step)
            self._see(0 if self._is_late or self.ending.is_left else step)
            self._apply_all()
        finally:
            if not self._has_given:
                for span in self._spans:
                    span.leave()
        if _native.rounds_asked(self._rounds, self.applied):
            self._give()
        self.ahead.settle()
        return loss

    def leaves_out(self) -> bool:
        """Whether this rank's next step is the one after the last version it has applied."""
        return bool(self._rounds) and (self._skips or self.overdue.is_own())

    def is_behind(self) -> bool:
        """Whether there are versions that it has not applied, or its last step was late."""
        return self._is_late or _native.rounds_executed(self._rounds) > self.applied

    @property
    def is_over(self) -> bool:
        """Whether others go on from its last version, and it has applied that."""
        return self._course.is_over(self.applied)

    @property
    def misses(self) -> bool:
        """Whether a rank was overdue in the last version that was applied."""
        return any(self.overdue.missing)

    def part(self) -> bool:
        """This rank goes on elsewhere, and waits for no other.

        Gradients become what no version will have; False: nothing is left.
        """
        self.ahead.close()
        self.ending.is_due = False
        addresses = _native.rounds_withdraw(self._rounds, len(self._spans))
        self.leave_state()
        if self.offers_state:
            with contextlib.suppress(Timeout):  # No rank that ends waits for this one.
                _native.rounds_finish(self._rounds, 0.0)
        for span in self._spans:
            span.close()
        for span, address in zip(self._spans, addresses):
            span.take_back(address)
        return bool(addresses) or self._is_too_late

    @property
    def offers_state(self) -> bool:
        """Whether a rank may need it that was overdue, or has not come to the last version because
        it was in finish(), and this one is to offer it: one of the first two that were in that
        version, for one may die."""
        fresh = [i for i, (_, last) in enumerate(self._steps) if last >= self.applied]
        is_short = any(self.overdue.missing) or len(fresh) < len(self._steps)
        return is_short and self.overdue.index in fresh[:2]

    def leave_state(self) -> None:
        """Ranks that may need this rank's state find it here, also when this one has left."""
        if not self.offers_state:
            return
        if self._given != self.applied:
            self._give()
        _native.rounds_go_on(self._rounds)  # Else it is taken back at ``close``.

    def catch_up(self) -> None:
        """Applies what there is, and what will be in a moment, between two steps; ``grad`` is that
        of the last of them then."""
        self.ahead.pause()
        self._is_late = False
        self._see()
        executed = _native.rounds_executed(self._rounds)
        patience = self.beat.patience(executed + 1)
        if patience > 0:
            self._ready()
            with contextlib.suppress(Timeout):
                _native.rounds_wait(self._rounds, executed + 1, patience)
                self._see(executed + 1)
        self._apply_all()

    def _see(self, waited_for: int = 0) -> None:
        """When the last version ended; ``waited_for``: that one has just now."""
        version, at_ns = _native.rounds_ended(self._rounds)
        if at_ns > 0:
            self.beat.see(version, at_ns * 1e-9)
        elif waited_for > 0:
            self.beat.see(waited_for)

    def finish(self, strict: bool = True) -> None:
        """Waits until every gradient counts and applies what is left: then replicas are equal.

        Without ``strict`` it goes on without ranks that are missing for ``max_wait``.

        Raises:
            Timeout: after ``max_wait``; the message names the ranks that are missing. Those that
                are there have applied what they have published, and may call it again.
        """
        finish_rounds(self, strict)

    def flush(self) -> None:
        """For the end of a script that has not called ``finish()``."""
        if not self.ending.is_due or not self._rounds:
            return
        before, failure = self.applied, ""
        flushed = Flushed(self._optimizer._covey_progress.named if self.overdue.index == 0 else ())
        try:
            self._wait(_FINISH)
            self._apply_all()
            self._wait(MEET)
        except CoveyError as error:
            failure = str(error)
        self.ending.is_due = False
        if self.overdue.index == 0:
            flushed.tell(self.applied - before, failure)

    def help(self) -> None:
        """While its thread waits for whatever else: a snapshot for one that has fallen behind."""
        if not self._rounds or not self._is_whole or self._thread != threading.get_ident():
            return
        with contextlib.suppress(CoveyError):
            if _native.rounds_asked(self._rounds, self.applied):
                self._give()

    def _wait(self, version: int) -> None:
        """Until ``version`` has been made. Meanwhile this rank helps ranks that have fallen
        behind."""
        while True:
            self._ready()
            event = _native.rounds_serve(self._rounds, version, self.applied)
            if event == LEFT and not self.ending.is_left:
                say_left()
            self.ending.is_left = event == LEFT
            if event in (DONE, LEFT):
                return
            if event == _ASKED:
                self._give()
            else:
                self._apply_all()

    def _give(self) -> None:
        """A snapshot of this rank, for one that has fallen out of the log."""
        self._given = self.applied
        pieces = self._state.pack(self.overdue.missing)
        _native.rounds_give(self._rounds, self.applied, *addresses_of(pieces))

    def _recover(self) -> None:
        """Goes on from another rank's snapshot."""
        before = self.applied
        while True:
            snapshot = _native.rounds_seek(self._rounds, self.applied)
            rank, version, length, _ = snapshot
            image = torch.empty(length, dtype=torch.uint8)
            if _native.rounds_take(self._rounds, snapshot, image.data_ptr()):
                break
        missing = self._state.unpack(image)
        self.applied, self._is_whole = version, True
        self.overdue.see(version, missing)
        progress = self._optimizer._covey_progress
        progress.turn(progress.version + version - before)
        self.recovered += 1
        if self.recovered == 1:
            warn(
                f"this rank was at version {before}, further behind than the log= of the method "
                f"reaches: it goes on from a snapshot of version {version} by rank {rank}; further "
                'ones are counted only: covey.stats()["round_snapshots"]'
            )

    def _find_unfit(self) -> str:
        slots = (slot for span in self._spans for slot in span.plan.slots)
        step = self._optimizer._covey_progress.steps
        return unfit(((slot.name, slot.parameter.grad) for slot in slots), step)

    def _open(self) -> None:
        addresses = _native.rounds_spans(self._rounds, len(self._spans))
        for span, address in zip(self._spans, addresses):
            span.open(address)

    def _write(self, scale: Optional[torch.Tensor]) -> None:
        with torch.no_grad():
            for span in self._spans:
                span.collect(self._densify, None if scale is None else float(scale))

    def _ready(self) -> None:
        """The core may have what was written, and write to where versions are read to."""
        for span in self._spans:
            span.ready()

    def _apply_all(self) -> None:
        executed = _native.rounds_executed(self._rounds)
        own = self._hypers.read()
        try:
            while self.applied < executed:
                self._is_whole = False
                version = self.applied + 1
                self._ready()
                try:
                    record = self._results.read(version, self._group.size(), len(own))
                except Exhausted:
                    self._recover()
                    executed = _native.rounds_executed(self._rounds)
                    continue
                leader, self._steps, hypers = record[1:4]
                self._step_stats.version(version, self._steps)
                self.overdue.see(version, record[4])
                self._results.give()
                self._has_given = True
                if leader >= 0:
                    self._hypers.write(hypers)
                    prepare(self._optimizer)
                    update(self._optimizer)
                self._count(version)
        finally:
            self._hypers.write(own)

    def _count(self, version: int) -> None:
        """This version was applied."""
        self.applied = version
        self._is_whole = True
        self._optimizer._covey_progress.after_update()
