"""Lightning's Trainer by a method: a strategy, which needs the package lightning."""

from __future__ import annotations

from typing import Any, Dict, Optional

import torch
from lightning.pytorch.strategies import DDPStrategy

from covey import basics
from covey.torch.ddp import DistributedDataParallel

_OF_LIGHTNING = (
    *("accelerator", "parallel_devices", "cluster_environment", "checkpoint_io"),
    *("precision_plugin", "process_group_backend", "timeout", "start_method"),
)


class CoveyStrategy(DDPStrategy):
    """As Lightning's DDPStrategy; the ranks train together by ``method``.

    For ranks of ``coveyrun`` or torchrun: ``devices`` of the Trainer is their number on each host.
    At the end of ``fit()`` the models become the mean of all, if the method has let them differ.

    Args:
        method: as of ``covey.torch.DistributedOptimizer``; None: as ``coveyrun --method`` says.
        **options: those of DDPStrategy; all others are of
            ``covey.torch.DistributedDataParallel``, parameters of the method among them.

    Raises:
        As ``covey.torch.DistributedDataParallel``, when the Trainer begins.

    Example:
        >>> strategy = CoveyStrategy(method="local", local_steps=8)
        >>> trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy=strategy)
    """

    def __init__(self, method: Optional[str] = None, **options: Any) -> None:
        basics.init()
        theirs = {name: it for name, it in options.items() if name in _OF_LIGHTNING}
        super().__init__(**theirs)
        self._options: Dict[str, Any] = {
            name: it for name, it in options.items() if name not in theirs
        }
        self._method = method

    def _setup_model(self, model: torch.nn.Module) -> DistributedDataParallel:
        device_ids = self.determine_ddp_device_ids()
        return DistributedDataParallel(
            model, device_ids=device_ids, method=self._method, **self._options
        )

    def on_train_end(self) -> None:
        """Lightning calls it on all ranks."""
        super().on_train_end()
        if isinstance(self.model, DistributedDataParallel):
            self.model.finish()
