"""Sparse tensors are reduced by gathering what the ranks have of them: indices and values.

As Horovod does by default with the sparse gradients of an optimizer, such as those of
``nn.Embedding(sparse=True)``. Which parameters have such gradients is learnt: a bucket tells all
ranks whether one of them had one in it, then they tell each other its name, and from then on it is
in no bucket.
"""

from __future__ import annotations

import contextlib
from typing import Dict, List, Optional, Sequence, Tuple

import torch

from covey.errors import CoveyError, InvalidArgument, Mismatch, Unsupported
from covey.group import Group, world
from covey.handles import Handle
from covey.objects import allgather_object
from covey.reduce_op import Average, ReduceOp, Sum, core_code
from covey.torch.ops import allgather_async


class SparseHandle:
    """A sparse tensor in flight. As Horovod's it is also a function, which waits."""

    def __init__(
        self,
        tensor: torch.Tensor,
        name: Optional[str],
        parts: List[Handle[torch.Tensor]],
        by: int,
        group: Group,
    ) -> None:
        self._name = "unnamed sparse_allreduce" if name is None else f"sparse_allreduce {name!r}"
        self._parts = parts
        self._shape = tensor.shape
        self._by = by
        self._group = group

    def poll(self) -> bool:
        """Whether ``wait`` returns at once."""
        return all(part.poll() for part in self._parts)

    def wait(self, timeout: Optional[float] = None) -> torch.Tensor:
        """The result. Raises Timeout after ``timeout`` seconds, and as every operation."""
        indices, values = [part.wait(timeout) for part in self._parts]
        indices = self._without_shapes(indices, self._parts[0].rows)
        values = values / self._by if self._by > 1 else values
        with torch.sparse.check_sparse_tensor_invariants(False):
            return torch.sparse_coo_tensor(indices.t(), values, self._shape)

    __call__ = wait

    def _without_shapes(self, indices: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
        """The indices; the last row of each rank's is the shape of its sparse dimensions."""
        of_ranks = indices.split(list(rows))
        shapes = [of_rank[-1].tolist() for of_rank in of_ranks]
        for rank, shape in zip(self._group.ranks, shapes):
            if shape != shapes[0]:
                first = self._group.ranks[0]
                raise Mismatch(
                    f"{self._name}: shapes differ: rank {first} has {shapes[0]} (sparse "
                    f"dimensions), rank {rank} has {shape}",
                    rank,
                )
        return torch.cat([of_rank[:-1] for of_rank in of_ranks])


def sparse_allreduce_async(
    tensor: torch.Tensor, name: Optional[str], op: int, process_set: Group = world
) -> SparseHandle:
    """The sum or average of sparse tensors: each rank gets the indices and values of all.

    Args:
        tensor: sparse (COO), of the same shape, sparse dimensions and dtype on every rank; how many
            values it has may differ, and may be 0.
        name: see :mod:`covey.torch`.
        op: Average or Sum.
        process_set: the ranks that take part; this rank must be one of them.

    Returns:
        A handle for ``synchronize`` and ``poll``, which may also be called, to wait. The result is
        a new sparse tensor in which an index may stand more than once: ``coalesce()`` adds them up.

    Raises:
        InvalidArgument, Unsupported: (ValueErrors) another op, or a tensor that is not sparse.
        Mismatch, Aborted: as every operation.

    Example:
        >>> total = hvd.sparse_allreduce_async(gradient, "embedding", hvd.Sum)()
    """
    core_code(op)  # Refuses what is none.
    if op not in (Average, Sum):
        raise Unsupported(f"sparse tensors have an Average and a Sum, no {ReduceOp(op).name}")
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArgument(f"tensor must be a sparse tensor of torch, not {tensor!r}")
    if tensor.layout is not torch.sparse_coo:
        raise Unsupported(f"sparse_allreduce_async takes sparse tensors (COO), not {tensor.layout}")
    tensor = tensor.detach()
    indices = tensor._indices().t()
    shape = indices.new_tensor([tensor.shape[: tensor.sparse_dim()]])
    parts = (("indices", torch.cat([indices, shape])), ("values", tensor._values()))
    handles = [
        allgather_async(part, name and f"{name}.{what}", process_set) for what, part in parts
    ]
    by = process_set.size() if op == Average else 1
    return SparseHandle(tensor, name, handles, by, process_set)


class SparseGradients:
    """The sparse gradients of an optimizer."""

    def __init__(self, prefix: str, op: int, group: Group) -> None:
        self._prefix = prefix
        self._op = op
        self._group = group
        self._known: Dict[str, Tuple[torch.nn.Parameter, int]] = {}  # With its sparse dimensions.
        self._flights: List[Tuple[torch.nn.Parameter, SparseHandle]] = []

    def begin(self) -> None:
        """Submits those that are known. Every member calls it."""
        for name, (parameter, _) in self._known.items():
            gradient, parameter.grad = parameter.grad, None
            self._submit(name, gradient)

    def adopt(
        self, parameters: Dict[str, torch.nn.Parameter], own: Dict[str, torch.Tensor]
    ) -> List[str]:
        """Submits those that one of the members has had in a bucket, and knows them from now on.
        Every member calls it.

        Args:
            parameters: all that are in buckets, by name.
            own: gradients of this rank, by name.

        Returns:
            The names of new ones, the same on every member.
        """
        mine = [(name, gradient.sparse_dim()) for name, gradient in own.items()]
        everyone = allgather_object(mine, f"{self._prefix}.sparse", self._group)
        found = dict(sorted({one for of_rank in everyone for one in of_rank}))
        for name, dims in found.items():
            self._known[name] = parameters[name], dims
            self._submit(name, own.get(name))
        return list(found)

    def _submit(self, name: str, gradient: Optional[torch.Tensor]) -> None:
        parameter, dims = self._known[name]
        if gradient is None:
            gradient = torch.sparse_coo_tensor(
                torch.empty((dims, 0), dtype=torch.int64, device=parameter.device),
                parameter.new_empty((0, *parameter.shape[dims:])),
                parameter.shape,
            )
        if gradient.layout is torch.strided:
            gradient = gradient.to_sparse(dims)
        stream = f"{self._prefix}.sparse.{name}"
        handle = sparse_allreduce_async(gradient, stream, self._op, self._group)
        self._flights.append((parameter, handle))

    def finish(self) -> Optional[CoveyError]:
        """Waits for all; ``grad`` is what came, beside what it is. Returns the first error."""
        first_error: Optional[CoveyError] = None
        for parameter, handle in self._flights:
            try:
                total = handle.wait()
            except CoveyError as error:
                first_error = first_error or error
                continue
            if total._nnz() > 0:
                parameter.grad = total if parameter.grad is None else parameter.grad + total
        self._flights = []
        return first_error

    def abandon(self) -> None:
        """Waits for the operations in flight, with any outcome."""
        for _, handle in self._flights:
            with contextlib.suppress(CoveyError):
                handle.wait()
        self._flights = []
