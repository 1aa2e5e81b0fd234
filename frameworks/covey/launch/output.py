"""Output of the ranks: bytes from pipes become whole, prefixed lines on the launcher's own streams.

Threads: only the launcher's loop. Nothing here waits for a rank; pipes are non-blocking.
"""

from __future__ import annotations

import collections
import os
import select
import sys
from typing import BinaryIO, Callable, Deque, Dict, List, Optional, TextIO

from covey.launch.spec import LaunchError

# A line that has not ended after this long is shown as it stands: a progress bar, a prompt.
PARTIAL_LINE_S = 0.2
# Behind so many bytes at once it was a buffer that ended, or a full pipe: the rest comes when its
# writer has a processor.
BLOCK_BYTES = 4096
CUT_LINE_S = 5.0
MAX_PARTIAL_BYTES = 64 * 1024
READ_BYTES = 64 * 1024
# Reads of one stream before the others get their turn, so that one chatty rank starves no other.
READS_PER_TURN = 4
TAIL_LINES = 200
_COLOURS = (b"36", b"33", b"35", b"32", b"34", b"31")


class ConsoleGone(Exception):
    """The reader of the launcher's output (a pager, `head`) has closed it."""


class LineCutter:
    """Cuts a stream of bytes into lines. A carriage return restarts the line, as on a terminal."""

    def __init__(self) -> None:
        self._rest = b""
        self._since: Optional[float] = None
        self._patience = PARTIAL_LINE_S
        self._continued = False  # the beginning of this line has been handed out already

    def feed(self, data: bytes, now: float) -> List[bytes]:
        """The lines that `data` completes, without their line ends."""
        *ended, rest = (self._rest + data).split(b"\n")
        lines = []
        for piece in ended:
            line = piece.rstrip(b"\r").rpartition(b"\r")[2]
            if line or not self._continued:
                lines.append(line)
            self._continued = False
        self._rest = rest
        self._patience = CUT_LINE_S if len(data) >= BLOCK_BYTES else PARTIAL_LINE_S
        self._since = None if not rest else self._since if self._since and not ended else now
        if len(rest) > MAX_PARTIAL_BYTES:
            lines += self.flush()
        return lines

    def deadline(self) -> Optional[float]:
        """When the unfinished line has to be shown; None when there is none."""
        return None if self._since is None else self._since + self._patience

    def flush(self) -> List[bytes]:
        """The unfinished line as it stands: none or one."""
        line = self._rest.rstrip(b"\r").rpartition(b"\r")[2]
        self._rest, self._since = b"", None
        if not line:
            return []
        self._continued = True
        return [line]


class Console:
    """One stream of the launcher (stdout or stderr) that lines of all ranks are written to."""

    def __init__(
        self, stream: Optional[TextIO], warn: Callable[[str], None] = lambda text: None
    ) -> None:
        """None: the process has none, and nothing is written. `warn` is told once why the stream
        cannot take lines."""
        self._stream, self._warn = stream, warn
        self._has_warned = False
        self._fd = _descriptor_of(stream)
        terminal = self._fd is not None and os.isatty(self._fd)
        self._colour = terminal and "NO_COLOR" not in os.environ

    def prefix(self, rank: int) -> bytes:
        """`[rank] `, coloured on a terminal."""
        plain = b"[%d]" % rank
        if self._colour:
            plain = b"\x1b[%sm%s\x1b[0m" % (_COLOURS[rank % len(_COLOURS)], plain)
        return plain + b" "

    def write(self, lines: List[bytes], prefix: bytes = b"") -> None:
        """Writes at once. Raises ConsoleGone when the reader has gone; when the stream cannot
        take the lines for another reason (a full disk), they are lost and the job goes on."""
        if not lines or self._stream is None:
            return
        data = b"".join(prefix + line + b"\n" for line in lines)
        try:
            self._stream.flush()
            if self._fd is None:  # a notebook's stream
                self._stream.write(data.decode("utf-8", "replace"))
                self._stream.flush()
            else:
                _write_all(self._fd, data)
        except (BrokenPipeError, ValueError) as error:
            raise ConsoleGone from error
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                self._warn(error.strerror or str(error))


