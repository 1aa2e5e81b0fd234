"""Messages between coveyrun and its agent on a host: one JSON object a line, each way.

A line is UTF-8, and a text in it may stand for any bytes: those that are no UTF-8 travel as they
are (surrogateescape). Nothing here waits. One thread receives, any may send. Internal.
"""

from __future__ import annotations

import json
import os
import threading
from typing import Any, Dict, List

PROTOCOL = 4
"""Number of what the messages say; both sides have the same one."""

_READ_BYTES = 1 << 18
_MOST_BYTES = 1 << 26  # Of one message: an environment, a book of all ranks.
_MOST_NOISE = 20


class Wire:
    """Both directions. The descriptors stay the caller's, and become non-blocking.

    Attributes:
        at_end: nothing more comes, or can be sent.
        fault: why, when the other side has sent what is no message; else empty.
        noise: the last lines that came before the first message, as of a shell's start-up file.
        pending_bytes: what could not be sent yet; `flush` tries again.
    """

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd, self.write_fd = read_fd, write_fd
        self.at_end = False
        self.fault = ""
        self.noise: List[str] = []
        self._came = b""
        self._begun = False
        self._unsent = bytearray()
        self._sending = threading.Lock()  # _unsent and the order of what is written
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)

    @property
    def pending_bytes(self) -> int:
        """See above."""
        return len(self._unsent)

    def send(self, kind: str, **fields: Any) -> None:
        """Sends a message, or keeps what there is no room for. Nothing happens at the end."""
        line = json.dumps({"covey": kind, **fields}, ensure_ascii=False)
        with self._sending:
            self._unsent += line.encode("utf-8", "surrogateescape") + b"\n"
            self._flush()

    def send_if_idle(self, kind: str) -> None:
        """The same, but only if nothing is pending: then the other side has enough to read."""
        with self._sending:
            if not self._unsent:
                self._unsent += json.dumps({"covey": kind}).encode() + b"\n"
                self._flush()

    def flush(self) -> None:
        """Sends what is pending, as far as there is room."""
        with self._sending:
            self._flush()

    def _flush(self) -> None:
        while self._unsent and not self.at_end:
            try:
                sent = os.write(self.write_fd, self._unsent[:_READ_BYTES])
            except BlockingIOError:
                return
            except OSError:
                self.at_end = True
                return
            del self._unsent[:sent]

    def stop_sending(self) -> None:
        """The descriptor may be closed now: nothing is written any more."""
        with self._sending:
            self.at_end = True

    def receive(self) -> List[Dict[str, Any]]:
        """The messages that have come since the last call; each has its kind under "covey"."""
        messages: List[Dict[str, Any]] = []
        while not self.fault:
            try:
                data = os.read(self.read_fd, _READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.at_end = True
                break
            messages += self._take(data)
            if len(data) < _READ_BYTES:
                break
        return messages

    def _take(self, data: bytes) -> List[Dict[str, Any]]:
        if b"\n" not in data:
            self._came += data
            if len(self._came) > _MOST_BYTES:
                self._fail(f"a message of more than {_MOST_BYTES} bytes")
            return []
        *lines, self._came = (self._came + data).split(b"\n")
        messages = []
        for line in lines:
            message = _message(line)
            if message is not None:
                self._begun = True
                messages.append(message)
            elif self._begun:
                self._fail(f"a line that is no message: {ascii(line[:80])[2:-1]}")
                break
            else:
                self.noise = [*self.noise, line.decode("utf-8", "replace")][-_MOST_NOISE:]
        return messages

    def _fail(self, text: str) -> None:
        self.fault, self.at_end = text, True


def _message(line: bytes) -> Any:
    try:
        message = json.loads(line.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("covey"), str):
        return None
    return message
