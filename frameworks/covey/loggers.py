"""``covey.stats()`` in a logger: TensorBoard, Weights & Biases, MLflow, or one of your own.

A logger is called once a step and writes every so many steps what :func:`covey.stats` counts, by
names such as "covey/training.steps_per_second"::

    import covey.loggers

    log = covey.loggers.tensorboard(SummaryWriter("runs"))
    for step, batch in enumerate(loader):
        train(batch)
        log(step)

No logger's package is imported before its function is called. Keras: the callback
``StatsCallback``.
"""

from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, Optional

from covey.basics import rank, stats
from covey.errors import InvalidArgument

__all__ = ["StatsLogger", "mlflow", "tensorboard", "wandb"]

Write = Callable[[Dict[str, float], int], None]

PREFIX = "covey/"


class StatsLogger:
    """Hands the counters of this rank to ``write``, every so many steps.

    Args:
        write: ``write(numbers, step)``; numbers by name, seconds and bytes as ``covey.stats`` has
            them.
        every: steps between two calls of ``write``, from 1.
        only_rank: the rank that writes; None: each one does.

    Raises:
        InvalidArgument: (a ValueError) ``every`` is less than 1.

    Example:
        >>> log = covey.loggers.StatsLogger(lambda numbers, step: print(step, numbers))
        >>> log(0)
    """

    def __init__(self, write: Write, every: int = 50, only_rank: Optional[int] = 0) -> None:
        if every < 1:
            raise InvalidArgument(f"every is a number of steps from 1, not {every!r}")
        self._write, self._every, self._only_rank = write, every, only_rank

    def __call__(self, step: int) -> None:
        """``step``: of the training, from 0: its number in the logger. Raises NotInitialized before
        ``init()``."""
        if step % self._every == 0 and self._only_rank in (None, rank()):
            self._write({PREFIX + name: value for name, value in stats(flat=True).items()}, step)


def tensorboard(writer: Any, every: int = 50, only_rank: Optional[int] = 0) -> StatsLogger:
    """A logger for TensorBoard. See :class:`StatsLogger`.

    Args:
        writer: a ``torch.utils.tensorboard.SummaryWriter``, or what has its ``add_scalar``.
        every, only_rank: as StatsLogger.

    Example:
        >>> log = covey.loggers.tensorboard(SummaryWriter("runs"), every=10)
    """

    def write(numbers: Dict[str, float], step: int) -> None:
        for name, value in numbers.items():
            writer.add_scalar(name, value, step)

    return StatsLogger(write, every, only_rank)


def wandb(run: Any = None, every: int = 50, only_rank: Optional[int] = 0) -> StatsLogger:
    """A logger for Weights & Biases. See :class:`StatsLogger`.

    Args:
        run: what ``wandb.init()`` gave; None: the run that is active.
        every, only_rank: as StatsLogger.

    Raises:
        ModuleNotFoundError: wandb is not installed.

    Example:
        >>> log = covey.loggers.wandb(wandb.init(project="digits"))
    """
    target = _package("wandb") if run is None else run
    return StatsLogger(lambda numbers, step: target.log(numbers, step=step), every, only_rank)


def mlflow(every: int = 50, only_rank: Optional[int] = 0) -> StatsLogger:
    """A logger for the active run of MLflow. See :class:`StatsLogger`.

    Args:
        every, only_rank: as StatsLogger.

    Raises:
        ModuleNotFoundError: mlflow is not installed.

    Example:
        >>> with mlflow.start_run():
        ...     log = covey.loggers.mlflow()
    """
    package = _package("mlflow")
    return StatsLogger(lambda numbers, step: package.log_metrics(numbers, step), every, only_rank)


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"covey.loggers.{name} needs {name}, which is not installed here: pip install {name}",
            name=missing.name,
        ) from missing
