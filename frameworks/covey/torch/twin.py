"""Gives a torch optimizer the methods of a distributed one. Internal."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import torch

from covey.errors import InvalidArgument
from covey.group import Group
from covey.reduce_op import Adasum, Average, Max, Sum, core_code
from covey.state import state
from covey.torch.bucket import Reduction
from covey.torch.ending import Farewell
from covey.torch.in_worlds import InWorlds
from covey.torch.layout import name_parameters, plan_buckets
from covey.torch.method_state import compression_of
from covey.torch.options import agree
from covey.torch.tensors import CODES
from covey.torch.trainer.mixed import MixedTrainer
from covey.torch.trainer.progress import Progress
from covey.torch.trainer.training import begin_training

_OF_CLASSES = ("__annotations__", "__dict__", "__qualname__", "__weakref__")


def twin_of(
    optimizer: torch.optim.Optimizer,
    methods: type,
    progress: Progress,
    passes: int,
    **options: Any,
) -> Any:
    """An optimizer with ``methods``, which shares state and parameter groups with ``optimizer``."""
    kind = _class_of(optimizer, methods)
    twin: Any = object.__new__(kind)
    # A scheduler made before has put a `step` into the instance, bound to the old optimizer.
    twin.__dict__.update({k: v for k, v in vars(optimizer).items() if k != "step"})
    _begin(twin, kind, progress, passes, options)
    return twin


def convert(
    optimizer: torch.optim.Optimizer,
    methods: type,
    progress: Progress,
    passes: int,
    **options: Any,
) -> None:
    """``optimizer`` itself has ``methods`` from now on: schedulers and scalers that hold it go on
    with it."""
    kind = _class_of(optimizer, methods)
    step = vars(optimizer).pop("step", None)
    optimizer.__class__ = kind
    if getattr(step, "_wrapped_by_lr_sched", False):
        optimizer.step = _tracked(optimizer)  # type: ignore[method-assign]
    _begin(optimizer, kind, progress, passes, options)


def restore(optimizer: torch.optim.Optimizer) -> None:
    """The inverse of ``convert``."""
    is_tracked = vars(optimizer).pop("step", None) is not None
    optimizer.__class__ = type(optimizer).__bases__[0]
    of_covey = [name for name in vars(optimizer) if name.startswith("_covey_")]
    for name in [*of_covey, "backward_passes_per_step"]:
        delattr(optimizer, name)
    if is_tracked:
        optimizer.step = _tracked(optimizer)  # type: ignore[method-assign]


def _class_of(optimizer: torch.optim.Optimizer, methods: type) -> type:
    own = {name: value for name, value in vars(methods).items() if name not in _OF_CLASSES}
    own["__doc__"] = type(optimizer).__doc__
    return type(type(optimizer).__name__, (type(optimizer),), own)


def _begin(optimizer: Any, kind: type, progress: Progress, passes: int, options: Any) -> None:
    optimizer.backward_passes_per_step = passes
    optimizer._covey_class = kind
    optimizer._covey_options, optimizer._covey_progress = options, progress
    optimizer._covey_reducer = None
    optimizer._covey_trainer = None
    optimizer._covey_outside = []
    optimizer._covey_carried, optimizer._covey_functions = [], []  # carry(), before_update().
    optimizer._covey_synchronized = optimizer._covey_is_settled = False
    optimizer._covey_raised = None  # By a hook, after an update.
    optimizer._covey_should_synchronize = True
    optimizer._covey_farewell = Farewell(optimizer)


def _tracked(optimizer: Any) -> Any:
    """The step of ``optimizer`` as a torch scheduler leaves it: it warns where no step was done."""
    known, step = weakref.ref(optimizer), type(optimizer).step

    @functools.wraps(step)
    def tracked(*args: Any, **kwargs: Any) -> Any:
        owner: Any = known()
        owner._opt_called = True
        return step(owner, *args, **kwargs)

    tracked._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    return tracked


def start(optimizer: Any) -> Any:
    """Begins its training. Raises as ``DistributedOptimizer``."""
    optimizer._covey_worlds = InWorlds(optimizer, build)
    state.add_optimizer(optimizer)
    return optimizer


def build(optimizer: Any) -> None:
    """Makes the reducer of ``optimizer`` from its options and parameters."""
    options = optimizer._covey_options
    group: Group = options["process_set"]
    named = name_parameters(optimizer, options["named_parameters"])
    trained = [each for each in named if each[1].requires_grad]
    optimizer._covey_outside = [each for each in named if not each[1].requires_grad]
    optimizer._covey_reducer = None
    for name, parameter in trained:
        if parameter.dtype not in CODES:
            raise InvalidArgument(f"{name}: gradients of {parameter.dtype} cannot be reduced")
    plans = plan_buckets(trained, options["bucket_bytes"], options["groups"])
    if not group.included() or group.size() == 1:
        optimizer._covey_outside = []
        return
    op, factor = options["op"], options["gradient_predivide_factor"]
    compression = compression_of(optimizer, trained)
    flags_tell = op in (Average, Sum, Max) and compression.codec is None
    code = core_code(Average if op == Adasum else op)  # By Adasum no gradient is reduced.
    reduction = Reduction(code, factor, compression, group, flags_tell)
    met = agree(optimizer, trained, plans, compression)
    if met.is_mixed:
        optimizer._covey_trainer = MixedTrainer(optimizer, trained, group, met)
        return
    optimizer._covey_plans = (plans, reduction)
    optimizer._covey_progress.share(trained)
    begin_training(optimizer)
