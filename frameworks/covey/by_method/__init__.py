"""`coveyrun --method` for scripts of torch's DistributedDataParallel, which run unchanged.

The folder of this file goes to the end of the ranks' PYTHONPATH. In it lies an entry point of the
group ``torch.backends``, by which torch calls ``load`` at the end of ``import torch``; with
TORCH_DEVICE_BACKEND_AUTOLOAD=0 it does not.
"""

from __future__ import annotations

import os
import pathlib
import sys
from typing import Any, Dict


def take_part(env: Dict[str, str]) -> None:
    """In a rank's environment: the path, where a method was chosen."""
    folder = str(pathlib.Path(__file__).resolve().parent)
    paths = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    if env.get("COVEY_METHOD") and folder not in paths:
        env["PYTHONPATH"] = os.pathsep.join([*paths, folder])


def is_loaded() -> bool:
    """Whether torch's class makes Covey's. torch is imported."""
    return "__new__" in vars(sys.modules["torch"].nn.parallel.DistributedDataParallel)


def load() -> None:
    """From now on torch's class makes Covey's. Again: a no-op."""
    if not os.environ.get("COVEY_METHOD"):
        return
    import torch

    theirs: Any = torch.nn.parallel.DistributedDataParallel
    if is_loaded():
        return

    def make(cls: type, *_: Any, **__: Any) -> Any:
        if cls is not theirs:
            return object.__new__(cls)
        from covey import basics, method
        from covey.torch.ddp import DistributedDataParallel

        basics.init()
        method.acts_on("torch's DistributedDataParallel", "its own allreduce is off")
        return object.__new__(DistributedDataParallel)

    theirs.__new__ = make
