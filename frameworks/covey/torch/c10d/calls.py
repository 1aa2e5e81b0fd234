"""The collectives of torch.distributed as Covey's operations: what each begins, and what becomes of
its result. Pure: nothing is begun here. Internal.

A group has P ranks. Tensors are on the CPU or on CUDA; lists have one for each rank, in the group's
order. An argument of another size than a call needs raises InvalidArgument (a ValueError) on the
rank that has given it, and nothing is begun; ranks that disagree get Mismatch.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

import covey.torch as hvd
from covey.call_variants import NOW_IN_PLACE, bind
from covey.errors import InvalidArgument, Mismatch, Unsupported
from covey.torch.c10d.operators import bits_of, carried, name_of, operator_of
from covey.torch.c10d.work import Place
from covey.torch.sparse import sparse_allreduce_async
from covey.torch.tensors import collectives

Finish = Callable[[Any], None]
_allreduce_awaited_ = bind(collectives.allreduce, NOW_IN_PLACE)
"""Returns a handle, which the caller waits for at once."""


class Begin(NamedTuple):
    """A call that can be begun.

    Attributes:
        what: its name in torch.distributed, for messages.
        function: of covey.torch, which begins it and returns a handle.
        given: its arguments by position.
        options: by name, without ``name`` and ``process_set``.
        outputs: the tensors of the call's future.
        finish: takes the handle's result to where the caller wants it.
    """

    what: str
    function: Callable[..., Any]
    given: Tuple[Any, ...]
    outputs: List[torch.Tensor]
    finish: Finish
    options: Dict[str, Any] = {}


def _nothing(_: Any) -> None:
    pass


def one(tensors: Sequence[torch.Tensor], what: str) -> torch.Tensor:
    """The only one. Raises Unsupported if there are more."""
    if len(tensors) != 1:
        raise Unsupported(f"{what} over Covey takes one tensor per rank, not {len(tensors)}")
    return tensors[0].detach()


def _each(tensors: Sequence[torch.Tensor], size: int, what: str) -> List[torch.Tensor]:
    if len(tensors) != size:
        raise InvalidArgument(
            f"{what}: the list has {len(tensors)} tensors, but the group has {size} ranks"
        )
    return [tensor.detach() for tensor in tensors]


def _put(rows: torch.Tensor, target: torch.Tensor, what: str) -> None:
    """Rows that have come, into the caller's tensor."""
    if rows.numel() != target.numel():
        raise Mismatch(
            f"{what}: {rows.numel()} elements have come for this rank's output of shape "
            f"{list(target.shape)}: an output has the size of the tensor that is sent to it"
        )
    target.copy_(rows.view(target.shape))


def _put_each(rows: Sequence[torch.Tensor], targets: Sequence[torch.Tensor], what: str) -> None:
    for part, target in zip(rows, targets):
        _put(part, target, what)


def _reduction(
    what: str, tensor: torch.Tensor, op: Any, use: Finish, outputs: List[torch.Tensor]
) -> Begin:
    """``use`` gets the reduction of ``tensor`` over all ranks, of its shape."""
    bits = bits_of(op, tensor)
    if bits is not None:  # Few need it: all that the ranks have travels.

        def combine(rows: torch.Tensor) -> None:
            use(functools.reduce(bits, rows).view(tensor.shape))

        return Begin(what, hvd.allgather_async, (tensor.reshape(1, -1),), outputs, combine)
    given, ours, back = carried(tensor, op)
    finish = lambda total: use(back(total))  # noqa: E731
    return Begin(what, hvd.allreduce_async, (given,), outputs, finish, {"op": ours})


def allreduce(tensors: List[torch.Tensor], place: Place) -> Begin:
    """In place."""
    op = place.op
    what = "all_reduce"
    tensor = one(tensors, what)
    if tensor.is_sparse:

        def finish(total: torch.Tensor) -> None:
            with torch.no_grad():  # A detached sparse tensor has indices of its own.
                tensors[0].copy_(total.coalesce())

        begin = sparse_allreduce_async
        return Begin(what, begin, (tensor,), tensors, finish, {"op": operator_of(op)})
    if tensor.dtype == torch.bool or bits_of(op, tensor) is not None:
        return _reduction(what, tensor, op, tensor.copy_, tensors)
    options = {"op": operator_of(op)}
    begin = _allreduce_awaited_ if place.waits else hvd.allreduce_async_
    return Begin(what, begin, (tensor,), tensors, _nothing, options)


