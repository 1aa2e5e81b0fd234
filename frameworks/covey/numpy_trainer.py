"""Training of NumPy arrays by a method: the smallest adapter there can be.

An adapter does four things when the core asks for them: it copies gradients or the model to the
trainer's memory, updates the model with the gradients there, and copies the model back. It knows no
method (core/api/covey_trainer.h). Another framework's adapter differs in those copies alone.
"""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy

from covey import _native
from covey.errors import InvalidArgument
from covey.group import Group, world
from covey.method import choose, parsed
from covey.names import next_prefix
from covey.numpy import FRAMEWORK, broadcast_
from covey.reduce_op import Average, ReduceOp, core_code

# covey_verb of core/api/covey_trainer.h.
_COLLECT_GRADIENTS, _COLLECT_MODEL, _UPDATE, _LOAD_MODEL, _DONE = 1, 2, 3, 4, 5

Arrays = Sequence[Any]
Update = Callable[[List[Any], List[Any]], None]


def _view(address: int, like: Any) -> Any:
    """An array of the trainer's memory, with the shape and dtype of ``like``."""
    memory = (ctypes.c_char * like.nbytes).from_address(address)
    return numpy.frombuffer(memory, like.dtype).reshape(like.shape)


class Trainer:
    """The parameters of a model, trained by all ranks of a group.

    All members make one, with parameters of the same shapes and dtypes in the same order. They
    begin with those of the group's first rank.

    Args:
        parameters: arrays of float32, float64 or float16; they are changed in place.
        update: ``update(parameters, gradients)`` changes the parameters in place, as the method
            says with gradients of this rank or with those of all. The gradients, arrays of the
            parameters' shapes and dtypes, may be changed, and are valid within the call.
        method: a name or a whole text, as for ``covey.torch.DistributedOptimizer``; None: what this
            job was told. Possible are allreduce, local and dpsgd, one after the other by ``then``
            too, without ``codec``, and without local's ``max_wait``.
        op: ``Average`` or ``Sum`` of gradients.
        process_set: the ranks that train together.
        settings: parameters of the method.

    Attributes:
        parameters: the arrays.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) no such method; one that it cannot do: the
            message names those it can; parameters of another dtype.
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
        **settings: object,
    ) -> None:
        self._trainer = 0
        text = choose(method, settings)
        self.parameters = [FRAMEWORK.accept(array, True) for array in parameters]
        if not self.parameters:
            raise InvalidArgument("Trainer: there are no parameters")
        self._update = update
        self._given: Arrays = ()  # Of the step under way.
        name = next_prefix("numpy", process_set.ranks)
        self._trainer = _native.trainer_open(
            process_set.id,
            name,
            parsed(text),
            core_code(op),
            0,
            tuple(FRAMEWORK.code(array) for array in self.parameters),
            tuple(array.size for array in self.parameters),
        )
        self._gradients = self._views(of_model=False)
        self._model = self._views(of_model=True)
        for number, array in enumerate(self.parameters):
            broadcast_(
                array,
                root_rank=process_set.ranks[0],
                name=f"{name}.begin.{number}",
                process_set=process_set,
            )

    def _views(self, of_model: bool) -> List[Any]:
        addresses = _native.trainer_spans(self._trainer, len(self.parameters), of_model)
        return [_view(*place) for place in zip(addresses, self.parameters)]

    @property
    def version(self) -> int:
        """Updates done."""
        return _native.trainer_position(self._trainer)[0]

    def step(self, gradients: Arrays, unfit: str = "") -> None:
        """One step of training: updates the parameters, and exchanges what the method says.

        After an error before the update nothing has changed, and the next call is this step again.
        After a later one, a Timeout of the method's ``max_wait`` for example, the next call goes on
        with this step, and takes no gradients.

        Args:
            gradients: of this rank's parameters, in their order, of their shapes; they are copied.
            unfit: why they must not be mixed with those of other ranks, "3 NaN" for example.

        Raises:
            InvalidArgument: (a ValueError) other shapes, or a finish() that has not ended.
            NotFinite: on every rank if gradients are exchanged, else on this one: ``unfit``.
            Timeout: the method's ``max_wait`` is over: names the missing ranks.
            Mismatch, Aborted: a rank has other parameters; a rank died.
        """
        if len(gradients) != len(self._gradients):
            raise InvalidArgument(
                f"{len(gradients)} gradients of {len(self._gradients)} parameters"
            )
        for number, (view, gradient) in enumerate(zip(self._gradients, gradients)):
            if numpy.shape(gradient) != view.shape:
                raise InvalidArgument(
                    f"gradient {number} has the shape {numpy.shape(gradient)}, and its parameter "
                    f"{view.shape}"
                )
        self._given = gradients
        _native.trainer_submit(self._trainer, unfit or None)
        self._run()

    def finish(self) -> None:
        """Makes the parameters of all ranks equal: their mean, if they may differ. Every member
        calls it, at the end of training or before the model is saved; training may go on.

        Raises:
            Timeout, Mismatch, Aborted: as ``step``; called again it goes on.
        """
        _native.trainer_finish(self._trainer)
        self._run()

    def _run(self) -> None:
        """Does what the core asks for until the step is over."""
        while True:
            verb, number = _native.trainer_next(self._trainer)
            if verb == _DONE:
                return
            try:
                self._do(verb)
            except BaseException:
                _native.trainer_ack(self._trainer, number, False)
                raise
            _native.trainer_ack(self._trainer, number, True)

    def _do(self, verb: int) -> None:
        if verb == _UPDATE:
            self._update(self.parameters, self._gradients)
            return
        copies: Dict[int, Tuple[Arrays, Arrays]] = {
            _COLLECT_GRADIENTS: (self._gradients, self._given),
            _COLLECT_MODEL: (self._model, self.parameters),
            _LOAD_MODEL: (self.parameters, self._model),
        }
        for target, source in zip(*copies[verb]):
            numpy.copyto(target, source)

    def state_dict(self) -> Dict[str, Any]:
        """Copies of the parameters, and where training is: for ``load_state_dict``. Each rank has
        its own, but after ``finish()`` all are alike."""
        return {
            "parameters": [array.copy() for array in self.parameters],
            "position": _native.trainer_position(self._trainer),
        }

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on from there. Every member does, with states of one step.

        Raises:
            InvalidArgument: (a ValueError) within a step; parameters of other shapes.
        """
        arrays = state["parameters"]
        if [array.shape for array in arrays] != [array.shape for array in self.parameters]:
            raise InvalidArgument("load_state_dict: its parameters have other shapes")
        _native.trainer_restore(self._trainer, tuple(state["position"]))
        for target, array in zip(self.parameters, arrays):
            numpy.copyto(target, array)

    def close(self) -> None:
        """Gives the trainer's memory back; the parameters stay. Also at the end of ``with``."""
        trainer, self._trainer = self._trainer, 0
        self._gradients, self._model = [], []
        if trainer:
            _native.trainer_close(trainer)

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
