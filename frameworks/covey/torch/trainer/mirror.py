"""Numbers that a trainer has on a device and the core in memory of the host. Internal.

A mirror is the numbers of one bucket where the trainer has them; ``fetch`` copies them to memory
that the core reads, and ``put`` copies there what the core has written. Both are handed to the
stream that is in use and wait for nothing: what the stream does before and after is in order with
them, whichever stream was in use at the copy before. The host waits in one place: ``wait``, which
is called before the core, or other code on the host, reads fetched memory or overwrites put memory.
A trainer calls it where its method makes it wait for others anyway.

On the CPU the two are the same memory: nothing is copied and nothing waits.

The device copies from and to pinned memory, so that no thread waits for a copy to begin. Memory of
the core is not pinned, and is reached through a stage that is. (Pinning parts of the arena was
rejected: parts share pages, the driver refuses the second of a page, and torch would meet that
error at its next kernel.)
"""

from __future__ import annotations

from typing import Iterable, Optional

import torch

from covey.torch.layout import BucketPlan


class Mirror:
    """That of a bucket on the CPU: the host's memory itself.

    Attributes:
        is_far: the numbers lie elsewhere than what the core has.
    """

    is_far = False

    def of(self, host: torch.Tensor) -> torch.Tensor:
        """[as ``host``] Where the trainer has the numbers that the core has in ``host``."""
        return host

    def fetch(self, host: torch.Tensor) -> None:
        """``host`` becomes what the trainer has. It is only after ``wait``."""

    def put(self, host: torch.Tensor) -> None:
        """The trainer's tensor becomes ``host``, which must stay as it is until ``wait``."""

    def wait(self) -> None:
        """Until the copies are done."""


class _Far(Mirror):
    """That of a bucket on CUDA."""

    is_far = True

    def __init__(self, plan: BucketPlan, length: int) -> None:
        self._flat = torch.zeros(length, dtype=plan.dtype, device=plan.device)
        # The host sleeps on it: other ranks may need the core.
        self._done = torch.cuda.Event(blocking=True)
        self._is_copying = False
        self._stage: Optional[torch.Tensor] = None  # Pinned.
        self._landing: Optional[torch.Tensor] = None  # Where what comes to it belongs.

    def _staged(self) -> torch.Tensor:
        if self._stage is None:
            flat = self._flat
            self._stage = torch.zeros(flat.numel(), dtype=flat.dtype, device="cpu", pin_memory=True)
        return self._stage

    def of(self, host: torch.Tensor) -> torch.Tensor:
        return self._flat

    def fetch(self, host: torch.Tensor) -> None:
        self._copy(self._staged(), self._flat)
        self._landing = host

    def put(self, host: torch.Tensor) -> None:
        self.wait()  # For what is on its way from there, or to it.
        self._copy(self._flat, self._staged().copy_(host))

    def _copy(self, to: torch.Tensor, source: torch.Tensor) -> None:
        stream = torch.cuda.current_stream(self._flat.device)
        if self._is_copying:
            stream.wait_event(self._done)
        with torch.no_grad():
            to.copy_(source, non_blocking=True)
        self._done.record(stream)
        self._is_copying = True

    def wait(self) -> None:
        if self._is_copying:
            self._done.synchronize()
        self._is_copying = False
        if self._landing is not None:
            self._landing.copy_(self._staged())
            self._landing = None


def mirror_of(plan: BucketPlan, length: Optional[int] = None) -> Mirror:
    """One for a bucket, on its device: of [``length``] elements; None: of all."""
    if plan.device.type == "cpu":
        return Mirror()
    return _Far(plan, plan.length if length is None else length)


def wait_for(mirrors: Iterable[Mirror]) -> None:
    """Until the copies of all are done."""
    for mirror in mirrors:
        mirror.wait()
