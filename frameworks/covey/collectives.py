"""Collective operations over the tensors of any framework. Internal.

A framework adapter describes its tensors by a :class:`Framework`; everything else about submitting
is here, once. The public functions with their documentation are in covey.torch, covey.numpy and
covey.ops.

Names: a stream of operations is known by its name, and as in Horovod the kind of the operation
comes first ("allreduce.loss"), so that one name may serve two kinds.
"""

from __future__ import annotations

import abc
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from covey import _native
from covey.errors import InvalidArgument
from covey.group import Group
from covey.handles import Handle, HandleSet
from covey.reduce_op import core_code

ALLREDUCE, BROADCAST, ALLGATHER, BARRIER = 0, 1, 2, 3
SUM = 0

DTYPE_NAMES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "uint8",
    "int8",
    "int32",
    "int64",
    "bool",
)
"""covey_dtype -> name."""
ITEM_BYTES = (4, 8, 2, 2, 1, 1, 4, 8, 1)

AnyHandle = Union[Handle, HandleSet]


class Framework(abc.ABC):
    """What the collectives need to know of a framework's tensors. All methods are local."""

    @abc.abstractmethod
    def code(self, tensor: Any) -> int:
        """covey_dtype of ``tensor``. Raises Unsupported when it cannot be sent."""

    @abc.abstractmethod
    def dense(self, tensor: Any) -> Any:
        """``tensor`` itself when its memory is row-major without gaps, else such a copy."""

    @abc.abstractmethod
    def empty_like(self, dense: Any) -> Any:
        """A new dense tensor of the same shape and dtype."""

    @abc.abstractmethod
    def address(self, dense: Any) -> int:
        """Where its memory begins."""

    @abc.abstractmethod
    def shape(self, tensor: Any) -> Tuple[int, ...]:
        """Its shape as a tuple."""

    @abc.abstractmethod
    def assign(self, target: Any, source: Any) -> Any:
        """Copies ``source`` into ``target``; returns ``target``."""

    @abc.abstractmethod
    def wrap(self, memory: Any, code: int, shape: Tuple[int, ...]) -> Any:
        """A tensor over the bytes in ``memory``, which it keeps alive; may be empty."""


def full_name(kind: str, name: Optional[str]) -> Optional[str]:
    """The stream's name in the core; None for the ordered stream of unnamed operations."""
    return None if name is None else f"{kind}.{name}"


def check_scale(prescale: float, postscale: float) -> None:
    """Refuses factors the core would read as "not given"."""
    if not prescale or not postscale:
        raise InvalidArgument("prescale_factor and postscale_factor must not be 0")


def _split_by_dtype(codes: Sequence[int]) -> Dict[int, List[int]]:
    """covey_dtype -> places. One request of the core has one dtype."""
    places: Dict[int, List[int]] = {}
    for place, code in enumerate(codes):
        places.setdefault(code, []).append(place)
    return places


