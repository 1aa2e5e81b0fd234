"""Collective operations as autograd knows them. Internal.

An operation that gives all ranks copies of one tensor (broadcast, allgather) has the mean of the
copies' gradients, as in Horovod: the gradient of the ranks' mean loss.
"""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import torch

from covey.arguments import part_name
from covey.call_variants import LATER, NOW
from covey.group import Group
from covey.reduce_op import Average, ReduceOp, Sum
from covey.torch.tensors import collectives


def _gradient_name(name: Optional[str]) -> Optional[str]:
    return None if name is None else name + ".gradient"


def _check_differentiable(op: int, kind: str) -> None:
    if op not in (Average, Sum):
        raise NotImplementedError(f"{kind} with op={ReduceOp(op).name} has no gradient")


class Allreduce(torch.autograd.Function):
    """The gradient of a sum over ranks is the sum of the ranks' gradients. Tensors that are grouped
    travel together; else there is one."""

    @staticmethod
    def forward(
        ctx: Any,
        is_grouped: bool,
        name: Optional[str],
        op: int,
        prescale: float,
        postscale: float,
        group: Group,
        codec: Optional[str],
        *tensors: torch.Tensor,
    ) -> Tuple[torch.Tensor, ...]:
        how = (op, prescale, postscale, group, codec)
        ctx.arguments = (is_grouped, _gradient_name(name), *how)
        if is_grouped:
            return tuple(collectives.grouped_allreduce(NOW, tensors, None, name, *how).wait())
        return (collectives.allreduce(NOW, tensors[0], None, name, *how).wait(),)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Tuple[Any, ...]:
        _check_differentiable(ctx.arguments[2], "allreduce")
        results = Allreduce.apply(*ctx.arguments, *grads)
        return (None, None, None, None, None, None, None, *results)


class Allgather(torch.autograd.Function):
    """Every rank holds a copy of every row, so a row's gradient is the mean over the ranks."""

    @staticmethod
    def forward(
        ctx: Any, is_grouped: bool, name: Optional[str], group: Group, *tensors: torch.Tensor
    ) -> Tuple[torch.Tensor, ...]:
        mine = group.rank()
        ctx.arguments = (True, _gradient_name(name), Average, 1.0, 1.0, group, None)
        places: List[Tuple[int, int]] = []
        results: List[torch.Tensor] = []
        names = [name]
        if is_grouped:
            names = [part_name(name, i, len(tensors)) for i in range(len(tensors))]
        handles = [
            collectives.allgather(LATER, tensor, part, group)
            for tensor, part in zip(tensors, names)
        ]
        for handle in handles:
            results.append(handle.wait())
            places.append((sum(handle.rows[:mine]), handle.rows[mine or 0]))
        ctx.places = places
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Tuple[Any, ...]:
        means = Allreduce.apply(*ctx.arguments, *grads)
        own = [mean.narrow(0, *place) for mean, place in zip(means, ctx.places)]
        return (None, None, None, *own)


class Gather(torch.autograd.Function):
    """The root holds the only copy of every row: its gradient goes back where the row came from."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root: int, name: Optional[str], group: Group
    ) -> torch.Tensor:
        handle = collectives.gather(NOW, tensor, root, name, group)
        result = handle.wait()
        ctx.arguments = (handle.rows, _gradient_name(name), group)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Tuple[Any, ...]:
        back, _ = Alltoall.apply(grads[0], *ctx.arguments)
        return back, None, None, None


class Broadcast(torch.autograd.Function):
    """The root's tensor is used by all ranks, so it gets the mean of their gradients."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root: int, name: Optional[str], group: Group
    ) -> torch.Tensor:
        ctx.arguments = (False, _gradient_name(name), Average, 1.0, 1.0, group, None)
        ctx.is_root = group.rank() is not None and group.ranks[group.rank() or 0] == root
        return collectives.broadcast(NOW, tensor, root, name, group).wait()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Tuple[Any, ...]:
        (mean,) = Allreduce.apply(*ctx.arguments, grads[0])
        return (mean if ctx.is_root else torch.zeros_like(mean)), None, None, None


class Reducescatter(torch.autograd.Function):
    """A row's gradient is with the rank that holds it. The scale is Horovod's: covey.torch.ops.
    Tensors as of Allreduce."""

    @staticmethod
    def forward(
        ctx: Any,
        is_grouped: bool,
        name: Optional[str],
        op: int,
        group: Group,
        prescale: float,
        postscale: float,
        *tensors: torch.Tensor,
    ) -> Tuple[torch.Tensor, ...]:
        how = (name, op, group, prescale, postscale)
        ctx.arguments = (_gradient_name(name), op, group, prescale * postscale)
        if is_grouped:
            return tuple(collectives.grouped_reducescatter(NOW, tensors, *how).wait())
        return (collectives.reducescatter(NOW, tensors[0], *how).wait(),)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Tuple[Any, ...]:
        name, op, group, scale = ctx.arguments
        _check_differentiable(op, "reducescatter")
        factor = scale * group.size() if op == Sum else scale
        scaled = grads if factor == 1 else [grad * factor for grad in grads]
        whole = Allgather.apply(len(scaled) > 1, name, group, *scaled)
        return (None, None, None, None, None, None, *whole)


class Alltoall(torch.autograd.Function):
    """The gradients of the rows go back where the rows came from."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, splits: Any, name: Optional[str], group: Group
    ) -> Any:
        handle = collectives.alltoall(NOW, tensor, splits, name, group)
        result = handle.wait()
        ctx.arguments = (handle.rows, _gradient_name(name), group)
        ctx.rows = tensor.shape[0]
        if splits is not None:
            ctx.mark_non_differentiable(result[1])
        return result

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Tuple[Any, ...]:
        back, _ = Alltoall.apply(grads[0], *ctx.arguments)
        kept = ctx.rows - back.shape[0]  # rows beyond the splits went nowhere
        if kept > 0:
            back = torch.cat([back, back.new_zeros((kept, *back.shape[1:]))])
        return back, None, None, None
