"""How the values of the ranks are combined. The numbers are Horovod's."""

from __future__ import annotations

import enum
from typing import Any, Optional

from covey.arguments import truth_of
from covey.errors import InvalidArgument, Unsupported


class ReduceOp(enum.IntEnum):
    """The operation of an allreduce. Sums and products are taken in rank order.

    Example:
        >>> total = covey.allreduce(tensor, op=covey.Sum, name="total")
    """

    Average = 0
    Sum = 1
    Adasum = 2
    Min = 3
    Max = 4
    Product = 5


Average = ReduceOp.Average
"""The sum divided by the number of ranks.

Of integers: the sum wraps in their dtype (uint8: 200 and 200 give 72, int8: 100 and 100 give -28),
is multiplied by 1 / size as a double, so that of int64 beyond 2**53 the lowest bits are lost, and
truncates toward zero (-3 and -4 give -3). Convert first where that matters."""
Sum = ReduceOp.Sum
"""The sum, in rank order; that of integers wraps in their dtype."""
Adasum = ReduceOp.Adasum
"""For torch and TensorFlow: ``allreduce``, ``grouped_allreduce`` and ``DistributedOptimizer``. The
sum of what is orthogonal in the ranks' tensors, the mean of what is parallel (arXiv:2006.02924)."""
Min = ReduceOp.Min
"""The smallest number, element by element."""
Max = ReduceOp.Max
"""The largest number, element by element."""
Product = ReduceOp.Product
"""The product, in rank order; that of integers wraps in their dtype."""

NO_ADASUM = (
    "op=Adasum is there for allreduce, grouped_allreduce and DistributedOptimizer of covey.torch "
    "and covey.tensorflow only; use op=Average"
)
CORE_CODES = (1, 0, -1, 2, 3, 4)
"""ReduceOp -> covey_op."""


def is_adasum(op: Any) -> bool:
    return isinstance(op, int) and op == Adasum


def core_code(op: Any) -> int:
    """The core's number of ``op``. Raises InvalidArgument, or Unsupported for Adasum, of which the
    core knows nothing."""
    if isinstance(op, int) and 0 <= op < len(CORE_CODES):
        code = CORE_CODES[op]
        if code < 0:
            raise Unsupported(NO_ADASUM)
        return code
    raise InvalidArgument(f"op must be Average, Sum, Min, Max or Product, not {op!r}")


def choose_op(op: Optional[int], average: Optional[bool]) -> int:
    """Horovod's rule for its deprecated argument ``average`` beside ``op``; neither: Average."""
    if average is None:
        if op is None:
            return Average
        if isinstance(op, int):
            return op
        raise InvalidArgument(f"op must be Average, Sum, Min, Max or Product, not {op!r}")
    if op is not None:
        raise InvalidArgument("give op= or the deprecated average=, not both")
    return Average if truth_of("average", average) else Sum
