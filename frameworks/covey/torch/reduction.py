"""How the gradients of an optimizer are reduced. Internal."""

from __future__ import annotations

from typing import Type

from covey.group import Group
from covey.reduce_op import Average, Sum, core_code
from covey.torch.compression import Compressor


class Reduction:
    """How the gradients of an optimizer are reduced.

    Attributes:
        op_code: covey_op.
        prescale, postscale: factors before and after.
        flags_tell: whether flags of 0 and 1 stay tellable, as they do in sums, averages and maxima.
        gathers_sparse: whether sparse gradients can travel by themselves.
    """

    __slots__ = (
        *("op_code", "prescale", "postscale", "compression", "group", "flags_tell"),
        "gathers_sparse",
    )

    def __init__(
        self,
        op_code: int,
        predivide: float,
        compression: Type[Compressor],
        group: Group,
        flags_tell: bool,
    ) -> None:
        self.op_code = op_code
        self.prescale = 1.0 / predivide
        self.postscale = predivide
        self.compression = compression
        self.group = group
        self.flags_tell = flags_tell
        self.gathers_sparse = flags_tell and op_code in map(core_code, (Average, Sum))
