"""Starts programs of Python that need not import torch or TensorFlow: forks of a process that has.

A job's start imports torch once (`coveyrun --preload`), which is more than the rest of a small job.
Here a process imports it once for all jobs of a test. A launcher is a fork of it, and so is the
process of which its ranks are forks: that one runs preloaded.py as it stands. The ranks are forks
of torch with nothing of Covey, as ever. preload_test.py and the tests of the launcher start real
processes, and so does every test with TEST_SLOW=1.

A fork that has ended is reaped by who asked for it: `Popen` is a subprocess.Popen in all but the
start. /proc shows the environment of the process that it is a fork of; its name there (comm) is
the beginning of MARK.

Run as a program this file is that process: `warm.py SOCKET MODULES`.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import fcntl
import gc
import importlib
import importlib.machinery
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import traceback
import types
from typing import Any, Dict, Iterator, List, NoReturn, Optional, Sequence

MARK = "LAUNCHER_TEST_MARK"
"""The variable by which a job's processes are found."""
NAME_LENGTH = 15
"""Of a process's name."""

_PRELOADED = os.path.join("covey", "launch", "preloaded.py")
_CHECK = ["-c", "import covey._native"]  # Of a launcher, before it starts anything.
_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36
_FREE_FD = 500  # Descriptors from here on are free.
_LIBC = ctypes.CDLL(None, use_errno=True)

_server: Optional[socket.socket] = None  # To the process that forks.
_modules: Sequence[str] = ()  # That it has imported,
_path = ""  # with this PYTHONPATH.


def import_once(modules: str, env: Dict[str, str]) -> None:
    """From now on subprocess makes forks of a process that has imported these, started now."""
    global _server, _modules, _path
    if os.environ.get("TEST_SLOW") == "1":
        return
    _adopt(True)
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno()), modules],
            env={**env, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
    _server, _modules, _path = mine, modules.split(","), env.get("PYTHONPATH", "")
    subprocess.Popen = Popen  # type: ignore[misc]

    def close() -> None:
        mine.close()
        process.wait()

    atexit.register(close)


@contextlib.contextmanager
def processes() -> Iterator[None]:
    """Within it subprocess starts processes of their own."""
    global _server
    kept, _server = _server, None
    try:
        yield
    finally:
        _server = kept


class Popen(subprocess.Popen):
    """A fork if there is what to fork and the command is one of this Python; else a process."""

    only_launching = False  # Only launchers, and what they start before their ranks.

    def _execute_child(self, *given: Any) -> None:
        """The base's, which has an argument for each option, and the six ends of three pipes."""
        args, _, preexec_fn, _, pass_fds, cwd, env, _, _, _, *rest = given
        if _server is None or not self._is_for_a_fork(args, env):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        pipes = rest[:6]
        to_input, _, _, output_end, _, errors_end = pipes
        streams = [to_input, output_end, errors_end]
        request = {
            "arguments": list(args)[1:],
            "environment": dict(os.environ if env is None else env),
            "folder": cwd,
            "dies": os.getpid() if preexec_fn else 0,  # As _die_with_parent has it.
            "numbers": [0, 1, 2, *pass_fds],
        }
        streams = [own if fd == -1 else fd for own, fd in enumerate(streams)]
        with _adopting():
            socket.send_fds(_server, [pickle.dumps(request)], [*streams, *pass_fds])
            answer = _server.recv(64)
        if not answer:
            raise AssertionError("what forks programs has ended")
        self.pid = int(answer)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _is_for_a_fork(self, command: Any, env: Optional[Dict[str, str]]) -> bool:
        args: List[str] = [command] if isinstance(command, str) else list(command)
        if args[0] != sys.executable or len(args) < 2:
            return False
        if _path not in (os.environ if env is None else env).get("PYTHONPATH", ""):
            return False
        if self.only_launching:
            preloads = args[1].endswith(_PRELOADED) and set(args[3].split(",")) <= set(_modules)
            launches = args[1] == "-c" and "coveyrun_main" in args[2]
            return preloads or launches or args[1:] == _CHECK
        return args[1] == "-c" or args[1].endswith(".py")


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """A launcher has its forks for children, and no others for longer."""
    _adopt(True)
    try:
        yield
    finally:
        if Popen.only_launching:
            _adopt(False)


def _adopt(orphans: bool) -> None:
    """From now on a process whose parent ends is a child of this one, if it descends from it."""
    if _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


# ---- The process --------------------------------------------------------------------------------


def _serve(control: socket.socket) -> None:
    """Until who asks has ended. Returns in no fork."""
    gc.collect()
    gc.freeze()  # Else each fork would look at all of it, and so copy it.
    while True:
        message, passed, _, _ = socket.recv_fds(control, 1 << 20, 64)
        if not message:
            return
        if _fork():
            request = pickle.loads(message)
            control.send(str(os.getpid()).encode())
            control.close()
            _become(request, passed)
        for descriptor in passed:
            os.close(descriptor)


def _fork() -> bool:
    """True in a process whose parent has ended."""
    gone, go = os.pipe()
    between = os.fork()
    if between == 0:
        if os.fork() != 0:
            os._exit(0)
        os.close(go)
        os.read(gone, 1)  # Until the parent is known to have ended.
        os.close(gone)
        return True
    os.waitpid(between, 0)
    os.close(go)
    os.close(gone)
    return False


def _become(request: Dict[str, Any], passed: List[int]) -> NoReturn:
    """Runs the program, in a session of its own."""
    os.setsid()
    if request["dies"]:
        _die_with(request["dies"])
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FREE_FD) for descriptor in passed]
    os.closerange(3, _FREE_FD)
    for descriptor, number in zip(high, request["numbers"]):
        os.dup2(descriptor, number, inheritable=True)
        os.close(descriptor)
    env = request["environment"]
    _LIBC.prctl(_PR_SET_NAME, env.get(MARK, "")[:NAME_LENGTH].encode())
    os.environ.clear()
    os.environ.update(env)
    _search_too(env["PYTHONPATH"].split(os.pathsep))
    if request["folder"] is not None:
        os.chdir(request["folder"])
    sys.stdout.reconfigure(line_buffering=False)  # type: ignore[union-attr]
    if not request["arguments"][0].endswith(_PRELOADED):
        _serve_launcher()
    _end(_code_of(lambda: _run(request["arguments"])))


