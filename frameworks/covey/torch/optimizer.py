"""The distributed optimizer: any torch optimizer, whose ranks train together by a method.

Each step the method says what travels (``covey methods`` lists them): gradients before the update,
the model after it, or nothing. Gradients lie in buckets in memory shared between the ranks, and
each bucket is reduced as soon as backward has completed it, while backward goes on. Up to
``step()`` or ``synchronize()`` each ``grad`` is this rank's own, zeros before the first pass;
afterwards it is a view of the bucket. Where a rank has no gradient for a parameter it contributes
zeros; where no rank has one, ``grad`` stays None. In other steps gradients are those of this rank.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple, Type, Union

import torch

from covey.arguments import many_of
from covey.errors import InvalidArgument
from covey.group import Group, world
from covey.method import GRADIENTS, choose, scale_at
from covey.notice import warn_as_python
from covey.reduce_op import Average
from covey.torch.bucket import Reduction
from covey.torch.compression import Compression, Compressor
from covey.torch.layout import BUCKET_BYTES, BucketPlan, Groups, Named, name_parameters, rename
from covey.torch.method_state import carried
from covey.torch.ops import allreduce
from covey.torch.options import check_kinds, check_options, check_outside, check_passes
from covey.torch.reducer import Reducer
from covey.torch.trainer.adasum_trainer import AdasumTrainer
from covey.torch.trainer.ahead import Ahead
from covey.torch.trainer.core_trainer import CoreTrainer
from covey.torch.trainer.mixed import MixedTrainer
from covey.torch.trainer.progress import Progress
from covey.torch.trainer.snapshot import carry
from covey.torch.trainer.training import (
    empty_gradients,
    end_step,
    leave_training,
    move_to,
    turn,
)
from covey.torch.twin import build, convert, restore, start, twin_of
from covey.torch.update import (
    before_update,
    clipped_step,
    raise_late,
    reduced_until_done,
    scales_itself,
    take_overflow,
    take_settled,
)


class _Distributed(torch.optim.Optimizer):
    """The methods that a distributed optimizer has on top of its class. Never instantiated: the
    functions are copied into a subclass of the user's optimizer class."""

    backward_passes_per_step: int
    _covey_class: type
    _covey_options: Dict[str, Any]
    _covey_outside: List[Named]  # Parameters that require no gradient.
    _covey_plans: Tuple[List[BucketPlan], Reduction]
    _covey_progress: Progress
    _covey_reducer: Optional[Reducer]  # None: nothing to reduce, or no other rank.
    _covey_trainer: Union[CoreTrainer, MixedTrainer, AdasumTrainer, None]  # None: no other.
    _covey_is_settled: bool
    _covey_overflowed: bool  # A GradScaler's step that is left out.
    _covey_should_synchronize: bool
    _covey_synchronized: bool

    def _covey_super(self) -> Any:
        """The user's class."""
        return super(self._covey_class, self)

    def synchronize(self) -> None:
        """Reduces the gradients that are not yet reduced and waits for all.

        ``parameter.grad`` then is the same on every rank: the place for clipping. Follow it by
        ``with optimizer.skip_synchronize(): optimizer.step()``.
        """
        trainer, progress = self._covey_trainer, self._covey_progress
        is_apart = progress.is_mixed or progress.adds_updates
        if trainer is not None and (progress.plan.in_rounds or is_apart):
            return trainer.synchronize()
        check_outside(self)
        if self._covey_reducer is not None:
            self._covey_reducer.synchronize()
        self._covey_synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within it ``step()`` does not reduce: ``synchronize()`` was called before."""
        self._covey_should_synchronize = False
        try:
            yield
        finally:
            self._covey_should_synchronize = True

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it backward passes only accumulate, on this rank, without counting.

        Example:
            >>> with optimizer.no_sync():
            ...     loss(first_half).backward()
            >>> loss(second_half).backward()
            >>> optimizer.step()
        """
        if self._covey_reducer is None:
            yield
            return
        with self._covey_reducer.paused():
            yield

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes after how many backward passes, ``passes``, a gradient is reduced."""
        self.backward_passes_per_step = check_passes(passes)
        if self._covey_reducer is not None:
            self._refuse_in_flight("set_backward_passes_per_step()")
            self._covey_reducer.set_passes(passes)

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:  # type: ignore[override]
        """Waits for the reduced gradients, then does the step of the optimizer.

        With a closure, the gradients of each of its evaluations are reduced. Every rank must do
        equally many steps. Raises Timeout: ranks are missing for ``max_wait``; call it again.
        """
        if take_overflow(self):
            return None
        progress, trainer = self._covey_progress, self._covey_trainer
        if self._covey_synchronized and self._covey_should_synchronize:
            warn_as_python(
                "optimizer.step() called without optimizer.skip_synchronize() context after "
                "optimizer.synchronize(). This can cause training slowdown. You may want to "
                "consider using optimizer.skip_synchronize() context if you use "
                "optimizer.synchronize() in your code.",
                calls=1,
            )
        empty_gradients(self)
        progress.begin_step()
        with progress.changing():
            check_outside(self)
            result = self._update(closure) if trainer is None else trainer.step(closure)
        end_step(self)
        raise_late(self)
        return result

    step.hooked = True  # type: ignore[attr-defined]  # The class below runs torch's step hooks.

    def _update(self, closure: Optional[Callable[[], Any]]) -> Any:
        is_reduced = take_settled(self) or not self._covey_should_synchronize
        if closure is None and not is_reduced:
            self.synchronize()
            is_reduced = True
        if is_reduced:
            self._covey_synchronized = False
            with reduced_until_done(self):
                return clipped_step(self, closure)
        try:
            return clipped_step(self, self._reducing(closure))
        finally:
            self._covey_synchronized = False

    @property
    def version(self) -> int:
        """How many steps were done: by the ranks that this one has averaged with, where it has done
        fewer. Set it, on every rank alike, when training is taken up again: it says where in its
        warm-up and in its local steps the method is. After ``finish()`` it is the same on all ranks
        that have met there, but for those of a method in pairs, which count their own steps."""
        return self._covey_progress.version

    @version.setter
    def version(self, steps: int) -> None:
        if not isinstance(steps, int) or steps < 0:
            raise InvalidArgument(f"version must be a number of steps, not {steps!r}")
        self._refuse_in_flight("version")
        move_to(self, steps)

    @property
    def _parameter_names(self) -> Dict[torch.nn.Parameter, str]:
        """As scripts read it of Horovod's."""
        named = name_parameters(self, self._covey_options["named_parameters"])
        return {parameter: name for name, parameter in named}

    before_update, carry = before_update, carry

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """What torch's GradScaler asks."""
        return scales_itself(self)

    @_step_supports_amp_scaling.setter
    def _step_supports_amp_scaling(self, value: bool) -> None:
        self.__dict__["_step_supports_amp_scaling"] = value

    def finish(self, strict: bool = False) -> None:
        """Makes the parameters the mean over the ranks, if the method has let them differ.

        To be called by every rank at the end of training, or before it is evaluated or saved;
        training may go on. Ranks that are missing for ``max_wait`` are named and left out, or raise
        Timeout (``strict``, and always where a method goes over); Mismatch, Aborted as ``step()``.
        """
        with self._covey_progress.changing():
            self._refuse_in_flight("finish()")
            if self._covey_trainer is not None:
                self._covey_trainer.finish(strict)
                turn(self)
            self._covey_progress.have_met()
        raise_late(self)

    def lr_scale(self) -> float:
        """By what to multiply a learning rate that is right for one rank: ``covey.lr_scale``."""
        progress, options = self._covey_progress, self._covey_options
        is_sum = progress.plan.payload == GRADIENTS and options["op"] != Average
        if not progress.is_shared or is_sum:
            return 1.0
        return scale_at(progress.method, progress.steps, options["process_set"].size())

    def _reducing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def reduced() -> Any:
            with torch.enable_grad():
                loss = closure()
            self.synchronize()
            if isinstance(self, torch.optim.LBFGS) and self._covey_progress.reduces:
                # It decides by the loss how often to evaluate, so the ranks must see one loss.
                group = self._covey_options["process_set"]
                value = torch.as_tensor(loss, dtype=torch.float64).detach()
                return allreduce(value, name="DistributedOptimizer.loss", process_set=group)
            return loss

        return reduced

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As the optimizer's, also its ``set_to_none``.

        Raises:
            AssertionError: gradients are being reduced: after backward, before step.
        """
        if self._covey_reducer is not None:
            self._refuse_in_flight("zero_grad()")
            self._covey_reducer.forget()
        self._covey_is_settled = self._covey_overflowed = False
        self._covey_super().zero_grad(*args, **kwargs)
        ahead: Optional[Ahead] = getattr(self._covey_trainer, "ahead", None)
        if ahead is not None:
            ahead.look()
        raise_late(self)

    def _refuse_in_flight(self, what: str) -> None:
        if self._covey_reducer is not None and self._covey_reducer.in_flight:
            raise AssertionError(
                f"optimizer.{what} was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition."
            )

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """As the optimizer's. Gradients in flight are waited for and dropped."""
        if self._covey_reducer is not None:
            self._covey_reducer.abandon()
        self._covey_synchronized = False
        self._covey_super().load_state_dict(*args, **kwargs)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """As the optimizer's; the buckets are made anew, so every rank must call it."""
        self._refuse_in_flight("add_param_group()")
        leave_training(self)  # Contributions of earlier steps are applied without the new ones.
        try:
            self._covey_super().add_param_group(param_group)
        finally:
            self.rebuild_buckets()

    def rebuild_buckets(self, named_parameters: Optional[Iterable[Named]] = None) -> None:
        """Makes the buckets anew, after parameters were added or began to require a gradient.

        Every rank must call it, between a step and the next backward pass.

        Args:
            named_parameters: as for ``DistributedOptimizer``; None keeps the names there are.
        """
        if self._covey_reducer is not None:
            self._refuse_in_flight("rebuild_buckets()")
            self._covey_reducer.remove_hooks()
        leave_training(self)
        self._covey_options["named_parameters"] = rename(self._covey_options, named_parameters)
        with carried(self):
            build(self)


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Optional[Iterable[Named]] = None,
    compression: Type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    sparse_as_dense: bool = False,
    process_set: Group = world,
    *,
    model: Optional[torch.nn.Module] = None,
    method: Optional[str] = None,
    bucket_bytes: int = BUCKET_BYTES,
    **settings: object,
) -> _Distributed:
    """Wraps an optimizer so that ``step()`` uses gradients reduced over all ranks; all call it.

    Until ``step()`` or ``synchronize()`` each ``grad`` is this rank's own; what stands there then
    is what is reduced. Writing to it (clipping) costs the overlap with backward: ``written.py``.

    Args:
        optimizer: any torch optimizer. The result is of a subclass of its class and shares its
            state and groups; use the result from now on.
        named_parameters: ``model.named_parameters()``: names for messages, as on every rank.
        compression: ``Compression.none``, ``.fp16``, ``.bf16``, ``.of(codec)`` or your own class.
        backward_passes_per_step: passes to add up (not to average); a step may have fewer.
        op: of gradients: Average, Sum, Min, Max, Product; of updates: Adasum. Models are averaged.
        gradient_predivide_factor: with Average: divides before the sum, multiplies after it.
        num_groups: into how many buckets to divide the parameters; 0 divides by size.
        groups: a number as ``num_groups``, or lists of parameters that share a bucket.
        sparse_as_dense: make sparse gradients dense; else ``allreduce`` gathers, others refuse.
        process_set: the ranks to train with; on others the optimizer does as before.
        model: the module to take names from, and buffers (BatchNorm's) of a rank that recovers.
        method: such as "local:local_steps=8". None: as COVEY_METHOD says, else "allreduce".
        bucket_bytes: size of a bucket; a larger gradient has its own.
        **settings: parameters of the method: ``local_steps=8``, ``max_wait="2s"``,
            ``clip_norm=1.0``, ``codec="int8"``; ``covey methods`` tells.

    Returns:
        An optimizer that also has ``synchronize``, ``skip_synchronize``, ``no_sync``, ``finish``,
        ``before_update``, ``carry``, ``lr_scale``, ``set_backward_passes_per_step``,
        ``rebuild_buckets``, and ``version``, the steps done. ``state_dict()`` is unchanged.

    Raises:
        InvalidArgument, NotInitialized: (ValueErrors) wrong arguments; before ``init()``.
        Mismatch: the ranks' parameters or options differ; the message names the first difference.

    Example:
        >>> sgd = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
        >>> optimizer = hvd.DistributedOptimizer(sgd, named_parameters=model.named_parameters())
    """
    check_options(optimizer, op, gradient_predivide_factor, compression)
    check_kinds(model, (num_groups, groups), sparse_as_dense, process_set, bucket_bytes)
    return start(twin_of(
        optimizer,
        _Distributed,
        Progress(choose(method, settings), process_set),
        check_passes(backward_passes_per_step),
        named_parameters=_listed(named_parameters, model),
        model=model,
        compression=compression,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=num_groups if groups is None else groups,
        sparse_as_dense=sparse_as_dense,
        process_set=process_set,
        bucket_bytes=bucket_bytes,
    ))  # fmt: skip


def _listed(
    named: Optional[Iterable[Named]], model: Optional[torch.nn.Module]
) -> Optional[List[Named]]:
    """The names that a user gives, by themselves or in a model."""
    if named is None and model is not None:
        named = model.named_parameters()
    return None if named is None else list(many_of(named, "named_parameters"))


def distribute(optimizer: torch.optim.Optimizer, method: str, **options: Any) -> None:
    """Makes ``optimizer`` itself a distributed one, which averages; all ranks call it.

    Args:
        optimizer: a torch optimizer.
        method: a full text, as ``choose`` gives it.
        **options: ``named_parameters`` (a list), ``model``, ``compression``, ``process_set`` and
            ``bucket_bytes``, as of ``DistributedOptimizer``.

    Raises:
        As ``DistributedOptimizer``; then ``optimizer`` is as it was.
    """
    check_options(optimizer, Average, 1.0, options["compression"])
    convert(
        optimizer,
        _Distributed,
        Progress(method, options["process_set"]),
        1,
        op=Average,
        gradient_predivide_factor=1.0,
        groups=None,
        sparse_as_dense=False,
        **options,
    )
    try:
        start(optimizer)
    except BaseException:
        restore(optimizer)
        raise
