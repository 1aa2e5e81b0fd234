"""Tells torch of its backend "covey", so that ``init_process_group("covey")`` needs no import.

torch 2.5 and later call `register` at the end of ``import torch``: it is the wheel's entry point of
the group ``torch.backends``. With TORCH_DEVICE_BACKEND_AUTOLOAD=0 it does not, and ``import
covey.torch`` does it. Every program with torch comes by here, also those without Covey: so the
package is first imported when a process group is made. A module of its own, because importing
anything of the package imports the package first.
"""

from __future__ import annotations

from typing import Any


def register() -> None:
    """Once known, a no-op."""
    import torch.distributed as dist

    if dist.is_available() and not hasattr(dist.Backend, "COVEY"):
        dist.Backend.register_backend("covey", _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options: Any, backend_options: Any = None) -> Any:
    from covey.torch.c10d import backend

    return backend.create(options, backend_options)
