"""Reducing the gradients of an optimizer while backward still computes others. Internal.

Each parameter has a hook that runs when its gradient has been accumulated. When the last parameter
of a bucket has had its backward passes, the bucket is submitted; ``synchronize`` submits those
that are not complete (parameters without a gradient contribute zeros, so that the ranks stay
matched) and waits for all of them.

The ``grad`` at ``synchronize`` is reduced. Where a rank has written to gradients since
they were submitted (``written.py``), all ranks reduce them once more; they learn of it by a number
that is added up beside the last bucket, which is never submitted before ``synchronize``: backward
ends with it anyway. From then on the buckets are held: nothing is submitted early, until all ranks
have looked again and no gradient was written to. They are held at first, and while gradients of
some rank lie in the bucket (``zero_grad(set_to_none=False)``), where writing is costly to find.
On CUDA the number also tells of sparse gradients: the host would wait for a bucket's flags.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from covey import _native
from covey.collectives import ALLREDUCE
from covey.errors import CoveyError
from covey.group import Group
from covey.names import next_prefix
from covey.notice import warn
from covey.reduce_op import Average, Sum, core_code
from covey.torch.bucket import Bucket, Reduction, draw_of, make_buckets
from covey.torch.layout import BucketPlan
from covey.torch.sparse import SparseGradients
from covey.torch.tensors import CODES
from covey.torch.written import looks_again

# A rank's word on its gradients, added up over the ranks.
_IS_REWRITTEN = 1
_LIES_HERE = 1 << 16
_IS_SPARSE = 1 << 32  # Said where parameters are on CUDA.

# Parameter -> the hook of the optimizer that wrapped it last: a parameter wrapped again (a second
# training stage, say) must not be reduced twice.
_hooks: "WeakTensorKeyDictionary" = WeakTensorKeyDictionary()


class _Agreement:
    """Tells all members the sum of their numbers."""

    def __init__(self, name: str, group: Group) -> None:
        self._name = name
        self._group = group
        self._said = torch.zeros(1, dtype=torch.int64)
        self._handle: Optional[_native.Handle[Any]] = None

    def say(self, number: int) -> None:
        """Every member says something before one can hear."""
        self._said[0] = number
        self._handle = _native.submit1(
            ALLREDUCE,
            self._group.id,
            self._name,
            core_code(Sum),
            0,
            1.0,
            1.0,
            CODES[torch.int64],
            self._said.data_ptr(),
            None,
            (1,),
            self._said,
        )

    def hear(self) -> int:
        """The sum.

        Raises:
            As every operation does: a rank has died.
        """
        handle, self._handle = self._handle, None
        assert handle is not None
        handle.wait()
        return int(self._said[0])


class Reducer:
    """The buckets of one optimizer and the state of the step.

    Attributes:
        active: whether gradients are reduced in this step; else they are left alone.
        step: the number of this step.
        look_at: the same, for messages, when gradients are looked at; else None.
    """

    def __init__(
        self,
        plans: Sequence[BucketPlan],
        reduction: Reduction,
        passes: int,
        densify: bool,
    ) -> None:
        prefix = next_prefix("grad", reduction.group.ranks)
        self.buckets = make_buckets(plans, prefix, reduction, densify)
        self.active = True
        self.step = 0
        self.look_at: Optional[int] = None
        self._passes = passes
        self._paused = False
        self._reset()
        self._agreement = _Agreement(f"{prefix}.rewritten", reduction.group)
        is_on_a_device = any(plan.device.type != "cpu" for plan in plans)
        self._tells_sparse = is_on_a_device and reduction.gathers_sparse and not densify
        self._speaks = reduction.group.rank() == 0
        self._is_held = True  # Nothing is submitted before synchronize().
        self._syncs = 0
        is_average = reduction.op_code == core_code(Average)
        self._sparse = SparseGradients(prefix, Average if is_average else Sum, reduction.group)
        self._handles: List[torch.utils.hooks.RemovableHandle] = []
        self._hook_all()

    def __del__(self) -> None:
        self.remove_hooks()

    def _hook_all(self) -> None:
        for number, bucket in enumerate(self.buckets):
            for index, parameter in enumerate(bucket.parameters):
                older = _hooks.get(parameter)
                if older is not None:
                    older.remove()
                hook = _hook_of(self, number, index)
                _hooks[parameter] = parameter.register_post_accumulate_grad_hook(hook)
                self._handles.append(_hooks[parameter])

    def remove_hooks(self) -> None:
        """Ends the reduction of these parameters."""
        for handle in getattr(self, "_handles", ()):
            handle.remove()
        self._handles = []

    def on_gradient(self, number: int, index: int) -> None:
        """The gradient of parameter ``index`` of bucket ``number`` has been accumulated."""
        bucket = self.buckets[number]
        if bucket.fresh:
            bucket.fresh.discard(index)
        if self._pending[number] == 0:
            self._refuse_pass(bucket, index)
        if self._paused or not self.active:
            return
        left = self._left[number]
        left[index] -= 1
        if left[index] > 0:
            return
        if left[index] < 0:
            self._refuse_pass(bucket, index)
        self._pending[number] -= 1
        if self._pending[number] == 0:
            self._complete(number)

    def _complete(self, number: int) -> None:
        """Backward has computed all gradients of a bucket."""
        bucket = self.buckets[number]
        if number == len(self.buckets) - 1:
            return bucket.complete()
        if not self._is_held:
            bucket.submit(self.look_at, draw_of(self.step, number), stays=True)
            return bucket.watch(lazy=True, copies=True)
        bucket.complete()
        bucket.watch(lazy=looks_again(self._syncs), copies=False)

    def _refuse_pass(self, bucket: Bucket, index: int) -> None:
        raise AssertionError(
            f"The gradient of {bucket.names[index]} was computed more than "
            f"backward_passes_per_step ({self._passes}) times before step(). Increase "
            "backward_passes_per_step, or use no_sync(), to accumulate gradients locally."
        )

    def _reset(self) -> None:
        self._left = [[self._passes] * len(bucket.parameters) for bucket in self.buckets]
        self._pending = [len(bucket.parameters) for bucket in self.buckets]
        for bucket in self.buckets:
            bucket.seen = None

    @property
    def in_flight(self) -> bool:
        """Whether a bucket is complete, or submitted, and not yet waited for."""
        return any(bucket.handle is not None for bucket in self.buckets) or 0 in self._pending

    @property
    def has_begun(self) -> bool:
        """Whether there are gradients that were not reduced yet, in a step that reduces them."""
        passes = self._passes
        return self.active and (
            self.in_flight or any(left != passes for of_bucket in self._left for left in of_bucket)
        )

    def set_passes(self, passes: int) -> None:
        """From the next step on a gradient is reduced after ``passes`` backward passes."""
        self._passes = passes
        self._reset()

    def synchronize(self) -> None:
        """Submits what is left and waits for all; then raises the first error, if any."""
        if not self.active:
            return
        self._sparse.begin()
        if self._agrees:
            self._agreement.say(self._own_word())
        self._submit(stays=not self._is_held)
        has_sparse, first_error = self._heed()
        for bucket in self.buckets:
            try:
                bucket.finish()
            except CoveyError as error:
                first_error = first_error or error
        has_sparse = has_sparse or any(bucket.has_sparse for bucket in self.buckets)
        if first_error is None and has_sparse:
            self._leave_out_sparse()
        first_error = first_error or self._sparse.finish()
        self._syncs += 1
        self._reset()
        if first_error is not None:
            raise first_error

    def _leave_out_sparse(self) -> None:
        """Some of the gradients are sparse on a member: they are in no bucket from now on."""
        own = {it.names[i]: grad for it in self.buckets for i, grad in it.sparse.items()}
        everything = {n: p for it in self.buckets for n, p in zip(it.names, it.parameters)}
        names = self._sparse.adopt(everything, own)
        self.remove_hooks()
        self.buckets = [rest for it in self.buckets for rest in it.without(names)]
        self._hook_all()

    def _submit(self, stays: bool = False) -> None:
        for number, bucket in enumerate(self.buckets):
            if bucket.handle is None:
                bucket.submit(self.look_at, draw_of(self.step, number), stays)

    @property
    def _agrees(self) -> bool:
        """Whether the members tell each other of their gradients in each step."""
        return len(self.buckets) > (0 if self._tells_sparse else 1)

    def _own_word(self) -> int:
        word = _IS_REWRITTEN if any(bucket.is_rewritten() for bucket in self.buckets) else 0
        word += _LIES_HERE if any(bucket.lies_here() for bucket in self.buckets) else 0
        is_sparse = self._tells_sparse and any(bucket.is_sparse() for bucket in self.buckets)
        return word + (_IS_SPARSE if is_sparse else 0)

    def _heed(self) -> Tuple[bool, Optional[CoveyError]]:
        """Whether a member has said that gradients are sparse, and the error of hearing it."""
        if not self._agrees:
            return False, None
        try:
            said = self._agreement.hear()
        except CoveyError as error:
            return False, error
        if len(self.buckets) > 1:  # A single one was not submitted before synchronize().
            self._submit_again(said % _IS_SPARSE)
        return said >= _IS_SPARSE, None

    def _submit_again(self, said: int) -> None:
        """Where a member has written to gradients, all that some may have submitted before are
        submitted again, and buckets are held."""
        was_held = self._is_held
        self._is_held = said != 0 or (was_held and not looks_again(self._syncs))
        if said % _LIES_HERE == 0:
            return
        if self._speaks:
            self._speaks = False
            warn(_REWRITTEN)
        if not was_held:
            for bucket in self.buckets[:-1]:
                bucket.drop()
            self._submit()

    def forget(self) -> None:
        """Drops the gradients computed so far; nothing may be in flight."""
        assert not self.in_flight
        self._reset()

    def abandon(self) -> None:
        """Waits for the operations in flight, with any outcome, and begins anew."""
        for bucket in self.buckets:
            if bucket.handle is not None:
                with contextlib.suppress(CoveyError):
                    bucket.finish()
        self._sparse.abandon()
        self._reset()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Gradients are accumulated locally and not counted as passes."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before


def _hook_of(reducer: Reducer, number: int, index: int) -> Callable[[torch.Tensor], None]:
    """The hook of a parameter. Torch keeps it where the garbage collector does not look: it must
    not hold the reducer, whose buckets hold the parameter."""
    known = weakref.ref(reducer)

    def hook(_: torch.Tensor) -> None:
        owner = known()
        if owner is not None:
            owner.on_gradient(number, index)

    return hook


_REWRITTEN = (
    "gradients were written to between loss.backward() and optimizer.step(): each rank's own, "
    "before they are reduced. What they are at step() is what is reduced, for which step() reduces "
    "all of them anew, after backward instead of beside it. To clip what was averaged, and faster: "
    "clip_norm=1.0 of the method, or optimizer.synchronize() before clipping and `with "
    "optimizer.skip_synchronize():` around optimizer.step()"
)
