"""The hub: the init of a PID namespace that holds the whole cluster, so its end ends everything.

    command            the hub (setsid; own network)              an init per host
    start()  ------->  make(): bridge, hosts, cables   ------->   prepare(), start(), reap()
             lifeline  a byte: stay; end of file: remove all and end
             report    a line of JSON: an error, or the hosts

The command holds one end of the lifeline. Until it says "stay", its end, even by SIGKILL, is the
end of the cluster; `run` never says it.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import traceback
from typing import Any, Dict, List, NoReturn, Tuple

from lab import delay, hosts, linux, network
from lab.refusal import Refused
from lab.spec import Spec

NAMESPACES = ("net", "mnt", "uts", "ipc", "pid")
_STAY = b"s"


class Lifeline:
    """The command's end of the cluster it has made."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def stay(self) -> None:
        """The cluster outlives this process."""
        os.write(self._descriptor, _STAY)
        self.close()

    def close(self) -> None:
        os.close(self._descriptor)


def start(spec: Spec) -> Tuple[Lifeline, Dict[str, Any]]:
    """Makes the cluster. Returns what cluster.json holds."""
    life_read, life_write = os.pipe()
    report_read, report_write = os.pipe()
    opener = os.fork()
    if opener == 0:
        _in_child(report_write, _open, spec, life_read, report_write)
    os.close(life_read)
    os.close(report_write)
    with open(report_read, encoding="utf-8") as report:
        try:
            os.waitpid(opener, 0)
            said = json.loads(report.readline() or "{}")
        except BaseException:
            os.close(life_write)
            report.read()  # Until everything has ended.
            raise
        if "hosts" not in said:
            os.close(life_write)
            report.read()
            raise Refused(said.get("error", "the hub ended without a reason"),
                          said.get("status", 1))
    return Lifeline(life_write), said


def _say(report: int, line: Dict[str, Any]) -> None:
    os.write(report, (json.dumps(line) + "\n").encode())


def _in_child(report: int, function: Any, *arguments: Any) -> NoReturn:
    """The rest of a forked process: none of its parent's code goes on in it."""
    status = 1
    try:
        function(*arguments)
        status = 0
    except Refused as error:
        _say(report, {"error": str(error), "status": error.status})
    except OSError as error:
        text = f"{error.strerror}: {error.filename}" if error.filename else str(error.args[-1])
        _say(report, {"error": text})
    except BaseException:  # A fault of the code: the process ends here, and shows it.
        _say(report, {"error": traceback.format_exc()})
    finally:
        os._exit(status)


def _detach(kept: List[int]) -> None:
    """From the terminal, the signals and the files of the command."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            with contextlib.suppress(OSError):  # That of the listing.
                os.close(int(name))
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.chdir("/")
    os.umask(0o077)


def _open(spec: Spec, life: int, report: int) -> None:
    """Makes the namespaces, and in them the hub; a PID namespace begins with a child."""
    _detach([life, report])
    if spec.in_user_namespace:
        linux.own_identity(spec.uid, spec.gid, 0, 0)
    linux.unshare(NAMESPACES)
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    if os.fork() == 0:
        _in_child(report, _hub, spec, life, report)


def _hub(spec: Spec, life: int, report: int) -> None:
    linux.set_name("covey-hub")
    pid = int(os.readlink("/proc/self"))  # As the machine sees it.
    network.make_bridge(spec.mtu)
    hosts.write_files(spec)
    made = [_Host(spec, host, life, report) for host in spec.hosts]
    for index, host in enumerate(made, 1):
        network.connect(index, host.pid_in_hub, spec.mtu, spec.delay > 0)
        if spec.rate:
            network.limit(f"cable{index}" if spec.delay else f"port{index}", spec.rate)
    if spec.loss:
        network.filter_packets(spec.loss, [])
    if spec.delay:
        relay = delay.Relay(len(made), spec.delay)
        if os.fork() == 0:
            linux.set_name("covey-delay")
            _in_child(report, relay.run)
    for host in made:
        host.go()
    state = {host.name: host.state() for host in made}
    hub = {"pid": pid, "started": linux.start_time(pid)}
    _say(report, {"hub": hub, "hosts": state})
    os.close(report)
    _stay_while(spec, life)


def _stay_while(spec: Spec, life: int) -> NoReturn:
    """Ends with the command at the other end of the lifeline, unless that says "stay"."""
    signal.signal(signal.SIGCHLD, lambda *_: hosts.reap_ended())
    hosts.reap_ended()
    if os.read(life, 1) != _STAY:
        _end(spec)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    hosts.reap()


def _end(spec: Spec) -> NoReturn:
    shutil.rmtree(spec.folder, ignore_errors=True)
    os._exit(1)  # The kernel ends whatever else is in this PID namespace.


class _Host:
    """The hub's side of a host that starts."""

    def __init__(self, spec: Spec, name: str, life: int, report: int) -> None:
        self.name = name
        self._spec = spec
        self._life = life
        mine, theirs = socket.socketpair()
        opener = os.fork()
        if opener == 0:
            mine.close()
            os.close(life)
            os.close(report)
            _in_child(theirs.fileno(), _open_host, spec, name, theirs)
        theirs.close()
        os.waitpid(opener, 0)
        self._socket = mine
        self._said = b""
        said = {**self._next(), **self._next()}
        self.pid_in_hub, self._pid = said["pid_in_hub"], said["pid"]

    def _next(self) -> Dict[str, Any]:
        """The host's next message. A command that has gone ends the hub."""
        while b"\n" not in self._said:
            if self._life in select.select([self._life, self._socket], [], [])[0]:
                _end(self._spec)
            more = self._socket.recv(65536)
            self._said += more or b'{"error": "it ended without a reason"}\n'
        line, _, self._said = self._said.partition(b"\n")
        said = json.loads(line)
        if "error" in said:
            raise Refused(f"host {self.name}: {said['error']}", said.get("status", 1))
        return said

    def go(self) -> None:
        """Its cable is there."""
        self._socket.send(b"g")

    def state(self) -> Dict[str, Any]:
        """When it is ready: its part of cluster.json."""
        self._next()
        index = self._spec.hosts.index(self.name) + 1
        return {"index": index, "address": network.address(index), "pid": self._pid,
                "started": linux.start_time(self._pid), "faults": {}}


def _open_host(spec: Spec, name: str, hub: socket.socket) -> None:
    linux.unshare(hosts.NAMESPACES)
    init = os.fork()
    if init == 0:
        _in_child(hub.fileno(), _host, spec, name, hub)
    _say(hub.fileno(), {"pid_in_hub": init})


def _host(spec: Spec, name: str, hub: socket.socket) -> None:
    pid = hosts.prepare(spec, name)
    _say(hub.fileno(), {"pid": pid})
    if hub.recv(1) == b"g":
        hosts.start(spec, name)
        _say(hub.fileno(), {"ready": True})
        hub.close()
        hosts.reap()
