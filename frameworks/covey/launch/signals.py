"""Signals to the launcher, as something to read instead of something that interrupts.

Only the main thread of a process may handle signals; elsewhere the inbox stays empty and the
signals do what they did before.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Type

WATCHED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGTSTP,
)


def _note(number: int, frame: Any) -> None:
    """The wake-up descriptor has the number already."""


class Stopped(Exception):
    """A signal came before the ranks were started.

    Attributes:
        number: which, where nobody else knows it.
    """

    def __init__(self, number: int = 0) -> None:
        super().__init__(number)
        self.number = number


class SignalInbox:
    """Within `with`, the watched signals arrive here. An ignored SIGHUP (nohup) stays ignored.

    An ignored SIGINT does not: shells ignore it for jobs that they start with `&`, and `kill -INT`
    shall end such a job too.
    """

    def __init__(self) -> None:
        self.fd: Optional[int] = None
        self._write_fd = -1
        self._old_fd = -1
        self._old: Dict[int, Any] = {}

    def __enter__(self) -> SignalInbox:
        if threading.current_thread() is not threading.main_thread():
            return self
        self.fd, self._write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write_fd, False)
        self._old_fd = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for number in WATCHED:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                self._old[number] = signal.signal(number, _note)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self.fd is None:
            return
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        os.close(self.fd)
        os.close(self._write_fd)
        self.fd = None

    def wait(self, ready: Any, stopped: Callable[[], bool]) -> None:
        """Until there is something to read at `ready`. Raises Stopped: `stopped` says so, which is
        asked when a signal has come."""
        wanted = [ready] if self.fd is None else [ready, self.fd]
        while ready not in select.select(wanted, [], [])[0]:
            if stopped():
                raise Stopped

    def pause(self, for_s: float) -> None:
        """Until that time has passed. Raises Stopped, KeyboardInterrupt: a signal says so."""
        select.select([] if self.fd is None else [self.fd], [], [], for_s)
        for number in self.take():
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            if number == signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)
            elif number != signal.SIGUSR1:
                raise Stopped(number)

    def take(self) -> List[int]:
        """The watched signals that arrived since the last call, oldest first."""
        if self.fd is None:
            return []
        try:
            return [number for number in os.read(self.fd, 4096) if number in self._old]
        except BlockingIOError:
            return []
