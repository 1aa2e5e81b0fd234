"""The process of which ranks are forks: `coveyrun --preload MODULES`. Internal.

    python [OPTIONS] preloaded.py SOCKET MODULES [-m | -c] TARGET [ARGUMENTS ...]

It imports MODULES once, and says on SOCKET that it has, or why not. Then a rank is started by each
message: a file with the rank's environment, its standard output and error, and a descriptor for
the variable that the message names, if it names one; the answer is the rank's process. A rank's
parent ends at once, so that the rank becomes a child of the launcher.

Of the standard library alone, and run by path: the ranks' Python may have no Covey.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import importlib
import importlib.machinery
import json
import os
import re
import runpy
import signal
import socket
import sys
import threading
import types
import warnings
from typing import Any, Dict, List, Sequence

_PR_SET_PDEATHSIG = 1


def _folder() -> str:
    """The working folder; "": it has been deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _limit_s() -> float:
    """How long the imports may take; 0: for ever."""
    found = re.fullmatch(r"(\d+\.?\d*)(s|ms|us|ns)", os.environ.get("COVEY_START_TIMEOUT", ""))
    units = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
    return float(found[1]) * units[found[2]] if found else 0.0


class _Command:
    """What a rank runs, as the arguments of a Python say it."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.kind = arguments[0] if arguments[0] in ("-m", "-c") else ""
        self.target, *rest = arguments[1:] if self.kind else arguments
        self.arguments = [self.kind or self.target, *rest]
        path = "" if self.kind else os.path.join(_folder(), self.target)
        self.file = os.path.normpath(path)  # As Python says it.

    def prepare(self) -> None:
        """sys.argv and sys.path are those of the command."""
        sys.argv = list(self.arguments)
        if getattr(sys.flags, "safe_path", sys.flags.isolated):
            return  # Not even the folder of this file is searched.
        if self.kind:
            sys.path[0] = _folder() if self.kind == "-m" else ""
        else:
            sys.path[0] = os.path.dirname(os.path.realpath(self.file))

    def main(self) -> Dict[str, Any]:
        """The names of a new main module."""
        module = types.ModuleType("__main__")
        module.__dict__["__builtins__"] = builtins
        if not self.kind:
            loader = importlib.machinery.SourceFileLoader("__main__", self.file)
            module.__dict__.update(__file__=self.file, __cached__=None, __loader__=loader)
        sys.modules["__main__"] = module
        return module.__dict__

    def code(self) -> types.CodeType:
        """That of a script or of -c."""
        if self.kind == "-c":
            return compile(self.target, "<string>", "exec", dont_inherit=True)
        with open(self.file, "rb") as file:
            return compile(file.read(), self.file, "exec", dont_inherit=True)


def _import(modules: Sequence[str]) -> str:
    """Why ranks cannot be forks of a process that has imported them; empty: they can."""
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException as error:  # pylint: disable=broad-except
            return f"cannot import {name}: {type(error).__name__}: {error}"
    threads = [thread.name for thread in threading.enumerate()]
    if len(threads) > 1:
        return f"a thread has been started ({threads[1]}), which a fork does not have"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "CUDA is in use, which a fork cannot go on with"
    return ""


def _fork() -> bool:
    """True in the rank, whose parent has ended: it is a child of the launcher."""
    gone, go = os.pipe()
    between = os.fork()
    if between == 0:
        try:
            if os.fork() != 0:
                os._exit(0)
        except OSError as error:
            os._exit(error.errno or 1)
        os.close(go)
        os.read(gone, 1)  # Until the parent is known to have ended.
        os.close(gone)
        return True
    failure = os.waitstatus_to_exitcode(os.waitpid(between, 0)[1])
    os.close(go)
    os.close(gone)
    if failure != 0:
        raise OSError(failure, os.strerror(failure))
    return False


def _serve(control: socket.socket) -> None:
    """Until the launcher has started all ranks. Returns in a rank."""
    launcher = os.getppid()
    gc.collect()
    gc.freeze()  # Else each rank would look at all of it, and so copy it.
    while True:
        message, passed, _, _ = socket.recv_fds(control, 64, 4)
        if not message:
            sys.exit(0)
        is_rank = False
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns of threads. Libraries that have some (OpenBLAS) begin them anew.
                warnings.simplefilter("ignore", DeprecationWarning)
                is_rank = _fork()
        except OSError as error:
            control.send(json.dumps(f"cannot fork: {error.strerror}").encode())
        if is_rank:
            name = message.decode().partition(" ")[2]
            return _become_a_rank(launcher, control, passed, name)
        for descriptor in passed:
            os.close(descriptor)


def _become_a_rank(launcher: int, control: socket.socket, passed: List[int], name: str) -> None:
    environment, output, errors, *own = passed
    os.setsid()
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), *[ctypes.c_ulong(0)] * 3)
    if os.getppid() != launcher:  # It died before the line above.
        os.kill(os.getpid(), signal.SIGKILL)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    control.send(json.dumps(os.getpid()).encode())
    control.close()
    os.close(output)
    os.close(errors)
    with open(environment, "rb") as file:
        file.seek(0)
        wanted = json.loads(file.read())
    for descriptor in own:
        os.set_inheritable(descriptor, True)  # As that of a rank which is no fork.
        wanted[name] = str(descriptor)
    os.environ.clear()
    os.environ.update(wanted)
    if not getattr(sys.flags, "unbuffered", 0):
        sys.stdout.reconfigure(line_buffering=False)  # type: ignore[union-attr]
    numbers = sys.modules.get("numpy.random")
    if numbers is not None:
        numbers.seed()  # As Python's random does by itself: ranks would draw the same numbers.


def _without_this_file(kind: Any, error: BaseException, trace: Any) -> None:
    """As Python shows what a script raises."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def _begin(arguments: Sequence[str]) -> _Command:
    """In each rank: returns what it runs."""
    control = socket.socket(fileno=int(arguments[0]))
    command = _Command(arguments[2:])
    command.prepare()
    signal.setitimer(signal.ITIMER_REAL, _limit_s())  # SIGALRM ends the process.
    why = _import(arguments[1].split(","))
    signal.setitimer(signal.ITIMER_REAL, 0)
    control.send(json.dumps(why).encode())
    if why:
        sys.exit(1)
    _serve(control)
    sys.excepthook = _without_this_file
    return command


if __name__ == "__main__":
    _command = _begin(sys.argv[1:])
    _names = _command.main()
    if _command.kind == "-m":
        runpy._run_module_as_main(_command.target)  # type: ignore[attr-defined]
    else:
        exec(_command.code(), _names)  # pylint: disable=exec-used
