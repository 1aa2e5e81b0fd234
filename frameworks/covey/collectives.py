"""The collective operations, each written once, for the tensors of any framework. Internal.

A method of :class:`Collectives` begins an operation. It takes a
:class:`~covey.call_variants.CallVariant` and then the arguments by Horovod's names, and returns a
handle. Its documentation is what users read: covey.numpy and covey.torch make their functions of
it, one line for each operation (call_variants.py).
How to add an operation: frameworks/README.md.

Names: a stream of operations is known by its name, and as in Horovod the kind of the operation
comes first ("allreduce.loss"), so that one name may serve two kinds.
"""

from __future__ import annotations

import functools
from typing import Any, Optional, Sequence, TypeVar

from covey.arguments import many_of, part_name, scales_of, split_counts, text_of, whole_of
from covey.call_variants import LATER, CallVariant
from covey.errors import InvalidArgument, Unsupported
from covey.framework import Framework
from covey.group import Group, world
from covey.handles import Handle, HandleSet
from covey.neighbors import Neighbors
from covey.reduce_op import NO_ADASUM, Average, choose_op, core_code, is_adasum
from covey.requests import ALLGATHER, ALLREDUCE, ALLTOALL, BARRIER, BROADCAST, GATHER, JOIN
from covey.requests import REDUCESCATTER, How, without_tensors

T = TypeVar("T")


def _new_reduction(
    kind: int,
    kind_name: str,
    op: Optional[int],
    average: Optional[bool],
    prescale: float,
    postscale: float,
) -> How:
    """Horovod's arguments of a reduction. Raises InvalidArgument, Unsupported."""
    chosen = choose_op(op, average)
    return How(kind, kind_name, core_code(chosen), 0, *scales_of(prescale, postscale))


# Programs use few different ones. Refused ones are not kept.
_kept_reduction = functools.lru_cache(maxsize=64, typed=True)(_new_reduction)


def _reduction(
    kind: int,
    kind_name: str,
    op: Optional[int],
    average: Optional[bool],
    prescale: float,
    postscale: float,
) -> How:
    plain = type(prescale) is float and type(postscale) is float  # a tensor may change
    if plain and all(it is None or isinstance(it, int) for it in (op, average)):
        return _kept_reduction(kind, kind_name, op, average, prescale, postscale)
    return _new_reduction(kind, kind_name, op, average, prescale, postscale)


