"""The states of ``covey.elastic`` for torch, and a sampler that knows what was processed."""

from __future__ import annotations

import copy
import itertools
import math
import random
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union

import torch
from torch.utils.data import Sampler

from covey.basics import rank, size
from covey.elastic import HostsUpdatedInterrupt, Kept, KeptState, ObjectState, State, run
from covey.objects import allgather_object, broadcast_object
from covey.torch.functions import broadcast_optimizer_state, broadcast_parameters

__all__ = [
    "ElasticSampler",
    "HostsUpdatedInterrupt",
    "ModelStateHandler",
    "ObjectState",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "State",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "run",
    "set_handler_registry",
]


class ElasticSampler(Sampler[int]):  # pylint: disable=too-many-instance-attributes
    """Divides a dataset between the ranks, without what was processed in this epoch already.

    Tell it of each batch by ``record_batch``, and call ``set_epoch`` at the end of an epoch.

    Args:
        dataset: anything with a length.
        shuffle: whether each epoch has an order of its own, the same on all ranks.
        seed: of that order.

    Attributes:
        epoch: the current one.
        processed_indices: of samples that are done in it, as far as this rank knows.
        indices: this rank's, in the order of the last iteration.

    Raises:
        NotInitialized: (a ValueError) before ``init()``.

    Example:
        >>> state = hvd.elastic.TorchState(model, optimizer, sampler=sampler)
        >>> for number, batch in enumerate(loader):
        ...     train(batch)
        ...     state.sampler.record_batch(number, batch_size)
    """

    def __init__(self, dataset: Any, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_indices: Set[int] = set()
        self.indices: List[int] = []
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """A new epoch begins: nothing of it was processed.

        Args:
            epoch: its number, from 0.
        """
        self.epoch = epoch
        self.processed_indices = set()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Batch ``batch_idx`` of this rank's iteration, of ``batch_size`` samples, is done."""
        self.record_indices(self.get_indices(batch_idx, batch_size))

    def record_indices(self, indices: Sequence[int]) -> None:
        """Some samples are done.

        Args:
            indices: their numbers in the dataset.
        """
        self.processed_indices.update(indices)

    def get_indices(self, batch_idx: int, batch_size: int) -> List[int]:
        """The numbers of the samples in a batch; fewer in the last one.

        Args:
            batch_idx: the batch's number in this rank's iteration.
            batch_size: samples of a batch.
        """
        begin = batch_idx * batch_size
        return self.indices[begin : begin + batch_size]

    def state_dict(self) -> Dict[str, Any]:
        """For a checkpoint: the epoch, and what was processed."""
        return {"epoch": self.epoch, "processed_indices": set(self.processed_indices)}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Goes on from a checkpoint: the next iteration has what is left.

        Args:
            state_dict: what :meth:`state_dict` has returned.
        """
        self.epoch = state_dict["epoch"]
        self.processed_indices = set(state_dict["processed_indices"])
        self.reset()

    def reset(self) -> None:
        """Divides anew what is left; ``iter`` gives it."""
        self.num_replicas, self.rank = size(), rank()
        done = self.processed_indices
        self.remaining_indices = [i for i in range(len(self.dataset)) if i not in done]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        every = list(self.remaining_indices)
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(every)
        # All ranks have equally many: the first samples come twice.
        every = list(itertools.islice(itertools.cycle(every), self.total_size))
        self.indices = every[self.rank :: self.num_replicas]
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples


class StateHandler:
    """Keeps an object of a kind that is not copied whole. A class of your own says how, by
    ``save``, ``restore``, ``sync``; :func:`set_handler_registry` says for which objects.

    Args:
        value: the object; tensors in it may have any shapes and dtypes.

    Attributes:
        value: the object.

    Raises:
        Mismatch, Aborted: by ``sync``: the ranks disagree; a rank died or left.

    Example:
        >>> class OfAverages(hvd.elastic.StateHandler):
        ...     def __init__(self, value):
        ...         super().__init__(value)
        ...         self.save()
        ...     def save(self):
        ...         self.saved = self.value.state_dict()
        ...     def restore(self):
        ...         self.value.load_state_dict(self.saved)
        ...     def sync(self):
        ...         self.value.load_state_dict(hvd.broadcast_object(self.value.state_dict()))
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Keeps a copy."""
        raise NotImplementedError

    def restore(self) -> None:
        """Makes the object what it was at the last ``save``."""
        raise NotImplementedError

    def sync(self) -> None:
        """Makes the object the same on all ranks, which all call it; ``save`` follows."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """The script has put another object in the place of this one: keeps that, and saves it.

        Args:
            value: the other object, as of :class:`StateHandler`.
        """
        self.value = value
        self.save()


class _ByStateDict(StateHandler):
    """By ``state_dict`` and ``load_state_dict``."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))


class ModelStateHandler(_ByStateDict):
    """A :class:`StateHandler` of modules: all have the parameters and buffers of rank 0."""

    def sync(self) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=0)


