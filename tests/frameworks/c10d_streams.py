"""Calls of torch.distributed with tensors on CUDA, real or late, made on one stream and waited for
on another: what c10d_streams_test.py and card_test.py share."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, List, Tuple
from unittest import mock

import torch
import torch.distributed as dist
from late_cuda import running
from process_groups import in_group

LENGTH = 1 << 18
_BUSY_CYCLES = 20_000_000  # About 10 ms of a card.


@contextlib.contextmanager
def cuda() -> Iterator[Callable[[], None]]:
    """The card, or else the late one: a function that keeps the stream in use busy. Futures of
    torch's CPU build know no device."""
    if torch.cuda.is_available():
        yield lambda: torch.cuda._sleep(_BUSY_CYCLES)  # type: ignore[no-untyped-call]
        return
    from covey.torch.c10d.call_stream import CallStream

    with running(), mock.patch.object(CallStream, "devices", None):
        yield lambda: None


def _full(value: float, parts: int = 1) -> torch.Tensor:
    return torch.zeros(LENGTH * parts, device="cuda").add_(value)


def _is(tensor: torch.Tensor, value: float) -> bool:
    return bool((tensor.cpu() == value).all())


# The group's own methods: those of torch.distributed leave the late one's modes.


def _all_reduce(group: Any) -> Tuple[Any, Any]:
    tensor = _full(dist.get_rank() + 1)
    return group.allreduce([tensor]), tensor


def _broadcast(group: Any) -> Tuple[Any, Any]:
    tensor = _full(3.0 * (dist.get_rank() + 1))
    return group.broadcast([tensor], root=0), tensor


def _reduce_scatter(group: Any) -> Tuple[Any, Any]:
    given, output = _full(dist.get_rank() + 1, 2), _full(0)
    return group._reduce_scatter_base(output, given), output


def _all_gather(group: Any) -> Tuple[Any, Any]:
    given, output = _full(3), _full(0, 2)
    return group._allgather_base(output, given), output


def _exchange(group: Any) -> Tuple[Any, Any]:
    peer = 1 - dist.get_rank()
    given, output = _full(3), _full(0)
    works = group.send([given], peer, 0), group.recv([output], peer, 0)
    works[0].wait()
    return works[1], output


CALLS: List[Callable[[Any], Tuple[Any, Any]]] = [
    _all_reduce, _broadcast, _reduce_scatter, _all_gather, _exchange
]


@in_group
def on_streams() -> List[str]:
    """Two ranks; each call comes to threes. What was wrong."""
    wrong = []
    with cuda() as be_busy:
        main, streams = torch.cuda.current_stream(), [torch.cuda.Stream() for _ in range(2)]
        for begun in (main, streams[0]):
            for waited in (main, streams[0], streams[1]):
                for call in CALLS:
                    with torch.cuda.stream(begun):
                        be_busy()
                        work, output = call(dist.group.WORLD)
                    with torch.cuda.stream(waited):
                        work.wait()
                        seen = output + 0
                        torch.cuda.current_stream().synchronize()
                    if not _is(seen, 3.0):
                        where = ["main", "first", "second"]
                        names = [where[[main, *streams].index(it)] for it in (begun, waited)]
                        wrong.append(f"{call.__name__} begun on {names[0]}, waited on {names[1]}")
    return wrong
