"""Callbacks for ``fit()``, by the names and arguments of Horovod."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Optional, Union

import keras
import numpy

from covey.basics import size, stats
from covey.errors import InvalidArgument
from covey.group import Group, world
from covey.keras import names_here
from covey.keras.wrapped import WrappedOptimizer
from covey.local_variables import VariableSet, listed
from covey.loggers import PREFIX
from covey.notice import tell
from covey.numpy import allreduce

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "FinishCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "StatsCallback",
]

Logs = Optional[Dict[str, Any]]


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """All ranks begin with the model, and the optimizer, of one of them.

    Where the model has no variables before its first batch, those that are not trained come after
    that batch. With a ``DistributedOptimizer`` it also keeps Keras from compiling the step.

    Args:
        root_rank: a global rank.
        device: accepted for Horovod's sake.
        local_variables: a variable or several that stay each rank's own. Those that a
            ``DistributedOptimizer`` trains must be local there, too:
            :func:`~covey.keras.PartialDistributedOptimizer`.

    Raises:
        InvalidArgument: (a ValueError) something in ``local_variables`` is no variable.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        del device
        self.root_rank = root_rank
        kind = names_here().DistributedOptimizer.variable
        self._local = VariableSet(listed(local_variables, "local_variables", kind))
        self._is_due = False

    def register_local_var(self, var: Any) -> None:
        """From now on the variable ``var`` stays each rank's own."""
        self._local.add(var)

    def set_model(self, model: Any) -> None:
        """Before training: the model that is to be trained."""
        super().set_model(model)
        if not isinstance(model.optimizer, WrappedOptimizer):
            return
        model.optimizer.root_rank = self.root_rank
        if model.jit_compile:
            model.jit_compile = False
            tell("jit_compile=False: a compiled step cannot wait for other ranks")

    def on_train_begin(self, logs: Logs = None) -> None:
        """Broadcasts what there is."""
        self._is_due = not self.model.built
        if self.model.built:
            self._broadcast(self.model.variables)
            self._broadcast_optimizer()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Broadcasts the rest, once."""
        if not self._is_due:
            return
        self._is_due = False
        if isinstance(self.model.optimizer, WrappedOptimizer):
            self._broadcast(self.model.non_trainable_variables)
            return
        self._broadcast(self.model.variables)
        self._broadcast_optimizer()

    def _broadcast(self, variables: Iterable[Any]) -> None:
        """Those that are not local."""
        shared = [it for it in variables if it not in self._local]
        names_here().broadcast_variables(shared, self.root_rank)

    def _broadcast_optimizer(self) -> None:
        """A ``DistributedOptimizer`` does it by itself."""
        optimizer = self.model.optimizer
        if not isinstance(optimizer, WrappedOptimizer) and optimizer.built:
            names_here().broadcast_variables(optimizer.variables, self.root_rank)


class MetricAverageCallback(keras.callbacks.Callback):
    """The metrics of an epoch become their means over the ranks. It stands in the list before
    callbacks that read them, such as ``ReduceLROnPlateau``.

    Args:
        device: accepted for Horovod's sake.
        process_set: the ranks that take part.

    Raises:
        CoveyError: at the end of an epoch: as :func:`covey.allreduce`.

    Example:
        >>> model.fit(images, labels, callbacks=[hvd.callbacks.MetricAverageCallback()])
    """

    def __init__(self, device: str = "", process_set: Group = world) -> None:
        super().__init__()
        del device
        self.process_set = process_set

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Averages, in ``logs``. All ranks must have the same metrics."""
        names = sorted(name for name, value in (logs or {}).items() if numpy.ndim(value) == 0)
        if logs is None or not names:
            return
        values = numpy.array([float(logs[name]) for name in names])
        means = allreduce(values, name="MetricAverageCallback", process_set=self.process_set)
        logs.update(zip(names, means.tolist()))


