"""A command in a host: in its namespaces, with the caller's folder, environment and files."""

from __future__ import annotations

import os
import selectors
import signal
import sys
from typing import Dict, List, NoReturn, Optional, Tuple

from lab import hosts, linux
from lab.hub import Lifeline
from lab.state import Cluster

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1,
              signal.SIGUSR2, signal.SIGALRM)
_NOT_FOUND, _CANNOT_RUN = 127, 126


def variables(cluster: Cluster) -> Dict[str, str]:
    """The environment of a command, besides the caller's."""
    return {"LAB_CLUSTER": cluster.name, "LAB_CLUSTER_HOSTS": ",".join(cluster.hosts)}


def _namespaces(cluster: Cluster, name: str) -> List[linux.Namespaces]:
    """In the order of entering: of the cluster as its root, of the host, of its user."""
    host = cluster.live_host(name)
    found = [linux.Namespaces(host["pid"], hosts.NAMESPACES)]
    if cluster.data["in_user_namespace"]:
        found.insert(0, linux.Namespaces(cluster.hub, ["user"]))
        found.append(linux.Namespaces(host["pid"], ["user"]))
    return found


def start(cluster: Cluster, name: str, command: List[str],
          lifeline: Optional[Lifeline] = None) -> int:
    """Returns the process ID of a child that ends with the status of the command.

    The child gives up the lifeline: a cluster ends with the process that has made it.
    """
    namespaces = _namespaces(cluster, name)
    folder, caller = os.getcwd(), os.getpid()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = _CANNOT_RUN
        try:
            if lifeline is not None:
                lifeline.close()
            linux.die_with_parent()
            if os.getppid() == caller:
                status = _inside(cluster, name, namespaces, folder, command)
        except OSError as error:
            print(f"cluster: host {name} cannot be entered: {error}", file=sys.stderr)
        finally:
            sys.stderr.flush()
            os._exit(status)
    for group in namespaces:
        group.close()
    return child


def _inside(cluster: Cluster, name: str, namespaces: List[linux.Namespaces], folder: str,
            command: List[str]) -> int:
    *outer, user = namespaces if cluster.data["in_user_namespace"] else [*namespaces, None]
    for group in outer:
        group.enter()
    # A PID namespace takes in children only.
    signal.pthread_sigmask(signal.SIG_BLOCK, [*_FORWARDED, signal.SIGCHLD])
    child = os.fork()
    if child == 0:
        try:
            if user is not None:
                user.enter()
            linux.die_with_parent()
            _become(name, folder, command, {**os.environ, **variables(cluster)})
        finally:
            os._exit(_CANNOT_RUN)
    return wait([child])[child]


def _become(name: str, folder: str, command: List[str], environment: Dict[str, str]) -> NoReturn:
    status = _CANNOT_RUN
    try:
        os.chdir(folder)
    except OSError as error:
        print(f"cluster: host {name} has no folder {folder}: {error.strerror}", file=sys.stderr)
        os._exit(status)
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execvpe(command[0], command, environment)
    except FileNotFoundError:
        print(f"cluster: host {name} has no program {command[0]}", file=sys.stderr)
        status = _NOT_FOUND
    except OSError as error:
        print(f"cluster: {command[0]}: {error.strerror}", file=sys.stderr)
    os._exit(status)


def wait(children: List[int]) -> Dict[int, int]:
    """The status of each, as a shell counts it. Signals to this process are passed on.

    Those of the terminal reach a child anyway: it is in the same process group.
    """
    kinds = [*_FORWARDED, signal.SIGCHLD]
    signal.pthread_sigmask(signal.SIG_BLOCK, kinds)
    ended: Dict[int, int] = {}
    while True:
        for child in set(children) - set(ended):
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid != 0:
                code = os.waitstatus_to_exitcode(status)
                ended[child] = code if code >= 0 else 128 - code
        if len(ended) == len(children):
            return ended
        got = signal.sigwaitinfo(kinds)
        if got.si_signo != signal.SIGCHLD and got.si_code <= 0:
            for child in set(children) - set(ended):
                os.kill(child, got.si_signo)


def in_all(cluster: Cluster, command: List[str]) -> int:
    """On every host at once, each line of output after its host. The first status that is not 0."""
    for name in cluster.hosts:
        cluster.live_host(name)
    children: List[int] = []
    pipes: List[Tuple[int, int, str]] = []
    for name in cluster.hosts:
        ends = [os.pipe(), os.pipe()]
        pipes += [(read, target, name) for target, (read, _) in enumerate(ends, 1)]
        children.append(_start_piped(cluster, name, command, [write for _, write in ends]))
        for _, write in ends:
            os.close(write)
    printer = os.fork()
    if printer == 0:
        try:
            _print_lines(pipes)
        finally:
            os._exit(0)
    statuses = wait(children)
    os.waitpid(printer, 0)
    return next((statuses[child] for child in children if statuses[child] != 0), 0)


def _start_piped(cluster: Cluster, name: str, command: List[str], ends: List[int]) -> int:
    """As start(), with nothing to read, and `ends` for its output and its errors."""
    saved = [os.dup(target) for target in range(3)]
    null = os.open(os.devnull, os.O_RDONLY)
    for target, descriptor in enumerate([null, *ends]):
        os.dup2(descriptor, target)
    try:
        return start(cluster, name, command)
    finally:
        for target, descriptor in enumerate(saved):
            os.dup2(descriptor, target)
            os.close(descriptor)
        os.close(null)


def _print_lines(pipes: List[Tuple[int, int, str]]) -> None:
    """Until all commands have closed their output."""
    for number in _FORWARDED:
        signal.signal(number, signal.SIG_IGN)
    selector = selectors.DefaultSelector()
    for read, target, name in pipes:
        selector.register(read, selectors.EVENT_READ, (target, name, bytearray()))
    while selector.get_map():
        for key, _ in selector.select():
            target, name, text = key.data
            more = os.read(key.fd, 65536)
            text += more if more or not text else b"\n"  # Its last line may lack an end.
            *lines, rest = bytes(text).split(b"\n")
            text[:] = rest
            for line in lines:
                _write_all(target, f"[{name}] ".encode() + line + b"\n")
            if not more:
                selector.unregister(key.fd)


def _write_all(descriptor: int, text: bytes) -> None:
    while text:
        text = text[os.write(descriptor, text):]
