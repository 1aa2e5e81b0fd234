"""The collective operations, each written once, for the tensors of any framework. Internal.

A method of :class:`Collectives` begins an operation: it takes a :class:`~covey.ways.Way` and then
the arguments by Horovod's names, and returns a handle. Its documentation is what users read:
covey.numpy and covey.torch make their functions of it, one line for each way of calling (ways.py).
How to add an operation: frameworks/README.md.

Names: a stream of operations is known by its name, and as in Horovod the kind of the operation
comes first ("allreduce.loss"), so that one name may serve two kinds.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Generic, List, NamedTuple, Optional, Sequence, Tuple
from typing import TypeVar

from covey import _native
from covey.errors import InvalidArgument
from covey.framework import DTYPE_NAMES, ITEM_BYTES, Framework
from covey.group import Group, world
from covey.handles import Handle, HandleSet
from covey.reduce_op import choose_op, core_code
from covey.ways import LATER, Way

T = TypeVar("T")

ALLREDUCE, BROADCAST, ALLGATHER, BARRIER, JOIN = 0, 1, 2, 3, 6
"""covey_kind."""
SUM = 0


class How(NamedTuple):
    """What a request says beside its tensors.

    Attributes:
        kind: covey_kind.
        kind_name: what the name begins with.
        op: covey_op.
        root: global rank.
        prescale, postscale: factors.
    """

    kind: int
    kind_name: str
    op: int = SUM
    root: int = 0
    prescale: float = 1.0
    postscale: float = 1.0

    def stream(self, name: Optional[str]) -> Optional[str]:
        """The stream's name in the core; None for the ordered stream of unnamed operations."""
        return None if name is None else f"{self.kind_name}.{name}"

    def head(
        self, group: Group, name: Optional[str]
    ) -> Tuple[int, int, Optional[str], int, int, float, float]:
        """The first arguments of _native.submit and submit1; ``name`` is a stream's."""
        return self.kind, group.id, name, self.op, self.root, self.prescale, self.postscale


def check_scale(prescale: float, postscale: float) -> None:
    """Refuses factors the core would read as "not given"."""
    if not prescale or not postscale:
        raise InvalidArgument("prescale_factor and postscale_factor must not be 0")


def _reduction(
    kind_name: str, op: Optional[int], average: Optional[bool], prescale: float, postscale: float
) -> How:
    check_scale(prescale, postscale)
    return How(ALLREDUCE, kind_name, core_code(choose_op(op, average)), 0, prescale, postscale)


def _split_by_dtype(codes: Sequence[int]) -> Dict[int, List[int]]:
    """covey_dtype -> places. One request of the core has one dtype."""
    places: Dict[int, List[int]] = {}
    for place, code in enumerate(codes):
        places.setdefault(code, []).append(place)
    return places


