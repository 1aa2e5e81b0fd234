"""An optimizer of Keras 3 around another one: the part of a distributed optimizer that no backend
of Keras changes. Internal."""

from __future__ import annotations

import contextlib
import operator
from typing import Any, ContextManager, List, Optional

import keras

from covey import elastic_job
from covey.arguments import group_id, truth_of
from covey.errors import InvalidArgument
from covey.group import Group
from covey.keras.options import check_sums, check_updates
from covey.keras.resumption import Resumption
from covey.local_variables import VariableSet, plain, without_slots_of
from covey.reduce_op import ReduceOp


def own_class(kind: type) -> type:
    """Registers a ``DistributedOptimizer`` with Keras, if it is that of the backend in use: models
    are saved with its name."""
    if kind.backend == keras.backend.backend():  # type: ignore[attr-defined]
        keras.saving.register_keras_serializable("covey")(kind)
    return kind


class WrappedOptimizer(keras.optimizers.Optimizer):
    """See the module. A backend adds ``apply()`` and ``_open()``.

    Attributes:
        backend: of Keras.
        variable: the type of this backend's own variables.
        inner_optimizer: the wrapped one.
        root_rank: the global rank with whose model and optimizer all begin.
    """

    backend: str
    variable: type

    def __init__(
        self, optimizer: Any, name: Optional[str], *, op: int, group: Group, method: str,
        is_chosen: bool, factor: float, scale_local: bool,
    ) -> None:
        """``method``: its whole text; ``is_chosen``: by the script; ``factor``: gradients are
        divided by it before a sum and multiplied after it; ``scale_local``: the gradients of local
        variables are divided by the size of ``group``.

        Raises:
            InvalidArgument: (a ValueError) it is distributed already.
            Unsupported: (a ValueError) ``factor`` does not go with the method; an elastic job.
        """
        if isinstance(optimizer, WrappedOptimizer):
            raise InvalidArgument("this optimizer is a DistributedOptimizer already")
        elastic_job.check_inside("a DistributedOptimizer of Keras")
        group_id(group)  # Refuses what is none.
        if factor != 1.0:
            check_sums(method, group)
        super().__init__(learning_rate=0.0, name=name or f"distributed_{optimizer.name}")
        self._covey_method, self._covey_op, self._covey_group = method, op, group
        self._covey_uncompressed = method
        self._covey_is_chosen, self._covey_factor = is_chosen, factor
        self._covey_local = VariableSet()
        self._covey_scales_local = scale_local
        scales = truth_of("scale_local_gradients", scale_local)
        self._covey_local_scale = 1 / group.size() if scales else 1.0
        self._covey_own: List[Any] = []  # Of a step: the gradients of local variables.
        self._covey_sum: Any = None  # The backend's function: adds gradients of several passes.
        self._covey_trainer: Any = None
        self._covey_resumption: Optional[Resumption] = None
        self.inner_optimizer = optimizer
        self.root_rank = group.ranks[0]

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
        """Of a saved model: the inner optimizer, the options of a step, and the method if the
        script has chosen one. Without the process set, and without the local variables."""
        return {
            "name": self.name,
            "optimizer": keras.saving.serialize_keras_object(self.inner_optimizer),
            "op": int(self._covey_op),
            "gradient_predivide_factor": float(self._covey_factor),
            "backward_passes_per_step": self._covey_sum.passes,
            "average_aggregated_gradients": self._covey_sum.is_mean,
            "scale_local_gradients": self._covey_scales_local,
            "method": self._covey_method if self._covey_is_chosen else None,
        }

    @classmethod
    def from_config(cls, config: Any, custom_objects: Any = None) -> Any:
        """Of a saved model. Needs ``init()``; without it load with ``compile=False``."""
        options = dict(config)  # Of older versions without some.
        inner = keras.saving.deserialize_keras_object(options.pop("optimizer"), custom_objects)
        return cls(inner, op=ReduceOp(options.pop("op")), **options)

    # ---- Of what ranks share ----------------------------------------------------------------

    def is_local(self, variable: Any) -> bool:
        """Whether it stays each rank's own, by ``register_local_var``.

        Args:
            variable: one of Keras, or the backend's own one in it.
        """
        return variable in self._covey_local

    def shared_variables(self) -> List[Any]:
        """``variables`` without the state of local ones."""
        everything = self._trainable_variables
        apart = [it for it in everything if it in self._covey_local]
        return without_slots_of(apart, everything, self.variables)

    # ---- Training -------------------------------------------------------------------------------

    @property
    def trainer(self) -> Any:
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
        """The first step, which is still to come, goes on from there. All ranks call it. Internal.
        """
        self._covey_resumption = resumption

    @property
    def version(self) -> int:
        """Steps done, by the ranks that this one has averaged with where it has done fewer; by
        eager versions applied: models are equal at equal version."""
        trainer, resumption = self._covey_trainer, self._covey_resumption
        if trainer is not None:
            return trainer.version
        return int(self.iterations) if resumption is None else resumption.version

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

    def finish(self, strict: bool = False) -> None:
        """Makes the models of all ranks equal: their mean, if they may differ, with the work of
        all. Every rank calls it at the end of training, or before the model is evaluated or saved;
        training may go on. Ranks that are missing are named, and the others go on without them
        where the method lets them, if it is not ``strict``. Before the first step: nothing.

        Raises:
            Timeout: the method's ``max_wait`` is over: called again it goes on. By TensorFlow it is
                ``tf.errors.DeadlineExceededError``.
            Mismatch, Aborted: as ``apply()``.
        """
        if self._covey_trainer is not None:
            self._covey_trainer.finish(strict)

    def finalize_variable_values(self, var_list: Any) -> None:
        """``finish()``; ``fit()`` calls it at its end."""
        self.finish()
        self.inner_optimizer.finalize_variable_values(var_list)

    def abandon(self) -> None:
        """Drops the gradients of passes that are not a whole step yet."""
        self._covey_sum.abandon()

    def close(self) -> None:
        """Gives the memory of the exchanges back; the next step begins a training anew."""
        trainer, self._covey_trainer = self._covey_trainer, None
        self._covey_resumption = None
        if trainer is not None:
            trainer.close()

    def is_in_graph(self) -> bool:
        """Whether the caller is within a graph, where operations are only noted."""
        return False

    def _outside(self) -> ContextManager[Any]:
        """Within it operations are no part of a graph."""
        return contextlib.nullcontext()

    def _open(self, variables: List[Any]) -> Any:
        """A trainer of these, as all ranks make one."""
        raise NotImplementedError

    def _prepared(self, gradients: List[Any], given: Any) -> List[Any]:
        """The variables ``given`` to ``apply()``; None: those of ``build()``. The first step opens
        the trainer, if this rank is in the process set.

        Raises:
            InvalidArgument: (a ValueError) they are others than at the first step, or another
                number than the gradients.
        """
        variables = self._variables_of(gradients, given)
        shared = [it for it in variables if it not in self._covey_local]
        trainer, is_same = self._covey_trainer, len(variables) == len(self._trainable_variables)
        if trainer is None and is_same and self._covey_group.rank() is not None:
            # A compression, unlike a codec of the method, is of those that it can make smaller.
            if all(keras.backend.standardize_dtype(it.dtype) != "float32" for it in shared):
                self._covey_method = self._covey_uncompressed
            with self._outside():
                trainer = self._covey_trainer = self._open(shared)
        if trainer is not None:
            is_same = is_same and len(shared) == len(trainer.variables)
            is_same = is_same and all(map(operator.is_, map(plain, shared), trainer.variables))
        if not is_same:
            raise InvalidArgument(
                "apply() has other variables than at its first step: a training keeps its "
                "variables; make a new DistributedOptimizer on all ranks"
            )
        return variables

    def _step(self, variables: List[Any], sums: List[Any], hypers: Any) -> None:
        """A step with dense gradients of all variables."""
        trainer = self._covey_trainer
        if trainer is None:  # Not in the process set.
            self.inner_optimizer.apply(sums, variables)
            return
        are_own = [it in self._covey_local for it in variables]
        self._covey_own = [it for it, is_own in zip(sums, are_own) if is_own]
        ahead = 1 / self._covey_factor
        try:
            trainer.step(
                [_scaled(it, ahead) for it, is_own in zip(sums, are_own) if not is_own], hypers
            )
        finally:
            self._covey_own = []  # A graph's tensors are of no use outside of it.

    def _completed(self, gradients: List[Any]) -> List[Any]:
        """For an update by ``gradients`` of the variables that ranks share: those of all variables
        in their order, of the local ones this step's, else zeros."""
        shared = iter([_scaled(it, self._covey_factor) for it in gradients])
        own, scale = iter(self._covey_own), self._covey_local_scale
        result = []
        for variable in self._trainable_variables:
            if variable not in self._covey_local:
                result.append(next(shared))
                continue
            mine = next(own, None)
            zeros = keras.ops.zeros_like(plain(variable))
            result.append(zeros if mine is None else mine * scale)  # In the graph of the others.
        return result

    def _variables_of(self, gradients: List[Any], variables: Any) -> List[Any]:
        if variables is None:
            if not self.built:
                raise InvalidArgument("apply() without variables needs build() before")
            variables = self._trainable_variables
        listed = list(variables)
        if len(listed) != len(gradients):
            raise InvalidArgument(f"{len(gradients)} gradients for {len(listed)} variables")
        if not self.built:
            with self._outside():  # So they have values before a graph is traced to its end.
                self.build(listed)
        return listed

    def _rate(self) -> Any:
        """The learning rate's variable; None: a schedule, which goes by the updates done."""
        rate = self.inner_optimizer.learning_rate
        return rate if isinstance(rate, keras.Variable) else None

    def _kept(self) -> List[Any]:
        """The optimizer's state that ranks share, as variables of the backend: without the learning
        rate and the state of local variables."""
        rate = self._rate()
        return [plain(it) for it in self.shared_variables() if it is not rate]


def _scaled(gradient: Any, scale: float) -> Any:
    return gradient if scale == 1.0 else gradient * scale