class Collectives(Neighbors[T]):
    """The operations for the tensors of one framework.

    Attributes:
        module: where users find the functions.
        tensor: the type in their signatures, as text.
    """

    def __init__(self, framework: Framework[T], module: str, tensor: str) -> None:
        super().__init__(framework)
        self.module = module
        self.tensor = tensor

    def allreduce(
        self,
        variant: CallVariant,
        tensor: T,
        average: Optional[bool] = None,
        name: Optional[str] = None,
        op: Optional[int] = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: Group = world,
        codec: Optional[str] = None,
    ) -> Handle[T]:
        """``postscale_factor`` * ``op`` over the ranks of (``prescale_factor`` * tensor).

        Args:
            tensor: the same shape and dtype on every rank.
            average: deprecated, use ``op``.
            name: the same name on every rank finds together, in any order; operations without one
                must come in one order on every rank.
            op: Average (when None), Sum, Min, Max or Product; no Adasum of NumPy's arrays.
            prescale_factor: not 0.
            postscale_factor: not 0.
            process_set: the ranks that take part; this rank must be one of them.
            codec: makes float32 smaller before it travels, such as "int8", "bf16" or
                "qsgd@bits=4"; it is reduced in float32. Other dtypes travel as they are.

        Returns:
            A new tensor of the same shape and dtype, bitwise equal on every rank.

        Raises:
            InvalidArgument, Unsupported: (ValueErrors) wrong here; nothing was submitted.
            Mismatch: the ranks disagree on shape, dtype, op, factors or codec; later operations
                work.
            Aborted: a rank died or left.

        Example:
            >>> mean_loss = hvd.allreduce(loss, name="loss")
        """
        scales = prescale_factor, postscale_factor
        if is_adasum(op) and average is None:
            return self._adasum(variant, tensor, name, scales, process_set, codec)
        how = _reduction(ALLREDUCE, "allreduce", op, average, *scales)
        if codec is not None:
            how = how._replace(codec=text_of("codec", codec))
        return self._alike(how, variant, tensor, name, process_set)

    def grouped_allreduce(
        self,
        variant: CallVariant,
        tensors: Sequence[T],
        average: Optional[bool] = None,
        name: Optional[str] = None,
        op: Optional[int] = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: Group = world,
        codec: Optional[str] = None,
    ) -> HandleSet[T]:
        """As :func:`allreduce` for a list of tensors that travel together; returns the list.

        Dtypes may be mixed: the tensors of one dtype then travel together.

        Args:
            tensors: as many, of the same shapes and dtypes, on every rank.
            average, name, op, prescale_factor, postscale_factor, process_set, codec: as
                :func:`allreduce`.

        Raises:
            As :func:`allreduce`.

        Example:
            >>> loss, hits = hvd.grouped_allreduce([loss, hits], op=covey.Sum, name="metrics")
        """
        scales = prescale_factor, postscale_factor
        if is_adasum(op) and average is None:
            return self._adasum(variant, list(many_of(tensors)), name, scales, process_set, codec)
        how = _reduction(ALLREDUCE, "grouped_allreduce", op, average, *scales)
        if codec is not None:
            how = how._replace(codec=text_of("codec", codec))
        return self._grouped_alike(how, variant, tensors, name, process_set)

    def _adasum(self, *_: Any) -> Any:
        """Both, by op=Adasum, of frameworks that have it."""
        raise Unsupported(NO_ADASUM)

    def broadcast(
        self,
        variant: CallVariant,
        tensor: T,
        root_rank: int,
        name: Optional[str] = None,
        process_set: Group = world,
    ) -> Handle[T]:
        """The tensor of rank ``root_rank``, as a new tensor on every rank.

        Args:
            tensor: the same shape and dtype on every rank.
            root_rank: a global rank, also inside a process set.
            name, process_set: as :func:`allreduce`.

        Raises:
            As :func:`allreduce`.

        Example:
            >>> order = hvd.broadcast(order, root_rank=0, name="order")
        """
        how = How(BROADCAST, "broadcast", root=whole_of("root_rank", root_rank))
        return self._alike(how, variant, tensor, name, process_set)

    def allgather(
        self,
        variant: CallVariant,
        tensor: T,
        name: Optional[str] = None,
        process_set: Group = world,
    ) -> Handle[T]:
        """The tensors of all ranks, concatenated on dimension 0 in rank order.

        Args:
            tensor: at least one dimension; dimension 0 may differ between the ranks and may be 0,
                the other dimensions and the dtype may not differ.
            name, process_set: as :func:`allreduce`.

        Raises:
            As :func:`allreduce`.

        Example:
            >>> predictions = hvd.allgather(predictions, name="predictions")
        """
        return self._gathered(How(ALLGATHER, "allgather"), variant, tensor, name, process_set)

    def gather(
        self,
        variant: CallVariant,
        tensor: T,
        root_rank: int,
        name: Optional[str] = None,
        process_set: Group = world,
    ) -> Handle[T]:
        """The tensors of all ranks on rank ``root_rank``, concatenated on dimension 0.

        Args:
            tensor: as :func:`allgather`.
            root_rank: a global rank, also inside a process set.
            name, process_set: as :func:`allreduce`.

        Returns:
            On ``root_rank`` the tensors of all in rank order; on the others a tensor of 0 rows.

        Raises:
            As :func:`allreduce`.

        Example:
            >>> scores = hvd.gather(scores, root_rank=0, name="scores")
        """
        how = How(GATHER, "gather", root=whole_of("root_rank", root_rank))
        return self._gathered(how, variant, tensor, name, process_set)

    def grouped_allgather(
        self,
        _variant: CallVariant,
        tensors: Sequence[T],
        name: Optional[str] = None,
        process_set: Group = world,
    ) -> HandleSet[T]:
        """As :func:`allgather` for a list of tensors; returns the list.

        Args:
            tensors: as many on every rank.
            name, process_set: as :func:`allreduce`.

        Raises:
            As :func:`allreduce`.

        Example:
            >>> scores, labels = hvd.grouped_allgather([scores, labels], name="evaluation")
        """
        handles, listed = [], many_of(tensors)
        for i, tensor in enumerate(listed):
            part = part_name(name, i, len(listed))
            handles.append(self.allgather(LATER, tensor, part, process_set))
        return HandleSet(handles)

    def reducescatter(
        self,
        variant: CallVariant,
        tensor: T,
        name: Optional[str] = None,
        op: int = Average,
        process_set: Group = world,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Handle[T]:
        """As :func:`allreduce`, and each rank gets a part of the result's rows.

        Args:
            tensor: at least one dimension; the same shape and dtype on every rank.
            name: as :func:`allreduce`.
            op: Average, Sum, Min, Max or Product.
            process_set, prescale_factor, postscale_factor: as :func:`allreduce`.

        Returns:
            A new tensor: dimension 0 is divided in rank order as evenly as possible, the first
            ranks get one row more.

        Raises:
            As :func:`allreduce`.

        Example:
            >>> part = hvd.reducescatter(gradient, op=covey.Sum, name="part")
        """
        kind_name = "reducescatter"
        how = _reduction(REDUCESCATTER, kind_name, op, None, prescale_factor, postscale_factor)
        return self._alike(how, variant, tensor, name, process_set)

    def grouped_reducescatter(
        self,
        variant: CallVariant,
        tensors: Sequence[T],
        name: Optional[str] = None,
        op: int = Average,
        process_set: Group = world,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> HandleSet[T]:
        """As :func:`reducescatter` for a list of tensors that travel together; returns the list.

        Dtypes may be mixed: the tensors of one dtype then travel together.

        Args:
            tensors: as many, of the same shapes and dtypes, on every rank.
            name, op, process_set, prescale_factor, postscale_factor: as :func:`reducescatter`.

        Raises:
            As :func:`allreduce`.

        Example:
            >>> weights, biases = hvd.grouped_reducescatter([weights, biases], name="parts")
        """
        kind_name = "grouped_reducescatter"
        how = _reduction(REDUCESCATTER, kind_name, op, None, prescale_factor, postscale_factor)
        return self._grouped_alike(how, variant, tensors, name, process_set)

    def alltoall(
        self,
        variant: CallVariant,
        tensor: T,
        splits: Any = None,
        name: Optional[str] = None,
        process_set: Group = world,
    ) -> Handle[Any]:
        """Each rank sends some of its rows to each rank, and gets what the ranks send to it.

        Args:
            tensor: at least one dimension; dimension 0 may differ between the ranks, the others
                and the dtype may not.
            splits: how many rows go to each rank, in rank order: integers in a sequence, array or
                tensor, as many as there are ranks; 0 is possible. None: equal parts.
            name, process_set: as :func:`allreduce`.

        Returns:
            The received rows, concatenated on dimension 0 in rank order. When ``splits`` is given a
            pair: that, and how many rows came from each rank, as int32. As in Horovod the handle of
            ``alltoall_async`` always gives the pair.

        Raises:
            As :func:`allreduce`.

        Example:
            >>> mine, counts = hvd.alltoall(tokens, splits=per_expert, name="tokens")
        """
        counts = split_counts(splits)
        return self._gathered(How(ALLTOALL, "alltoall"), variant, tensor, name, process_set, counts)


def barrier(process_set: Group = world) -> None:
    """Waits until every rank of ``process_set`` has called this.

    Args:
        process_set: the ranks that take part; this rank must be one of them.

    Raises:
        Aborted: a rank died or left.

    Example:
        >>> hvd.barrier()
    """
    without_tensors(BARRIER, "barrier", process_set, waits=True).wait()


def join(device: int = -1) -> int:
    """Says that this rank has no more data, and waits until every rank has said so.

    Until then the other ranks go on: in their allreduces this rank takes part with zeros (ones in
    a Product; what changes nothing in a Min or Max), in an Average it still counts as one of the
    ranks, and in their barriers it takes part too. Other operations of all ranks fail meanwhile.

    Args:
        device: accepted for Horovod's sake.

    Returns:
        The rank that joined last: the one whose model has seen the most data.

    Raises:
        Aborted: a rank died or left.

    Example:
        >>> for batch in loader:
        ...     step(batch)
        >>> last = hvd.join()
    """
    del device
    ended = without_tensors(JOIN, None, world)
    ended.wait()
    return int(ended._numbers(1)[0])
