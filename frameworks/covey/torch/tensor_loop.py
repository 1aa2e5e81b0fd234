"""The loop over what the core's trainer asks for, on torch tensors that it copies. Internal.

For updates that are not those of ``DistributedOptimizer`` alone: of Keras, and of ranks that train
with those of another framework. Tensors on a device are copied through memory of the host.
"""

from __future__ import annotations

from typing import Sequence

import torch

from covey.torch.tensors import FRAMEWORK
from covey.trainer_loop import TrainerLoop, Update


class TensorLoop(TrainerLoop):
    """See the module."""

    def __init__(
        self, parameters: Sequence[torch.Tensor], kept: Sequence[torch.Tensor], update: Update
    ) -> None:
        super().__init__(FRAMEWORK, parameters, kept, update)

    @torch.no_grad()
    def _run(self) -> None:
        super()._run()