def allreduce_coalesced(tensors: List[torch.Tensor], place: Place) -> Begin:
    """In place, of each tensor."""
    what, op = "all_reduce_coalesced", place.op
    given = [tensor.detach() for tensor in tensors]
    if not any(it.dtype == torch.bool or bits_of(op, it) for it in given):
        options = {"op": operator_of(op)}
        return Begin(what, hvd.grouped_allreduce_async_, (given,), tensors, _nothing, options)
    return _each_reduced(what, hvd.grouped_allreduce_async, given, op, given, tensors)


def _each_reduced(
    what: str,
    begin: Callable[..., Any],
    given: Sequence[torch.Tensor],
    op: Any,
    targets: Sequence[torch.Tensor],
    outputs: List[torch.Tensor],
    share: Callable[[torch.Tensor], torch.Tensor] = lambda total: total,
) -> Begin:
    """``targets`` get the reductions of ``given`` that ``begin`` makes; by bits the ``share`` of
    each. Raises Unsupported."""
    bits = [function for function in (bits_of(op, it) for it in given) if function]
    if bits and len(bits) == len(given):

        def combine(gathered: List[torch.Tensor]) -> None:
            for function, it, target, rows in zip(bits, given, targets, gathered):
                _put(share(functools.reduce(function, rows).view(it.shape)), target, what)

        rows = [it.reshape(1, -1) for it in given]
        return Begin(what, hvd.grouped_allgather_async, (rows,), outputs, combine)
    each = [carried(it, op) for it in given]
    ops = {it.op for it in each} or {operator_of(op)}
    if len(ops) > 1:
        raise Unsupported(
            f"{what}: bool and other tensors have no {name_of(op)} in one call: call it for each"
        )

    def finish(results: List[torch.Tensor]) -> None:
        for it, target, result in zip(each, targets, results):
            _put(it.back(result), target, what)

    tensors = [it.tensor for it in each]
    return Begin(what, begin, (tensors,), outputs, finish, {"op": ops.pop()})


def reduce(tensors: List[torch.Tensor], place: Place) -> Begin:
    """In place on the root; the others keep what they have."""
    is_root = place.root == place.ranks[place.rank]
    tensor = one(tensors, "reduce")
    use = tensor.copy_ if is_root else _nothing
    return _reduction("reduce", tensor, place.op, use, tensors)


def broadcast(tensors: List[torch.Tensor], place: Place) -> Begin:
    """In place."""
    given = (one(tensors, "broadcast"), place.root)
    return Begin("broadcast", hvd.broadcast_async_, given, tensors, _nothing)


def barrier(place: Optional[Place] = None) -> Begin:
    """An allreduce of no elements."""
    begin = _allreduce_awaited_ if place is not None and place.waits else hvd.allreduce_async_
    none = torch.zeros(0, dtype=torch.float32, device="cpu")  # Whatever torch's defaults are.
    return Begin("barrier", begin, (none,), [], _nothing, {"op": hvd.Sum})


def allgather(outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], place: Place) -> Begin:
    """Into a list. The ranks' tensors may have several shapes, which all lists then have alike."""
    what = "all_gather"
    own, into = one(inputs, what), _each(outputs[0], place.size, what)
    if all(target.shape == own.shape for target in into):
        given = (own.reshape(1, -1),)
        finish = lambda rows: _put_each(rows, into, what)  # noqa: E731
    else:
        given = (own.reshape(-1),)
        counts = [target.numel() for target in into]
        finish = lambda row: _put_each(_parts(row, counts, what), into, what)  # noqa: E731
    return Begin(what, hvd.allgather_async, given, outputs[0], finish)


def _parts(row: torch.Tensor, counts: Sequence[int], what: str) -> Sequence[torch.Tensor]:
    """A row, in parts of so many elements."""
    if row.numel() != sum(counts):
        raise Mismatch(
            f"{what}: {row.numel()} elements have come for this rank's list of {list(counts)}: "
            "tensor r of the list has the size of the tensor that rank r gives"
        )
    return torch.split(row, list(counts))


