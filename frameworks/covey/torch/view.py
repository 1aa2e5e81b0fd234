"""Looking at the model that a job has while its ranks train on different ones."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterable, Iterator, List, Tuple

import torch

from covey.errors import InvalidArgument
from covey.method import MODEL
from covey.objects import allgather_object
from covey.reduce_op import Average, Sum
from covey.seen_models import Consensus, ModelMean, Seen, SeenModels, version_of
from covey.state import state
from covey.torch.layout import BucketPlan, numbered, parameters_of, plan_whole
from covey.torch.method_state import replicated
from covey.torch.ops import allreduce
from covey.torch.plain import digest


class _Mean(ModelMean):
    """The mean of models laid out like ``plans``: flat tensors, whose flags are in no sum."""

    def __init__(self, plans: List[BucketPlan]) -> None:
        self.plans = plans
        self.flats = [torch.zeros(plan.length, dtype=torch.float64) for plan in plans]
        super().__init__(self._without_flags(self.flats), torch.Tensor.double)

    def _without_flags(self, flats: Iterable[torch.Tensor]) -> List[torch.Tensor]:
        return [flat[: plan.flags_offset] for plan, flat in zip(self.plans, flats)]

    def add(self, model: Iterable[torch.Tensor]) -> None:
        super().add(self._without_flags(model))

    def rounded(self) -> List[torch.Tensor]:
        """In the models' dtypes, where they lie."""
        return [
            flat.to(device=plan.device, dtype=plan.dtype)
            for plan, flat in zip(self.plans, self.flats)
        ]


@contextlib.contextmanager
def consensus(
    model: torch.nn.Module, *, exact: bool = False, timeout: float = 1.0
) -> Iterator[Consensus]:
    """Within it the parameters of ``model`` hold the mean of what all ranks' models are now.

    For evaluating and saving, where no rank's own model stands for the job. Any rank calls it, at
    any time between two of its steps, alone: no rank waits, and no other rank has to do anything. A
    rank's model is read as it was at one moment; those of several ranks are of moments that follow
    each other. Buffers (BatchNorm's) and the optimizer's state stay this rank's own, but with
    ``exact`` buffers of floating-point numbers are their mean, too. On exit all are what they were,
    bit for bit; changes to them are gone.

    By method: ``allreduce``, ``eager``: this rank's own (replicas are equal at equal version).
    ``diloco``: the model that ranks depart from, likewise equal at equal version.
    ``local``, ``dpsgd``: the model that each rank trains on, after its last step, also while it
    waits for this one in the next; a script's writes to parameters outside of step() may be read
    half-done. ``wagma``, ``local`` with ``max_wait``: the model that each has published last,
    before it was averaged, which moves no mean unless a rank was late; after ``finish()`` the model
    of all. ``adpsgd``, ``swarm``: each rank's last submitted model, including later averages by
    its partners; with ``exact`` each rank takes these averages up first, as its next step would, so
    that the mean is the one that ``finish()`` would leave.

    Args:
        model: one whose parameters ``DistributedOptimizer`` trains; those that none does (frozen
            ones) stay as they are.
        exact: all ranks call it, after equally many steps (with ``eager`` after ``finish()``), and
            get the mean of exactly what they have then, with the same bits on each.
        timeout: seconds to look again at a rank whose model is being changed; then it is in
            ``missing``. That comes up with ``local``: a rank that was stopped in its update. Ranks
            of other hosts are asked, and have so long to answer.

    Yields:
        A :class:`Consensus`: ``distance``, ``norm``, ``ages``, ``missing``.

    Raises:
        InvalidArgument: (a ValueError) no DistributedOptimizer trains a parameter of ``model``, or
            it is within another ``consensus`` of the same.
        CoveyError: with ``exact``: a rank is gone.

    Example:
        >>> with covey.consensus(model) as mean:
        ...     print(accuracy(model, test_set), mean.distance)
    """
    optimizers = _optimizers_of(model)
    found, means = measure(optimizers, timeout, exact)
    buffers = mean_buffers(model, optimizers[0]) if exact else {}
    with contextlib.ExitStack() as stack:
        for optimizer, (plans, flats) in zip(optimizers, means):
            stack.enter_context(_shown(optimizer, plans, flats))
        stack.enter_context(_shown_buffers(model, buffers))
        yield found


