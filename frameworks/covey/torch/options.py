"""The options of a distributed optimizer, which are the same on all its ranks. Internal."""

from __future__ import annotations

import sys
from typing import Any, List, Sequence, Tuple

import torch

from covey.arguments import group_id, truth_of, whole_of
from covey.errors import InvalidArgument, Mismatch, Unsupported
from covey.method import DELTA, GRADIENTS, MODEL, Plan
from covey.objects import allgather_object
from covey.reduce_op import Average, ReduceOp, Sum, core_code, is_adasum
from covey.requests import check_predivisor
from covey.torch.compression import Compression, check_compression
from covey.torch.layout import BucketPlan, Named, describe, digest, first_difference
from covey.training_terms import Met, Terms, meet, terms_of

_NAME = "torch"
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
    if not is_adasum(op):
        core_code(op)
    check_predivisor(gradient_predivide_factor, op)


def check_kinds(
    model: Any, groups: Tuple[Any, Any], sparse_as_dense: Any, group: Any, bucket_bytes: Any
) -> None:
    """Refuses arguments of ``DistributedOptimizer`` that are something else than they should be;
    ``groups``: num_groups and groups.

    Raises:
        InvalidArgument: (a ValueError) names the argument.
    """
    group_id(group)
    truth_of("sparse_as_dense", sparse_as_dense)
    whole_of("bucket_bytes", bucket_bytes)
    if model is not None and not isinstance(model, torch.nn.Module):
        raise InvalidArgument(f"model must be a torch.nn.Module, not a {type(model).__name__}")
    number, given = groups
    whole_of("num_groups", number)
    if given is None or isinstance(given, int):
        return
    if not isinstance(given, (list, tuple)) or not all(map(_is_group, given)):
        raise InvalidArgument(f"groups must be a number or lists of parameters, not {given!r}")


def _is_group(members: Any) -> bool:
    return hasattr(members, "__iter__") and not isinstance(members, torch.Tensor)


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
                "call optimizer.rebuild_buckets() on every rank, before loss.backward()"
            )


def is_sharded(optimizer: Any) -> bool:
    """Whether each rank updates a part of the model, and ``step()`` exchanges the parts."""
    module = sys.modules.get("torch.distributed.optim.zero_redundancy_optimizer")
    return module is not None and isinstance(optimizer, module.ZeroRedundancyOptimizer)


def check_plan(optimizer: Any, plan: Plan) -> None:
    """Raises Unsupported (a ValueError) for an option that a part by ``plan`` does not go with, an
    optimizer, or a parameter of a dtype that it cannot exchange."""
    if is_sharded(optimizer) and (plan.in_rounds or plan.payload != GRADIENTS):
        raise Unsupported(
            "ZeroRedundancyOptimizer exchanges models in its step(), which all ranks make together:"
            " that goes with method='allreduce' alone; give the optimizer inside it, such as "
            "torch.optim.Adam(model.parameters())"
        )
    if not plan.in_rounds:
        return
    is_of_models = plan.payload in (DELTA, MODEL)
    if is_of_models:
        wrong, kind = _wrong_option(optimizer, [Average]), "averages models of enough ranks"
    else:
        wrong, kind = _wrong_option(optimizer, [Average, Sum]), "does not wait for all ranks"
    if not wrong and not is_of_models and isinstance(optimizer, torch.optim.LBFGS):
        wrong = "LBFGS evaluates its closure as often as it likes, which no step can be made of"
    if wrong:
        raise Unsupported(f"{wrong}, with a method that {kind}")
    for name, parameter in optimizer._covey_progress.named if plan.payload == DELTA else ():
        if parameter.dtype not in _OF_DELTAS:
            raise Unsupported(
                f"{name}: changes of {parameter.dtype} cannot be added up, only those of float32 "
                "and float64: keep the parameters that are trained in float32"
            )


def _wrong_option(optimizer: Any, ops: Sequence[ReduceOp]) -> str:
    """The option that is not for exchanges of a model, or gradients, as they are; "": none.
    ``ops``: those that there are."""
    options = optimizer._covey_options
    if options["op"] not in ops:
        return f"op must be {' or '.join(op.name for op in ops)}"
    if options["gradient_predivide_factor"] != 1.0:
        return "gradient_predivide_factor must be 1"
    return "" if options["compression"] is Compression.none else "compression must be none"


def agree(
    optimizer: Any, named: Sequence[Named], plans: Sequence[BucketPlan], compression: Any
) -> Met:
    """Checks that every member of the group has the same options, parameters and buckets, or where
    some have another framework what all must have then. All call it.

    Args:
        optimizer: with its options.
        named: the parameters that are trained; ``plans``: their buckets.
        compression: of gradients that all wait for.

    Raises:
        Mismatch: names the first difference, the ranks and both values.
        Unsupported: (a ValueError) as ``meet``.
    """
    options = optimizer._covey_options
    group = options["process_set"]
    lines = [
        f"method {optimizer._covey_progress.method}, op {ReduceOp(options['op']).name}, "
        f"gradient_predivide_factor {options['gradient_predivide_factor']}, "
        f"compression {compression.__name__}, bucket_bytes {options['bucket_bytes']}, "
        f"backward_passes_per_step {optimizer.backward_passes_per_step}",
        *describe(plans),
    ]
    met = meet(group, _NAME, lambda: _terms(optimizer, named), digest(lines))
    if met.is_mixed or all(other == met.hashes[0] for other in met.hashes):
        return met
    everyone: List[List[str]] = allgather_object(lines, "DistributedOptimizer.layout", group)
    difference = first_difference(everyone, group.ranks)
    raise Mismatch(f"DistributedOptimizer differs between the ranks: {difference}")


def rates_of(optimizer: Any) -> List[Any]:
    """The parameter groups whose learning rates travel with gradients."""
    return [group for group in optimizer.param_groups if group.get("lr") is not None]


def _terms(optimizer: Any, named: Sequence[Named]) -> Terms:
    """The terms that ranks of other frameworks compare with theirs."""
    options = optimizer._covey_options
    parameters = [(name, str(it.dtype)[6:], it.shape) for name, it in named]
    return terms_of(
        _NAME,
        parameters,
        method=optimizer._covey_progress.method,
        op=options["op"],
        num_hypers=len(rates_of(optimizer)),
        root=options["process_set"].ranks[0],
        begin=optimizer._covey_progress.steps,
        problem=_problem(optimizer, named),
    )


def _problem(optimizer: Any, named: Sequence[Named]) -> str:
    """The reason why it cannot train with other frameworks; "": it can."""
    if not named:
        return "no parameter requires a gradient"
    wrong = _wrong_option(optimizer, [Average, Sum])
    if "compression" in wrong:
        return f"{wrong}; codec= of the method does the same"
    if not wrong and isinstance(optimizer, torch.optim.LBFGS):
        return "LBFGS evaluates its closure as often as it likes"
    return wrong
