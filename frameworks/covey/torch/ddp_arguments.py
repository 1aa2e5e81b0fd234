"""The arguments of torch's DistributedDataParallel: read, checked, or refused. Internal."""

from __future__ import annotations

import inspect
import types
from typing import Any, Callable, List, Optional

import torch
import torch.distributed as dist

from covey.arguments import factor_of, group_id, many_of
from covey.basics import rank, size
from covey.errors import InvalidArgument, Unsupported
from covey.group import Group, world
from covey.torch.layout import BUCKET_BYTES

_NAME = "DistributedDataParallel"
OF_TORCH = frozenset(
    (
        *("device_ids", "output_device", "dim", "broadcast_buffers", "init_sync", "process_group"),
        *("bucket_cap_mb", "find_unused_parameters", "gradient_as_bucket_view", "static_graph"),
        *("delay_all_reduce_named_params", "param_to_hook_all_reduce", "mixed_precision"),
        *("device_mesh", "bucket_cap_mb_list", "forward_sync_buffers"),
    )
)
"""The arguments with an effect here: the others change how torch's own reductions work."""
_DELAYED = "a gradient is reduced with its bucket: wrap these parameters as a model of their own"
_REFUSED = {
    "delay_all_reduce_named_params": _DELAYED,
    "param_to_hook_all_reduce": _DELAYED,
    "mixed_precision": "torch.autocast computes in half precision",
    "bucket_cap_mb_list": "bucket_cap_mb is one size for all buckets",
}


class Arguments(types.SimpleNamespace):
    """The arguments of one model, by their names, and what they mean here.

    Attributes:
        device_ids: the one device that inputs are moved to; None: they stay where they are.
        broadcasts: whether forward passes begin with the first rank's buffers.
        broadcasts_at_first: whether the training does.
        bucket_bytes: as of DistributedOptimizer.
    """

    device_ids: Optional[List[Any]]
    output_device: Any

    def __init__(self, **given: Any) -> None:
        """Raises InvalidArgument, Unsupported (ValueErrors): one is wrong, or refused."""
        for name, reason in _REFUSED.items():
            if given[name] is not None:
                raise Unsupported(f"{_NAME}: {name} is not there by a method: {reason}")
        super().__init__(**given)
        ids, size_mb = given["device_ids"], given["bucket_cap_mb"]
        self.device_ids = None if ids is None else list(many_of(ids, "device_ids"))
        self.bucket_bytes = BUCKET_BYTES
        if size_mb is not None:
            self.bucket_bytes = int(factor_of("bucket_cap_mb", size_mb) * (1 << 20))
        asked, forward = given["broadcast_buffers"], given["forward_sync_buffers"]
        self.broadcasts = bool(asked is not False if forward is None else forward)
        self.broadcasts_at_first = self.broadcasts if forward is None else True

    def check(self, module: torch.nn.Module) -> None:
        """Refuses a module, or devices, as torch does.

        Raises:
            RuntimeError: there is nothing to train, or no room for it yet.
            InvalidArgument: (a ValueError) several devices, or those of a model on the CPU.
            Unsupported: (a ValueError) optimizers act within the backward pass.
        """
        if not isinstance(module, torch.nn.Module):
            kind = type(module).__name__
            raise InvalidArgument(f"{_NAME}: module must be a torch.nn.Module, not a {kind}")
        parameters = list(module.parameters())
        if not any(it.requires_grad for it in parameters):
            raise RuntimeError(
                f"{_NAME} is not needed when a module doesn't have any parameter that requires a "
                "gradient."
            )
        if any(isinstance(it, torch.nn.parameter.UninitializedParameter) for it in parameters):
            raise RuntimeError(
                f"Modules with uninitialized parameters can't be used with `{_NAME}`. Run a dummy "
                "forward pass to correctly initialize the modules"
            )
        if any(hasattr(it, "_in_backward_optimizers") for it in parameters):
            raise Unsupported(
                f"{_NAME}: optimizers within the backward pass are not there by a method, of which "
                "an update may need several passes, or none: make one optimizer of the parameters"
            )
        if self.device_ids is not None and len(self.device_ids) > 1:
            raise InvalidArgument("device_ids can only be None or contain a single element.")
        devices = {it.device for it in parameters}
        if len(devices) == 1 and next(iter(devices)).type != "cpu":
            if self.device_ids and self.output_device is None:
                self.output_device = self.device_ids[0]
        elif self.device_ids or self.output_device is not None:
            raise InvalidArgument(
                f"{_NAME}: device_ids and output_device are for a model on one GPU, and this one "
                f"is on {', '.join(sorted(map(str, devices)))}: leave them out"
            )
        else:
            self.device_ids = None


def default_group() -> Any:
    """The default group of torch.distributed; None: there is none."""
    return dist.group.WORLD if dist.is_available() and dist.is_initialized() else None


def group_of(given: Arguments, process_set: Optional[Group]) -> Group:
    """The ranks that train together.

    Raises:
        InvalidArgument: (a ValueError) they are said twice; torch numbers the ranks differently.
    """
    theirs, mesh = given.process_group, given.device_mesh
    if sum(it is not None for it in (theirs, mesh, process_set)) > 1:
        raise InvalidArgument(
            f"{_NAME}: process_group, device_mesh and process_set say the same: give one of them"
        )
    if process_set is not None:
        group_id(process_set)  # Refuses what is none.
        return process_set
    if default_group() is None:
        return world
    if (dist.get_rank(), dist.get_world_size()) != (rank(), size()):
        raise InvalidArgument(
            f"{_NAME}: this process is rank {dist.get_rank()} of {dist.get_world_size()} to "
            f"torch.distributed, and rank {rank()} of {size()} to Covey: give init_process_group "
            "rank and world_size as covey.rank() and covey.size() have them"
        )
    if mesh is not None:
        if mesh.ndim != 1:
            raise InvalidArgument(f"{_NAME}: device_mesh has {mesh.ndim} dimensions: take one")
        theirs = mesh.get_group(mesh_dim=0)
    return world if theirs is None else Group(dist.get_process_group_ranks(theirs))


def refuse(name: str, reason: str) -> Callable[..., Any]:
    """A method of the class that only raises Unsupported (a ValueError)."""

    def refused(self: Any, *_: Any, **__: Any) -> Any:
        raise Unsupported(f"{_NAME}.{name} is not there by a method: {reason}")

    refused.__name__ = refused.__qualname__ = name
    refused.__doc__ = f"Refused: {inspect.cleandoc(reason)}."
    return refused
