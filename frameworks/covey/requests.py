"""How the operations of collectives.py become requests of the core. Internal."""

from __future__ import annotations

import array
from typing import (
    Any,
    Callable,
    Dict,
    Generic,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
)

from covey import _native
from covey.arguments import factor_of, group_id, many_of, text_of
from covey.call_variants import CallVariant
from covey.errors import InvalidArgument
from covey.framework import DTYPE_NAMES, ITEM_BYTES, Framework
from covey.group import Group, world
from covey.handles import Handle, HandleSet
from covey.reduce_op import Average, choose_op, core_code
from covey.topology import Row

T = TypeVar("T")

ALLREDUCE, BROADCAST, ALLGATHER, BARRIER, REDUCESCATTER, ALLTOALL, JOIN = range(7)
NEIGHBOR_ALLREDUCE, GATHER = 7, 8
"""covey_kind."""
SUM = 0
_INT32, _INT64 = DTYPE_NAMES.index("int32"), DTYPE_NAMES.index("int64")
_FLOAT32 = DTYPE_NAMES.index("float32")
_INT32_MAX = (1 << 31) - 1


def check_predivisor(factor: Any, op: Any) -> None:
    """Of ``gradient_predivide_factor``. Raises InvalidArgument: it is no positive number, or other
    than 1 with an ``op`` that has no mean to divide for."""
    name = "gradient_predivide_factor"
    if factor_of(name, factor) < 0:
        raise InvalidArgument(f"{name} must be positive")
    if factor != 1.0 and op != Average:
        raise InvalidArgument(f"{name} needs op=Average")


class How(NamedTuple):
    """The fields of a request beside its tensors.

    Attributes:
        kind: covey_kind.
        kind_name: the begin of the name.
        op: covey_op.
        root: global rank.
        prescale, postscale: factors.
        codec: makes float32 smaller before it travels; None: none.
    """

    kind: int
    kind_name: str
    op: int = SUM
    root: int = 0
    prescale: float = 1.0
    postscale: float = 1.0
    codec: Optional[str] = None

    def stream(self, name: Optional[str]) -> Optional[str]:
        """The stream's name in the core; None for the ordered stream of unnamed operations."""
        return None if name is None else f"{self.kind_name}.{text_of('name', name)}"

    def codec_of(self, code: int) -> Optional[str]:
        """The codec of tensors of the dtype ``code``; what is not float32 travels as it is."""
        return self.codec if code == _FLOAT32 else None

    def head(
        self, group: Group, name: Optional[str]
    ) -> Tuple[int, int, Optional[str], int, int, float, float]:
        """The first arguments of _native.submit and submit1; ``name`` is a stream's."""
        return self.kind, group_id(group), name, self.op, self.root, self.prescale, self.postscale


def _split_by_dtype(codes: Sequence[int]) -> Dict[int, List[int]]:
    """covey_dtype -> places. One request of the core has one dtype."""
    places: Dict[int, List[int]] = {}
    for place, code in enumerate(codes):
        places.setdefault(code, []).append(place)
    return places


def _op_code(op: Optional[int]) -> int:
    return core_code(choose_op(op, None))