def _descriptor_of(stream: Optional[TextIO]) -> Optional[int]:
    """The descriptor behind `stream`, or None when it has none."""
    try:
        return None if stream is None else stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None


def _write_all(fd: int, data: bytes) -> None:
    """Writes all of `data`, also where another process has made the terminal non-blocking."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            select.select([], [fd], [])


def discard_output() -> None:
    """After ConsoleGone: lets the interpreter flush its streams at exit without an error."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(null, stream.fileno())
        except (OSError, ValueError, AttributeError):
            pass
    os.close(null)


class TeeFile:
    """A rank's stream as a file. A full disk costs the file, never the job."""

    def __init__(self, path: str, warn: Callable[[str], None]) -> None:
        """Creates or truncates the file. Raises OSError."""
        self._path = path
        self._warn = warn
        self._file: Optional[BinaryIO] = open(path, "wb", buffering=0)

    def write(self, data: bytes) -> None:
        """Writes at once; on an error warns once and stops writing."""
        if self._file is None:
            return
        try:
            self._file.write(data)
        except OSError as error:
            self._warn(f"{self._path} ends here: {error.strerror}")
            self.close()

    def close(self) -> None:
        """May be called again."""
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._warn(f"{self._path}: {error.strerror}")
            self._file = None


def open_tees(folder: Optional[str], rank: int, warn: Callable[[str], None]) -> Dict[str, TeeFile]:
    """The rank's files below `folder`, by the name of the stream; none without a folder."""
    if folder is None:
        return {}
    own = os.path.join(folder, f"rank.{rank}")
    try:
        os.makedirs(own, exist_ok=True)
        return {name: TeeFile(os.path.join(own, name), warn) for name in ("stdout", "stderr")}
    except OSError as error:
        raise LaunchError(f"cannot write {own}: {error.strerror}") from error


class RankStream:
    """stdout or stderr of one rank, from the pipe to the console, the file and the tail."""

    def __init__(
        self, rank: int, fd: Optional[int], console: Console, tee: Optional[TeeFile]
    ) -> None:
        """Borrows `fd`; it must be non-blocking. None: `take` is told what comes."""
        self.rank = rank
        self.fd = fd
        self.at_end = False
        self.tail: Deque[bytes] = collections.deque(maxlen=TAIL_LINES)
        self.last_data_at: Optional[float] = None
        self.traceback_at: Optional[float] = None
        self.held: Optional[List[bytes]] = None  # lines kept back since `hold`
        self._console = console
        self.tee = tee
        self._cutter = LineCutter()

    def pump(self, now: float, reads: int = READS_PER_TURN) -> None:
        """Reads what is there and passes it on."""
        for _ in range(0 if self.fd is None else reads):
            try:
                data = os.read(self.fd, READ_BYTES)  # type: ignore[arg-type]
            except BlockingIOError:
                return
            if not data:
                self.at_end = True
                self._emit(self._cutter.flush(), now)
                return
            self.take(data, now)

    def take(self, data: bytes, now: float) -> None:
        """Passes on a piece of the stream."""
        self.last_data_at = now
        if self.tee is not None:
            self.tee.write(data)
        self._emit(self._cutter.feed(data, now), now)

    def deadline(self) -> Optional[float]:
        """When `flush_if_due` has something to do."""
        return self._cutter.deadline()

    def flush_if_due(self, now: float, force: bool = False) -> None:
        """Shows an unfinished line whose time has come (or, by force, in any case)."""
        deadline = self._cutter.deadline()
        if deadline is not None and (force or now >= deadline):
            self._emit(self._cutter.flush(), now)

    def hold(self) -> None:
        """From now on keeps lines in `held` instead of showing them."""
        if self.held is None:
            self.held = []

    def close(self) -> None:
        """Closes the file beside the stream; the pipe belongs to the process."""
        if self.tee is not None:
            self.tee.close()

    def _emit(self, lines: List[bytes], now: float) -> None:
        for line in lines:
            self.tail.append(line)
            if line.startswith(b"Traceback (most recent call last)"):
                self.traceback_at = now
        if self.held is not None:
            self.held += lines[: max(0, TAIL_LINES - len(self.held))]
            return
        self._console.write(lines, self._console.prefix(self.rank))
