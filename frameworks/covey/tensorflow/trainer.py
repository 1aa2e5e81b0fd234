"""Training of TensorFlow's variables by a method: what the core asks for, as operations. Internal.

An adapter does what the core asks for (core/api/covey_trainer.h): copies to and from the trainer's
memory, and updates of the model. It knows no method. The loop below runs as it stands outside of
tf.function. Within one it becomes a part of the graph, so a step needs no Python.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, List, Optional, Sequence

import tensorflow as tf

from covey import _native
from covey.errors import InvalidArgument, Unsupported
from covey.framework import DTYPE_NAMES
from covey.group import Group
from covey.keras.resumption import BEGIN, Resumption, go_on, replicated
from covey.method import Plan, parsed, plan
from covey.names import next_prefix
from covey.reduce_op import core_code
from covey.requests import BROADCAST, How
from covey.state import state
from covey.tensorflow import requests
from covey.tensorflow.adasum_trainer import agree_on_kind
from covey.tensorflow.requests import of_root, read
from covey.tensorflow.streams import operations
from covey.trained_steps import TrainedSteps
from covey.trainer_handle import TrainerHandle
from covey.training_terms import (
    Terms,
    are_rounded_apart,
    begin_name,
    end_name,
    meet,
    mixed_name,
    terms_of,
)

# covey_verb of core/api/covey_trainer.h.
(_PENDING, _COLLECT_GRADIENTS, _COLLECT_MODEL, _UPDATE, _LOAD_MODEL, _DONE, _PACK, _UNPACK,
 _LIST_STATE, _LOAD_STATE, _VACATE) = range(11)

_PLANNED = 12  # The index in covey_position.
_NAME = "TensorFlow"

Tensors = Sequence[Any]
Update = Callable[[List[Any], Any], None]


def _assign(variables: Tensors, values: Tensors) -> None:
    for variable, value in zip(variables, values):
        variable.assign(value)


def _kinds(tensors: Tensors) -> Dict[str, List[Any]]:
    """Attributes of an operation that returns such tensors."""
    return {"T": [it.dtype for it in tensors], "shapes": [it.shape for it in tensors]}


def check_variables(variables: Tensors, are_trained: bool) -> List[int]:
    """covey_dtype of each.

    Raises:
        Unsupported: (a ValueError) names one that has no fixed shape, or a dtype that cannot be
            sent; ``are_trained``: also one that is no floating-point number.
    """
    codes = []
    for variable in variables:
        name = variable.dtype.name
        if name not in DTYPE_NAMES or name == "bool" or not variable.shape.is_fully_defined():
            kind = f"{name} and of the shape {variable.shape}"
            raise Unsupported(f"{variable.name} is of {kind}: it cannot be sent")
        if are_trained and not variable.dtype.is_floating:
            raise Unsupported(
                f"{variable.name} is of {name}: parameters are floating-point numbers"
            )
        codes.append(DTYPE_NAMES.index(name))
    return codes


class Trainer:
    """The variables of a model, trained by all ranks of a group.

    All members make one, with variables of the same shapes and dtypes in the same order, outside of
    tf.function (``tf.init_scope``). They begin with those of rank ``root``, also with its state.

    Args:
        variables: tf.Variables of float32, float64, float16 or bfloat16.
        update: ``update(gradients, hypers)`` changes variables and state, by gradients (tensors, of
            this rank or of all ranks) and a tensor [num_hypers] of float64. It is traced once for
            each graph in which there is a step.
        kept: tf.Variables that ``update`` changes beside these: of floating-point numbers, or of
            whole ones.
        method: a whole text, as ``covey.method.choose`` returns it.
        op: Average or Sum of gradients.
        group: the ranks that train together.
        num_hypers: so many numbers travel with gradients: an update gets those of its gradients.
        begin: how many updates the model has had before, as rank ``root`` says.
        root: a global rank.
        resumption: instead of beginning with what the root has, each rank goes on from there.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) there is no variable; one cannot be sent; the
            method cannot do it.
        Mismatch: on every member: variables, method or op differ.
        Exhausted: (a MemoryError) the arena has no room for gradients and model.
    """

    def __init__(
        self, variables: Tensors, update: Update, kept: Tensors, *, method: str, op: int,
        group: Group, num_hypers: int, begin: Any, root: int,
        resumption: Optional[Resumption] = None,
    ) -> None:
        self._number = 0
        self._is_within = False  # A call of the core.
        self.variables, self._state, self._update = list(variables), list(kept), update
        self.method, self.group, self._num_hypers = method, group, num_hypers
        if not self.variables:
            raise InvalidArgument("a training needs at least one variable")
        codes = check_variables(self.variables, True)
        check_variables(self._state, False)
        counts = [variable.shape.num_elements() for variable in self.variables]
        name = self._meet(op, root, begin, resumption)
        how = (parsed(method), core_code(op), self._begin_at)
        what = (tuple(codes), tuple(counts), num_hypers, len(self._state))
        self._number = _native.trainer_open(group.id, name, *how, *what)
        self._root_of = (root, name, group)
        self._is_equal: Any = None  # Where it is a variable: whether all have begun with one model.
        if resumption is not None:
            go_on(self._number, resumption)
        elif not all(it.is_initialized() for it in self.variables):
            self._is_equal = tf.Variable(False)  # The graph that makes them has not run yet.
        else:
            self._begin()
        lengths = [it.dtype.size * count for it, count in zip(self.variables, counts)]
        with tf.device("CPU:0"):
            self._handle = operations.covey_trainer(number=self._number, lengths=lengths)
        state.add_helper(self)
        self._steps = TrainedSteps(self._number, method, group, sum(lengths), self)

    def _meet(self, op: int, root: int, begin: Any, resumption: Optional[Resumption]) -> str:
        """The name of the training; ``_begin_at`` is how many updates the model has had then."""
        group = self.group
        parameters = [(it.name, it.dtype.name, it.shape.as_list()) for it in self.variables]
        problem = "" if resumption is None else "it goes on from a checkpoint"

        def terms() -> Terms:
            return terms_of(
                _NAME, parameters, method=self.method, op=op, num_hypers=self._num_hypers,
                root=root, begin=int(begin), problem=problem,
            )

        met = meet(group, _NAME, terms)
        agree_on_kind(met, group)
        self.is_mixed = met.is_mixed
        if met.is_mixed:
            self._state, self._begin_at = [], met.begin
            return mixed_name(group)
        name = next_prefix("tensorflow", group.ranks)
        if resumption is not None:
            self._begin_at = resumption.position[BEGIN]
        else:
            self._begin_at = int(of_root([begin], root, name, group)[0])
        return name

    @property
    def handle(self) -> TrainerHandle:
        """That of the core's trainer."""
        return TrainerHandle(len(self.variables), self._number)

    def values(self) -> List[Any]:
        """Copies of the variables, as NumPy arrays."""
        return [variable.numpy().copy() for variable in self.variables]

    def put(self, values: Sequence[Any]) -> None:
        """Overwrites the variables with arrays."""
        _assign(self.variables, values)

    @property
    def version(self) -> int:
        """Steps done, by the ranks that this one has averaged with where it has done fewer; by
        eager versions applied: models are equal at equal version."""
        return _native.trainer_position(self._number)[0]

    def position(self) -> List[int]:
        """Between two steps: where this rank is, as ``covey_position``."""
        return list(_native.trainer_position(self._number))

    def replicated(self) -> Dict[str, Any]:
        """Between two steps: copies of the arrays that the method replicates, as bytes."""
        return replicated(self._number)

    def next_plan(self) -> Plan:
        """Between two steps: of the next one."""
        return plan(self.method, self.group.id, self.position()[_PLANNED])

    def step(self, gradients: Tensors, hypers: Any) -> None:
        """One step of training: updates, and exchanges what the method says.

        After an error before the update nothing has changed, and the next call is this step again.
        After a later one the next call goes on with this step, and takes no gradients.

        Args:
            gradients: dense, of the variables' shapes and dtypes, in their order.
            hypers: a tensor [num_hypers] of float64, for the update with these gradients.

        Raises:
            As the module ``covey.tensorflow.ops`` says, with the core's message.
        """
        self._steps.begin()
        if not self._steps.are_delayed:
            self._call("step", gradients, hypers)
            return
        with tf.control_dependencies([_python(self._steps.begin_work)]):
            done = self._call("step", gradients, hypers)
        with tf.control_dependencies([done]):
            _python(self._steps.sleep)

    def finish(self, strict: bool = False) -> None:
        """Makes the variables of all members equal: their mean, if they may differ; with the work
        of all. Ranks that are missing are named, and others go on without them where the method
        lets them and it is not ``strict``. Raises as ``step``; called again it goes on."""
        self._call("strict finish" if strict else "finish")
        self._steps.finished()
        planned = self.position()[_PLANNED]
        if self.is_mixed and are_rounded_apart(self.method, self.group, planned):
            root, name, group = self._root_of
            _assign(self.variables, _each_of_root(self.variables, root, end_name(name), group))

    def settle(self) -> None:
        """Nothing that this rank has learnt is with another one afterwards, or under way."""
        self._call("settle")

    def help(self) -> None:
        """While its thread waits elsewhere: gives its state to a rank that has fallen behind."""
        if not self._number or self._is_within or not tf.executing_eagerly():
            return
        with contextlib.suppress(tf.errors.OpError):
            self._call("serve")

    def close(self) -> None:
        """Gives the trainer's memory back; the variables stay."""
        number, self._number = self._number, 0
        if number:
            self._steps.close()
            _native.trainer_close(number)

    def _begin(self) -> Any:
        """Variables and state become those of the root."""
        everything = self.variables + self._state
        root, name, group = self._root_of
        if self.is_mixed:
            values = _each_of_root(everything, root, name, group)
        else:
            values = of_root(everything, root, f"{name}.begin", group)
        _assign(everything, values)
        if self._is_equal is not None:
            self._is_equal.assign(True)
        return tf.constant(True)

    @tf.autograph.experimental.do_not_convert
    def _call(self, call: str, gradients: Tensors = (), hypers: Any = None) -> Any:
        """Does what the core asks for until it is over; returns a tensor that is there then."""
        is_now = tf.executing_eagerly()
        numbers = tf.zeros([self._num_hypers], tf.float64) if hypers is None else hypers
        branches = self._branches(gradients)

        def act(verb: Any) -> List[Any]:
            verb, action, of_action = operations.covey_trainer_next(
                self._handle, num_hypers=self._num_hypers, returns=is_now
            )
            try:
                done = tf.switch_case(verb, [lambda it=it: it(of_action) for it in branches])
            except BaseException:
                if is_now:  # Else it was only traced.
                    operations.covey_trainer_ack(self._handle, action, False)
                raise
            # `done` comes when all is done: TensorFlow orders nothing else between variables.
            operations.covey_trainer_ack(self._handle, action, done)
            return [verb]

        if self._is_equal is not None and gradients:
            tf.cond(self._is_equal, lambda: tf.constant(True), self._begin)
        self._is_within = True
        try:
            with tf.device("CPU:0"):
                operations.covey_trainer_begin(self._handle, numbers, call=call)
                pending = [tf.constant(_PENDING)]
                return tf.while_loop(lambda it: tf.not_equal(it, _DONE), act, pending)[0]
        finally:
            self._is_within = False

    def _branches(self, gradients: Tensors) -> List[Callable[[Any], Any]]:
        """For each verb what is to be done, given the action's hyper-parameters."""
        of_model, everything = self.variables, self.variables + self._state

        def get(is_model: bool) -> List[Any]:
            kinds = _kinds(of_model)
            return operations.covey_trainer_get(self._handle, of_model=is_model, **kinds)

        def take() -> None:
            _assign(everything, operations.covey_trainer_take(self._handle, **_kinds(everything)))

        def collect_model() -> None:
            operations.covey_trainer_put(self._handle, read(of_model), of_model=True)

        def load_state() -> None:
            if self._state:  # An operation without results gives no list of them.
                kinds = _kinds(self._state)
                _assign(self._state, operations.covey_trainer_listed(self._handle, **kinds))

        actions: Dict[int, Callable[[Any], object]] = {
            _COLLECT_MODEL: lambda hypers: collect_model(),
            _UPDATE: lambda hypers: self._update(get(False), hypers),
            _LOAD_MODEL: lambda hypers: _assign(of_model, get(True)),
            _PACK: lambda hypers: operations.covey_trainer_give(self._handle, read(everything)),
            _UNPACK: lambda hypers: take(),
            _LIST_STATE: lambda hypers: operations.covey_trainer_list(
                self._handle, read(self._state)
            ),
            _LOAD_STATE: lambda hypers: load_state(),
        }
        if gradients:
            actions[_COLLECT_GRADIENTS] = lambda hypers: operations.covey_trainer_put(
                self._handle, gradients, of_model=False
            )

        def branch(verb: int) -> Callable[[Any], Any]:
            def run(hypers: Any) -> Any:
                if verb in actions:
                    actions[verb](hypers)
                return tf.constant(verb in actions or verb != _COLLECT_GRADIENTS)

            return run

        return [branch(verb) for verb in range(_VACATE + 1)]


def _python(function: Callable[[], None]) -> Any:
    """Calls it; in a graph each time that it runs. Returns a tensor that is there afterwards."""

    def call() -> int:
        function()
        return 0

    return tf.py_function(call, [], tf.int32)


def _each_of_root(tensors: Tensors, root: int, name: str, group: Group) -> List[Any]:
    """The same, as other frameworks send them too."""
    how = How(BROADCAST, "broadcast", root=root)
    return [
        requests.broadcast(how, [it], begin_name(name, number), group)[0]
        for number, it in enumerate(read(tensors))
    ]