class Requests(Generic[T]):
    """Makes requests of the tensors of one framework.

    Attributes:
        framework: its description for Covey.
    """

    def __init__(self, framework: Framework[T]) -> None:
        self.framework = framework

    def shortcut(
        self, operation: str, variant: CallVariant, ends: bool
    ) -> Optional[Callable[[Any, Any], Any]]:
        """A function that begins most calls of ``operation`` in C: (args, kwargs) -> a handle, or
        its result if this ``ends`` the call; None when the call is an unusual one, and nothing was
        done then."""
        fw = self.framework
        grouped = operation == "grouped_allreduce"
        if fw.questions is None or (operation != "allreduce" and not (grouped and ends)):
            return None
        keywords = ("name", "op", "process_set", "id")
        known = (*fw.questions, fw.dtypes, fw.plain_types, fw.empty_like)
        parts = (*known, _op_code, world, *keywords)
        prefix = operation.encode() + b"."
        in_place, waits = variant
        return _native.shortcut(ALLREDUCE, prefix, grouped, in_place, waits, ends, parts).call

    def _room(self, how: How, dense: T, code: int, group: Group) -> T:
        """A tensor for what ``how`` makes of ``dense`` on this rank."""
        fw = self.framework
        shape = fw.shape(dense)
        if how.kind != REDUCESCATTER or len(shape) == 0:  # a scalar: the core says why not
            return fw.empty_like(dense)
        rows, more = divmod(shape[0], group.size())
        return fw.empty_beside(dense, (rows + ((group.rank() or 0) < more), *shape[1:]), code)

    def _alike(
        self,
        how: How,
        variant: CallVariant,
        tensor: T,
        name: Optional[str],
        group: Group,
        row: Optional[Row] = None,
    ) -> Handle[T]:
        """One tensor in, one out."""
        fw = self.framework
        in_place, waits = variant
        tensor, dense, code, address, shape = fw.view(tensor, in_place)
        output, output_address, output_shape = dense, None, shape
        head = how.head(group, how.stream(name))
        if not in_place:
            output = self._room(how, dense, code, group)
            output_address, output_shape = fw.address(output), fw.shape(output)
        handle = _native.submit1(
            *head,
            code,
            address,
            output_address,
            shape,
            (dense, output),
            waits,
            output_shape,
            None,
            None,
            how.codec_of(code),
            row,
        )
        handle._result = output
        if in_place and output is not tensor:
            handle._finish = lambda _: fw.assign(tensor, output)
        return handle

    def _grouped_alike(
        self,
        how: How,
        variant: CallVariant,
        tensors: Sequence[T],
        name: Optional[str],
        group: Group,
    ) -> HandleSet[T]:
        """As _alike for several tensors, one request for each dtype."""
        fw = self.framework
        group_id(group)  # Refuses what is none.
        views = [fw.view(tensor, variant.in_place) for tensor in many_of(tensors)]
        given = [view[0] for view in views]
        dense = [view[1] for view in views]
        codes = [view[2] for view in views]
        outputs = dense
        if not variant.in_place:
            outputs = [self._room(how, one, code, group) for one, code in zip(dense, codes)]
        split = _split_by_dtype(codes)
        handles: List[Handle[List[T]]] = []
        for code, places in split.items():
            stream = how.stream(name)
            if stream is not None and len(split) > 1:
                stream += "." + DTYPE_NAMES[code]
            handle = _native.submit(
                *how.head(group, stream),
                tuple((views[i][3], code, views[i][4]) for i in places),
                None if variant.in_place else self._describe([outputs[i] for i in places], code),
                (dense, outputs),
                how.codec_of(code),
                variant.waits,
            )
            handle._result = [given[i] if variant.in_place else outputs[i] for i in places]
            moved = [(given[i], dense[i]) for i in places if given[i] is not dense[i]]
            if variant.in_place and moved:
                handle._finish = self._copy_back(moved, handle._result)
            handles.append(handle)
        return HandleSet(handles, list(split.values()))

    def _copy_back(self, moved: List[Tuple[T, T]], results: List[T]) -> Any:
        def finish(_: Any) -> List[T]:
            for target, source in moved:
                self.framework.assign(target, source)
            return results

        return finish

    def _gathered(
        self,
        how: How,
        variant: CallVariant,
        tensor: T,
        name: Optional[str],
        group: Group,
        splits: Optional[Tuple[int, ...]] = None,
    ) -> Handle[T]:
        """One tensor in; the core allocates what comes out."""
        fw = self.framework
        tensor, dense, code, address, shape = fw.view(tensor, False)
        handle = _native.submit1(
            *how.head(group, how.stream(name)),
            code,
            address,
            None,
            shape,
            dense,
            variant.waits,
            None,
            splits,
        )
        with_rows = splits is not None or (how.kind == ALLTOALL and not variant.waits)
        handle._finish = self._take(code, group.size(), with_rows, dense)
        return handle

    def _take(self, code: int, size: int, with_rows: bool, dense: T) -> Callable[[Any], Any]:
        """Takes over what the core allocated, and says in ``rows`` what came from each rank.

        ``with_rows``: the result is a pair, of that and a tensor of ``rows``, int32 if it can."""

        def finish(ended: Any) -> Any:
            memory, _, shape, ended.rows = ended._take_result(0, size, ITEM_BYTES[code])
            result = self.framework.beside(self.framework.wrap(memory, code, shape), dense)
            if not with_rows:
                return result
            wide = max(ended.rows) > _INT32_MAX
            numbers = bytearray(array.array("q" if wide else "i", ended.rows))
            return result, self.framework.wrap(numbers, _INT64 if wide else _INT32, (size,))

        return finish

    def _describe(self, tensors: Sequence[T], code: int) -> Tuple[Any, ...]:
        fw = self.framework
        return tuple((fw.address(tensor), code, fw.shape(tensor)) for tensor in tensors)


def without_tensors(kind: int, name: Optional[str], group: Group, waits: bool = False) -> Any:
    """``waits``: the caller waits for it at once."""
    head = (kind, group_id(group), name, SUM, 0, 1.0, 1.0)
    return _native.submit(*head, (), None, None, None, waits)
