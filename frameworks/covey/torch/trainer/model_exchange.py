"""The model of one optimizer in the exchanges of its ranks. Internal.

Parameters of a dtype lie side by side in memory of the core's trainer, and are trained there, so
nothing is copied for an exchange by operations. Rounds and pairs exchange copies in memory of the
host. In rounds there are three pieces of such memory: one is trained, one is on offer, one may be
read; parameters are pointed to another piece after each exchange. One that was pointed elsewhere
meanwhile is brought back. On a device they lie side by side there; operations are in place, and
else what is exchanged is copied from and to the pieces (``mirror.py``).
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from covey import _native
from covey.errors import InvalidArgument
from covey.torch.layout import BucketPlan, Named
from covey.torch.tensors import CODES, FRAMEWORK
from covey.torch.trainer.mirror import mirror_of, wait_for
from covey.torch.update import runs_before_update

# Without weight decay, updates of these optimizers depend on gradients and their moments alone.
_BLIND = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
    torch.optim.RMSprop,
    torch.optim.Rprop,
)


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


@torch.no_grad()
def relative_distance(model: Sequence[torch.Tensor], mean: Sequence[torch.Tensor]) -> float:
    """The norm of their difference, in parts of that of the mean."""
    apart = sum(float((a - b).double().square().sum()) for a, b in zip(model, mean))
    norm = sum(float(b.double().square().sum()) for b in mean)
    return (apart / norm) ** 0.5 if norm > 0 else 0.0


class _Piece(NamedTuple):
    """Memory of the core, and the parameters there: on a device beside it."""

    host: torch.Tensor
    numbers: torch.Tensor
    views: List[torch.Tensor]


class _Place:
    """The parameters of one dtype and device."""

    def __init__(self, plan: BucketPlan, keep: Any) -> None:
        self.mirror = mirror_of(plan)
        self._plan = plan
        self._keep = keep
        self._parameters = plan.parameters
        self._pieces: Dict[int, _Piece] = {}  # By address.
        self._here: Any = None

    @property
    def numbers(self) -> torch.Tensor:
        """[plan.length] The parameters, where the optimizer has them."""
        numbers: torch.Tensor = self._here.numbers
        return numbers

    def open(self, address: int) -> None:
        """From now on the core reads, and writes, at ``address``."""
        if address not in self._pieces:
            host = self._plan.at(address, self._keep)
            numbers = self.mirror.of(host)
            self._pieces[address] = _Piece(host, numbers, self._plan.views(numbers))
        self._here = self._pieces[address]

    def gather(self) -> None:
        """Moves what does not lie here."""
        for parameter, view in zip(self._parameters, self._here.views):
            data = parameter.data
            if data.data_ptr() == view.data_ptr() and data.stride() == view.stride():
                continue
            view.copy_(data)
            parameter.data = view

    def offer(self) -> None:
        """The core can read the parameters, once ``mirror`` was waited for."""
        self.gather()
        self.mirror.fetch(self._here.host)

    def load(self, is_in_place: bool, scale: float) -> None:
        """The parameters are what the core has written, or made of them ``is_in_place``, where on a
        device ``scale`` is left to do."""
        if not is_in_place:
            self.mirror.put(self._here.host)
        elif self.mirror.is_far and scale != 1:
            self._here.numbers.mul_(scale)
        for parameter, view in zip(self._parameters, self._here.views):
            parameter.data = view

    def release(self) -> None:
        """Parameters that lie in the core's memory get memory of their own."""
        if self.mirror.is_far:
            return
        for piece in self._pieces.values():
            for parameter, view in zip(self._parameters, piece.views):
                if parameter.data_ptr() == view.data_ptr():
                    parameter.data = parameter.data.clone()


class _OwnUpdate:
    """A rank's own update while its model is averaged with its neighbors' (``order=cwa``):
    ``begin``, ``take_back`` and ``add`` in turn.

    The step is x <- W x - u(x_i): whatever an update reads of the parameters, such as weight decay,
    it reads of this rank's own, where its gradients were taken. So the average is taken back and
    kept as what it changes, and added again after the update. Where an update reads no parameters
    it can as well be done on the average: then nothing is kept. Functions of the script that run
    before the update may read them.
    """

    def __init__(self, optimizer: Any, parameters: List[torch.Tensor]) -> None:
        self._optimizer, self._parameters = optimizer, parameters
        self._own: Optional[List[torch.Tensor]] = None
        self._change: Optional[Sequence[torch.Tensor]] = None

    def _reads_parameters(self) -> bool:
        """Whether the update that comes may depend on the parameters."""
        optimizer = self._optimizer
        known = optimizer._covey_class.__mro__[1] in _BLIND
        decays = any(group.get("weight_decay", 1) != 0 for group in optimizer.param_groups)
        return not known or decays or runs_before_update(optimizer)

    def begin(self) -> None:
        """An average of the parameters is about to be made; called again it is the same one."""
        if self._own is None and self._reads_parameters():
            self._own = [parameter.detach().clone() for parameter in self._parameters]

    def take_back(self) -> None:
        """It was made: the parameters are this rank's own once more."""
        own, self._own = self._own, None
        if own is None:
            return
        self._change = torch._foreach_sub(self._parameters, own)
        for parameter, value in zip(self._parameters, own):
            parameter.copy_(value)

    @torch.no_grad()
    def add(self) -> None:
        """The update is done: the average is added."""
        change, self._change = self._change, None
        if change is not None:
            torch._foreach_add_(self._parameters, change)


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
        self._trainer = trainer
        self._places = [_Place(plan, keep) for plan in plans]
        self._own = _OwnUpdate(optimizer, [parameter for _, parameter in named])
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

    @torch.no_grad()
    def gather(self) -> None:
        """Moves there what does not lie there."""
        self.is_here = True
        self._open()
        for place in self._places:
            place.gather()

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
        if updates_after:
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
            tensors = [(CODES[it.dtype], it.numel(), FRAMEWORK.address(it)) for it in self.numbers]
            _native.trainer_place(self._trainer.number, tuple(tensors))

    @torch.no_grad()
    def load(self, is_in_place: bool, scale: float) -> float:
        """The parameters are what the core has made of them. Returns how far this rank's were from
        that, in parts of the norm; negative: it is not known."""
        self._loaded = self._open()
        for place in self._places:
            place.load(is_in_place, scale)
        before, self._before = self._before, []
        distance = relative_distance(before, self.numbers) if before else -1.0
        self._own.take_back()
        return distance

    def updated(self) -> None:
        """This rank's own update is done."""
        self._own.add()

    def _open(self) -> Tuple[int, ...]:
        addresses: Tuple[int, ...] = self._trainer.spans(of_model=True)
        for place, address in zip(self._places, addresses):
            place.open(address)
        return addresses