class OptimizerStateHandler(_ByStateDict):
    """A :class:`StateHandler` of optimizers, also wrapped ones: all have the state of rank 0."""

    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)


class _OfRankZero(_ByStateDict):
    """All have what rank 0's ``state_dict`` says."""

    def sync(self) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), 0, "elastic.state"))


class SamplerStateHandler(_ByStateDict):
    """A :class:`StateHandler` of ElasticSamplers: what any rank has processed in the epoch of rank
    0 is done."""

    def sync(self) -> None:
        everyone = allgather_object(self.value.state_dict(), "elastic.sampler")
        epoch = everyone[0]["epoch"]
        done = [it["processed_indices"] for it in everyone if it["epoch"] == epoch]
        self.value.load_state_dict({"epoch": epoch, "processed_indices": set().union(*done)})


Handlers = List[Tuple[Union[type, Tuple[type, ...]], Callable[[Any], StateHandler]]]
"""Pairs of a class, or a tuple of some, and what makes a handler of its objects."""

_registry: Handlers = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
    # These hold an optimizer, or a device's numbers: copies of them would be of no use.
    ((torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler), _OfRankZero),
]


def get_handler_registry() -> Handlers:
    """The list by which a new :class:`TorchState` finds the handlers of its objects.

    Returns:
        Pairs of a class and its handler. The first pair counts whose class an object has.

    Example:
        >>> hvd.elastic.get_handler_registry().append((Averages, OfAverages))
    """
    return _registry


def set_handler_registry(registry: Handlers) -> None:
    """Puts another list in the place of that of :func:`get_handler_registry`.

    Args:
        registry: pairs of a class, or a tuple of some, and its :class:`StateHandler`.

    Raises:
        TypeError: an entry is no such pair.

    Example:
        >>> hvd.elastic.set_handler_registry(
        ...     [(Averages, OfAverages), *hvd.elastic.get_handler_registry()])
    """
    global _registry
    for entry in registry:
        _check(entry)
    _registry = registry


def _check(entry: Any) -> None:
    """Raises a TypeError if this is no pair of the registry."""
    if isinstance(entry, tuple) and len(entry) == 2 and callable(entry[1]):
        kinds = entry[0] if isinstance(entry[0], tuple) else (entry[0],)
        if all(isinstance(kind, type) for kind in kinds):
            return
    raise TypeError(f"the registry of handlers takes pairs (class, handler's class), not {entry!r}")


def _handler_of(value: Any) -> Optional[StateHandler]:
    """A new handler of this object, or None: a plain object."""
    for entry in _registry:
        _check(entry)
        if isinstance(value, entry[0]):
            return entry[1](value)
    return None


class _Handled(Kept):
    """An object with a handler, which has saved it."""

    def __init__(self, handler: StateHandler) -> None:  # pylint: disable=super-init-not-called
        self._handler = handler

    @property
    def value(self) -> Any:
        return self._handler.value

    @value.setter
    def value(self, value: Any) -> None:
        if value is not self._handler.value:
            self._handler.set_value(value)

    def save(self) -> None:
        self._handler.save()

    def restore(self) -> None:
        self._handler.restore()

    def sync(self) -> None:
        self._handler.sync()
        self._handler.save()


class TorchState(KeptState):
    """Keeps models, optimizers, their schedulers, samplers and plain objects, each an attribute.

    Args:
        model: a module, or None.
        optimizer: an optimizer, also a DistributedOptimizer, or None.
        **kwargs: more of them, ElasticSamplers, schedulers of learning rates, a GradScaler, objects
            with a handler of your own (:func:`set_handler_registry`), and objects that can be
            copied and pickled.

    Raises:
        TypeError: an entry of the handlers' registry is no pair of classes.
        Mismatch, Aborted: by ``sync``: the ranks disagree; a rank died or left.

    Example:
        >>> state = hvd.elastic.TorchState(model, optimizer, epoch=0, batch=0)
    """

    def __init__(
        self,
        model: Optional[torch.nn.Module] = None,
        optimizer: Optional[torch.optim.Optimizer] = None,
        **kwargs: Any,
    ) -> None:
        given = {"model": model, "optimizer": optimizer, **kwargs}
        handlers = {name: _handler_of(value) for name, value in given.items()}
        parts: Dict[str, Kept] = {
            name: _Handled(handler) for name, handler in handlers.items() if handler is not None
        }
        plain = {
            name: value
            for name, value in given.items()
            if name not in parts and (value is not None or name in kwargs)
        }
        super().__init__(parts, plain)
