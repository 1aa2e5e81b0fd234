"""Looking at the model that a job has while its ranks train on different ones."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, List

from covey.errors import InvalidArgument, Unsupported
from covey.keras.wrapped import WrappedOptimizer
from covey.numpy_consensus import Training, mean_of_models
from covey.seen_models import Consensus


@contextlib.contextmanager
def consensus(
    model: Any, *, exact: bool = False, timeout: float = 1.0
) -> Iterator[Consensus]:
    """Within it the variables of ``model`` hold the mean of what all ranks' models are now, outside
    of tf.function and between two steps, as in a callback of ``fit()`` at the end of an epoch. On
    exit they are what they were. Any rank calls it alone, and no rank waits.

    By method: ``allreduce``, ``eager``: this rank's own (replicas are equal at equal version).
    ``diloco``: the model that ranks depart from. ``wagma``, ``local`` with ``max_wait``: the model
    that each has published last. ``adpsgd``, ``swarm``: each rank's last submitted model, including
    later averages by its partners. ``local``, ``dpsgd``: that at the end of a rank's next step, or
    at once if it is in here, too.

    Args:
        model: a Keras model that was compiled with a ``DistributedOptimizer``, or that optimizer.
            Variables that it does not train stay as they are.
        exact: all ranks call it, after equally many steps (with ``eager`` after ``finish()``), and
            get the mean of exactly what they have then.
        timeout: seconds to wait for the model of a rank, which is in ``missing`` then.

    Yields:
        A ``Consensus``: ``distance``, ``norm``, ``ages``, ``missing``.

    Raises:
        InvalidArgument: (a ValueError) no DistributedOptimizer has trained this model yet; within
            a tf.function.
        CoveyError: with ``exact``: a rank is gone.

    Example:
        >>> with covey.consensus(model) as mean:
        ...     print(model.evaluate(images, labels), mean.distance)
    """
    trainer = optimizer_of(model, "consensus").trainer
    if trainer is None:
        raise InvalidArgument("consensus: this model has not done a step yet")
    kept = trainer.values()

    def settle() -> List[Any]:
        trainer.settle()
        kept[:] = trainer.values()  # It has taken up what others have made of it.
        return kept

    training = Training(trainer.handle, kept, trainer.method, trainer.group, settle)
    found, mean = mean_of_models(training, exact, timeout)
    try:
        trainer.put(mean)
        yield found
    finally:
        trainer.put(kept)


def optimizer_of(model: Any, what: str) -> WrappedOptimizer:
    """The one that a model was compiled with, or that it is. ``what``: the call, for the message.

    Raises:
        InvalidArgument: (a ValueError) there is none, or it is within a tf.function.
        Unsupported: (a ValueError) ranks of several frameworks train together.
    """
    optimizer = getattr(model, "optimizer", model)
    while not isinstance(optimizer, WrappedOptimizer) and hasattr(optimizer, "inner_optimizer"):
        optimizer = optimizer.inner_optimizer  # fit() scales losses, for example.
    if not isinstance(optimizer, WrappedOptimizer):
        raise InvalidArgument(
            f"{what}: no DistributedOptimizer trains this model: compile it with one"
        )
    if optimizer.is_in_graph():
        raise InvalidArgument(f"{what}: it is within a tf.function; call it outside, between steps")
    if optimizer.trainer is not None and optimizer.trainer.is_mixed:
        raise Unsupported(f"{what}: the ranks of this training have several frameworks")
    return optimizer
