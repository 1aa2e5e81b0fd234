"""The model of one optimizer in the exchanges of its ranks. Internal.

Parameters lie in memory of the core's trainer, and are trained there. Exchanges by operations are
in place, also on a device; rounds and pairs exchange copies in memory of the host.
"""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import torch

from covey import _native
from covey.errors import InvalidArgument
from covey.torch.layout import BucketPlan, Named
from covey.torch.mirror import wait_for
from covey.torch.model_place import ModelPlace
from covey.torch.own_update import OwnUpdate, reads_parameters
from covey.torch.tensors import CODES, FRAMEWORK


def refuse_shared_memory(named: Sequence[Named]) -> None:
    """Moving such parameters would part them. One parameter used twice is fine."""
    owner: Dict[int, str] = {}
    for name, parameter in named:
        other = owner.setdefault(parameter.data_ptr(), name) if parameter.numel() else name
        if other != name:
            raise InvalidArgument(
                f"{other} and {name} are two parameters in the same memory, which a method that "
                "averages models cannot keep so: use one torch.nn.Parameter in both places"
            )


def relative_distance(model: Sequence[torch.Tensor], mean: Sequence[torch.Tensor]) -> float:
    """The norm of their difference, in parts of that of the mean."""
    with torch.no_grad():
        apart = sum(float((a - b).double().square().sum()) for a, b in zip(model, mean))
        norm = sum(float(b.double().square().sum()) for b in mean)
    return (apart / norm) ** 0.5 if norm > 0 else 0.0


class ModelExchange:
    """See the module. ``offer`` and ``load`` are two actions of the trainer.

    Attributes:
        is_here: the parameters lie in memory of the trainer.
    """

    def __init__(
        self, trainer: Any, optimizer: Any, named: Sequence[Named], plans: Sequence[BucketPlan],
        keep: Any,
    ) -> None:
        """``trainer``: has ``spans``. ``keep``: holds memory of the core while a tensor lies in it.

        Raises:
            InvalidArgument: (a ValueError) two parameters in the same memory.
        """
        refuse_shared_memory(named)
        self._trainer, self._optimizer = trainer, optimizer
        self._places = [ModelPlace(plan, keep) for plan in plans]
        self._plans = plans
        self._own = OwnUpdate([parameter for _, parameter in named])
        self._offered: Tuple[int, ...] = ()  # In the exchange under way.
        self._loaded: Tuple[int, ...] = ()  # Where it was loaded from since.
        self._before: List[torch.Tensor] = []  # It was.
        self._averages = 0
        self.is_here = False

    def close(self) -> None:
        """The parameters get memory of their own."""
        self.vacate()
        self._places = []

    def vacate(self) -> None:
        """The memory is about to end: parameters leave it."""
        self.is_here, self._offered = False, ()
        wait_for(place.mirror for place in self._places)
        for place in self._places:
            place.release()

    def gather(self) -> None:
        """Moves there what does not lie there."""
        self.is_here = True
        self._open()
        with torch.no_grad():
            for place in self._places:
                place.gather()

    def leave(self) -> None:
        """The steps that come exchange no model."""
        self.is_here = False

    def settle(self, is_seen: bool) -> None:
        """A call of the trainer is over: no memory that the core reads is trained on. ``is_seen``:
        others may look at it there."""
        self.take_back()
        if is_seen or not self.is_here:
            self.gather()

    def take_back(self) -> None:
        """The model is not trained on where the core reads it."""
        offered, self._offered = self._offered, ()
        if offered and self._trainer.spans(of_model=True) != self._loaded:
            self.gather()

    @property
    def numbers(self) -> List[torch.Tensor]:
        """By dtype and device: the parameters, side by side."""
        return [place.numbers for place in self._places]

    @torch.no_grad()
    def offer(self, is_in_place: bool, updates_after: bool) -> None:
        """The core has the model. ``updates_after``: an update follows, with what it was."""
        if updates_after and reads_parameters(self._optimizer):
            self._own.begin()
        self._offered, self._loaded = self._open(), ()
        if not is_in_place:
            for place in self._places:
                place.offer()
            wait_for(place.mirror for place in self._places)
            return
        self.gather()
        self._averages += 1
        # How far apart models are costs a copy of them: looked at ever more rarely.
        is_measured = self._averages & (self._averages - 1) == 0
        self._before = [it.clone() for it in self.numbers] if is_measured else []
        if any(place.mirror.is_far for place in self._places):
            _native.trainer_place(self._trainer.number, tuple(map(_tensor, self.numbers)))

    @torch.no_grad()
    def load(self, is_in_place: bool, scale: float) -> float:
        """The parameters are what the core has made of them. Returns how far this rank's were from
        that, in parts of the norm; negative: it is not known."""
        self._loaded = self._open()
        for place in self._places:
            if is_in_place:
                place.take(scale)
            else:
                place.load()
        before, self._before = self._before, []
        distance = relative_distance(before, self.numbers) if before else -1.0
        self._own.take_back()
        return distance

    def updated(self) -> None:
        """This rank's own update is done."""
        self._own.add()

    def forget(self) -> None:
        """An exchange was not made, and is not waited for any more."""
        self._own.forget()

    def _open(self) -> Tuple[int, ...]:
        addresses: Tuple[int, ...] = self._trainer.spans(of_model=True)
        for place, address in zip(self._places, addresses):
            place.open(address)
        return addresses


def _tensor(numbers: torch.Tensor) -> Tuple[int, int, Any]:
    return CODES[numbers.dtype], numbers.numel(), FRAMEWORK.address(numbers)
