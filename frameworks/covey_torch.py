"""Tells torch of its backend "covey", so that ``init_process_group("covey")`` needs no import.

torch 2.5 and later call `register` at the end of ``import torch``: it is the wheel's entry point of
the group ``torch.backends``. With TORCH_DEVICE_BACKEND_AUTOLOAD=0 it does not, and ``import
covey.torch`` does it. Every program with torch comes by here, also those without Covey: so the
package is first imported when a process group is made. A module of its own, because importing
anything of the package imports the package first.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator

_OF_ENV = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torch's env:// reads
# One of these is set where Covey itself can join the ranks: by COVEY_RENDEZVOUS, mpirun or srun.
_MEET_BY_COVEY = ("COVEY_RENDEZVOUS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "PMI_RANK")


def register() -> None:
    """Once known, a no-op."""
    import torch.distributed as dist

    if not dist.is_available() or hasattr(dist.Backend, "COVEY"):
        return
    dist.Backend.register_backend("covey", _create, extended_api=True, devices=["cpu", "cuda"])
    handlers = getattr(dist.rendezvous, "__globals__", {}).get("_rendezvous_handlers", {})
    if "env" in handlers and any(name in os.environ for name in _MEET_BY_COVEY):
        handlers["env"] = _with_covey(handlers, handlers["env"])


def _with_covey(handlers: Dict[str, Any], theirs: Any) -> Any:
    """``env://`` for ranks that have been told no address to meet at: an error of torch, but for
    what `import covey.torch` makes of it."""

    def meet(url: str, **options: Any) -> Iterator[Any]:
        complete = theirs
        if any(name not in os.environ for name in _OF_ENV) and handlers["env"] is meet:
            handlers["env"] = theirs
            import covey.torch  # noqa: F401

            complete = handlers["env"]
        yield from complete(url, **options)

    return meet


def _create(options: Any, backend_options: Any = None) -> Any:
    from covey.torch.c10d import backend

    return backend.create(options, backend_options)
