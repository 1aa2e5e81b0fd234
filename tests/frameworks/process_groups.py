"""Functions of ranks that run within a process group of torch.distributed over Covey."""

from __future__ import annotations

import functools
from typing import Any, Callable

import torch.distributed as dist


def in_group(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` between the beginning and the end of a process group."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        import covey.torch  # noqa: F401  registers the backend

        dist.init_process_group("covey")
        try:
            return function(*args)
        finally:
            dist.destroy_process_group()

    return call
