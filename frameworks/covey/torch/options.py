"""The options of a distributed optimizer, of any method. Internal."""

from __future__ import annotations

from typing import Any, Dict, Sequence

import torch

from covey.errors import InvalidArgument, Unsupported
from covey.method import DELTA, MODEL, Plan
from covey.reduce_op import Adasum, Average, Sum, core_code
from covey.torch.compression import Compression, check_compression
from covey.torch.layout import Named

_OF_DELTAS = (torch.float32, torch.float64)  # OuterModel of core/train has arithmetic for them.


def check_options(
    optimizer: Any, op: int, gradient_predivide_factor: float, compression: Any
) -> None:
    """Refuses what no method can do.

    Raises:
        InvalidArgument: (a ValueError) names what is wrong.
    """
    if isinstance(optimizer, type) or not hasattr(optimizer, "param_groups"):
        is_class = isinstance(optimizer, type)
        what = f"the class {optimizer.__name__}" if is_class else f"a {type(optimizer).__name__}"
        raise InvalidArgument(
            "optimizer must be a torch optimizer, such as torch.optim.SGD(model.parameters(), "
            f"lr=0.1), not {what}"
        )
    check_compression(compression)
    if hasattr(optimizer, "_covey_reducer"):
        raise InvalidArgument("this optimizer is a DistributedOptimizer already")
    if op != Adasum:
        core_code(op)
    if not gradient_predivide_factor > 0:
        raise InvalidArgument("gradient_predivide_factor must be positive")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise InvalidArgument("gradient_predivide_factor needs op=Average")


def check_passes(passes: int) -> int:
    """The number of backward passes per step, which is 1 or more.

    Raises:
        InvalidArgument: (a ValueError) it is not.
    """
    if not isinstance(passes, int) or passes < 1:
        raise InvalidArgument(f"backward_passes_per_step must be 1 or more, not {passes!r}")
    return passes


def check_outside(optimizer: Any) -> None:
    """Parameters outside of the buckets must not have a gradient: it would not be reduced.

    Raises:
        RuntimeError: names one that has.
    """
    for name, parameter in optimizer._covey_outside:
        if parameter.grad is not None:
            raise RuntimeError(
                f"{name} began to require a gradient after DistributedOptimizer was made: "
                "call optimizer.rebuild_buckets() on every rank"
            )


def check_plan(optimizer: Any, plan: Plan) -> None:
    """Raises Unsupported (a ValueError) for an option that a part by ``plan`` does not go with, or
    a parameter of a dtype that it cannot exchange."""
    if plan.in_rounds and plan.payload == DELTA:
        _check_deltas(optimizer._covey_options, optimizer._covey_progress.named)
    elif plan.in_rounds and plan.payload == MODEL:
        check_models(optimizer._covey_options)
    elif plan.in_rounds:
        check_rounds(optimizer, optimizer._covey_options)


def _check_deltas(options: Dict[str, Any], named: Sequence[Named]) -> None:
    check_models(options)
    for name, parameter in named:
        if parameter.dtype not in _OF_DELTAS:
            raise Unsupported(
                f"{name}: changes of {parameter.dtype} cannot be added up, only those of float32 "
                "and float64: keep the parameters that are trained in float32"
            )


def check_rounds(optimizer: Any, options: Dict[str, Any]) -> None:
    """Raises Unsupported (a ValueError) for an option that rounds do not go with."""
    wrong = None
    if options["op"] not in (Average, Sum):
        wrong = "op must be Average or Sum"
    elif options["gradient_predivide_factor"] != 1.0:
        wrong = "gradient_predivide_factor must be 1"
    elif options["compression"] is not Compression.none:
        wrong = "compression must be none"
    elif isinstance(optimizer, torch.optim.LBFGS):
        wrong = "LBFGS evaluates its closure as often as it likes, which no step can be made of"
    if wrong is not None:
        raise Unsupported(f"{wrong}, with a method that does not wait for all ranks")


def check_models(options: Dict[str, Any]) -> None:
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
