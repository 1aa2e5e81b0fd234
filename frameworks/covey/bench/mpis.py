"""The MPI libraries to measure beside Covey: where they are, and how their processes are started.

MPI connects processes that its own mpiexec has started. So a contest with one is a job whose ranks
mpiexec starts and which find Covey's shared memory through this process: both libraries then work
in the same processes, and take turns there. A process can hold one MPI, so each has its own job.

Open MPI is Debian's. `tools/setup --with bench-peers` puts the others, which are wheels of PyPI
with an mpiexec each, into folders of their own below the environment. oneCCL is no MPI, but goes
over Intel's and so is started by it, in a job of its own too.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import shutil
import signal
import subprocess
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple, Union

from covey import _native
from covey.bench import oneccl
from covey.launch.environment import THREAD_VARIABLES, threads_per_rank
from covey.launch.spec import LaunchError

NAMES = ("openmpi", "mpich", "intelmpi", "oneccl")
_HOW = "tools/setup --with bench-peers"
_RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")
_END_S = 5.0


class Mpi(NamedTuple):
    """A library that is there.

    Attributes:
        name: of NAMES.
        launcher: its mpiexec and options, up to the number of processes.
        env: further variables of its processes.
    """

    name: str
    launcher: Tuple[str, ...]
    env: Dict[str, str]


def _open_mpi() -> Union[Mpi, str]:
    mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    if mpirun is None:
        return f"there is no mpirun ({_HOW})"
    # It takes where it lies for its prefix: /bin, a link to /usr/bin, would be the prefix "/".
    mpirun = os.path.join(os.path.realpath(os.path.dirname(mpirun)), os.path.basename(mpirun))
    done = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False)
    if not any(name in done.stdout for name in ("Open MPI", "OpenRTE", "PRRTE")):
        return f"{mpirun} is not Open MPI's ({_HOW})"
    env = {"MPI4PY_MPIABI": "openmpi"}
    if os.getuid() == 0:
        env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return Mpi("openmpi", (mpirun, "--oversubscribe", "-np"), env)


def _of_wheel(name: str) -> Union[Mpi, str]:
    folder = os.path.join(sys.prefix, "share", "covey-peers", name)
    mpiexec = os.path.join(folder, "bin", "mpiexec")
    if not os.access(mpiexec, os.X_OK):
        return f"there is no {mpiexec} ({_HOW})"
    path = [os.path.join(folder, "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    env = {"MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": os.pathsep.join(path)}
    return Mpi(name, (mpiexec, "-n"), env)


def _oneccl() -> Union[Mpi, str]:
    if oneccl.find() is None:
        return f"there is no {oneccl.FILE_NAME} ({_HOW}, or covey build oneccl)"
    below = _of_wheel("intelmpi")
    if isinstance(below, str):
        return f"it goes over Intel MPI: {below}"
    return Mpi("oneccl", below.launcher, {**below.env, **oneccl.ENVIRONMENT})


def find(name: str) -> Union[Mpi, str]:
    """The library, or in words why it cannot be measured."""
    if importlib.util.find_spec("mpi4py") is None:
        return f"there is no mpi4py ({_HOW})"
    if name == "oneccl":
        return _oneccl()
    return _open_mpi() if name == "openmpi" else _of_wheel(name)


# ---- A job under mpiexec -------------------------------------------------------------------------


def run(mpi: Mpi, size: int, folder: str, function: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Calls `function(*args)`, of a module, on every rank; returns the result of rank 0.

    `folder` is empty and private. Raises LaunchError when the job fails; its output has told why.
    """
    with open(os.path.join(folder, "call"), "wb") as file:
        pickle.dump((function, tuple(args)), file)
    memory = _native.job_create(size)
    try:
        env = {**os.environ, **mpi.env, "COVEY_SIZE": str(size), "COVEY_SHM_FD": str(memory)}
        env["COVEY_LAUNCHER_PID"] = str(os.getpid())
        env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        for name in THREAD_VARIABLES:
            env.setdefault(name, str(threads_per_rank(size)))
        command = [*mpi.launcher, str(size), sys.executable, "-m", __name__, folder]
        _run_group(command, env)
    finally:
        os.close(memory)
    with open(os.path.join(folder, "result"), "rb") as file:
        return pickle.load(file)


def _run_group(command: List[str], env: Dict[str, str]) -> None:
    """Runs the command to its end; whatever happens, nothing it started stays."""
    with subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            code = process.wait()
        finally:
            if process.poll() is None:
                process.terminate()  # mpiexec then ends its processes
                try:
                    process.wait(_END_S)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
    if code != 0:
        raise LaunchError(f"{command[0]} ended with code {code}")


def _rank_main(folder: str) -> None:
    rank = next(os.environ[name] for name in _RANK_VARIABLES if name in os.environ)
    os.environ["COVEY_RANK"] = rank
    # mpiexec passes no descriptors on, and may have used their numbers.
    memory = f"/proc/{os.environ['COVEY_LAUNCHER_PID']}/fd/{os.environ['COVEY_SHM_FD']}"
    os.environ["COVEY_SHM_FD"] = str(os.open(memory, os.O_RDWR | os.O_CLOEXEC))
    with open(os.path.join(folder, "call"), "rb") as file:
        function, args = pickle.load(file)
    result = function(*args)
    if rank == "0":
        with open(os.path.join(folder, "result"), "wb") as file:
            pickle.dump(result, file)


if __name__ == "__main__":
    _rank_main(sys.argv[1])
