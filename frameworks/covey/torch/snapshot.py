"""The state of a trainer as bytes: what a rank goes on from that has fallen behind. Internal.

Parameters, the optimizer's state, buffers of the model and what it carries, after a version. Not
the numbers in the parameter groups (learning rates): those of a version travel with it, and a
rank's own are its own. No pickle: a header in JSON, then the tensors.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Dict, List, Optional, Tuple

import torch

from covey.errors import InvalidArgument, Mismatch, Unsupported

_LINE = 64  # Tensors begin at multiples of it.


class State:
    """What of a trainer is the same on all ranks at the same version."""

    def __init__(self, optimizer: Any, model: Optional[torch.nn.Module]) -> None:
        self._optimizer = optimizer
        self._model = model

    @property
    def _parameters(self) -> List[torch.nn.Parameter]:
        return [p for group in self._optimizer.param_groups for p in group["params"]]

    @property
    def _buffers(self) -> List[torch.Tensor]:
        own = [] if self._model is None else list(self._model.buffers())
        for module in getattr(self._optimizer, "_covey_carried", ()):
            own += [parameter.detach() for parameter in module.parameters()]
            own += list(module.buffers())
        return own

    def pack(self) -> List[torch.Tensor]:
        """Pieces that make the image one after the other; some are the live tensors."""
        tensors: List[torch.Tensor] = []

        def entry(value: Any) -> List[Any]:
            if isinstance(value, torch.Tensor):
                tensors.append(value.detach().cpu().contiguous())  # Waits for a device.
                where = [] if value.is_cpu else ["beside"]
                return [str(value.dtype).rpartition(".")[2], list(value.shape), *where]
            if value is None or isinstance(value, (bool, int, float, str)):
                return [value]
            raise Unsupported(
                f"the optimizer's state holds a {type(value).__name__}, which no snapshot can hold"
            )

        try:
            header: Dict[str, Any] = {
                "parameters": [entry(p) for p in self._parameters],
                "state": [
                    {key: entry(value) for key, value in self._optimizer.state.get(p, {}).items()}
                    for p in self._parameters
                ],
                "buffers": [entry(buffer) for buffer in self._buffers],
            }
        except Unsupported as unsupported:
            tensors, header = [], {"error": str(unsupported)}
        text = json.dumps(header).encode()
        text = struct.pack("<Q", len(text)) + text
        pieces = [torch.frombuffer(bytearray(text.ljust(_up(len(text)), b" ")), dtype=torch.uint8)]
        for tensor in tensors:
            length = tensor.numel() * tensor.element_size()
            pieces += [tensor, torch.zeros(_up(length) - length, dtype=torch.uint8)]
        return [piece for piece in pieces if piece.numel() > 0]

    @torch.no_grad()
    def unpack(self, image: torch.Tensor) -> None:
        """Takes over what ``pack`` gave on another rank, as one tensor of bytes.

        Raises:
            Unsupported: (a ValueError) the giver could not pack its state.
            Mismatch: the giver's model or what it carries is another.
        """
        (length,) = struct.unpack("<Q", bytes(image[:8].numpy()))
        header = json.loads(bytes(image[8 : 8 + length].numpy()))
        if "error" in header:
            raise Unsupported(header["error"])
        if len(header["buffers"]) != len(self._buffers):
            raise Mismatch(
                f"a snapshot holds {len(header['buffers'])} tensors beside the parameters, this "
                f"rank {len(self._buffers)}: model= and carry() must be the same on all ranks"
            )
        at = _up(8 + length)

        def read(entry: List[Any]) -> Any:
            nonlocal at
            if len(entry) == 1:
                return entry[0]
            dtype, shape = getattr(torch, entry[0]), entry[1]
            end = at + torch.Size(shape).numel() * torch.empty(0, dtype=dtype).element_size()
            tensor = image[at:end].view(dtype).reshape(shape)
            at = _up(end)
            return tensor

        for parameter, entry in zip(self._parameters, header["parameters"]):
            parameter.copy_(read(entry))
        for parameter, entries in zip(self._parameters, header["state"]):
            own = self._optimizer.state[parameter] if entries else {}
            for key, entry in entries.items():
                own[key] = _adopt(own.get(key), read(entry), parameter, "beside" in entry[2:])
        for buffer, entry in zip(self._buffers, header["buffers"]):
            buffer.copy_(read(entry))


def _adopt(old: Any, new: Any, parameter: torch.Tensor, is_beside: bool) -> Any:
    """In place where there is a tensor already; else one that lies as the parameter does, or, if
    ``is_beside``, on its device."""
    if not isinstance(new, torch.Tensor):
        return new
    if isinstance(old, torch.Tensor) and old.shape == new.shape and old.dtype == new.dtype:
        return old.copy_(new)
    where = parameter.device if is_beside else torch.device("cpu")
    if new.shape == parameter.shape:
        like = torch.empty_like(parameter, dtype=new.dtype, device=where, requires_grad=False)
        return like.copy_(new)
    return new.to(where, copy=True)


def _up(length: int) -> int:
    return (length + _LINE - 1) // _LINE * _LINE


def addresses_of(pieces: List[torch.Tensor]) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """Where they lie and how many bytes each has."""
    return (
        tuple(piece.data_ptr() for piece in pieces),
        tuple(piece.numel() * piece.element_size() for piece in pieces),
    )


def carry(optimizer: Any, *modules: torch.nn.Module) -> None:
    """Snapshots hold the parameters and buffers of ``modules`` too, from now on: a rank that goes
    on from one has them as they were with the version.

    For what follows from the updates alone, such as an average of the parameters over time (EMA).
    Torch's hooks of a step run once per applied version, also on a rank that applies several at
    once: in one of these such an average stays the same on all ranks, by every method whose models
    do. To be called on every rank alike.

    Raises:
        InvalidArgument: (a ValueError) something is not a module.

    Example:
        >>> average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn())
        >>> optimizer.register_step_post_hook(lambda *_: average.update_parameters(net))
        >>> optimizer.carry(average)
    """
    for module in modules:
        if not isinstance(module, torch.nn.Module):
            raise InvalidArgument(f"carry() takes modules, not {module!r}")
    optimizer._covey_carried += modules
