"""Whether the replicas were equal before the first update. Internal.

A forgotten broadcast trains as many models as there are ranks, under every method, and nothing
fails. So the first step compares digests of what the model holds, in the background: no step waits.
The first forward pass may change buffers (BatchNorm), so theirs is of before: of when the optimizer
was made, or when they were broadcast, or loaded, since then.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from covey.errors import CoveyError
from covey.group import Group
from covey.notice import is_shown, warn
from covey.state import state
from covey.torch.layout import Named
from covey.torch.ops import allgather_async

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ROW = 1 << 14  # Weights before they repeat; rows are weighted by their number.
_BLOCK_ROWS = {"cpu": 8}  # Digested at a time: what fits a cache; elsewhere:
_ROWS = 1 << 9
_LOOK_S = 0.001
_NONE = torch.zeros((), dtype=torch.int64)
_WHAT = ("parameters", "frozen parameters", "buffers")


def compare_start(optimizer: Any, named: Sequence[Named]) -> None:
    """Makes ready to compare what its ranks begin with, unless training has begun. All call it.
    ``named``: the parameters that are trained."""
    progress, options = optimizer._covey_progress, optimizer._covey_options
    if progress.steps > 0 or progress.version > 0 or not named:
        return
    if progress.start is not None:
        progress.start.drop()
    name, group = progress.name_of("start"), options["process_set"]
    given = [*(options["named_parameters"] or ()), *optimizer._covey_outside]
    progress.start = EqualStart(name, group, named, given, options["model"])


def see_buffers() -> None:
    """All ranks have the same now, as far as they were broadcast."""
    for optimizer in state.optimizers():
        if optimizer._covey_progress.start is not None:
            optimizer._covey_progress.start.see()


class EqualStart:
    """The state that the ranks of one optimizer begin with."""

    def __init__(
        self,
        name: str,
        group: Group,
        named: Sequence[Named],
        given: Sequence[Named],
        model: Optional[torch.nn.Module],
    ) -> None:
        """``named``: the parameters that are trained; ``given``: all that the optimizer was told
        of; ``model``: the one whose frozen parameters and buffers are compared too, if any."""
        self._name = name
        self._group = group
        more = given if model is None else [*given, *model.named_parameters()]
        others = {id(parameter): (key, parameter) for key, parameter in reversed(more)}
        for _, parameter in named:
            others.pop(id(parameter), None)
        frozen = sorted(others.values(), key=lambda each: each[0])
        self._parameters: Sequence[Sequence[Named]] = (named, frozen)
        self._buffers: List[Named] = [] if model is None else _kept_buffers(model)
        self._of_buffers = _NONE
        self._handle: Optional[Any] = None
        self._hook: Any = None
        if model is not None and self._buffers:
            self._hook = model.register_load_state_dict_post_hook(lambda *_: self.see())
        self.see()

    def see(self) -> None:
        """Buffers are as they are to begin with."""
        if self._buffers:
            self._of_buffers = digest(self._buffers)

    def step(self, is_first: bool) -> None:
        """A step is about to be done."""
        if is_first and self._handle is None and self._parameters:
            digests = [*map(digest, self._parameters), self._of_buffers]
            self.drop()
            row = torch.stack(digests).reshape(1, -1)
            self._handle = allgather_async(row, name=self._name, process_set=self._group)
        self.look()

    def drop(self) -> None:
        """There is nothing to compare any more."""
        self._parameters, self._buffers = (), []
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def look(self, patience_s: float = 0.0) -> None:
        """Says what differs, once and on the group's first rank, if all have come. Waits for them
        for ``patience_s`` at most."""
        if self._handle is None:
            return
        deadline = time.monotonic() + patience_s
        while not self._handle.poll():
            if time.monotonic() >= deadline:
                return
            time.sleep(_LOOK_S)
        handle, self._handle = self._handle, None
        try:
            everyone = handle.wait()
        except CoveyError:
            return  # A member has died, or the runtime has ended: both are told elsewhere.
        if self._group.rank() == 0 and is_shown():
            _tell(self._group.ranks, everyone)


def _tell(ranks: Sequence[int], everyone: torch.Tensor) -> None:
    differs = everyone != everyone[0]
    others = [str(rank) for rank, row in zip(ranks, differs) if bool(row.any())]
    if not others:
        return
    what = " and ".join(word for word, wrong in zip(_WHAT, differs.any(dim=0)) if bool(wrong))
    warn(
        f"before the first update rank{'s' if len(others) > 1 else ''} {', '.join(others)} had "
        f"other {what} than rank {ranks[0]}: call broadcast_parameters(model.state_dict(), "
        "root_rank=0) before training; check_replicas(model) names the first tensor that differs"
    )


def _kept_buffers(model: torch.nn.Module) -> List[Named]:
    """Those that a checkpoint holds."""
    kept = set(model.state_dict(keep_vars=True))
    return [(name, buffer) for name, buffer in model.named_buffers() if name in kept]


def digest(named: Sequence[Named]) -> torch.Tensor:
    """A number that depends on every bit of the tensors and on its place: int64, on the CPU. It
    reads each tensor once, where it lies: a sum of the elements' bits as integers, each times an
    odd number of its own, modulo a power of two."""
    total = torch.zeros((), dtype=torch.int64)
    weights: Dict[Tuple[torch.dtype, torch.device], torch.Tensor] = {}
    with torch.no_grad():
        for place, (_, tensor) in enumerate(named, 1):
            bits = tensor.detach().contiguous()
            bits = torch.view_as_real(bits) if bits.is_complex() else bits
            bits = bits.reshape(-1).view(_INTEGERS[bits.element_size()])
            key = (bits.dtype, bits.device)
            if key not in weights:
                weights[key] = _weights(*key)
            total += (2 * place + 1) * _weighted(bits, weights[key]).cpu()
    return total


def _weights(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """[_ROW] Odd numbers, the same everywhere."""
    numbers = torch.arange(_ROW, dtype=torch.int64)
    return (numbers * 0x1E3779B97F4A7C15 >> 32 | 1).to(dtype).to(device)


def _weighted(bits: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    block = _BLOCK_ROWS.get(bits.device.type, _ROWS)
    whole = bits.numel() // _ROW
    rows = bits[: whole * _ROW].view(whole, _ROW)
    total = torch.zeros((), dtype=torch.int64, device=bits.device)
    for begin in range(0, whole, block):
        sums = (rows[begin : begin + block] * weights).sum(dim=1, dtype=torch.int64)
        numbers = torch.arange(begin, begin + len(sums), device=bits.device)
        total += (sums * (2 * numbers + 1)).sum()
    rest = bits[whole * _ROW :]
    return total + (rest * weights[: rest.numel()]).sum(dtype=torch.int64) * (2 * whole + 1)