Model = Tuple[List[BucketPlan], List[torch.Tensor]]


def measure(
    optimizers: List[Any], timeout: float, exact: bool = False
) -> Tuple[Consensus, List[Model]]:
    """The found models, and the mean of each optimizer's parameters, with their layout."""
    found, means = Consensus(), []
    spreads, squares = [], []
    for number, optimizer in enumerate(optimizers):
        named = optimizer._covey_progress.named  # Of one that trains alone: those that are trained.
        named = named or [each for each in numbered(optimizer) if each[1].requires_grad]
        plans = plan_whole(named)
        if exact:
            mean, apart = _mean_of_all(optimizer, plans, f"consensus.{number}", found)
        else:
            mean, apart = _mean_of_seen(optimizer, plans, timeout, found)
        means.append((plans, mean.rounded()))
        spreads.append(apart)
        squares.append(mean.square())
    found.measure(spreads, squares)
    return found, means


@torch.no_grad()
def mean_buffers(model: torch.nn.Module, optimizer: Any) -> Dict[str, torch.Tensor]:
    """By name the means of those of floating-point numbers that are not the same on all ranks that
    ``optimizer`` trains on. All of them call it."""
    if not optimizer._covey_progress.is_shared:
        return {}
    group = optimizer._covey_options["process_set"]
    own = {name: it for name, it in model.named_buffers() if it.is_floating_point()}
    hashes = {name: digest(buffer.cpu()) for name, buffer in own.items()}
    everyone = allgather_object(hashes, "consensus.buffers", group)
    means: Dict[str, torch.Tensor] = {}
    for name in sorted(set(own).intersection(*everyone)):
        if len({each[name] for each in everyone}) > 1:
            wide, called = own[name].cpu().double(), f"consensus.buffer.{name}"
            mean = allreduce(wide, op=Average, name=called, process_set=group)
            means[name] = mean.to(own[name])
    return means


@contextlib.contextmanager
def _shown_buffers(model: torch.nn.Module, means: Dict[str, torch.Tensor]) -> Iterator[None]:
    """Within it those buffers have these values."""
    shown = [(it, means[name]) for name, it in model.named_buffers() if name in means]
    kept = [buffer.data for buffer, _ in shown]
    try:
        for buffer, mean in shown:
            buffer.data = mean
        yield
    finally:
        for (buffer, _), data in zip(shown, kept):
            buffer.data = data


def _optimizers_of(model: torch.nn.Module) -> List[Any]:
    state.require()
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgument(f"consensus: a {type(model).__name__} is no torch.nn.Module")
    left = {id(parameter) for parameter in model.parameters()}
    chosen = []
    for optimizer in state.optimizers():
        mine = {id(parameter) for parameter in parameters_of(optimizer)}
        if mine & left:
            left -= mine
            chosen.append(optimizer)
    if not chosen:
        raise InvalidArgument("consensus: no DistributedOptimizer trains a parameter of this model")
    if any(optimizer._covey_progress.is_viewed for optimizer in chosen):
        raise InvalidArgument("consensus: this model is shown by another consensus() already")
    for optimizer in chosen:
        optimizer._covey_progress.refuse_mixed("consensus")
    return sorted(chosen, key=state.optimizers().index, reverse=True)  # As they were made.


def is_replicated(optimizer: Any) -> bool:
    """Whether all ranks have the same model at the same version."""
    progress = optimizer._covey_progress
    if not progress.is_shared or progress.reduces or progress.adds_updates:
        return True
    return progress.plan.in_rounds and progress.plan.payload != MODEL


def _copy_replicated(optimizer: Any, plans: List[BucketPlan], to: List[torch.Tensor]) -> None:
    """The model that all ranks have at this version: the parameters, or what they depart from."""
    known = replicated(optimizer)
    if known is None:
        return _copy_own(plans, to)
    for source, flat in zip(known, to):
        flat.copy_(source)


