"""Training of Keras's variables on torch by a method. Internal."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import keras
import numpy
import torch

from covey.errors import InvalidArgument, Unsupported
from covey.group import Group
from covey.keras.resumption import BEGIN, Resumption, go_on, replicated
from covey.method import Plan, plan
from covey.names import next_prefix
from covey.ops import broadcast_
from covey.torch.tensors import CODES
from covey.torch.trainer.mixed import TensorLoop
from covey.training_terms import Terms, begin_name, meet, mixed_name, terms_of

_NAME = "Keras on torch"

Tensors = Sequence[Any]
Update = Callable[[List[Any], Tuple[float, ...]], None]


class Trainer:
    """The tensors of a model, trained by all ranks of a group.

    All members make one, with tensors of the same shapes and dtypes in the same order. They begin
    with those of rank ``root``, also with its state.

    Args:
        variables: torch tensors of floating-point numbers, changed in place.
        update: ``update(gradients, hypers)`` changes variables and state, by gradients (tensors, of
            this rank or of all ranks) and ``num_hypers`` numbers.
        kept: tensors that ``update`` changes beside these.
        method, op, group, num_hypers, begin, root, resumption: as for
            ``covey.tensorflow.trainer.Trainer``.
        names: of the variables.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) a tensor cannot be sent; the method cannot do
            it.
        Mismatch: on every member: variables, method or op differ.
        Exhausted: (a MemoryError) the arena has no room for gradients and model.
    """

    def __init__(
        self, variables: Tensors, update: Update, kept: Tensors, *, names: Sequence[str],
        method: str, op: int, group: Group, num_hypers: int, begin: int, root: int,
        resumption: Optional[Resumption] = None,
    ) -> None:
        self.variables, self.method, self.group = list(variables), method, group
        if not self.variables:
            raise InvalidArgument("a training needs at least one variable")
        self._names = list(names)
        self._how = {"method": method, "op": op, "num_hypers": num_hypers}
        self._root, self._resumption = root, resumption
        _check(self.variables, self._names)
        met = meet(group, _NAME, lambda: self._terms(begin))
        self.is_mixed = met.is_mixed
        state = [] if met.is_mixed else list(kept)
        self._loop = TensorLoop(self.variables, state, update)
        if met.is_mixed:
            name, begin = mixed_name(group), met.begin
        else:
            name = next_prefix("keras", group.ranks)
            begin = self._begin_of_root(name, begin)
        self._loop.open(name, group, begin=begin, **self._how)
        if resumption is not None:
            go_on(self._loop.number, resumption)
        else:
            for number, tensor in enumerate([*self.variables, *state]):
                broadcast_(tensor.detach(), root, begin_name(name, number), group)
        self._loop.serve()

    def _begin_of_root(self, name: str, begin: int) -> int:
        if self._resumption is not None:
            return self._resumption.position[BEGIN]
        count = numpy.array(begin)
        return int(broadcast_(count, self._root, f"{name}.begin", self.group))

    def _terms(self, begin: int) -> Terms:
        parameters = [(name, str(it.dtype)[6:], it.shape)
                      for name, it in zip(self._names, self.variables)]
        problem = "" if self._resumption is None else "it goes on from a checkpoint"
        return terms_of(
            _NAME, parameters, root=self._root, begin=begin, problem=problem, **self._how
        )

    @property
    def handle(self) -> TensorLoop:
        """That of the core's trainer."""
        return self._loop

    @property
    def version(self) -> int:
        """Steps done, by the ranks that this one has averaged with where it has done fewer; by
        eager versions applied: models are equal at equal version."""
        return self._loop.position.version

    def values(self) -> List[Any]:
        """Copies of the variables, as NumPy arrays."""
        return [keras.ops.convert_to_numpy(it.detach()).copy() for it in self.variables]

    @torch.no_grad()
    def put(self, values: Sequence[Any]) -> None:
        """Overwrites the variables with arrays."""
        for variable, value in zip(self.variables, values):
            variable.copy_(keras.ops.convert_to_tensor(value))

    def position(self) -> List[int]:
        """Between two steps: where this rank is, as ``covey_position``."""
        return list(self._loop.position)

    def replicated(self) -> Dict[str, Any]:
        """Between two steps: copies of the arrays that the method replicates, as bytes."""
        return replicated(self._loop.number)

    def next_plan(self) -> Plan:
        """Between two steps: of the next one."""
        return plan(self.method, self.group.id, self._loop.position.planned)

    def step(self, gradients: Tensors, hypers: Sequence[float]) -> None:
        """One step of training: updates, and exchanges what the method says. Raises as
        ``covey.numpy.Trainer.step``.

        Args:
            gradients: of the variables' shapes, in their order.
            hypers: ``num_hypers`` numbers for the update with these gradients.
        """
        self._loop.step(gradients, hypers=hypers)

    def finish(self, strict: bool = False) -> None:
        """Makes the variables of all members equal; see ``covey.numpy.Trainer.finish``."""
        self._loop.finish(strict)
        if self.is_mixed:
            self._loop.level(self._root, lambda it, *to: broadcast_(it.detach(), *to))

    def settle(self) -> None:
        """Nothing that this rank has learnt is with another one afterwards, or under way."""
        self._loop.settle()

    def close(self) -> None:
        """Gives the trainer's memory back; the variables stay."""
        self._loop.close()


def _check(tensors: Tensors, names: Sequence[str]) -> None:
    """Raises Unsupported (a ValueError) for one that cannot be trained."""
    for name, tensor in zip(names, tensors):
        if tensor.dtype not in CODES or not tensor.is_floating_point():
            raise Unsupported(
                f"{name} is of {str(tensor.dtype)[6:]}: parameters are floating-point numbers"
            )
