"""The distributed optimizer: any one of Keras 3, whose ranks train together by a method.

``fit()`` and a loop of one's own call the same ``apply()``, eagerly or in a tf.function. It is one
step of the core's trainer, which does the exchanges and asks for updates by the inner optimizer.
"""

from __future__ import annotations

import operator
from typing import Any, List, Optional, Type

import keras
import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from covey.errors import InvalidArgument, Unsupported
from covey.group import Group, world
from covey.method import choose
from covey.reduce_op import Average, ReduceOp, Sum
from covey.tensorflow.accumulation import Accumulation
from covey.tensorflow.compression import Compression, Compressor
from covey.tensorflow.local_variables import VariableSet, plain, scaled, without_slots_of
from covey.tensorflow.optimizer_options import (
    check_options,
    check_sums,
    check_updates,
    with_compression,
)
from covey.tensorflow.trainer import Resumption, Trainer


@keras.saving.register_keras_serializable("covey")
class DistributedOptimizer(keras.optimizers.Optimizer):
    """Wraps an optimizer, so that ``apply()`` is a step of a training by all ranks; all make one.

    Model and optimizer become those of rank ``root_rank`` at the first step: before its gradients
    are computed if that is in a tf.function, as in ``fit()``, and the model has its variables; else
    after. ``fit()`` calls ``finish()`` at its end. XLA cannot compile a step: on a machine with
    GPUs ``fit()`` needs ``compile(..., jit_compile=False)``.

    Args:
        optimizer: a Keras 3 optimizer, or its name, such as "sgd". Clipping and weight decay are
            its own, after the exchange. For loss scaling give
            ``keras.optimizers.LossScaleOptimizer(optimizer)``, not the other way round.
        name: of the optimizer.
        device_dense, device_sparse, num_groups, groups, use_locking: accepted for Horovod's sake.
        compression: ``Compression.none``; ``.fp16`` or ``.bf16``: the codec of this name.
        sparse_as_dense: accepted: ``tf.IndexedSlices`` are always made dense.
        gradient_predivide_factor: with Average: divides gradients before all ranks' are summed up,
            and multiplies after it. Only with a method that sums them up.
        op: Average or Sum, of gradients.
        backward_passes_per_step: so many calls of ``apply()`` add up to one step.
        average_aggregated_gradients: divides the sum of these by their number.
        process_set: the ranks that train together. Another rank trains by itself.
        scale_local_gradients: divides the gradients of local variables by the size of
            ``process_set``: :meth:`register_local_var`.
        method: such as "local:local_steps=8"; None: as COVEY_METHOD says, else "allreduce".
        settings: parameters of the method: ``local_steps=8``, ``codec="int8"``.

    Attributes:
        inner_optimizer: the wrapped one.
        root_rank: the global rank with whose model and optimizer all begin.

    Raises:
        InvalidArgument, NotInitialized, Unsupported: (ValueErrors) wrong here; before ``init()``;
            the message says how else.

    Example:
        >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), method="eager")
        >>> model.compile(optimizer, "mse")
    """

    def __init__(
        self,
        optimizer: Any,
        name: Optional[str] = None,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Type[Compressor] = Compression.none,
        sparse_as_dense: bool = False,
        gradient_predivide_factor: float = 1.0,
        op: int = Average,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool = False,
        num_groups: int = 0,
        groups: Optional[int] = None,
        process_set: Group = world,
        scale_local_gradients: bool = True,
        use_locking: bool = False,
        *,
        method: Optional[str] = None,
        **settings: object,
    ) -> None:
        del device_dense, device_sparse, sparse_as_dense, use_locking
        if isinstance(optimizer, str):
            optimizer = keras.optimizers.get(optimizer)
        check_options(optimizer, op, gradient_predivide_factor, num_groups, groups)
        if isinstance(optimizer, DistributedOptimizer):
            raise InvalidArgument("this optimizer is a DistributedOptimizer already")
        text = with_compression(choose(method, settings), compression)
        if gradient_predivide_factor != 1.0:
            check_sums(text, process_set)
        added = Accumulation(backward_passes_per_step, average_aggregated_gradients)
        super().__init__(learning_rate=0.0, name=name or f"distributed_{optimizer.name}")
        self._covey_method, self._covey_op, self._covey_group = text, op, process_set
        self._covey_is_chosen = method is not None
        self._covey_sum, self._covey_factor = added, gradient_predivide_factor
        self._covey_local = VariableSet()
        self._covey_local_scale = 1 / process_set.size() if scale_local_gradients else 1.0
        self._covey_own: List[Any] = []  # Of a step: the gradients of local variables.
        self._covey_trainer: Optional[Trainer] = None
        self._covey_resumption: Optional[Resumption] = None
        self.inner_optimizer = optimizer
        self.root_rank = process_set.ranks[0]

    # ---- What is the inner optimizer's ----------------------------------------------------------

    def build(self, variables: List[Any]) -> None:
        """As the inner optimizer's."""
        if not self.inner_optimizer.built:
            self.inner_optimizer.build(variables)
        super().build(variables)

    @property
    def variables(self) -> List[Any]:
        """Those of the inner optimizer."""
        return list(self.inner_optimizer.variables)

    @property
    def learning_rate(self) -> Any:
        """That of the inner optimizer. It travels with gradients: an update has that of the rank
        and the step that they come from. A schedule goes by the inner optimizer's updates."""
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        self.inner_optimizer.learning_rate = learning_rate

    @property
    def iterations(self) -> Any:
        """The updates that the inner optimizer has done."""
        return self.inner_optimizer.iterations

    def scale_loss(self, loss: Any) -> Any:
        """As the inner optimizer's."""
        return self.inner_optimizer.scale_loss(loss)

    def save_own_variables(self, store: Any) -> None:
        """Nothing: the inner optimizer saves its own."""

    def load_own_variables(self, store: Any) -> None:
        """Nothing: the inner optimizer loads its own."""

    def get_config(self) -> Any:
        """Of a saved model: the inner optimizer, and the method if the script has chosen one."""
        return {
            "name": self.name,
            "optimizer": keras.saving.serialize_keras_object(self.inner_optimizer),
            "op": int(self._covey_op),
            "method": self._covey_method if self._covey_is_chosen else None,
        }

    @classmethod
    def from_config(cls, config: Any, custom_objects: Any = None) -> "DistributedOptimizer":
        """Of a saved model. Needs ``init()``; without it load with ``compile=False``."""
        inner = keras.saving.deserialize_keras_object(config["optimizer"], custom_objects)
        op = ReduceOp(config["op"])
        return cls(inner, name=config["name"], op=op, method=config["method"])

    # ---- Training -------------------------------------------------------------------------------

    @property
    def trainer(self) -> Optional[Trainer]:
        """That of the core; None before the first step."""
        return self._covey_trainer

    @property
    def method(self) -> str:
        """Its whole text."""
        return self._covey_method

    @property
    def process_set(self) -> Group:
        """The ranks that train together."""
        return self._covey_group

    def resume(self, resumption: Resumption) -> None:
        """The first step, which is still to come, goes on from there. All ranks call it."""
        self._covey_resumption = resumption

    @property
    def version(self) -> int:
        """How many updates were done; by a method that does not wait for all ranks the versions
        applied: models are equal at equal version."""
        trainer = self._covey_trainer
        return int(self.iterations) if trainer is None else trainer.version

    def register_local_var(self, var: Any) -> None:
        """From now on the variable ``var`` is this rank's own: updates are by its own gradient.

        Raises:
            InvalidArgument: (a ValueError) a step was done already.
            Unsupported: (a ValueError) the method does not do an update for each step.
        """
        if self._covey_trainer is not None:
            raise InvalidArgument("register_local_var comes before the first step")
        check_updates(self._covey_method, self._covey_group)
        self._covey_local.add(var)

    @tf.autograph.experimental.do_not_convert
    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """One step: updates and exchanges what the method says. Every rank calls it equally often,
        unless the method does not wait for all.

        Args:
            grads: a tensor, ``tf.IndexedSlices`` (made dense) or None (zeros) for each variable.
            trainable_variables: the same at each call; None: those of ``build()``.

        Raises:
            InvalidArgument: (a ValueError) other variables than at the first step.
            Unsupported: (a ValueError) it would be compiled by XLA.
            Mismatch: on every rank, at the first step: variables, method or op differ.
            StagingError: (of AutoGraph) in place of these, with their message, while a tf.function
                is traced.
            tf.errors.OpError: as ``covey.tensorflow.ops`` says. After one before its update nothing
                has changed, and the next call is this step again; after a later one the next call
                goes on with this step, and takes no gradients.
        """
        gradients = list(grads)
        if not gradients:
            return
        if not tf.executing_eagerly() and GraphOrParentsInXlaContext(
            tf.compat.v1.get_default_graph()
        ):
            raise Unsupported(
                "a step that XLA compiles cannot wait for other ranks: write "
                "model.compile(..., jit_compile=False), or tf.function without jit_compile"
            )
        variables = self._variables_of(gradients, trainable_variables)
        self._check_variables(variables)
        dense = [
            tf.zeros(it.shape, it.dtype) if gradient is None else tf.convert_to_tensor(gradient)
            for gradient, it in zip(gradients, map(plain, variables))
        ]
        rate = self._rate()
        hypers = [] if rate is None else [tf.cast(tf.convert_to_tensor(rate), tf.float64)]
        numbers = tf.reshape(tf.convert_to_tensor(hypers, tf.float64), [len(hypers)])
        self._covey_sum.add(dense, lambda sums: self._step(variables, sums, numbers))

    def _step(self, variables: List[Any], sums: List[Any], hypers: Any) -> None:
        """A step with dense gradients of all variables."""
        trainer = self._covey_trainer
        if trainer is None:  # Not in the process set.
            self.inner_optimizer.apply(sums, variables)
            return
        are_own = [it in self._covey_local for it in variables]
        scale = self._covey_local_scale
        self._covey_own = [scaled(it, scale) for it, is_own in zip(sums, are_own) if is_own]
        ahead = 1 / self._covey_factor
        try:
            trainer.step(
                [scaled(it, ahead) for it, is_own in zip(sums, are_own) if not is_own], hypers
            )
        finally:
            self._covey_own = []  # A graph's tensors are of no use outside of it.

    def finish(self, strict: bool = False) -> None:
        """Makes the models of all ranks equal: their mean, if they may differ, with the work of
        all. Every rank calls it at the end of training, or before the model is evaluated or saved;
        training may go on. Ranks that are missing are named, and the others go on without them
        where the method lets them, if it is not ``strict``. Before the first step: nothing."""
        if self._covey_trainer is not None:
            self._covey_trainer.finish(strict)

    def finalize_variable_values(self, var_list: Any) -> None:
        """``finish()``; ``fit()`` calls it at its end."""
        self.finish()
        self.inner_optimizer.finalize_variable_values(var_list)

    def close(self) -> None:
        """Gives the memory of the exchanges back; the next step begins a training anew."""
        trainer, self._covey_trainer = self._covey_trainer, None
        if trainer is not None:
            trainer.close()

    def _variables_of(self, gradients: List[Any], variables: Any) -> List[Any]:
        if variables is None:
            if not self.built:
                raise InvalidArgument("apply() without variables needs build() before")
            variables = self._trainable_variables
        listed = list(variables)
        if len(listed) != len(gradients):
            raise InvalidArgument(f"{len(gradients)} gradients for {len(listed)} variables")
        if not self.built:
            with tf.init_scope():  # So they have values before a tf.function is traced to its end.
                self.build(listed)
        return listed

    def _check_variables(self, variables: List[Any]) -> None:
        """Opens the trainer at the first step; later steps have the same variables."""
        shared = [it for it in variables if it not in self._covey_local]
        trainer, is_same = self._covey_trainer, len(variables) == len(self._trainable_variables)
        if trainer is None and is_same and self._covey_group.rank() is not None:
            with tf.init_scope():
                trainer = self._covey_trainer = self._open(shared)
        if trainer is not None:
            is_same = is_same and len(shared) == len(trainer.variables)
            is_same = is_same and all(map(operator.is_, map(plain, shared), trainer.variables))
        if not is_same:
            raise InvalidArgument(
                "apply() has other variables than at its first step: a training keeps its "
                "variables; make a new DistributedOptimizer on all ranks"
            )

    def _open(self, variables: List[Any]) -> Trainer:
        rate = self._rate()
        kept = [it for it in self.inner_optimizer.variables if it is not rate]
        everything = self._trainable_variables
        apart = [it for it in everything if it in self._covey_local]
        return Trainer(
            [plain(variable) for variable in variables],
            self._update,
            [plain(variable) for variable in without_slots_of(apart, everything, kept)],
            method=self._covey_method,
            op=self._covey_op,
            group=self._covey_group,
            num_hypers=0 if rate is None else 1,
            begin=self.iterations,
            root=self.root_rank,
            resumption=self._covey_resumption,
        )

    def _rate(self) -> Any:
        """The learning rate's variable; None: a schedule, which goes by the updates done."""
        rate = self.inner_optimizer.learning_rate
        return rate if isinstance(rate, keras.Variable) else None

    def _update(self, gradients: List[Any], hypers: Any) -> None:
        """An update by the inner optimizer, with the learning rate of these gradients."""
        rate, variables = self._rate(), self._trainable_variables
        gradients = self._with_own([scaled(it, self._covey_factor) for it in gradients])
        if rate is None:
            self.inner_optimizer.apply(gradients, variables)
            return
        own = tf.identity(tf.convert_to_tensor(rate))
        rate.assign(tf.cast(hypers[0], rate.dtype))
        try:
            self.inner_optimizer.apply(gradients, variables)
        finally:
            rate.assign(own)

    def _with_own(self, gradients: List[Any]) -> List[Any]:
        """Those of all variables in their order: of the local ones this step's, else zeros."""
        shared, own = iter(gradients), iter(self._covey_own)
        result = []
        for variable in self._trainable_variables:
            if variable not in self._covey_local:
                result.append(next(shared))
                continue
            zeros = tf.zeros(variable.shape, variable.dtype)
            result.append(tf.identity(next(own, zeros)))  # In the graph of the others.
        return result
