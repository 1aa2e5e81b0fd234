"""The mean of the models that a training's ranks have now, by NumPy. Internal.

For adapters whose parameters can be read as NumPy arrays. Tensors of torch cannot, if they lie on a
device or are of bfloat16.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Callable, Iterator, List, NamedTuple, Tuple

import numpy

from covey.group import Group
from covey.method import DELTA, GRADIENTS, MODEL, Plan, plan
from covey.names import next_prefix
from covey.numpy_trainer import Trainer
from covey.objects import allgather_object
from covey.ops import allreduce
from covey.reduce_op import Average, Sum
from covey.seen_models import Consensus, ModelMean, Seen, SeenModels, version_of
from covey.state import state
from covey.trainer_handle import Position, TrainerHandle

_ANCHOR = "anchor"  # The replicated model, among the arrays of a method of deltas.


@contextlib.contextmanager
def consensus(
    trainer: Trainer, *, exact: bool = False, timeout: float = 1.0
) -> Iterator[Consensus]:
    """Within it ``trainer.parameters`` are the mean of what all ranks' models are now, between two
    steps. On exit they are what they were. Any rank calls it alone, and no rank waits.

    Args:
        trainer: a ``covey.numpy.Trainer``.
        exact: all ranks call it, after equally many steps, and get the mean of exactly what they
            have then.
        timeout: seconds to look again at a rank whose model is being changed. Where a rank's model
            is its own between two exchanges (``local``, ``dpsgd``), others get it at the end of its
            step, or while it is in here itself. Ranks of other hosts are asked, and have so long to
            answer.

    Yields:
        A ``Consensus``: ``distance``, ``norm``, ``ages``, ``missing``.

    Raises:
        CoveyError: with ``exact``: a rank is gone.

    Example:
        >>> with covey.consensus(trainer) as mean:
        ...     print(accuracy(trainer.parameters), mean.distance)
    """

    def settle() -> List[Any]:
        trainer.settle()
        return [array.copy() for array in trainer.parameters]

    kept = [array.copy() for array in trainer.parameters]
    training = Training(trainer._loop, kept, trainer._method, trainer._group, settle)
    found, mean = mean_of_models(training, exact, timeout)
    if exact:  # It may have taken up what others have made of it.
        kept = [array.copy() for array in trainer.parameters]
    try:
        for array, values in zip(trainer.parameters, mean):
            numpy.copyto(array, values)
        yield found
    finally:
        for array, values in zip(trainer.parameters, kept):
            numpy.copyto(array, values)


class Training(NamedTuple):
    """One training, between two of its steps.

    Attributes:
        trainer: its handle.
        model: contiguous copies of this rank's parameters.
        method: its whole text.
        group: the ranks that train together; this rank is one of them.
        settle: so that nothing of this rank's model is with others; returns copies of it then.
            All ranks call it.
    """

    trainer: TrainerHandle
    model: List[Any]
    method: str
    group: Group
    settle: Callable[[], List[Any]]


def _wide(array: Any) -> Any:
    return array.astype(numpy.float64)


def mean_of_models(
    training: Training, exact: bool, timeout: float
) -> Tuple[Consensus, List[Any]]:
    """As ``covey.torch.consensus`` says: which models were found, and their mean.

    Args:
        exact: all ranks call it, after equally many steps.
        timeout: seconds to look again at a rank whose model is being changed.

    Raises:
        CoveyError: with ``exact``: a rank is gone.
    """
    zeros = [numpy.zeros(array.shape) for array in training.model]
    found, mean = Consensus(), ModelMean(zeros, _wide)
    position = training.trainer.position
    how = plan(training.method, training.group.id, position.planned)
    if training.group.size() == 1:
        mean.add(training.model)
        spread = 0.0
        found.note({training.group.ranks[0]: Seen(position.version)})
    elif exact:
        spread = _of_all(training, how, position, mean, found)
    else:
        _of_seen(training, how, position, mean, found, timeout)
        spread = mean.spread / mean.count
    found.measure([spread], [mean.square()])
    return found, [it.astype(like.dtype) for it, like in zip(mean.means, training.model)]


def _replicated(training: Training, how: Plan, position: Position) -> List[Any]:
    """The replicated model, where the method has one; else this rank's own."""
    if how.payload != DELTA or not position.has_state:
        return training.model
    at = {name: address for name, address, _ in training.trainer.arrays()}[_ANCHOR]
    places = training.trainer.spans(of_model=True)
    return [
        numpy.frombuffer(
            (ctypes.c_char * array.nbytes).from_address(at + place - min(places)), array.dtype
        ).reshape(array.shape)
        for place, array in zip(places, training.model)
    ]


def _of_seen(
    training: Training, how: Plan, position: Position, mean: ModelMean, found: Consensus,
    timeout: float,
) -> None:
    trainer, own = training.trainer, state.require().rank
    is_together = how.payload == GRADIENTS and not how.in_rounds
    seen = {
        rank: (
            Seen(position.version)
            if is_together or rank == own
            else version_of(trainer, rank, timeout)
        )
        for rank in training.group.ranks
    }
    if is_together or (how.in_rounds and how.payload != MODEL):
        mean.add(_replicated(training, how, position))
        return found.note(seen)
    to = [numpy.empty_like(array) for array in training.model]

    def copy_own() -> None:
        for target, array in zip(to, training.model):
            numpy.copyto(target, array)

    trainer.show([array.ctypes.data for array in training.model])  # Others may be looking, too.
    has_mean = not position.may_differ and position.version > 0
    models = SeenModels(trainer, own, how, has_mean, copy_own)
    for rank, known in seen.items():
        if not known.why and rank == own and not how.in_rounds:
            copy_own()
        elif not known.why:
            seen[rank] = models.read(rank, [array.ctypes.data for array in to], timeout)
        if not seen[rank].why:
            mean.add(to)
    if mean.count == 0:  # No rank has published anything yet.
        mean.add(training.model)
        seen[own] = Seen(position.version)
    found.note(seen)


def _of_all(
    training: Training, how: Plan, position: Position, mean: ModelMean, found: Consensus
) -> float:
    """The mean square of the models' distances from the mean."""
    group = training.group
    own = training.settle() if how.in_pairs else _replicated(training, how, position)
    name = next_prefix("consensus.numpy", group.ranks)
    wide = [_wide(array) for array in own]
    averages = [
        allreduce(array, op=Average, name=f"{name}.{i}", group=group)
        for i, array in enumerate(wide)
    ]
    mean.add(averages)
    square = numpy.array(sum(float(((a - b) ** 2).sum()) for a, b in zip(wide, averages)))
    square = allreduce(square, op=Sum, name=f"{name}.distance", group=group)
    versions = allgather_object(position.version, f"{name}.versions", group)
    found.note({rank: Seen(version) for rank, version in zip(group.ranks, versions)})
    return float(square) / group.size()
