"""The thread that answers for this process while its main thread is busy. Internal.

It does two things, once it has been started by the first ``init()``, until the process ends:

1. A peer that waits for this rank asks where it is; the answer is the line of the main thread.
2. When the launcher has died no other process ends this one, so it ends itself.

It also holds the handler of SIGUSR1, which prints what this rank is waiting for.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from types import FrameType
from typing import Optional

from covey import _native
from covey.state import state

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_PERIOD_S = 1.0
_GRACE_S = 5.0  # Between asking this process to end and ending it.


def where(frame: Optional[FrameType] = None) -> str:
    """The user's line: ``file:line in function``.

    Args:
        frame: the frame to start from; None means where the main thread is now.

    Returns:
        The innermost frame that is neither Covey's nor an installed package's nor Python's own,
        else the innermost one that is not Covey's, else "an unknown place".
    """
    if frame is None:
        main = threading.main_thread().ident
        frame = sys._current_frames().get(main if main is not None else -1)
    outside: Optional[FrameType] = None
    while frame is not None:
        file = os.path.abspath(frame.f_code.co_filename)
        if not file.startswith(_PACKAGE):
            outside = outside or frame
            if not file.startswith(_STANDARD) and not _is_installed(file):
                return _line(frame)
        frame = frame.f_back
    return "an unknown place" if outside is None else _line(outside)


def _is_installed(file: str) -> bool:
    return "site-packages" in file or "dist-packages" in file or "<frozen " in file


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


class _Launcher:
    """The process that started the ranks."""

    def __init__(self, process: int) -> None:
        self.process = process
        self._descriptor: Optional[int] = None
        try:
            self._descriptor = os.pidfd_open(process)
        except (AttributeError, OSError):
            pass  # An old kernel or a launcher that is gone already: asked by its number below.

    def is_gone(self) -> bool:
        """Whether it has ended. Never blocks."""
        if self._descriptor is not None:
            return bool(select.select([self._descriptor], [], [], 0)[0])
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # It lives, as another user.
        return False


def _find_launcher() -> Optional[_Launcher]:
    text = os.environ.get("COVEY_LAUNCHER_PID", "")
    return _Launcher(int(text)) if text.isdigit() and int(text) > 1 else None


def _end_process(launcher: _Launcher) -> None:
    rank = state.place.rank if state.place is not None else -1
    _print(f"covey: rank {rank}: the launcher (process {launcher.process}) is gone; ending\n")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    os._exit(1)


def _print(text: str) -> None:
    """Writes to stderr at once and as one piece, also when the process is about to end."""
    try:
        os.write(2, text.encode("utf-8", "replace"))
    except OSError:
        pass  # stderr is closed: there is no reader.


def _run() -> None:
    launcher = _find_launcher()
    while True:
        answer = _native.asked(_PERIOD_S)
        if answer > 0:
            _native.tell(where())
        elif answer < 0:
            time.sleep(_PERIOD_S)
        if launcher is not None and launcher.is_gone():
            _end_process(launcher)


def report(frame: Optional[FrameType] = None) -> str:
    """One block of text: rank, line of the main thread, and what this rank is waiting for."""
    place = state.place
    head = "covey" if place is None else f"covey: rank {place.rank} of {place.size}"
    waits = _native.status().strip() or "waits for nothing"
    body = "".join(f"  {line}\n" for line in waits.splitlines())
    return f"{head} (process {os.getpid()}) is at {where(frame)}\n{body}"


def _on_signal(number: int, frame: Optional[FrameType]) -> None:
    del number
    _print(report(frame))


_started_in = 0  # The process whose watchdog runs; a child of fork() has none.


def start() -> None:
    """Starts the watchdog and installs the SIGUSR1 handler. Again: a no-op.

    A handler that the program has installed for SIGUSR1 stays as it is.
    """
    global _started_in
    if _started_in == os.getpid():
        return
    _started_in = os.getpid()
    threading.Thread(target=_run, name="covey-watch", daemon=True).start()
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, _on_signal)
