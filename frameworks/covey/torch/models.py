"""An optimizer whose models are averaged with those of enough ranks instead of all. Internal.

``step()`` updates the parameters with this rank's gradients, publishes them, waits until the
version of its step has been made, and goes on with what they become by it: the mean of this rank's
group, or, when it was late, the merge of that mean with its own. The core decides which and does
it: see ``core/partial/merge.h``. The optimizer's state and the model's buffers are this rank's own,
as in the paper, also when it comes back so late that an average of all has passed it by. With
``local_steps`` a rank does so many steps by itself between two of its versions (``stretch.py``),
and counts steps, not versions.

The parameters of a dtype lie side by side in memory that the core reads, of which it has three
pieces: one is trained, one is on offer, one may be read. So nothing is copied to be published; the
parameters are pointed to another piece each step. One that was pointed elsewhere meanwhile is
brought back. On a device they lie side by side there, and only what is exchanged is copied from and
to the pieces (``mirror.py``).
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from covey import _native
from covey.errors import CoveyError, Timeout, Unsupported
from covey.group import Group
from covey.method import parsed, plan, plans
from covey.reduce_op import Average, core_code
from covey.torch.averager import refuse_shared_memory, relative_distance
from covey.torch.clip import clipped_step
from covey.torch.compression import Compression
from covey.torch.ending import LEFT, Ending, dropped, say_dropped, say_left, say_missing
from covey.torch.layout import BucketPlan, Named, gradient_strides, plan_whole
from covey.torch.mirror import Mirror, mirror_of, wait_for
from covey.torch.overdue import Overdue
from covey.torch.rounds import DONE, MEET
from covey.torch.stretch import Course, Stretch
from covey.torch.tensors import CODES

_KEEP_BYTES = 64
_OUTCOME = "it has kept up for three averages of all; its model is left out once it is too old"


class _Piece:
    """The parameters of one dtype and device in one of the pieces."""

    def __init__(self, plan: BucketPlan, address: int, keep: Any, mirror: Mirror) -> None:
        length_bytes = plan.length * torch.empty(0, dtype=plan.dtype).element_size()
        memory: Any = (ctypes.c_char * length_bytes).from_address(address)
        memory.keep = keep  # Parameters that outlive the runtime still have their memory.
        self._host = torch.frombuffer(memory, dtype=plan.dtype)
        self._mirror = mirror
        flat = mirror.of(self._host)
        self.parameters = [slot.parameter for slot in plan.slots]
        self.views = [
            flat.as_strided(slot.parameter.shape, gradient_strides(slot.parameter), slot.offset)
            for slot in plan.slots
        ]

    def gather(self) -> None:
        """Moves what does not lie here."""
        for parameter, view in zip(self.parameters, self.views):
            data = parameter.data
            if data.data_ptr() == view.data_ptr() and data.stride() == view.stride():
                continue
            view.copy_(data)
            parameter.data = view

    def offer(self) -> None:
        """The model here is on its way to where the core reads it."""
        self._mirror.fetch(self._host)

    def take(self) -> None:
        """The parameters are what the core has written here."""
        self._mirror.put(self._host)
        for parameter, view in zip(self.parameters, self.views):
            parameter.data = view

    def release(self) -> None:
        """Parameters that lie here get memory of their own, if this is the core's."""
        if self._mirror.is_far:
            return
        for parameter, view in zip(self.parameters, self.views):
            if parameter.data_ptr() == view.data_ptr():
                parameter.data = parameter.data.clone()