class Collectives(Generic[T]):
    """The operations for the tensors of one framework.

    Attributes:
        framework: what is known of them.
        module: where users find the functions.
        tensor: the type in their signatures, as text.
    """

    def __init__(self, framework: Framework[T], module: str, tensor: str) -> None:
        self.framework = framework
        self.module = module
        self.tensor = tensor

    # ---- The operations --------------------------------------------------------------------------

    def allreduce(
        self,
        way: Way,
        tensor: T,
        average: Optional[bool] = None,
        name: Optional[str] = None,
        op: Optional[int] = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: Group = world,
    ) -> Handle[T]:
        """``postscale_factor`` * ``op`` over the ranks of (``prescale_factor`` * tensor).

        Args:
            tensor: the same shape and dtype on every rank.
            average: deprecated, use ``op``.
            name: the same name on every rank finds together, in any order; operations without one
                must come in one order on every rank.
            op: Average (when None), Sum, Min, Max or Product.
            prescale_factor: not 0.
            postscale_factor: not 0.
            process_set: the ranks that take part; this rank must be one of them.

        Returns:
            A new tensor of the same shape and dtype, bitwise equal on every rank.

        Raises:
            InvalidArgument, Unsupported: (ValueErrors) wrong here; nothing was submitted.
            Mismatch: the ranks disagree on shape, dtype, op or factors; later operations work.
            Aborted: a rank died or left.

        Example:
            >>> mean_loss = hvd.allreduce(loss, name="loss")
        """
        how = _reduction("allreduce", op, average, prescale_factor, postscale_factor)
        return self._alike(how, way, tensor, name, process_set)

    def grouped_allreduce(
        self,
        way: Way,
        tensors: Sequence[T],
        average: Optional[bool] = None,
        name: Optional[str] = None,
        op: Optional[int] = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: Group = world,
    ) -> HandleSet[T]:
        """As :func:`allreduce` for a list of tensors that travel together; returns the list.

        Dtypes may be mixed: the tensors of one dtype then travel together.

        Args:
            tensors: as many, of the same shapes and dtypes, on every rank.
            average, name, op, prescale_factor, postscale_factor, process_set: as :func:`allreduce`.

        Raises:
            As :func:`allreduce`.

        Example:
            >>> loss, hits = hvd.grouped_allreduce([loss, hits], op=hvd.Sum, name="metrics")
        """
        how = _reduction("grouped_allreduce", op, average, prescale_factor, postscale_factor)
        return self._grouped_alike(how, way, tensors, name, process_set)

    def broadcast(
        self,
        way: Way,
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
        how = How(BROADCAST, "broadcast", root=root_rank)
        return self._alike(how, way, tensor, name, process_set)

    def allgather(
        self, way: Way, tensor: T, name: Optional[str] = None, process_set: Group = world
    ) -> GatherHandle[T]:
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
        return self._gathered(How(ALLGATHER, "allgather"), way, tensor, name, process_set)

    def grouped_allgather(
        self,
        _way: Way,
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
        handles = []
        for i, tensor in enumerate(tensors):
            part = None if name is None else f"{name}.{i}of{len(tensors)}"
            handles.append(self.allgather(LATER, tensor, part, process_set))
        return HandleSet(handles)

    # ---- How requests are made -------------------------------------------------------------------

    def _alike(
        self,
        how: How,
        way: Way,
        tensor: T,
        name: Optional[str],
        group: Group,
        empty: Optional[Callable[[T], T]] = None,
    ) -> Handle[T]:
        """One tensor in, one out, made by ``empty`` from the dense input; None: of its shape."""
        fw = self.framework
        tensor = fw.accept(tensor, way.in_place)
        code = fw.code(tensor)
        dense = fw.dense(tensor)
        output = dense if way.in_place else (empty or fw.empty_like)(dense)
        native = _native.submit1(
            *how.head(group, how.stream(name)),
            code,
            fw.address(dense),
            None if way.in_place else fw.address(output),
            fw.shape(tensor),
            (dense, output),
            way.waits,
        )
        if not way.in_place or output is tensor:
            return Handle(native, output)
        return Handle(native, tensor, lambda _: fw.assign(tensor, output))

    def _grouped_alike(
        self,
        how: How,
        way: Way,
        tensors: Sequence[T],
        name: Optional[str],
        group: Group,
        empty: Optional[Callable[[T], T]] = None,
    ) -> HandleSet[T]:
        """As _alike for several tensors, one request for each dtype."""
        fw = self.framework
        given = [fw.accept(tensor, way.in_place) for tensor in tensors]
        dense = [fw.dense(tensor) for tensor in given]
        outputs = dense if way.in_place else [(empty or fw.empty_like)(one) for one in dense]
        split = _split_by_dtype([fw.code(tensor) for tensor in given])
        handles: List[Handle[List[T]]] = []
        for code, places in split.items():
            stream = how.stream(name)
            if stream is not None and len(split) > 1:
                stream += "." + DTYPE_NAMES[code]
            native = _native.submit(
                *how.head(group, stream),
                self._describe([dense[i] for i in places], code),
                None if way.in_place else self._describe([outputs[i] for i in places], code),
                (dense, outputs),
            )
            results = [given[i] if way.in_place else outputs[i] for i in places]
            moved = [(given[i], dense[i]) for i in places if given[i] is not dense[i]]
            finish = self._copy_back(moved, results) if way.in_place and moved else None
            handles.append(Handle(native, results, finish))
        return HandleSet(handles, list(split.values()))

    def _copy_back(self, moved: List[Tuple[T, T]], results: List[T]) -> Any:
        def finish(_: Any) -> List[T]:
            for target, source in moved:
                self.framework.assign(target, source)
            return results

        return finish

    def _gathered(
        self, how: How, way: Way, tensor: T, name: Optional[str], group: Group
    ) -> GatherHandle[T]:
        """One tensor in; the core allocates what comes out."""
        fw = self.framework
        tensor = fw.accept(tensor, False)
        code = fw.code(tensor)
        dense = fw.dense(tensor)
        native = _native.submit1(
            *how.head(group, how.stream(name)),
            code,
            fw.address(dense),
            None,
            fw.shape(tensor),
            dense,
            way.waits,
        )
        return GatherHandle(native, fw, code, group.size())

    def _describe(self, tensors: Sequence[T], code: int) -> Tuple[Any, ...]:
        fw = self.framework
        return tuple((fw.address(tensor), code, fw.shape(tensor)) for tensor in tensors)


class GatherHandle(Handle[T]):
    """An operation in flight whose result the core allocates.

    Attributes:
        rows: after ``wait``, the extent of dimension 0 that came from each rank, in rank order.
    """

    __slots__ = ("rows",)

    def __init__(self, native: Any, framework: Framework[T], code: int, group_size: int) -> None:
        self.rows: Tuple[int, ...] = ()

        def finish(ended: Any) -> T:
            memory, _, shape, self.rows = ended.take_result(0, group_size, ITEM_BYTES[code])
            return framework.wrap(memory, code, shape)

        super().__init__(native, None, finish)


def barrier(process_set: Group = world) -> None:
    """Waits until every rank of ``process_set`` has called this.

    Args:
        process_set: the ranks that take part; this rank must be one of them.

    Raises:
        Aborted: a rank died or left.

    Example:
        >>> hvd.barrier()
    """
    _without_tensors(BARRIER, "barrier", process_set).wait()


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
    ended = _without_tensors(JOIN, None, world)
    ended.wait()
    return int(ended.rows(1)[0])


def _without_tensors(kind: int, name: Optional[str], group: Group) -> Any:
    return _native.submit(kind, group.id, name, SUM, 0, 1.0, 1.0, (), None, None)
