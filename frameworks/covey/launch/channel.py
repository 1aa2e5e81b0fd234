"""The way to one host of a job: ssh, or the agent itself on this machine, and what comes of it.

Internal.
"""

from __future__ import annotations

import collections
import contextlib
import math
import os
import re
import shlex
import subprocess
import sys
import time
from typing import Any, Deque, Dict, Mapping, Sequence

from covey.errors import shown
from covey.launch.endings import GIVE_UP_S
from covey.launch.hosts import is_here
from covey.launch.output import LineCutter
from covey.launch.pulse import Pulse
from covey.launch.spec import Host, HostPlan, LaunchError
from covey.launch.wire import Wire

_AGENT = ("-m", "covey.launch.agent")
# By these a Python finds itself and its packages. Others go to the agent through the wire.
_OF_PYTHON = ("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")
_CONNECT_S = 10
_TAIL_LINES = 20
_SSH_FAILED = 255
_NOT_FOUND = 127
_END_S = 2.0
_ROOM_S = 0.01  # so long it is waited for room in a pipe

_HINTS = (
    (r"Could not resolve hostname", "is the name right? ssh knows DNS, /etc/hosts, ~/.ssh/config"),
    (
        r"Permission denied|authentication failures",
        "`ssh {name} true` has to work without a password: ssh-copy-id {name} gives it your key",
    ),
    (r"Host key verification failed", "say `ssh {name}` once by hand and check the host's key"),
    (r"Connection refused", "does sshd run there? --ssh-port N is for another port"),
    (r"timed out|No route to host|unreachable", "is it up, and is the port of ssh open?"),
    (r"No module named '?covey", "install the same wheel of Covey there, for {python}"),
)


class Channel:
    """One host. Close it.

    Attributes:
        messages: that have come and are not taken yet.
        hello: what the host has told of itself; set by who takes the message.
        has_ended: nothing more comes; `why` says of what.
    """

    def __init__(self, host: Host, plan: HostPlan, environ: Mapping[str, str]) -> None:
        """Starts ssh, and waits for nothing. Raises LaunchError."""
        self.host, self._plan = host, plan
        self.messages: Deque[Dict[str, Any]] = collections.deque()
        self.hello: Dict[str, Any] = {}
        self.has_ended = False
        self._tail: Deque[str] = collections.deque(maxlen=_TAIL_LINES)
        self._cutter = LineCutter()
        self._is_here = is_here(host.name)
        command, own = list(self._command(environ)), dict(environ)
        if self._is_here:
            own.pop("SSH_CONNECTION", None)  # Of the login to this machine.
        try:
            # It does not die with coveyrun at once: the end of its input tells the agent.
            self._process = subprocess.Popen(
                command,
                env=own,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise LaunchError(f"cannot start {command[0]}: {error.strerror}") from error
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self.wire = Wire(self._process.stdout.fileno(), self._process.stdin.fileno())
        self._stderr_fd = self._process.stderr.fileno()
        os.set_blocking(self._stderr_fd, False)
        self.pulse = Pulse(self.wire, plan.lease_s, time.monotonic())

    @property
    def name(self) -> str:
        """The name of the host, for people."""
        return self.host.name

    def deadline(self, now: float) -> float:
        """When to call `pump`, even if there is nothing to read."""
        return now + _ROOM_S if self.wire.pending_bytes else self.pulse.deadline()

    def _command(self, environ: Mapping[str, str]) -> Sequence[str]:
        if self._is_here:
            return [sys.executable, *_AGENT]
        agent = [self._plan.python, *_AGENT]
        said = [f"{name}={environ[name]}" for name in _OF_PYTHON if environ.get(name)]
        every_s = max(1, math.ceil(self._plan.lease_s / 3))
        # ssh takes the first of two equal options: the user's.
        options = (
            "BatchMode=yes",
            f"ConnectTimeout={_CONNECT_S}",
            f"ServerAliveInterval={every_s}",
            "ServerAliveCountMax=3",
        )
        flags = [word for option in options for word in ("-o", option)]
        remote = shlex.join(["env", *said, *agent] if said else agent)
        return [*self._plan.ssh, "-T", *flags, self.host.name, remote]

    def pump(self, now: float) -> None:
        """Takes what has come, and sends what has to be sent."""
        self._read_stderr(now)
        if self.has_ended:
            return
        came = self.wire.receive()
        if came:
            self.pulse.heard(now)
        self.messages.extend(message for message in came if message["covey"] != "alive")
        self.pulse.beat(now)
        self.wire.flush()
        if self.wire.at_end:
            self._await_exit(now)
            self.has_ended = True

    def _read_stderr(self, now: float) -> None:
        while True:
            try:
                data = os.read(self._stderr_fd, 1 << 16)
            except (BlockingIOError, OSError):
                return
            lines = self._cutter.feed(data, now) if data else self._cutter.flush()
            self._tail.extend(shown(line.decode("utf-8", "replace")) for line in lines)
            if not data:
                return

    def _await_exit(self, now: float) -> None:
        """ssh exits at once when the agent has; its last words say why."""
        self.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._read_stderr(now)

    # ---- In words ----------------------------------------------------------------------------

    def why_not_started(self) -> str:
        """The sentence on a host whose agent ended before the ranks were started."""
        code, words = self._process.poll(), self._last_words()
        hint = next((text for pattern, text in _HINTS if re.search(pattern, words)), "")
        place = {"name": self.name, "python": self._plan.python}
        hint = f"; {hint.format(**place)}" if hint else ""
        if self.wire.fault:
            return f"{self.name}: it has sent {self.wire.fault}"
        if code == _NOT_FOUND:
            missing = f"{self.name}: there is no {self._plan.python}"
            return f"{missing}; --remote-python PATH says another"
        if code == _SSH_FAILED and not self._is_here:
            return f"{self.name}: {words or 'ssh failed and says nothing'}{hint}"
        noise = f", after the output {ascii(self.wire.noise[-1])}" if self.wire.noise else ""
        return f"{self.name}: the agent ended with {_how(code)}: {words or 'no word'}{noise}{hint}"

    def why_lost(self) -> str:
        """The same of one that has been lost since, without the name."""
        code, words = self._process.poll(), self._last_words()
        what = "its agent" if self._is_here else "ssh"
        if self.wire.fault:
            return f"it has sent {self.wire.fault}"
        return f"{what} ended with {_how(code)}" + (f" ({words})" if words else "")

    def _last_words(self) -> str:
        lines = [line.strip() for line in self._tail if line.strip()]
        return lines[-1] if lines else ""

    def close(self) -> None:
        """The agent ends, and with it all ranks of the host. May be called again."""
        self.wire.stop_sending()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def abandon(self) -> None:
        """As `close`, of a host that counts as lost: its ranks end when it goes on."""
        self.close()
        self.has_ended = True

    def await_end(self, until: float) -> None:
        """After `close`: until the agent has ended, which is killed when it takes longer."""
        while self._process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(OSError):
                if not os.read(self.wire.read_fd, 1 << 16):
                    break
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.01)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, until - time.monotonic()))
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def end_all(channels: Sequence[Channel]) -> None:
    """Ends the agents of all channels; those that have not ended in GIVE_UP_S are killed."""
    for channel in channels:
        channel.close()
    until = time.monotonic() + GIVE_UP_S
    for channel in channels:
        channel.await_end(until)


def _how(code: Any) -> str:
    if code is None:
        return "no exit yet"
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