def _copy_own(plans: List[BucketPlan], to: List[torch.Tensor]) -> None:
    for plan, flat in zip(plans, to):
        for slot in plan.slots:
            slot.view(flat).copy_(slot.parameter.data)


def _versions_of(optimizer: Any, timeout: float) -> Dict[int, Seen]:
    progress, own = optimizer._covey_progress, state.require().rank
    if not progress.is_shared:
        return {own: Seen(progress.version)}
    is_known = progress.reduces or progress.adds_updates  # All are equally far.
    return {
        rank: (
            Seen(progress.version)
            if is_known or rank == own
            else version_of(optimizer._covey_trainer, rank, timeout)
        )
        for rank in optimizer._covey_options["process_set"].ranks
    }


@torch.no_grad()
def _mean_of_seen(
    optimizer: Any, plans: List[BucketPlan], timeout: float, found: Consensus
) -> Tuple[_Mean, float]:
    """The mean of what can be read, and the mean square of the distances from it."""
    mean, progress = _Mean(plans), optimizer._covey_progress
    to = [torch.zeros(plan.length, dtype=plan.dtype) for plan in plans]
    seen = _versions_of(optimizer, timeout)
    if is_replicated(optimizer):
        _copy_replicated(optimizer, plans, to)
        mean.add(to)
        found.note(seen)
        return mean, 0.0
    own = state.require().rank
    has_mean = not progress.is_parted and progress.version > 0
    models = None
    for rank, known in seen.items():
        if not known.why:
            if rank == own and progress.trains_alone:
                _copy_own(plans, to)
            else:
                models = models or SeenModels(
                    optimizer._covey_trainer, own, progress.plan, has_mean,
                    lambda: _copy_own(plans, to),
                )
                seen[rank] = models.read(rank, [flat.data_ptr() for flat in to], timeout)
        if not seen[rank].why:
            mean.add(to)
    if mean.count == 0:  # No rank has published anything yet.
        _copy_own(plans, to)
        mean.add(to)
        seen[own] = Seen(progress.version)
    found.note(seen)
    return mean, mean.spread / mean.count


@torch.no_grad()
def _mean_of_all(
    optimizer: Any, plans: List[BucketPlan], name: str, found: Consensus
) -> Tuple[_Mean, float]:
    """The same, of all and by all."""
    progress, group = optimizer._covey_progress, optimizer._covey_options["process_set"]
    if progress.plan.in_pairs:
        with progress.changing():
            optimizer._covey_trainer.gather_in()
    own = [torch.zeros(plan.length, dtype=plan.dtype) for plan in plans]
    _copy_replicated(optimizer, plans, own)
    mean = _Mean(plans)
    if not progress.is_shared:
        mean.add(own)
        found.ages = {state.require().rank: 0}
        return mean, 0.0
    averages = [
        allreduce(flat, op=Average, name=f"{name}.{i}", process_set=group)
        for i, flat in enumerate(own)
    ]
    mean.add(averages)
    square = torch.zeros((), dtype=torch.float64)
    for plan, flat, average in zip(plans, own, averages):
        square += (flat.double() - average.double())[: plan.flags_offset].square().sum()
    square = allreduce(square, op=Sum, name=f"{name}.distance", process_set=group)
    versions = allgather_object(progress.version, f"{name}.versions", group)
    found.note({rank: Seen(version) for rank, version in zip(group.ranks, versions)})
    return mean, float(square) / group.size()


@contextlib.contextmanager
def _shown(optimizer: Any, plans: List[BucketPlan], flats: List[torch.Tensor]) -> Iterator[None]:
    """Within it the parameters lie in ``flats``."""
    slots = [(slot, flat) for plan, flat in zip(plans, flats) for slot in plan.slots]
    kept = [slot.parameter.data for slot, _ in slots]
    ahead = getattr(optimizer._covey_trainer, "ahead", None)
    with contextlib.nullcontext() if ahead is None else ahead.held():
        optimizer._covey_progress.is_viewed = True
        try:
            for slot, flat in slots:
                slot.parameter.data = slot.view(flat)
            yield
        finally:
            for (slot, _), data in zip(slots, kept):
                slot.parameter.data = data
            optimizer._covey_progress.is_viewed = False