def allgather_coalesced(
    outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], place: Place
) -> Begin:
    """``outputs[r][i]`` gets what rank r of the group has given as ``inputs[i]``."""
    what, size = "all_gather_coalesced", place.size
    if len(outputs) != size or any(len(of_rank) != len(inputs) for of_rank in outputs):
        raise InvalidArgument(
            f"{what}: the outputs are {size} lists of {len(inputs)} tensors, one for each rank"
        )
    into = [[target.detach() for target in of_rank] for of_rank in outputs]
    given = ([tensor.detach().reshape(1, -1) for tensor in inputs],)

    def finish(gathered: List[torch.Tensor]) -> None:
        for i, rows in enumerate(gathered):
            _put_each(rows, [of_rank[i] for of_rank in into], what)

    flat = [target for of_rank in outputs for target in of_rank]
    return Begin(what, hvd.grouped_allgather_async, given, flat, finish)


def allgather_single(output: torch.Tensor, given: torch.Tensor, place: Place) -> Begin:
    """All into one tensor, of P times the elements."""
    what = "all_gather_into_tensor"
    _check_share(given, output, place.size, what)
    target = output.detach()
    row = given.detach().reshape(1, -1)
    return Begin(what, hvd.allgather_async, (row,), [output], lambda r: _put(r, target, what))


def allgather_single_coalesced(
    outputs: List[torch.Tensor], inputs: List[torch.Tensor], place: Place
) -> Begin:
    """Several calls of allgather_single as one."""
    what = "all_gather_into_tensor_coalesced"
    for output, given in zip(outputs, inputs):
        _check_share(given, output, place.size, what)
    into = [output.detach() for output in outputs]
    rows = [given.detach().reshape(1, -1) for given in inputs]
    begin = hvd.grouped_allgather_async
    return Begin(what, begin, (rows,), outputs, lambda each: _put_each(each, into, what))


def _check_share(share: torch.Tensor, whole: torch.Tensor, size: int, what: str) -> None:
    if share.numel() * size != whole.numel() or share.dtype != whole.dtype:
        raise InvalidArgument(
            f"{what}: {size} ranks' shares, {share.numel()} elements of {share.dtype}, do not make "
            f"{whole.numel()} of {whole.dtype}: a share is one {size}th of the other tensor"
        )


def gather(outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], place: Place) -> Begin:
    """Into a list on the root, where ``outputs`` is not empty."""
    what, root = "gather", place.root
    into = _each(outputs[0], place.size, what) if outputs else []
    given = (one(inputs, what).reshape(1, -1), root)
    listed = outputs[0] if outputs else []
    return Begin(what, hvd.gather_async, given, listed, lambda r: _put_each(r, into, what))


def gather_single(output: torch.Tensor, given: torch.Tensor, place: Place) -> Begin:
    """Into one tensor on the root, of P times the elements; ``output`` of the others is unused."""
    what, is_root = "gather_single", place.root == place.ranks[place.rank]
    target = output.detach()

    def finish(rows: torch.Tensor) -> None:
        if is_root:
            _put(rows, target, what)

    row = (given.detach().reshape(1, -1), place.root)
    return Begin(what, hvd.gather_async, row, [output] if is_root else [], finish)


def scatter(outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], place: Place) -> Begin:
    """Divides a list of the root, where alone ``inputs`` is not empty."""
    what, size = "scatter", place.size
    assert place.root >= 0  # It is in the group.
    target = one(outputs, what)
    own = _each(inputs[0], size, what) if inputs else []
    row = torch.cat([tensor.reshape(-1) for tensor in own]) if own else target.new_empty(0)
    counts = [tensor.numel() for tensor in own] or [0] * size
    finish = lambda come: _put(come[0], target, what)  # noqa: E731
    return Begin(what, hvd.alltoall_async, (row, counts), outputs, finish)


def reduce_scatter(
    outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], place: Place
) -> Begin:
    """Reduces lists with a part for each rank; parts may be of several sizes."""
    what, op, rank = "reduce_scatter", place.op, place.rank
    target, parts = one(outputs, what), _each(inputs[0], place.size, what)
    if target.numel() != parts[rank].numel():
        raise InvalidArgument(
            f"{what}: the part of rank {rank} has {parts[rank].numel()} elements, its output "
            f"{target.numel()}"
        )
    rows = [part.reshape(-1) for part in parts]
    counts = [row.numel() for row in rows]
    if len(set(counts)) == 1:
        return _share_of_sum(what, torch.stack(rows), op, rank, target, outputs)
    finish = lambda t: _put(torch.split(t, counts)[rank], target, what)  # noqa: E731
    return _reduction(what, torch.cat(rows), op, finish, outputs)