class ModelRounds:
    """The rounds of one optimizer that averages models.

    Attributes:
        late: steps after which this rank's model was not in the mean.
        ending: of its finish().
        overdue: the ranks that were.
        seen: by member: whether its model was in a version.
    """

    def __init__(
        self, optimizer: Any, named: Sequence[Named], group: Group, at: int
    ) -> None:
        """Every member of the group makes one, with the same parameters and options, for the steps
        from ``at`` on. Before they come each calls ``begin``, by itself.

        Raises:
            Unsupported, InvalidArgument: (ValueErrors) an option that this method does not go
                with; two parameters in the same memory.
            Mismatch, Exhausted: on every rank: the ranks differ; a rank has no room.
        """
        check_options(optimizer._covey_options)
        refuse_shared_memory(named)
        self._optimizer = optimizer
        self._group = group
        self._plans = plan_whole(named)
        self._pieces: Dict[int, List[_Piece]] = {}  # By address: there are three.
        self._mirrors = [mirror_of(plan) for plan in self._plans]
        self._step = 0
        self._has_begun = False
        self.ending = Ending()
        self.late = 0
        self._at = at  # Of the steps, where this rank was after its last exchange.
        self._step_stats = optimizer._covey_progress.step_stats
        self.overdue = Overdue(group, self._step_stats, _OUTCOME)
        self._part = (at + 1) << 32  # Apart from steps of other parts.
        self._own = plan(optimizer._covey_progress.method, group.id, at)
        self.seen = [False] * group.size()
        self._name = optimizer._covey_progress.name_of("models")
        asked = (
            group.id,
            self._name,
            parsed(optimizer._covey_progress.method),
            at,
            core_code(Average),
            0,
            tuple(CODES[plan.dtype] for plan in self._plans),
            tuple(plan.length for plan in self._plans),
        )
        progress = optimizer._covey_progress
        self._rounds = progress.together(self._name, lambda: _native.rounds_open(*asked))
        self._keep = _native.arena_alloc(_KEEP_BYTES)

    def begin(self) -> None:
        """The next step is the first."""
        self._begin_stretch()
        self._gather()

    def close(self) -> None:
        """This rank leaves; the parameters keep their values."""
        rounds, self._rounds = self._rounds, 0
        if rounds:
            for pieces in self._pieces.values():
                for piece in pieces:
                    piece.release()
            wait_for(self._mirrors)
            _native.rounds_close(rounds)

    def __del__(self) -> None:
        if getattr(self, "_rounds", 0):
            self.close()

    def synchronize(self) -> None:
        """Gradients are this rank's own: there is nothing to wait for."""

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """A step of the optimizer with this rank's gradients, then the average if it is time."""
        progress = self._optimizer._covey_progress
        if progress.plan is not self._plan:  # Training was taken up again elsewhere.
            self._begin_stretch()
        if not self._has_begun:  # From what the script has put there until now.
            self._offer()
            _native.rounds_begin(self._rounds)
            self._has_begun = True
        loss = clipped_step(self._optimizer, closure)
        self.ending.is_offered = self.ending.is_to_meet = False
        self._stretch.step()
        progress.turn(progress.version + 1)
        progress.is_parted = True
        if self._stretch.is_over(self.overdue.is_own(), self._is_missed):
            self._exchange()
        return loss

    def _begin_stretch(self) -> None:
        """This rank is where the method has it at its next step."""
        progress = self._optimizer._covey_progress
        self._plan = progress.plan
        begins = [begin for begin, _ in plans(progress.method, self._group.id)]
        begin = max(begin for begin in begins if begin <= progress.steps)
        self._course = Course(begin, self._plan.until, max(1, self._plan.local_steps))
        # By its own steps: many times as long as one.
        self._patience_s = self._own.max_wait_s or math.inf
        self._stretch_on(progress.steps)

    def _stretch_on(self, at: int) -> None:
        """It is at step ``at``, and its next exchange is to come."""
        self._at = at
        self._stretch = Stretch(self._course.after(at) - at, 0, self._patience_s)

    @property
    def is_over(self) -> bool:
        """Whether this rank has merged with a version that the part may end with."""
        return self._at >= self._plan.until

    @property
    def misses(self) -> bool:
        """Whether a rank was overdue in that version, or may have been."""
        return self.overdue.may_be()

    def _is_missed(self) -> bool:
        """Whether the version that this rank's next model would be in has been made."""
        return _native.rounds_executed(self._rounds) > self._step

    def _exchange(self) -> None:
        """This rank's model becomes the average, when all that are waited for have come."""
        self._offer()
        before = self._step
        step = _native.rounds_publish(self._rounds, ())
        try:
            self._step_stats.arrived(self._part + step, self._needed(step))
            event = _native.rounds_serve(self._rounds, step, self._step)
            if event == LEFT and not self.ending.is_left:
                say_left()
            self.ending.is_left = event == LEFT
            if self.ending.is_left:
                self._take_back()
            elif self._merge(step):
                self._step = _native.rounds_offer_again(self._rounds)
                self._gather()
        except BaseException:
            self._take_back()
            raise
        # Missed exchanges, or given up ones, count as done.
        self._stretch_on(self._course.after(self._at, self._step - before))
        self._optimizer._covey_progress.turn(self._at)

    def finish(self, strict: bool = True) -> None:
        """Makes the parameters the mean of all, with the same bits on each.

        Without ``strict`` it goes on without ranks that are missing for ``max_wait``; a later rank
        takes the mean of those that were there.

        Raises:
            Timeout: after ``max_wait``; the message names the ranks that are missing. Those that
                are there have the mean of theirs. Called again it goes on: once all have come, all
                have the mean of all.
            Aborted: with ``strict``: the mean is of those that live.
        """
        mine = [slot.parameter for plan in self._plans for slot in plan.slots]
        before = [parameter.detach().clone() for parameter in mine]
        progress = self._optimizer._covey_progress
        known = dropped()
        try:
            if not self.ending.is_to_meet:
                self._take_mean_of_all(strict)
                say_dropped(known)
            self.ending.is_to_meet = True
            self._agree(dropped() > known)
        except Timeout as missing:
            if strict:
                raise
            say_missing(missing)
            progress.board.say(progress.version)  # For those that come later.
            self.ending.is_offered = False
            self._stretch_on(progress.version)
        self.ending.is_to_meet = False
        self._step_stats.distance = relative_distance(before, mine)
        if strict:
            progress.board.refuse_losses()

    def _take_mean_of_all(self, strict: bool) -> None:
        self._gather()
        if not self.ending.is_offered:
            self._offer()
            _native.rounds_publish(self._rounds, ())
            self.ending.is_offered = True
        wait_for(self._mirrors)  # The core writes where they may be copying from.
        try:
            _native.rounds_finish(self._rounds)
            self.ending.is_offered = False
        except Timeout:
            if not strict:
                _native.rounds_go_on(self._rounds)
            raise
        finally:
            executed, before = _native.rounds_executed(self._rounds), self._step
            if executed > 0:
                self._merge(executed)
            else:
                self._take_back()
            if self._plan.local_steps == 0:
                progress = self._optimizer._covey_progress
                progress.turn(progress.version + self._step - before)
                self._at = progress.version

    def _agree(self, is_behind: bool) -> None:
        """No rank trains on before all know the last version, and where they stand."""
        progress = self._optimizer._covey_progress
        if not is_behind:
            progress.board.say(progress.version)
        while _native.rounds_serve(self._rounds, MEET, self._step) != DONE:
            pass
        # A rank that was missing has counted fewer steps.
        progress.turn(progress.board.greatest() or progress.version)
        self._stretch_on(progress.version)

    def _open(self) -> List[_Piece]:
        addresses = _native.rounds_spans(self._rounds, len(self._plans))
        if addresses[0] not in self._pieces:
            self._pieces[addresses[0]] = [
                _Piece(plan, address, self._keep, mirror)
                for plan, address, mirror in zip(self._plans, addresses, self._mirrors)
            ]
        return self._pieces[addresses[0]]

    def _gather(self) -> None:
        with torch.no_grad():
            for piece in self._open():
                piece.gather()

    def _offer(self) -> None:
        """The model is where it is published from."""
        self._gather()
        for piece in self._open():
            piece.offer()
        wait_for(self._mirrors)

    def _needed(self, step: int) -> int:
        """How many have to come before this version is made."""
        size = self._group.size()
        is_of_all = _native.rounds_of_all(self._rounds, step)
        return size if is_of_all else self._own.needed

    def _take_back(self) -> None:
        """A model on offer must not be trained on, if there will be a next step."""
        with contextlib.suppress(CoveyError):
            self._gather()

    def _merge(self, version: int) -> bool:
        """The parameters become what this version makes of them; whether an average of all has
        passed this rank by, and that is with what it has done since the one it began from."""
        addresses = _native.rounds_spans(self._rounds, len(self._plans))
        found = _native.rounds_merge(self._rounds, version, addresses)
        version, _, late, step, of_all, kept = found
        for piece in self._open():
            piece.take()
        self.late += late
        progress = self._optimizer._covey_progress
        progress.is_parted = bool(late) or not of_all
        self._step = step
        self._note(version)
        return bool(kept)

    def _note(self, version: int) -> None:
        """Counts what the record of ``version`` has, if it is in the log."""
        try:
            record = _native.rounds_read(self._rounds, version, (), self._group.size(), 0)
        except MemoryError:  # It has left the log meanwhile.
            self.overdue.forget()
            return
        self._step_stats.version(version, record[2])
        self.seen = [seen or last > 0 for seen, (_, last) in zip(self.seen, record[2])]
        self.overdue.see(version, record[4])


def check_options(options: Dict[str, Any]) -> None:
    """Raises Unsupported (a ValueError) for an option that rounds of models do not go with."""
    wrong = None
    if options["op"] != Average:
        wrong = "op must be Average"
    elif options["gradient_predivide_factor"] != 1.0:
        wrong = "gradient_predivide_factor must be 1"
    elif options["compression"] is not Compression.none:
        wrong = "compression must be none"
    if wrong is not None:
        raise Unsupported(f"{wrong}, with a method that averages models of enough ranks")