class Collectives:
    """The operations for the tensors of one framework."""

    def __init__(self, framework: Framework) -> None:
        self.framework = framework

    def allreduce(
        self,
        tensor: Any,
        in_place: bool,
        name: Optional[str],
        op: int,
        prescale: float,
        postscale: float,
        group: Group,
        waits: bool = False,
    ) -> Handle:
        """Submits the reduction of one tensor; with ``waits`` the caller waits for it at once."""
        fw = self.framework
        check_scale(prescale, postscale)
        code, op_code = fw.code(tensor), core_code(op)
        dense = fw.dense(tensor)
        output = dense if in_place else fw.empty_like(dense)
        native = _native.submit1(
            ALLREDUCE,
            group.id,
            full_name("allreduce", name),
            op_code,
            0,
            prescale,
            postscale,
            code,
            fw.address(dense),
            None if in_place else fw.address(output),
            fw.shape(tensor),
            (dense, output),
            waits,
        )
        return self._handle(native, tensor, output, in_place)

    def broadcast(
        self, tensor: Any, in_place: bool, root: int, name: Optional[str], group: Group
    ) -> Handle:
        """Submits the broadcast of one tensor from the global rank ``root``."""
        fw = self.framework
        code = fw.code(tensor)
        dense = fw.dense(tensor)
        output = dense if in_place else fw.empty_like(dense)
        native = _native.submit1(
            BROADCAST,
            group.id,
            full_name("broadcast", name),
            SUM,
            root,
            1.0,
            1.0,
            code,
            fw.address(dense),
            None if in_place else fw.address(output),
            fw.shape(tensor),
            (dense, output),
        )
        return self._handle(native, tensor, output, in_place)

    def _handle(self, native: Any, tensor: Any, output: Any, in_place: bool) -> Handle:
        if not in_place or output is tensor:
            return Handle(native, output)
        return Handle(native, tensor, lambda _: self.framework.assign(tensor, output))

    def grouped_allreduce(
        self,
        tensors: Sequence[Any],
        in_place: bool,
        name: Optional[str],
        op: int,
        prescale: float,
        postscale: float,
        group: Group,
    ) -> HandleSet:
        """Submits the reduction of several tensors, one request for each dtype."""
        fw = self.framework
        check_scale(prescale, postscale)
        op_code = core_code(op)
        dense = [fw.dense(tensor) for tensor in tensors]
        outputs = dense if in_place else [fw.empty_like(tensor) for tensor in dense]
        split = _split_by_dtype([fw.code(tensor) for tensor in tensors])
        handles = []
        for code, places in split.items():
            native = _native.submit(
                ALLREDUCE,
                group.id,
                self._part_name("grouped_allreduce", name, code, len(split)),
                op_code,
                0,
                prescale,
                postscale,
                self._describe([dense[i] for i in places], code),
                None if in_place else self._describe([outputs[i] for i in places], code),
                (dense, outputs),
            )
            results = [tensors[i] if in_place else outputs[i] for i in places]
            moved = [(tensors[i], dense[i]) for i in places if tensors[i] is not dense[i]]
            finish = self._copy_back(moved, results) if in_place and moved else None
            handles.append(Handle(native, results, finish))
        return HandleSet(handles, list(split.values()))

    def _copy_back(self, moved: List[Tuple[Any, Any]], results: List[Any]) -> Any:
        def finish(_: Any) -> List[Any]:
            for target, source in moved:
                self.framework.assign(target, source)
            return results

        return finish

    def allgather(self, tensor: Any, name: Optional[str], group: Group) -> "GatherHandle":
        """Submits the concatenation of one tensor per rank on dimension 0."""
        fw = self.framework
        code = fw.code(tensor)
        dense = fw.dense(tensor)
        native = _native.submit1(
            ALLGATHER,
            group.id,
            full_name("allgather", name),
            SUM,
            0,
            1.0,
            1.0,
            code,
            fw.address(dense),
            None,
            fw.shape(tensor),
            dense,
        )
        return GatherHandle(native, fw, code, group.size())

    def grouped_allgather(
        self, tensors: Sequence[Any], name: Optional[str], group: Group
    ) -> HandleSet:
        """Submits the concatenation of several tensors, one request for each."""
        count = len(tensors)
        handles = [
            self.allgather(tensor, None if name is None else f"{name}.{i}of{count}", group)
            for i, tensor in enumerate(tensors)
        ]
        return HandleSet(handles)

    def _describe(self, tensors: Sequence[Any], code: int) -> Tuple[Any, ...]:
        fw = self.framework
        return tuple((fw.address(tensor), code, fw.shape(tensor)) for tensor in tensors)

    @staticmethod
    def _part_name(kind: str, name: Optional[str], code: int, parts: int) -> Optional[str]:
        if name is None or parts == 1:
            return full_name(kind, name)
        return f"{kind}.{name}.{DTYPE_NAMES[code]}"


class GatherHandle(Handle):
    """An allgather in flight.

    Attributes:
        rows: after ``wait``, the extent of dimension 0 per rank, in rank order.
    """

    __slots__ = ("rows",)

    def __init__(self, native: Any, framework: Framework, code: int, group_size: int) -> None:
        self.rows: Tuple[int, ...] = ()

        def finish(ended: Any) -> Any:
            memory, _, shape, self.rows = ended.take_result(0, group_size, ITEM_BYTES[code])
            return framework.wrap(memory, code, shape)

        super().__init__(native, None, finish)


def barrier(group: Group) -> None:
    """Waits until every member of ``group`` has called this."""
    _native.submit(BARRIER, group.id, "barrier", SUM, 0, 1.0, 1.0, (), None, None).wait()
