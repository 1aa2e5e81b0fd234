"""The states of ``covey.elastic`` for torch, and a sampler that knows what was processed."""

from __future__ import annotations

import copy
import itertools
import math
import random
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set

import torch
from torch.utils.data import Sampler

from covey.basics import rank, size
from covey.elastic import HostsUpdatedInterrupt, Kept, KeptState, ObjectState, State, run
from covey.objects import allgather_object
from covey.torch.functions import broadcast_optimizer_state, broadcast_parameters

__all__ = ["ElasticSampler", "HostsUpdatedInterrupt", "ObjectState", "State", "TorchState", "run"]


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


class _KeptDict(Kept):
    """By ``state_dict`` and ``load_state_dict``."""

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))


    def sync(self) -> None:
        if isinstance(self.value, torch.nn.Module):
            broadcast_parameters(self.value.state_dict(), root_rank=0)
        elif isinstance(self.value, torch.optim.Optimizer):
            broadcast_optimizer_state(self.value, root_rank=0)
        else:  # Samples that any rank has processed in the epoch of rank 0 are done.
            everyone = allgather_object(self.value.state_dict(), "elastic.sampler")
            epoch = everyone[0]["epoch"]
            done = [it["processed_indices"] for it in everyone if it["epoch"] == epoch]
            self.value.load_state_dict({"epoch": epoch, "processed_indices": set().union(*done)})
        self.save()


class TorchState(KeptState):
    """Keeps models, optimizers, samplers and plain objects, each an attribute.

    Args:
        model: a module, or None.
        optimizer: an optimizer, also a DistributedOptimizer, or None.
        **kwargs: more of them, ElasticSamplers, and objects that can be copied and pickled.

    Raises:
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
        kinds = (torch.nn.Module, torch.optim.Optimizer, ElasticSampler)
        parts: Dict[str, Kept] = {
            name: _KeptDict(value) for name, value in given.items() if isinstance(value, kinds)
        }
        plain = {
            name: value
            for name, value in given.items()
            if name not in parts and (value is not None or name in kwargs)
        }
        super().__init__(parts, plain)
