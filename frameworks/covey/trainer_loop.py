"""The loop over what the core's trainer asks for, on tensors of any framework. Internal.

An adapter does what the core asks for (core/api/covey_trainer.h): copies to and from the trainer's
memory, and updates of the model. It knows no method. Frameworks differ in the copies alone, which
``Framework`` has. Within graphs, and where a framework reduces gradients by itself, there are
others: ``covey/tensorflow/trainer.py``, ``covey/torch/trainer/core_trainer.py``.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Callable, List, Sequence, Tuple

from covey import _native
from covey.errors import CoveyError
from covey.framework import ITEM_BYTES, Framework
from covey.group import Group
from covey.method import parsed
from covey.reduce_op import core_code
from covey.state import state
from covey.trained_steps import TrainedSteps
from covey.trainer_handle import TrainerHandle, Verb
from covey.training_terms import are_rounded_apart, begin_name, end_name

Tensors = Sequence[Any]
Update = Callable[[List[Any], Tuple[float, ...]], None]


class TrainerLoop(TrainerHandle):
    """One trainer of the core, for parameters of one framework.

    Attributes:
        parameters: the tensors that are trained, in place.
    """

    def __init__(
        self, framework: Framework[Any], parameters: Tensors, kept: Tensors, update: Update
    ) -> None:
        """``kept``: tensors that ``update(gradients, hypers)`` changes beside the parameters.
        ``gradients`` lie in the trainer's memory and are valid within the call."""
        super().__init__(len(parameters))
        self._framework, self._update = framework, update
        self.parameters, self._kept = list(parameters), list(kept)
        self._gradients: Tensors = ()
        self._listed: List[Any] = []  # While the core has them.
        self._is_within = False  # A call of the core.

    def open(
        self, name: str, group: Group, *, method: str, op: int, num_hypers: int, begin: int
    ) -> None:
        """Makes the core's trainer, as all members of ``group`` do. ``begin``: updates done before.

        Raises:
            InvalidArgument, Unsupported: (ValueErrors) the method cannot do it.
            Mismatch, Exhausted: on every member: they differ; one has no room.
        """
        self.close()
        kinds = tuple(map(self._framework.code, self.parameters))
        counts = tuple(self._count(tensor) for tensor in self.parameters)
        how = (parsed(method), core_code(op), begin)
        what = (kinds, counts, num_hypers, len(self._kept))
        self._trainer = _native.trainer_open(group.id, name, *how, *what)
        self._of = (method, group, name)
        length = sum(map(self._bytes, self.parameters))
        self._steps = TrainedSteps(self._trainer, method, group, length, self)
        self._num_hypers = num_hypers

    def serve(self) -> None:
        """From now on it helps a rank that has fallen behind while this thread waits elsewhere."""
        state.add_helper(self)

    def step(self, gradients: Tensors, unfit: str = "", hypers: Sequence[float] = ()) -> None:
        """One step: updates, and exchanges what the method says. Raises as ``covey.numpy.Trainer``
        says."""
        self._gradients = gradients
        with self._steps.step():
            _native.trainer_submit(self._trainer, unfit or None, tuple(map(float, hypers)))
            self._run()

    def finish(self, strict: bool = False) -> None:
        """Makes the parameters of all members equal."""
        _native.trainer_finish(self._trainer, strict)
        self._run()
        self._steps.finished()

    def level(self, root: int, broadcast: Callable[..., Any]) -> None:
        """After ``finish()`` of ranks of several frameworks: the parameters become those of
        ``root``, where they may differ by rounding. ``broadcast``: in place, of the framework."""
        method, group, name = self._of
        if not are_rounded_apart(method, group, self.position.planned):
            return
        for number, parameter in enumerate(self.parameters):
            broadcast(parameter, root, begin_name(end_name(name), number), group)

    def settle(self) -> None:
        """Nothing that this rank has learnt is with another one afterwards, or under way."""
        _native.trainer_settle(self._trainer)
        self._run()

    def help(self) -> None:
        """Gives this rank's state to one that asks for it. Raises nothing."""
        if not self._trainer or self._is_within:
            return
        with contextlib.suppress(CoveyError):
            _native.trainer_serve(self._trainer)
            self._run()

    def close(self) -> None:
        """Gives the trainer's memory back; the parameters stay."""
        trainer, self._trainer = self._trainer, 0
        if trainer:
            self._steps.close()
            _native.trainer_close(trainer)

    def _run(self) -> None:
        """Does what the core asks for until the call is over."""
        self._is_within = True
        try:
            self._perform()
        finally:
            self._is_within = False

    def _do(
        self, verb: int, _: int, hypers: Tuple[float, ...], image: int, length: int, *of_own: Any
    ) -> None:
        if verb == Verb.COLLECT_GRADIENTS:
            self._copy(self._memory(of_model=False), self._gradients)
        elif verb == Verb.UPDATE:
            self._update(self._memory(of_model=False), hypers)
        elif verb == Verb.COLLECT_MODEL:
            self._copy(self._memory(of_model=True), self.parameters)
        elif verb == Verb.LOAD_MODEL:
            self._copy(self.parameters, self._memory(of_model=True))
        elif verb == Verb.PACK:
            parts = [self._on_host(it) for it in self._everything]
            places = [self._framework.address(it) for it in parts]
            _native.trainer_give(self._trainer, tuple(places), tuple(map(self._bytes, parts)))
        elif verb == Verb.LIST:
            self._listed = [self._on_host(it) for it in self._kept]
            listed = [
                (self._framework.address(it), self._framework.code(it), self._count(it))
                for it in self._listed
            ]
            _native.trainer_list(self._trainer, None, *zip(*listed), None)
        elif verb == Verb.TAKE:
            for tensor, here in zip(self._kept, self._listed):
                if here is not tensor:
                    self._framework.assign(tensor, here)
            self._listed = []
        elif verb == Verb.UNPACK:
            assert length == sum(map(self._bytes, self._everything))
            for tensor in self._everything:
                self._framework.assign(tensor, self._view(image, tensor))
                image += self._bytes(tensor)

    @property
    def _everything(self) -> List[Any]:
        return self.parameters + self._kept

    def _memory(self, of_model: bool) -> List[Any]:
        """Where the model lies, or the gradients of this action."""
        return list(map(self._view, self.spans(of_model), self.parameters))

    def _view(self, address: int, like: Any) -> Any:
        """A tensor of the trainer's memory, with the shape and dtype of ``like``."""
        memory = (ctypes.c_char * self._bytes(like)).from_address(address)
        code, shape = self._framework.code(like), tuple(self._framework.shape(like))
        return self._framework.wrap(memory, code, shape)

    def _copy(self, targets: Tensors, sources: Tensors) -> None:
        for target, source in zip(targets, sources):
            self._framework.assign(target, source)

    def _on_host(self, tensor: Any) -> Any:
        """It without gaps in memory of this process: itself where it is that."""
        return self._framework.on_host(self._framework.dense(tensor))

    def _count(self, tensor: Any) -> int:
        count = 1
        for extent in self._framework.shape(tensor):
            count *= extent
        return count

    def _bytes(self, tensor: Any) -> int:
        return self._count(tensor) * ITEM_BYTES[self._framework.code(tensor)]