class FinishCallback(keras.callbacks.Callback):
    """At the end of each epoch the ranks have one model: ``optimizer.finish()``. It stands in the
    list before callbacks that save the model. ``fit()`` does it by itself when training ends.

    Example:
        >>> saving = keras.callbacks.ModelCheckpoint("model.keras")
        >>> model.fit(images, labels, callbacks=[hvd.callbacks.FinishCallback(), saving])
    """

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Waits for all ranks."""
        self.model.optimizer.finish()


class StatsCallback(keras.callbacks.Callback):
    """Adds what :func:`covey.stats` counts on this rank to the metrics of each epoch. It stands in
    the list before callbacks that write them: TensorBoard's, Weights & Biases', MLflow's.

    Raises:
        NotInitialized: (a ValueError) at the end of an epoch, before ``init()``.

    Example:
        >>> written = keras.callbacks.TensorBoard("runs")
        >>> model.fit(images, labels, callbacks=[hvd.callbacks.StatsCallback(), written])
    """

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Adds, in ``logs``, by names such as "covey/training.steps"."""
        if logs is not None:
            logs.update({PREFIX + name: value for name, value in stats(flat=True).items()})


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """The learning rate is ``initial_lr`` * ``multiplier``, from one epoch to another one.

    Args:
        initial_lr: the rate that is multiplied.
        multiplier: a number, or a function of the epoch; without ``staircase`` that is a fraction.
        start_epoch: the first epoch for which it holds.
        end_epoch: the first one for which it does not any more; None: for all.
        staircase: the rate changes when an epoch begins; else with each batch.
        momentum_correction: accepted for Horovod's sake, without effect: the momentum of Keras 3 is
            a constant of the compiled step.
        steps_per_epoch: without ``staircase``; None: as ``fit()`` says.

    Raises:
        InvalidArgument: (a ValueError) when training begins: the steps of an epoch are not known.

    Example:
        >>> tenth = hvd.callbacks.LearningRateScheduleCallback(0.1, multiplier=0.1, start_epoch=30)
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: Union[float, Callable[[float], float]],
        start_epoch: int = 0,
        end_epoch: Optional[int] = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
    ) -> None:
        super().__init__()
        del momentum_correction
        self.initial_lr = initial_lr
        self.start_epoch, self.end_epoch = start_epoch, end_epoch
        self.steps_per_epoch = steps_per_epoch
        self.staircase = staircase or not callable(multiplier)
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier
        self.current_epoch = 0

    def on_train_begin(self, logs: Logs = None) -> None:
        """Finds out how many steps an epoch has."""
        if not self.staircase and self.steps_per_epoch is None:
            self.steps_per_epoch = (self.params or {}).get("steps")
            if not self.steps_per_epoch:
                raise InvalidArgument(
                    f"{type(self).__name__}: give steps_per_epoch, fit() does not know it here"
                )

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Keeps its number."""
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Sets the rate."""
        end = self.end_epoch
        if self.current_epoch < self.start_epoch or end is not None and self.current_epoch >= end:
            return
        if not self.staircase:
            self._set(self.current_epoch + batch / (self.steps_per_epoch or 1))
        elif batch == 0:
            self._set(self.current_epoch)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Adds the rate to the metrics, as ``lr``."""
        if logs is not None:
            logs["lr"] = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))

    def _set(self, epoch: float) -> None:
        self.model.optimizer.learning_rate = self.initial_lr * self.multiplier(epoch)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """The learning rate grows from ``initial_lr`` / size to ``initial_lr``, batch by batch (Goyal
    et al., 2017, arXiv:1706.02677).

    Args:
        initial_lr: the rate at the end, for all ranks together.
        warmup_epochs: how long it takes.
        momentum_correction, steps_per_epoch: as LearningRateScheduleCallback.
        verbose: 1: says when it is over.

    Raises:
        InvalidArgument: as :class:`LearningRateScheduleCallback`.

    Example:
        >>> warmup = hvd.callbacks.LearningRateWarmupCallback(0.1 * hvd.size(), warmup_epochs=3)
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            initial_lr, self._growth, 0, warmup_epochs, False, momentum_correction, steps_per_epoch
        )
        self.verbose = verbose

    def _growth(self, epoch: float) -> float:
        done = epoch + 1 / (self.steps_per_epoch or 1)  # The last batch has the whole rate.
        return (done * (size() - 1) / (self.end_epoch or 1) + 1) / size()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Says when it is over."""
        super().on_epoch_end(epoch, logs)
        if self.verbose and self.end_epoch is not None and epoch == self.end_epoch - 1:
            rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
            print(f"\nEpoch {epoch + 1}: the warm-up of the learning rate ends at {rate:g}.")


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """As ``keras.callbacks.ModelCheckpoint`` with ``save_best_only=True``. Each rank that has it
    writes a file: give it to one rank.

    Args:
        monitor, verbose, save_weights_only, mode, save_freq: as Keras has them.
        filepath: the file; None: set ``callback.filepath`` before training begins.

    Raises:
        InvalidArgument: (a ValueError) when training begins: there is no ``filepath``.

    Example:
        >>> best = hvd.callbacks.BestModelCheckpoint(filepath="best.keras")
        >>> callbacks += [best] if hvd.rank() == 0 else []
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Union[str, int] = "epoch",
        filepath: Optional[str] = None,
    ) -> None:
        is_given = filepath is not None
        ending = ".weights.h5" if save_weights_only else ".keras"
        super().__init__(
            filepath if is_given else f"best{ending}",  # Keras looks at how it ends.
            monitor,
            verbose,
            True,
            save_weights_only,
            mode,
            save_freq,
        )
        self.filepath = self.filepath if is_given else None

    def on_train_begin(self, logs: Logs = None) -> None:
        """Looks whether there is a file to write."""
        if self.filepath is None:
            raise InvalidArgument("BestModelCheckpoint: set its filepath before training begins")
        super().on_train_begin(logs)