def _share_of_sum(
    what: str,
    rows: torch.Tensor,
    op: Any,
    rank: int,
    target: torch.Tensor,
    outputs: List[torch.Tensor],
) -> Begin:
    """The reduction of row ``rank`` over all ranks."""
    if bits_of(op, rows) is not None:
        return _reduction(what, rows, op, lambda t: _put(t[rank], target, what), outputs)
    of_all, ours, back = carried(rows, op)
    finish = lambda part: _put(back(part), target, what)  # noqa: E731
    return Begin(what, hvd.reducescatter_async, (of_all,), outputs, finish, {"op": ours})


def reduce_scatter_single(output: torch.Tensor, given: torch.Tensor, place: Place) -> Begin:
    """Reduces tensors of P times the elements of the output."""
    what, size = "reduce_scatter_tensor", place.size
    _check_share(output, given, size, what)
    rows = given.detach().reshape(size, -1) if output.numel() else given.new_empty(size, 0)
    return _share_of_sum(what, rows, place.op, place.rank, output.detach(), [output])


def reduce_scatter_single_coalesced(
    outputs: List[torch.Tensor], inputs: List[torch.Tensor], place: Place
) -> Begin:
    """Several calls of reduce_scatter_single as one."""
    what, size = "reduce_scatter_tensor_coalesced", place.size
    for output, given in zip(outputs, inputs):
        _check_share(output, given, size, what)
    into = [output.detach() for output in outputs]
    rows = [given.detach().reshape(size, -1) for given in inputs]
    rank, begin = place.rank, hvd.grouped_reducescatter_async
    return _each_reduced(what, begin, rows, place.op, into, outputs, lambda total: total[rank])


def _rows_of(splits: Sequence[int], tensor: torch.Tensor, size: int, what: str) -> List[int]:
    """How many rows of the first dimension belong to each rank."""
    rows = tensor.shape[0] if tensor.dim() else 0
    if not splits:
        if rows % size:
            raise InvalidArgument(f"{what}: {rows} rows cannot be divided among {size} ranks")
        return [rows // size] * size
    if len(splits) != size or sum(splits) != rows:
        raise InvalidArgument(
            f"{what}: the split sizes {list(splits)} are not {size} numbers whose sum is {rows}, "
            "the tensor's rows"
        )
    return list(splits)


def all_to_all_single(
    output: torch.Tensor,
    given: torch.Tensor,
    output_splits: Sequence[int],
    input_splits: Sequence[int],
    place: Place,
) -> Begin:
    """Rows of the first dimension, as many to and from each rank as the splits say; equal parts
    where they are empty."""
    what, size = "all_to_all_single", place.size
    target = output.detach()
    going = _rows_of(input_splits, given, size, what)
    coming = _rows_of(output_splits, output, size, what)

    def finish(come: Tuple[torch.Tensor, torch.Tensor]) -> None:
        rows, counts = come
        if counts.tolist() != coming:
            raise Mismatch(f"{what}: the ranks send {counts.tolist()} rows here, not {coming}")
        _put(rows, target, what)

    return Begin(what, hvd.alltoall_async, (given.detach(), going), [output], finish)


def all_to_all(outputs: List[torch.Tensor], inputs: List[torch.Tensor], place: Place) -> Begin:
    """A tensor to each rank, and one from each."""
    what, size = "all_to_all", place.size
    own, into = _each(inputs, size, what), _each(outputs, size, what)
    row = torch.cat([tensor.reshape(-1) for tensor in own])
    counts = [target.numel() for target in into]

    def finish(come: Tuple[torch.Tensor, torch.Tensor]) -> None:
        if come[1].tolist() != counts:
            raise Mismatch(f"{what}: the ranks send {come[1].tolist()} elements, not {counts}")
        _put_each(torch.split(come[0], counts), into, what)

    going = [tensor.numel() for tensor in own]
    return Begin(what, hvd.alltoall_async, (row, going), outputs, finish)