def _search_too(folders: Sequence[str]) -> None:
    """Adds the folders of PYTHONPATH that are new. --as-horovod puts one first, and --method one
    last, in which torch looks for entry points."""
    known = [folder for folder in _path.split(os.pathsep) if folder]
    before = folders.index(known[0])
    first, last = folders[:before], folders[before + len(known) :]
    last = [folder for folder in last if folder and folder not in sys.path]
    at = sys.path.index(known[-1]) + 1
    sys.path[1:at] = [*first, *sys.path[1:at], *last]
    if last and "torch" in sys.modules:
        sys.modules["torch"]._import_device_backends()  # As at the end of its import.


def _die_with(parent: int) -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # It died before the line above.
        os.kill(os.getpid(), signal.SIGKILL)


def _serve_launcher() -> None:
    """Gives this launcher a server of its own: a fork of it, made before the launcher does
    anything, of which its ranks are forks."""
    global _server
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    if os.fork() == 0:
        _die_with(parent)
        mine.close()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        _LIBC.prctl(_PR_SET_NAME, b"warm")
        os.setsid()
        _serve(theirs)
        os._exit(0)
    theirs.close()
    _server = mine
    Popen.only_launching = True
    subprocess.Popen = Popen  # type: ignore[misc]


def _run(arguments: Sequence[str]) -> None:
    """As Python runs `-c CODE ARGUMENTS` or `SCRIPT ARGUMENTS`."""
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    if arguments[0] == "-c":
        source, file, sys.path[0], sys.argv = arguments[1], "<string>", "", ["-c", *arguments[2:]]
    else:
        file = os.path.abspath(arguments[0])
        loader = importlib.machinery.SourceFileLoader("__main__", file)
        module.__dict__.update(__file__=file, __cached__=None, __loader__=loader)
        source = loader.get_source("__main__") or ""
        sys.path[0], sys.argv = os.path.dirname(os.path.realpath(file)), list(arguments)
    sys.modules["__main__"] = module
    exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)


def _code_of(work: Any) -> int:
    """The code with which Python ends a program that does `work`, and says why."""
    try:
        work()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:  # pylint: disable=broad-except
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _end(code: int) -> NoReturn:
    """Ends the process as Python does, but for the memory of its objects."""
    threading._shutdown()  # type: ignore[attr-defined]  # Waits for threads.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


if __name__ == "__main__":
    _modules, _path = sys.argv[2].split(","), os.environ.get("PYTHONPATH", "")
    try:
        for _name in _modules:
            importlib.import_module(_name)
    except ImportError:
        traceback.print_exc()
        sys.exit(1)
    _serve(socket.socket(fileno=int(sys.argv[1])))
