"""The properties of a framework's tensors that Covey needs. Internal."""

from __future__ import annotations

import abc
from typing import Any, Generic, Optional, Tuple, TypeVar, Union

T = TypeVar("T")

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
    "int16",
    "uint16",
    "uint32",
    "uint64",
)
"""covey_dtype -> name."""
ITEM_BYTES = (4, 8, 2, 2, 1, 1, 4, 8, 1, 2, 2, 4, 8)


Address = Union[int, Tuple[int, int, int]]
"""Where memory begins; on CUDA with the number of the device and the stream in use there."""
View = Tuple[T, T, int, Address, Tuple[int, ...]]
"""(tensor as accepted, the same without gaps, covey_dtype, address of that, shape)"""


class Framework(abc.ABC, Generic[T]):
    """The tensors of one framework, as the collectives see them. All methods are local.

    Attributes:
        questions: for a shortcut (`Requests.shortcut`), the names of what a tensor tells of itself:
            that it lies in this process's memory, and (a method) without gaps; its dtype; (a
            method) its address; its shape; (a method) that it means other numbers than lie there.
            None: there is none.
        dtypes: covey_dtype -> such a dtype.
        plain_types: types (none of theirs) whose tensors may be read by DLPack's exchange table,
            where the framework has one, instead.
    """

    questions: Optional[Tuple[str, str, str, str, str, str]] = None
    dtypes: Tuple[Any, ...] = ()
    plain_types: Tuple[type, ...] = ()

    def accept(self, tensor: T, in_place: bool) -> T:
        """``tensor`` as the framework's own. Raises when it cannot be, or be overwritten."""
        del in_place
        return tensor

    @abc.abstractmethod
    def code(self, tensor: T) -> int:
        """covey_dtype of ``tensor``. Raises Unsupported when it cannot be sent."""

    @abc.abstractmethod
    def dense(self, tensor: T) -> T:
        """``tensor`` itself when its memory is row-major without gaps, else such a copy."""

    def view(self, tensor: T, in_place: bool) -> "View[T]":
        """All the core wants to know of ``tensor``. Raises as `accept` and `code` do.

        Every operation comes here: a framework may have a shorter way to the same.
        """
        given = self.accept(tensor, in_place)
        code = self.code(given)
        dense = self.dense(given)
        return given, dense, code, self.address(dense), self.shape(given)

    @abc.abstractmethod
    def empty_like(self, dense: T) -> T:
        """A new dense tensor of the same shape and dtype."""

    @abc.abstractmethod
    def empty(self, shape: Tuple[int, ...], code: int) -> T:
        """A new dense tensor."""

    def empty_beside(self, dense: T, shape: Tuple[int, ...], code: int) -> T:
        """As `empty`, where ``dense`` lies."""
        del dense
        return self.empty(shape, code)

    def beside(self, result: T, dense: T) -> T:
        """``result``, which lies in memory of the host, where ``dense`` lies."""
        del dense
        return result

    def on_host(self, dense: T) -> T:
        """``dense`` itself where it lies in memory of the host, else a copy there."""
        return dense

    @abc.abstractmethod
    def address(self, dense: T) -> Address:
        """Where its memory begins."""

    @abc.abstractmethod
    def shape(self, tensor: T) -> Tuple[int, ...]:
        """Its shape as a tuple."""

    @abc.abstractmethod
    def assign(self, target: T, source: T) -> T:
        """Copies ``source`` into ``target``; returns ``target``."""

    @abc.abstractmethod
    def wrap(self, memory: Any, code: int, shape: Tuple[int, ...]) -> T:
        """A tensor over the bytes in ``memory``, which it keeps alive; may be empty."""
