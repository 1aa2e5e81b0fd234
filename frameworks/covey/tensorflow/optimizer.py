"""The distributed optimizer: any one of Keras 3, whose ranks train together by a method.

``fit()`` and a loop of one's own call the same ``apply()``, eagerly or in a tf.function. It is one
step of the core's trainer, which does the exchanges and asks for updates by the inner optimizer.
"""

from __future__ import annotations

from typing import Any, ContextManager, Dict, List, Optional, Type, Union

import keras
import tensorflow as tf
from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

from covey.errors import Unsupported
from covey.group import Group, world
from covey.keras.wrapped import WrappedOptimizer, own_class
from covey.local_variables import plain
from covey.method import choose
from covey.reduce_op import Adasum, Average, is_adasum
from covey.tensorflow.accumulation import Accumulation
from covey.tensorflow.adasum_trainer import AdasumTrainer, check_method
from covey.tensorflow.compression import Compression, Compressor
from covey.tensorflow.optimizer_options import check_options, with_compression
from covey.tensorflow.trainer import Trainer


@own_class
class DistributedOptimizer(WrappedOptimizer):
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
        compression: ``Compression.none``; ``.fp16`` or ``.bf16``: the codec of this name, of
            variables in float32.
        sparse_as_dense: accepted: ``tf.IndexedSlices`` are always made dense.
        gradient_predivide_factor: with Average: divides gradients before all ranks' are summed up,
            and multiplies after it. Only with a method that sums them up.
        op: of gradients: Average or Sum; of updates: Adasum, by the method allreduce. Then the
            learning rate is that of one rank, and the optimizer's state stays each rank's own.
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

    backend = "tensorflow"
    variable = tf.Variable

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
        groups: Any = None,
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
        uncompressed = text = choose(method, settings)
        if is_adasum(op):
            check_method(text, process_set)
        else:
            text = with_compression(text, compression)
        added = Accumulation(backward_passes_per_step, average_aggregated_gradients)
        super().__init__(
            optimizer, name, op=op, group=process_set, method=text, is_chosen=method is not None,
            factor=gradient_predivide_factor, scale_local=scale_local_gradients,
        )
        self._covey_sum, self._covey_uncompressed = added, uncompressed
        self._covey_compression = compression  # By op=Adasum; else it is a codec of the method.

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
        variables = self._prepared(gradients, trainable_variables)
        dense = [
            tf.zeros(it.shape, it.dtype) if gradient is None else tf.convert_to_tensor(gradient)
            for gradient, it in zip(gradients, map(plain, variables))
        ]
        rate = self._rate()
        hypers = [] if rate is None else [tf.cast(tf.convert_to_tensor(rate), tf.float64)]
        numbers = tf.reshape(tf.convert_to_tensor(hypers, tf.float64), [len(hypers)])
        self._covey_sum.add(dense, lambda sums: self._step(variables, sums, numbers))

    def is_in_graph(self) -> bool:
        """Whether the caller is within a tf.function."""
        return not tf.executing_eagerly()

    def _outside(self) -> ContextManager[Any]:
        return tf.init_scope()

    def _open(self, variables: List[Any]) -> Union[Trainer, AdasumTrainer]:
        plains = [plain(variable) for variable in variables]
        common: Dict[str, Any] = {
            "method": self._covey_method,
            "group": self._covey_group,
            "root": self.root_rank,
            "resumption": self._covey_resumption,
        }
        if self._covey_op == Adasum:
            return AdasumTrainer(
                plains,
                self._update,
                self._kept(),
                compression=self._covey_compression,
                count=self.iterations,
                **common,
            )
        return Trainer(
            plains,
            self._update,
            self._kept(),
            op=self._covey_op,
            num_hypers=0 if self._rate() is None else 1,
            begin=self.iterations,
            **common,
        )

    def _update(self, gradients: List[Any], hypers: Any) -> None:
        """An update by the inner optimizer, with the learning rate of these gradients."""
        rate, variables = self._rate(), self._trainable_variables
        gradients = self._completed(gradients)
        if rate is None:
            self.inner_optimizer.apply(gradients, variables)
            return
        own = tf.identity(tf.convert_to_tensor(rate))
        rate.assign(tf.cast(hypers[0], rate.dtype))
        try:
            self.inner_optimizer.apply(gradients, variables)
        finally:
            rate.assign(own)
