"""The user's program that lists the hosts a job may use, as horovodrun's --host-discovery-script.

It prints a line HOST or HOST:SLOTS for each, and is run again and again. Internal.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from typing import IO, Callable, List, Optional, Sequence

from covey.errors import shown
from covey.launch.hosts import parse_lines
from covey.launch.spec import Host, LaunchError

PERIOD_S = 1.0
_LIMIT_S = 30.0
_POLL_S = 0.02  # While it runs; mostly for milliseconds.
_MOST_CHARACTERS = 1000
_PATIENCE_S = 3.0
# Standard input is a pipe that coveyrun alone holds open. When that is gone, however it has ended,
# the group is killed: the program, and what it has started.
_GUARDED = """exec 3<&0 </dev/null
{{ read -r line <&3; kill -KILL 0; }} >/dev/null 2>&1 &
exec 3<&-
{}"""


class Discovery:
    """Runs it. Close it.

    Attributes:
        program: a command of the shell.
    """

    def __init__(
        self, program: str, slots: int, last: Sequence[Host], say: Callable[[str], None]
    ) -> None:
        """`slots`: of a host for which it prints no number; `last`: those it has listed before."""
        self.program = program
        self._slots, self._say = slots, say
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._outputs: List[IO[bytes]] = []  # Its output and its errors.
        self._began = 0.0
        self._next = 0.0
        self._last: Sequence[Host] = last
        self._fault = ""

    def first(
        self,
        is_enough: Callable[[Sequence[Host]], bool],
        limit_s: float,
        pause: Callable[[float], None],
    ) -> List[Host]:
        """The hosts, as soon as they are enough. `pause` waits for so many seconds, or less.

        Raises:
            LaunchError: they were not within `limit_s`; or the program fails.
        """
        begun, last, is_told = time.monotonic(), "no host", False
        while True:
            now = time.monotonic()
            listed = self._advance(now)
            if self._fault:
                raise LaunchError(self._fault)
            if listed is not None and is_enough(listed):
                return listed
            if listed:
                last = ", ".join(f"{host.name}:{host.slots}" for host in listed)
            if now > begun + _PATIENCE_S and not is_told:
                is_told = True
                doing = "lists" if self._process is None else "runs, and has listed"
                self._say(
                    f"--host-discovery-script {self.program} {doing} {last}; waiting for -np slots "
                    f"until {limit_s:g} s have passed (--start-timeout)"
                )
            if now > begun + limit_s:
                raise LaunchError(
                    f"--host-discovery-script {self.program}: after {limit_s:g} s "
                    f"(--start-timeout) it lists {last}"
                )
            pause(max(0.0, self.deadline(now) - now))

    def news(self, now: float) -> Optional[List[Host]]:
        """The hosts, if they are others than before. Does not wait. A failure is said once, and
        changes nothing; no host at all is one, since the state of the training would be lost."""
        before = self._fault
        listed = self._advance(now)
        if listed is not None and not listed:
            self._fault = f"--host-discovery-script {self.program}: it lists no host"
        if self._fault and self._fault != before:
            self._say(f"{self._fault}; the hosts stay as they are")
        if not listed or listed == self._last:
            return None
        self._last = listed
        return listed

    def deadline(self, now: float) -> float:
        """When to ask for `news`."""
        return self._next if self._process is None else now + _POLL_S

    def _advance(self, now: float) -> Optional[List[Host]]:
        if self._process is None and now >= self._next:
            self._begin(now)
        if self._process is None or self._process.poll() is None:
            if self._process is not None and now > self._began + _LIMIT_S:
                self._end(now)
                self._fault = f"--host-discovery-script {self.program}: ended after {_LIMIT_S:g} s"
            return None
        code = self._process.returncode
        text, errors = self._end(now)
        try:
            if code:
                words = shown(errors.strip())[-_MOST_CHARACTERS:]
                raise LaunchError(f"exit code {code}{words and ': ' + words}")
            listed, self._fault = parse_lines(text.splitlines(), self._slots), ""
            return listed
        except LaunchError as error:
            self._fault = f"--host-discovery-script {self.program}: {error}"
            return None

    def _begin(self, now: float) -> None:
        self._outputs, self._began = [tempfile.TemporaryFile(), tempfile.TemporaryFile()], now
        self._process = subprocess.Popen(
            ["sh", "-c", _GUARDED.format(self.program)],
            stdin=subprocess.PIPE,
            stdout=self._outputs[0],
            stderr=self._outputs[1],
            start_new_session=True,
        )

    def _end(self, now: float) -> List[str]:
        """Ends the program if it runs. Returns its output and its errors."""
        assert self._process is not None
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        texts = []
        for output in self._outputs:
            output.seek(0)
            texts.append(output.read().decode("utf-8", "replace"))
            output.close()
        self._process, self._next = None, now + PERIOD_S
        return texts

    def close(self) -> None:
        """May be called again."""
        if self._process is not None:
            self._end(0.0)
