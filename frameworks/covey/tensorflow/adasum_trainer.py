"""``DistributedOptimizer(op=Adasum)``: each rank's own update, and Adasum of the updates. Internal.

As in Horovod, and in ``covey/torch/trainer/adasum_trainer.py``: a step is one of the inner
optimizer with this rank's own gradients; by what the variables have changed goes through Adasum,
each variable by itself, and is added to what they were before. So the learning rate stays that of
one rank.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Type

import tensorflow as tf

from covey.errors import Mismatch, Unsupported
from covey.group import Group
from covey.keras.resumption import Resumption
from covey.method import plans
from covey.method_summary import announce
from covey.names import next_prefix
from covey.reduce_op import CORE_CODES, Adasum
from covey.requests import ALLREDUCE, How
from covey.step_stats import StepStats
from covey.tensorflow import adasum
from covey.tensorflow.compression import Compressor
from covey.tensorflow.requests import by_dtype, of_root
from covey.trainer_handle import Position, TrainerHandle
from covey.training_terms import Met, Terms, meet, terms_of

_NAME = "TensorFlow"
_KIND = b"op=Adasum"  # Other trainings have none: the core compares their op.
_HOW = How(ALLREDUCE, "grouped_allreduce", CORE_CODES[Adasum])

Tensors = Sequence[Any]
Update = Callable[[List[Any], Any], None]


def check_method(method: str, group: Group) -> None:
    """Raises Unsupported (a ValueError): by this method, whose whole text it is, there is none."""
    is_in_rounds = any(plan.in_rounds for _, plan in plans(method, group.id))
    if method.partition(":")[0] != "allreduce" or is_in_rounds:
        raise Unsupported(
            f"op=Adasum waits for the updates of all ranks, and {method!r} does not: use "
            "method='allreduce', or op=Average"
        )
    if "codec=" in method:
        raise Unsupported("op=Adasum has no codecs: compression may be .fp16 or .bf16")


def agree_on_kind(met: Met, group: Group) -> None:
    """Raises Mismatch, on every member of ``group``, which have met: some train by op=Adasum."""
    with_it = [rank for rank, own in zip(group.ranks, met.hashes) if own == _KIND]
    others = [rank for rank in group.ranks if rank not in with_it]
    if with_it and others:
        raise Mismatch(
            f"DistributedOptimizer differs between the ranks: rank {with_it[0]} has op=Adasum, "
            f"rank {others[0]} another op"
        )


class AdasumTrainer:
    """In the place of ``covey.tensorflow.trainer.Trainer``, whose arguments these are. All ranks
    have the same model after each step; the optimizer's state is each rank's own.

    Args:
        compression: of the updates, while they travel.
        count: the variable with the number of updates done, which ``update`` counts.

    Raises:
        Unsupported: (a ValueError) a variable of another dtype; one that has no value yet.
        Mismatch: on every member: op or variables differ.
    """

    is_mixed = False

    def __init__(
        self, variables: Tensors, update: Update, kept: Tensors, *, method: str, group: Group,
        compression: Type[Compressor], count: Any, root: int, resumption: Optional[Resumption],
    ) -> None:
        self.variables, self._update, self._count = list(variables), update, count
        self.method, self.group, self._compression = method, group, compression
        for variable in self.variables:
            if variable.dtype not in adasum.DTYPES:
                raise Unsupported(f"op=Adasum: {variable.name} is of {variable.dtype.name}")
            if not variable.is_initialized():
                raise Unsupported(
                    "op=Adasum: the variables have no values at the first step: build the model "
                    "before it"
                )
        agree_on_kind(meet(group, _NAME, self._terms, _KIND), group)
        self._name = next_prefix("tensorflow.adasum", group.ranks)
        everything = [*self.variables, *kept]
        if resumption is None:
            values = of_root(everything, root, f"{self._name}.begin", group)
            for variable, value in zip(everything, values):
                variable.assign(value)
        lengths = [it.dtype.size * it.shape.num_elements() for it in self.variables]
        announce(method, group, sum(lengths))
        self._begun = self._slept = self.version
        self._stats = StepStats(method, group.ranks)
        this = weakref.ref(self)
        self._stats.refresh = lambda: _count_steps(this())

    def _terms(self) -> Terms:
        return terms_of(
            _NAME, [], method=self.method, op=Adasum, num_hypers=0, root=self.group.ranks[0],
            problem="op=Adasum is for ranks of one framework",
        )

    @property
    def version(self) -> int:
        """Updates done."""
        return int(self._count)

    @property
    def handle(self) -> TrainerHandle:
        """In the place of that of the core's trainer."""
        return _Handle(self)

    def position(self) -> List[int]:
        """Between two steps: where this rank is, as ``covey_position``."""
        return list(self.handle.position)

    def replicated(self) -> Dict[str, Any]:
        """There is nothing beside model and optimizer."""
        return {}

    def next_plan(self) -> None:
        """The core has none: each step is done by all."""

    def values(self) -> List[Any]:
        """Copies of the variables, as NumPy arrays."""
        return [variable.numpy().copy() for variable in self.variables]

    def put(self, values: Sequence[Any]) -> None:
        """Overwrites the variables with arrays."""
        for variable, value in zip(self.variables, values):
            variable.assign(value)

    def step(self, gradients: Tensors, hypers: Any) -> None:
        """One step of training. See ``Trainer.step``.

        Raises:
            As the module ``covey.tensorflow.ops`` says. The variables are what they were before.
        """
        if self._stats.injector is None:
            self._step(gradients, hypers)
            return
        with tf.control_dependencies([tf.py_function(self._stats.begin_step, [], [])]):
            self._step(gradients, hypers)
        tf.py_function(self._sleep, [], [])  # Stateful: after the step, as it stands.

    def _step(self, gradients: Tensors, hypers: Any) -> None:
        before = [tf.identity(variable) for variable in self.variables]
        self._update(list(gradients), hypers)
        changes = [variable - old for variable, old in zip(self.variables, before)]
        for variable, old in zip(self.variables, before):
            variable.assign(old)
        for variable, change in zip(self.variables, self._summed(changes)):
            variable.assign_add(change)

    def _summed(self, changes: List[Any]) -> List[Any]:
        pairs = [self._compression.compress(change) for change in changes]
        small = [tensor for tensor, _ in pairs]
        summed = by_dtype(adasum.allreduce, _HOW, small, f"{self._name}.updates", self.group)
        return [self._compression.decompress(it, ctx) for it, (_, ctx) in zip(summed, pairs)]

    def _sleep(self) -> None:
        self._stats.sleep(self._slept)
        self._slept += 1

    def finish(self, strict: bool = False) -> None:
        """There is nothing to do: all have the same model."""

    def settle(self) -> None:
        """There is nothing under way."""

    def close(self) -> None:
        """There is nothing that others would miss."""
        _count_steps(self)


class _Handle(TrainerHandle):
    """The handle of a training that no trainer of the core does."""

    def __init__(self, trainer: AdasumTrainer) -> None:
        super().__init__(len(trainer.variables))
        self._of = trainer

    @property
    def position(self) -> Position:
        """Between two steps: where this rank is."""
        zeros = Position(*(0 for _ in Position._fields))
        return zeros._replace(version=self._of.version, step=self._of.version)


def _count_steps(trainer: Optional[AdasumTrainer]) -> None:
    """For the statistics."""
    if trainer is not None:
        trainer._stats.steps = trainer.version - trainer._begun
