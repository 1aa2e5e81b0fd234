"""The training of one optimizer together with ranks of other frameworks. Internal.

Those know neither buckets nor torch's optimizers. So gradients are not reduced during backward:
each parameter's is copied to the core when ``step()`` is called, zeros where there is none.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, List, NoReturn, Optional, Sequence, Tuple

import torch

from covey.errors import InvalidArgument, Unsupported
from covey.group import Group
from covey.torch.layout import Named
from covey.torch.ops import broadcast_
from covey.torch.options import rates_of
from covey.torch.tensors import FRAMEWORK
from covey.torch.update import clipped_step, take_scale
from covey.trainer_loop import TrainerLoop, Update
from covey.training_terms import Met, begin_name, mixed_name


class TensorLoop(TrainerLoop):
    """The loop over what the core's trainer asks for, on torch tensors that it copies.

    For updates that are not those of ``DistributedOptimizer`` alone: of Keras, and here. Tensors on
    a device are copied through memory of the host.
    """

    def __init__(
        self, parameters: Sequence[torch.Tensor], kept: Sequence[torch.Tensor], update: Update
    ) -> None:
        super().__init__(FRAMEWORK, parameters, kept, update)

    @torch.no_grad()
    def _run(self) -> None:
        super()._run()


class MixedTrainer:
    """In the place of ``CoreTrainer``: the model, and nothing else, is all ranks'."""

    ahead = None  # Versions of gradients are applied within step() only.

    def __init__(self, optimizer: Any, named: Sequence[Named], group: Group, met: Met) -> None:
        """Every member of the group makes one, after they have met. The parameters become those of
        the first one."""
        self._optimizer: Any = weakref.proxy(optimizer)  # It owns this.
        self._named, self._root = list(named), group.ranks[0]
        self._closure: Optional[Callable[[], Any]] = None
        self._loss: Any = None
        parameters, mine = [parameter.detach() for _, parameter in named], weakref.proxy(self)
        self._loop = TensorLoop(parameters, (), lambda *update: mine._update(*update))
        progress, name = optimizer._covey_progress, mixed_name(group)
        self._loop.open(
            name,
            group,
            method=progress.method,
            op=optimizer._covey_options["op"],
            num_hypers=len(rates_of(optimizer)),
            begin=met.begin,
        )
        self._loop.serve()
        for number, parameter in enumerate(parameters):
            broadcast_(parameter, self._root, begin_name(name, number), group)
        progress.is_mixed = True
        progress.share(named)
        progress.follow(self._loop.position)

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """One step: updates, and the exchanges for which it is time.

        Raises:
            Unsupported: (a ValueError) there is a GradScaler.
            Others: as ``covey.numpy.Trainer.step``.
        """
        scale, is_whole = take_scale(self._optimizer)
        if scale is not None or not is_whole:
            raise Unsupported("ranks of other frameworks know nothing of this rank's GradScaler")
        self._loss = None
        if closure is not None:
            with torch.enable_grad():
                self._loss = closure()
        rates = [float(group["lr"]) for group in rates_of(self._optimizer)]
        try:
            self._loop.step([_dense(*each) for each in self._named], hypers=rates)
        finally:
            self._optimizer._covey_progress.follow(self._loop.position)
        return self._loss

    def finish(self, strict: bool = False) -> None:
        """Makes the parameters of all ranks equal. Raises as ``CoreTrainer.finish``."""
        try:
            self._loop.finish(strict)
            self._loop.level(self._root, broadcast_)
        finally:
            self._optimizer._covey_progress.follow(self._loop.position)

    def synchronize(self) -> NoReturn:
        """Refused: see the module."""
        raise InvalidArgument(
            "optimizer.synchronize() cannot be used where ranks of other frameworks train too; "
            "before_update(function) sees the gradients of an update"
        )

    def close(self) -> None:
        """This rank leaves; the parameters keep their values."""
        self._loop.close()

    def _update(self, gradients: List[Any], rates: Tuple[float, ...]) -> None:
        for (_, parameter), gradient in zip(self._named, gradients):
            if parameter.grad is None or parameter.grad.layout is not torch.strided:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(gradient)
        groups = rates_of(self._optimizer)
        own = [float(group["lr"]) for group in groups]
        try:
            for group, rate in zip(groups, rates):
                _set_rate(group, rate)
            clipped_step(self._optimizer)
        finally:
            for group, rate in zip(groups, own):
                _set_rate(group, rate)


def _set_rate(group: Any, rate: float) -> None:
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def _dense(_: str, parameter: torch.Tensor) -> torch.Tensor:
    """Its gradient; zeros where there is none."""
    if parameter.grad is None:
        return torch.zeros_like(parameter)
    return parameter.grad.to_dense()
