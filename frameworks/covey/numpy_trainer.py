"""Training of NumPy arrays by a method: the smallest adapter there can be.

The loop over what the core asks for is ``TrainerLoop``; ``covey.numpy`` knows how to copy arrays.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy

from covey import elastic_job
from covey.errors import InvalidArgument, Unsupported
from covey.framework import DTYPE_NAMES
from covey.group import Group, world
from covey.method import choose
from covey.names import next_prefix
from covey.numpy import FRAMEWORK, accept_all, broadcast_
from covey.reduce_op import Average, ReduceOp
from covey.trainer_handle import Position
from covey.trainer_loop import TrainerLoop
from covey.training_terms import Terms, begin_name, meet, mixed_name, terms_of

_NAME = "NumPy"
_UINT8 = DTYPE_NAMES.index("uint8")

Arrays = Sequence[Any]
Update = Callable[..., None]


class Trainer:
    """The parameters of a model, trained by all ranks of a group.

    All members make one, with parameters of the same shapes and dtypes in the same order. They
    begin with those of the group's first rank.

    Args:
        parameters: arrays of float32, float64 or float16, changed in place. Also an attribute.
        update: ``update(parameters, gradients)`` changes the parameters in place, by the method
            with gradients of this rank or those of all; they may be changed, and are valid within
            the call. By eager a step has an update for each version of gradients, or none.
        method: as for ``covey.torch.DistributedOptimizer``; None: what this job was told.
        op: ``Average`` or ``Sum`` of gradients.
        process_set: the ranks that train together.
        state: arrays that ``update`` changes beside the parameters, momenta for example: a rank
            that has fallen too far behind goes on from those of another one, and before another
            method begins (``then``) they become their mean (whole numbers: their maximum).
        num_hypers: so many numbers, a learning rate for example, travel with the gradients of each
            step: ``update(parameters, gradients, hypers)`` gets those of the gradients, which may
            be another rank's, so that all ranks do the same updates.
        settings: parameters of the method.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) no such method; one that it cannot do: the
            message names those it can; a parameter of another dtype: it is named by its index.
        Mismatch: on every member: parameters, method or op differ.
        NotInitialized: (a ValueError) before ``init()``.
        Exhausted: (a MemoryError) the arena has no room for gradients and model.

    Example:
        >>> def update(parameters, gradients):
        ...     for parameter, gradient in zip(parameters, gradients):
        ...         parameter -= 0.1 * gradient
        >>> trainer = covey.numpy.Trainer([weight, bias], update, method="local", local_steps=4)
        >>> for batch in batches:
        ...     trainer.step(gradients_of(batch, weight, bias))
        >>> trainer.finish()
    """

    def __init__(
        self,
        parameters: Arrays,
        update: Update,
        method: Optional[str] = None,
        op: ReduceOp = Average,
        process_set: Group = world,
        state: Arrays = (),
        num_hypers: int = 0,
        **settings: object,
    ) -> None:
        self._method, self._op, self._group = choose(method, settings), op, process_set
        elastic_job.check_inside("a Trainer")
        self.parameters = accept_all(parameters, "parameter", are_trained=True)
        if not self.parameters:
            raise InvalidArgument("Trainer: there are no parameters")
        kept = accept_all(state, "array of state")
        self._update, self._num_hypers = update, num_hypers
        met = meet(process_set, _NAME, self._terms)
        self._is_mixed = met.is_mixed
        shared = [] if met.is_mixed else kept
        self._loop = TrainerLoop(FRAMEWORK, self.parameters, shared, self._apply)
        self._state = self.parameters + shared
        name = self._open(met.begin)
        for number, array in enumerate(self._state):
            broadcast_(array, process_set.ranks[0], begin_name(name, number), process_set)

    def _terms(self) -> Terms:
        parameters = [(f"parameter {i}", it.dtype.name, it.shape)
                      for i, it in enumerate(self.parameters)]
        return terms_of(_NAME, parameters, method=self._method, op=self._op,
                        num_hypers=self._num_hypers, root=self._group.ranks[0])

    def _open(self, begin: int) -> str:
        """Its name."""
        group = self._group
        name = mixed_name(group) if self._is_mixed else next_prefix("numpy", group.ranks)
        how = {"method": self._method, "op": self._op, "num_hypers": self._num_hypers}
        self._loop.open(name, group, begin=begin, **how)
        return name

    def _apply(self, gradients: List[Any], hypers: Tuple[float, ...]) -> None:
        self._update(self.parameters, gradients, *((hypers,) if self._num_hypers else ()))

    @property
    def version(self) -> int:
        """Steps done, by the ranks that this one has averaged with where it has done fewer; by
        eager versions applied: models are equal at equal version."""
        return self._loop.position.version

    def step(self, gradients: Arrays, unfit: str = "", hypers: Sequence[float] = ()) -> None:
        """One step of training: updates the parameters, and exchanges what the method says.

        After an error before the update nothing has changed, and the next call is this step again.
        After a later one, a Timeout of the method's ``max_wait`` for example, the next call goes on
        with this step, and takes no gradients.

        Args:
            gradients: of this rank's parameters, in their order, of their shapes; they are copied.
            unfit: why they must not be mixed with those of other ranks, "3 NaN" for example.
            hypers: ``num_hypers`` numbers for the update with these gradients.

        Raises:
            InvalidArgument: (a ValueError) other shapes, or a finish() that has not ended.
            NotFinite: ``unfit``. On this rank; on every rank if all wait for the gradients of all.
                By a method that does not wait, the step is done without this rank's gradients.
            Timeout: the method's ``max_wait`` is over: names the missing ranks.
            Mismatch, Aborted: a rank has other parameters; a rank died.
            Exhausted: this rank has fallen behind, and no rank can give it a snapshot.
        """
        if len(gradients) != len(self.parameters) or len(hypers) != self._num_hypers:
            trained = f"{len(self.parameters)} parameters, {self._num_hypers} hypers"
            raise InvalidArgument(f"{len(gradients)} gradients, {len(hypers)} hypers of {trained}")
        for number, (parameter, gradient) in enumerate(zip(self.parameters, gradients)):
            given, wanted = numpy.shape(gradient), parameter.shape
            if given != wanted:
                what = f"gradient {number} has the shape {given}, and its parameter {wanted}"
                raise InvalidArgument(what)
        self._loop.serve()
        self._loop.step(gradients, unfit, hypers)

    def finish(self, strict: bool = False) -> None:
        """Makes the parameters of all ranks equal: their mean, if they may differ; by a method that
        does not wait, with the work of all. Every member calls it, at the end of training or before
        the model is saved; training may go on. Ranks that are missing for ``max_wait`` are named,
        and the others go on without them, by every method that has a ``max_wait`` (by dpsgd each
        with its own model), if it is not ``strict`` and no ``then`` follows.

        Raises:
            Timeout, Mismatch, Aborted: as ``step``; called again it goes on.
        """
        self._loop.finish(strict)
        if self._is_mixed:
            self._loop.level(self._group.ranks[0], broadcast_)

    def settle(self) -> None:
        """Before ``state_dict()``, by every member: nothing that this rank has learnt is with
        another one, or under way, afterwards. By adpsgd and swarm each rank has a model of its own
        then; by a method with versions, such as eager, it is ``finish(strict=True)``; by others
        there is nothing to do. It raises as ``finish()`` does."""
        self._loop.settle()

    def state_dict(self) -> Dict[str, Any]:
        """Copies of parameters and state, and where training is: for ``load_state_dict``. Each rank
        has its own: all that it has learnt after ``settle()``, alike after ``finish()``."""
        return {
            "arrays": [array.copy() for array in self._state],
            "replicated": {name: it.copy() for name, it in self._replicated().items()},
            "position": tuple(self._loop.position),
        }

    def _replicated(self) -> Dict[str, Any]:
        """The arrays that the method replicates on all ranks (an outer momentum), as bytes."""
        return {
            name: FRAMEWORK.wrap((ctypes.c_char * length).from_address(at), _UINT8, (length,))
            for name, at, length in self._loop.arrays()
        }

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on from there. Every member does, with states of one step.

        Args:
            state: what ``state_dict()`` gave.

        Raises:
            InvalidArgument: (a ValueError) within a step; arrays of other shapes.
            Unsupported: (a ValueError) ranks of several frameworks train together.
        """
        if self._is_mixed:
            raise Unsupported("load_state_dict: the ranks of this training have several frameworks")
        arrays, position = state["arrays"], tuple(state["position"])
        if [array.shape for array in arrays] != [array.shape for array in self._state]:
            raise InvalidArgument("load_state_dict: its arrays have other shapes")
        self._open(position[3])
        for name, array in self._replicated().items():
            numpy.copyto(array, state["replicated"].get(name, 0))
        self._loop.restore(Position(*position))
        for array, values in zip(self._state, arrays):
            numpy.copyto(array, values)

    def close(self) -> None:
        """Gives the trainer's memory back; the parameters stay. Also at the end of ``with``."""
        self._loop.close()

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
