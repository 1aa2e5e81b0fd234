"""The state of a trainer as bytes, from which a rank goes on that has fallen behind. Internal.

Parameters, the optimizer's state, buffers of the model and what it carries, after a version. Not
the numbers in the parameter groups (learning rates): those of a version travel with it, and a
rank's own are its own. No pickle: a header in JSON, then the tensors.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any, Dict, List, Optional, Tuple

import torch

from covey.errors import InvalidArgument, Mismatch, Unsupported, shown
from covey.torch.layout import parameters_of

_LINE = 64  # Tensors begin at multiples of it.
_LENGTH_BYTES = 8
_MOST_DIMENSIONS = 64
_MOST_CHARACTERS = 1000
_PLAIN = (type(None), bool, int, float, str)
_DTYPES = {
    name: getattr(torch, name)
    for name in (
        *("float64", "float32", "float16", "bfloat16", "complex128", "complex64", "complex32"),
        *("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    )
    if isinstance(getattr(torch, name, None), torch.dtype)
}


class State:
    """The state of a trainer that is the same on all ranks at the same version."""

    def __init__(self, optimizer: Any, model: Optional[torch.nn.Module]) -> None:
        self._optimizer = optimizer
        self._model = model

    @property
    def _parameters(self) -> List[torch.nn.Parameter]:
        return parameters_of(self._optimizer)

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
        """Takes over what ``pack`` gave on another rank, as one tensor of bytes; all or nothing.

        Raises:
            Unsupported: (a ValueError) the giver could not pack its state.
            Mismatch: the giver's model or what it carries is another, or this is no image.
        """
        header, at = _header(image)
        if isinstance(header.get("error"), str):
            raise Unsupported(shown(header["error"][:_MOST_CHARACTERS]))
        parameters, states, buffers = (
            _list(header.get(name)) for name in ("parameters", "state", "buffers")
        )
        if len(buffers) != len(self._buffers):
            raise Mismatch(
                f"a snapshot holds {len(buffers)} tensors beside the parameters, this "
                f"rank {len(self._buffers)}: model= and carry() must be the same on all ranks"
            )
        if len(parameters) != len(self._parameters) or len(states) != len(self._parameters):
            raise Mismatch(
                f"a snapshot holds {len(parameters)} parameters, this rank {len(self._parameters)}"
            )
        # In the order of the tensors; nothing is written before all of it is known to fit.
        reader = _Reader(image, at)
        news = [reader.like(own, entry) for own, entry in zip(self._parameters, parameters)]
        found = [
            {key: reader.any(entry) for key, entry in _entries(state).items()} for state in states
        ]
        other = [reader.like(own, entry) for own, entry in zip(self._buffers, buffers)]
        reader.end()
        for own, new in zip((*self._parameters, *self._buffers), (*news, *other)):
            own.copy_(new)
        for parameter, state in zip(self._parameters, found):
            own_state = self._optimizer.state[parameter] if state else {}
            for key, (new, is_beside) in state.items():
                own_state[key] = _adopt(own_state.get(key), new, parameter, is_beside)


def _wrong(what: str) -> Mismatch:
    return Mismatch(f"what came as a snapshot is none of this job: {what}")


def _header(image: torch.Tensor) -> Tuple[Dict[str, Any], int]:
    """(what it says, where the tensors begin)."""
    begin = bytes(image[:_LENGTH_BYTES].numpy())
    length = int.from_bytes(begin, "little")
    if len(begin) < _LENGTH_BYTES or length > image.numel() - _LENGTH_BYTES:
        raise _wrong(f"{image.numel()} bytes are too few")
    try:
        header = json.loads(bytes(image[_LENGTH_BYTES : _LENGTH_BYTES + length].numpy()))
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise _wrong("its header is no JSON object")
    return header, _up(_LENGTH_BYTES + length)


def _list(value: Any) -> List[Any]:
    if not isinstance(value, list):
        raise _wrong("its header is not complete")
    return value


def _entries(value: Any) -> Dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong("the state of a parameter is no object")
    return value


class _Reader:
    """Views of the tensors of an image, one after the other."""

    def __init__(self, image: torch.Tensor, at: int) -> None:
        self._image, self._at = image, at

    def any(self, entry: Any) -> Tuple[Any, bool]:
        """(a number, a text or a tensor; whether it lay beside its parameter on a device)."""
        if not isinstance(entry, list) or not 1 <= len(entry) <= 3:
            raise _wrong("an entry is no list")
        if len(entry) == 1:
            if not isinstance(entry[0], _PLAIN):
                raise _wrong("a value is not plain")
            return entry[0], False
        dtype = _DTYPES.get(entry[0]) if isinstance(entry[0], str) else None
        shape, beside = entry[1], entry[2:]
        if dtype is None or beside not in ([], ["beside"]) or not _is_shape(shape):
            raise _wrong("dtype or shape of a tensor is none")
        end = self._at + math.prod(shape) * dtype.itemsize
        if end > self._image.numel():
            raise _wrong("it is cut short")
        tensor = self._image[self._at : end].view(dtype).reshape(shape)
        self._at = _up(end)
        return tensor, bool(beside)

    def like(self, own: torch.Tensor, entry: Any) -> torch.Tensor:
        """A tensor with shape and dtype of ``own``."""
        new, _ = self.any(entry)
        if not isinstance(new, torch.Tensor) or (new.shape, new.dtype) != (own.shape, own.dtype):
            raise _wrong(f"a tensor of this rank's has {list(own.shape)} of {own.dtype}")
        return new

    def end(self) -> None:
        if self._at != _up(self._image.numel()):
            raise _wrong("it is longer than it says")


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, list) and len(shape) <= _MOST_DIMENSIONS and all(
        type(extent) is int and 0 <= extent < 1 << 48 for extent in shape
    )


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
