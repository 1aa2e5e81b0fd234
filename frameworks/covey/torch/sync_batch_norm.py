"""SyncBatchNorm: batch normalization with the statistics of all ranks' batches."""

from __future__ import annotations

from typing import Tuple

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from covey.basics import rank, size
from covey.errors import InvalidArgument
from covey.reduce_op import Sum
from covey.torch.ops import allreduce


class SyncBatchNorm(_BatchNorm):
    """As ``torch.nn.BatchNorm1d`` to ``3d``; in training mean and variance are those of the batches
    of all ranks, which may differ in size and may have no rows.

    Each call in training is one allreduce of 3 numbers a channel and rank, and one more in
    backward: the gradient is that of the sum of all ranks' losses. Every rank must make the call.
    In evaluation, and with one rank, no rank waits for another.

    Args:
        num_features: C of an input [N, C] or [N, C, ...], which is on the CPU or on CUDA (tried on
            an NVIDIA H200).
        eps, momentum, affine, track_running_stats, bias, device, dtype: as
            ``torch.nn.BatchNorm1d``.

    Raises:
        InvalidArgument: (a ValueError) an input has fewer than two dimensions, or in training all
            ranks' batches together have fewer than two values a channel.

    Source:
        S. Ioffe, C. Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing
        Internal Covariate Shift", ICML 2015, arXiv:1502.03167.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), hvd.SyncBatchNorm(8))
    """

    def _check_input_dim(self, input: torch.Tensor) -> None:  # pylint: disable=redefined-builtin
        if input.dim() < 2:
            raise InvalidArgument(
                f"SyncBatchNorm takes [N, C] or [N, C, ...], not {input.dim()} dimensions"
            )

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # pylint: disable=redefined-builtin
        """[N, C, ...], normalized by channel."""
        uses_batch = self.training or self.running_mean is None
        if not uses_batch or size() == 1:
            result: torch.Tensor = super().forward(input)
            return result
        self._check_input_dim(input)
        mean, variance, count = _moments(input)
        self._update(mean.detach(), variance.detach(), count)
        shape = [1, -1] + [1] * (input.dim() - 2)
        scale = torch.rsqrt(variance + self.eps)
        result = (input.to(mean.dtype) - mean.view(shape)) * scale.view(shape)
        if self.affine:
            result = result * self.weight.view(shape) + self.bias.view(shape)
        return result.to(input.dtype)

    @torch.no_grad()
    def _update(self, mean: torch.Tensor, variance: torch.Tensor, count: float) -> None:
        """The running statistics, whose variance is without bias."""
        if not self.training or not self.track_running_stats or self.running_mean is None:
            return
        self.num_batches_tracked.add_(1)
        momentum = self.momentum
        if momentum is None:
            momentum = 1.0 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        unbiased = variance * (count / (count - 1.0))
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)


def _moments(given: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor, float]:
    """[C] mean and variance of all ranks' elements, and their number in a channel."""
    # Every rank's numbers in a row of its own: sums of such tables lose nothing.
    own = _own_moments(given)
    table = torch.nn.functional.pad(own[None], (0, 0, 0, 0, rank(), size() - 1 - rank()))
    means, variances, counts = allreduce(table, op=Sum).unbind(1)
    total = counts.sum(0)
    count = float(total[0].detach())
    if count < 2:
        raise InvalidArgument(
            f"SyncBatchNorm needs more than one value per channel in training: all ranks' batches "
            f"together have {count:g}"
        )
    shares = counts / total
    mean = (shares * means).sum(0)
    return mean, (shares * (variances + (means - mean) ** 2)).sum(0), count


def _own_moments(given: torch.Tensor) -> torch.Tensor:
    """[3, C]: means, variances and numbers of this rank's elements; 0 without any."""
    wide = torch.promote_types(given.dtype, torch.float32)
    rows = given.to(wide).transpose(0, 1).reshape(given.shape[1], -1)
    count = rows.shape[1]
    mean = rows.sum(1) / max(count, 1)
    variance = ((rows - mean[:, None]) ** 2).sum(1) / max(count, 1)
    return torch.stack([mean, variance, torch.full_like(mean, float(count))])
