"""Whether the ranks of one optimizer have the same one. Internal."""

from __future__ import annotations

from typing import Any, List, Sequence

import torch

from covey.errors import Mismatch
from covey.objects import allgather_object
from covey.reduce_op import Average, ReduceOp, Sum
from covey.torch.compression import Compression
from covey.torch.layout import BucketPlan, Named, describe, digest, first_difference
from covey.training_terms import Met, Terms, meet, terms_of

_NAME = "torch"

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
    options = optimizer._covey_options
    if not named:
        return "no parameter requires a gradient"
    if options["op"] not in (Average, Sum):
        return "op must be Average or Sum"
    if options["gradient_predivide_factor"] != 1.0:
        return "gradient_predivide_factor must be 1"
    if options["compression"] is not Compression.none:
        return "compression must be none; codec= of the method does the same"
    if isinstance(optimizer, torch.optim.LBFGS):
        return "LBFGS evaluates its closure as often as it likes"
    return ""
