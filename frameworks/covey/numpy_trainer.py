"""Training of NumPy arrays by a method: the smallest adapter there can be.

An adapter does what the core asks for (core/api/covey_trainer.h): copies to and from the trainer's
memory, and updates of the model. It knows no method. Another adapter differs in those copies alone.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy

from covey import _native
from covey.errors import InvalidArgument
from covey.group import Group, world
from covey.method import choose, parsed
from covey.names import next_prefix
from covey.numpy import FRAMEWORK, accept_all, broadcast_
from covey.reduce_op import Average, ReduceOp, core_code
from covey.trained_steps import TrainedSteps

# covey_verb of core/api/covey_trainer.h.
_COLLECT_GRADIENTS, _COLLECT_MODEL, _UPDATE, _LOAD_MODEL, _DONE, _PACK, _UNPACK, _LIST = range(1, 9)

Arrays = Sequence[Any]
Update = Callable[..., None]


def _view(address: int, like: Any) -> Any:
    """An array of the trainer's memory, with the shape and dtype of ``like``."""
    memory = (ctypes.c_char * like.nbytes).from_address(address)
    return numpy.frombuffer(memory, like.dtype).reshape(like.shape)


def _copy(targets: Arrays, sources: Arrays) -> None:
    for target, source in zip(targets, sources):
        numpy.copyto(target, source)


class Trainer(contextlib.AbstractContextManager["Trainer"]):
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
        self._trainer = 0
        self._method, self._op, self._group = choose(method, settings), op, process_set
        self.parameters = accept_all(parameters, "parameter", are_trained=True)
        if not self.parameters:
            raise InvalidArgument("Trainer: there are no parameters")
        self._state = self.parameters + accept_all(state, "array of state")
        self._update, self._num_hypers, self._given = update, num_hypers, parameters
        self._open(0)
        name = next_prefix("numpy.begin", process_set.ranks)
        for number, array in enumerate(self._state):
            broadcast_(array, process_set.ranks[0], f"{name}.{number}", process_set)

    def _open(self, begin: int) -> None:
        self.close()
        name = next_prefix("numpy", self._group.ranks)
        how = (parsed(self._method), core_code(self._op), begin)
        kinds = tuple(map(FRAMEWORK.code, self.parameters))
        sizes = tuple(array.size for array in self.parameters)
        what = (kinds, sizes, self._num_hypers, len(self._state) - len(sizes))
        self._trainer = _native.trainer_open(self._group.id, name, *how, *what)
        length = sum(array.nbytes for array in self.parameters)
        self._steps = TrainedSteps(self._trainer, self._method, self._group, length, self)

    def _memory(self, of_model: bool) -> List[Any]:
        """Where the model lies, or the gradients of this action."""
        places = _native.trainer_spans(self._trainer, len(self.parameters), of_model)
        return list(map(_view, places, self.parameters))

    @property
    def version(self) -> int:
        """Updates done; by eager versions applied: models are equal at equal version."""
        return _native.trainer_position(self._trainer)[0]

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
            if (given := numpy.shape(gradient)) != (wanted := parameter.shape):
                what = f"gradient {number} has the shape {given}, and its parameter {wanted}"
                raise InvalidArgument(what)
        self._given = gradients
        with self._steps.step():
            _native.trainer_submit(self._trainer, unfit or None, tuple(map(float, hypers)))
            self._run()

    def finish(self, strict: bool = False) -> None:
        """Makes the parameters of all ranks equal: their mean, if they may differ; by a method that
        does not wait, with the work of all. Every member calls it, at the end of training or before
        the model is saved; training may go on. Ranks that are missing for ``max_wait`` are named,
        and eager and diloco go on without them, if it is not ``strict``, and no ``then`` follows.

        Raises:
            Timeout, Mismatch, Aborted: as ``step``; called again it goes on.
        """
        _native.trainer_finish(self._trainer, strict)
        self._run()
        self._steps.finished()

    def settle(self) -> None:
        """Before ``state_dict()``, by every member: nothing that this rank has learnt is with
        another one, or under way, afterwards. By adpsgd and swarm each rank has a model of its own
        then; by a method with versions, such as eager, it is ``finish(strict=True)``; by others
        there is nothing to do. It raises as ``finish()`` does."""
        _native.trainer_settle(self._trainer)
        self._run()

    def _run(self) -> None:
        """Does what the core asks for until the step is over."""
        while True:
            action = _native.trainer_next(self._trainer, self._num_hypers)
            if action[0] == _DONE:
                return
            try:
                self._do(*action[:5])
            except BaseException:
                _native.trainer_ack(self._trainer, action[1], False)
                raise
            _native.trainer_ack(self._trainer, action[1], True)

    def _do(self, verb: int, _: int, hypers: Tuple[float, ...], image: int, length: int) -> None:
        if verb == _COLLECT_GRADIENTS:
            _copy(self._memory(of_model=False), self._given)
        elif verb == _UPDATE:
            more = (hypers,) if self._num_hypers else ()
            self._update(self.parameters, self._memory(of_model=False), *more)
        elif verb == _COLLECT_MODEL:
            _copy(self._memory(of_model=True), self.parameters)
        elif verb == _LOAD_MODEL:
            _copy(self.parameters, self._memory(of_model=True))
        elif verb == _PACK:
            parts = [(array.ctypes.data, array.nbytes) for array in self._state]
            _native.trainer_give(self._trainer, *zip(*parts))
        elif verb == _LIST:
            kept = [(it.ctypes.data, FRAMEWORK.code(it), it.size) for it in self._state]
            _native.trainer_list(self._trainer, None, *zip(*kept[len(self.parameters) :]), None)
        elif verb == _UNPACK:
            assert length == sum(array.nbytes for array in self._state)
            for array in self._state:
                numpy.copyto(array, _view(image, array))
                image += array.nbytes

    def state_dict(self) -> Dict[str, Any]:
        """Copies of parameters and state, and where training is: for ``load_state_dict``. Each rank
        has its own: all that it has learnt after ``settle()``, alike after ``finish()``."""
        return {
            "arrays": [array.copy() for array in self._state],
            "replicated": {name: it.copy() for name, it in self._replicated().items()},
            "position": _native.trainer_position(self._trainer),
        }

    def _replicated(self) -> Dict[str, Any]:
        """The arrays that the method replicates on all ranks (an outer momentum), as bytes."""
        arrays = _native.trainer_state(self._trainer)
        return {name: _view(at, numpy.empty(length, numpy.uint8)) for name, at, length in arrays}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on from there. Every member does, with states of one step.

        Raises:
            InvalidArgument: (a ValueError) within a step; arrays of other shapes.
        """
        arrays, position = state["arrays"], tuple(state["position"])
        if [array.shape for array in arrays] != [array.shape for array in self._state]:
            raise InvalidArgument("load_state_dict: its arrays have other shapes")
        self._open(position[3])
        for name, array in self._replicated().items():
            numpy.copyto(array, state["replicated"].get(name, 0))
        _native.trainer_restore(self._trainer, position)
        _copy(self._state, arrays)

    def close(self) -> None:
        """Gives the trainer's memory back; the parameters stay. Also at the end of ``with``."""
        trainer, self._trainer = self._trainer, 0
        if trainer:
            self._steps.close()
            _native.trainer_close(trainer)

    def __exit__(self, *error: object) -> None:
        self.close()
