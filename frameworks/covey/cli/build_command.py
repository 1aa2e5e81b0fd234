"""`covey build`: makes a plug-in that needs a library of this machine, from sources of Covey.

The only one so far is mpi: one file of C over MPI's point-to-point calls (ops/transports/mpi).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from typing import Any, Tuple

from covey.launch.check import check_writable_folder
from covey.launch.spec import LaunchError

_HELP = "make a plug-in that needs a library of this machine"
_EPILOG = """examples:
  covey build mpi                             with the mpicc in PATH, into the installed package
  covey build mpi --mpicc /opt/mpi/bin/mpicc  for another MPI
  covey build mpi --out DIR                   then set COVEY_PLUGIN_PATH=DIR

With it `mpirun -np N python SCRIPT` and `srun -n N python SCRIPT` start a job. A plug-in is for one
MPI: build it again after changing to another.
"""
_FLAGS = ("-O2", "-fPIC", "-shared", "-fvisibility=hidden")
_SOURCE = "mpi_link.c"


def add_to(commands: Any) -> None:
    """Adds `build` to the subcommands of `covey`."""
    parser = commands.add_parser(
        "build", help=_HELP, description=f"{_HELP[0].upper()}{_HELP[1:]}.", epilog=_EPILOG
    )
    parser.add_argument("plugin", choices=["mpi"], metavar="PLUGIN", help="mpi")
    parser.add_argument("--out", metavar="DIR", help="where to put it (beside libcovey.so)")
    parser.add_argument("--mpicc", metavar="PATH", default="mpicc", help="MPI's compiler (mpicc)")
    parser.set_defaults(act=_act, parser=parser)


def _act(arguments: argparse.Namespace) -> int:
    begun = time.monotonic()
    try:
        compiler = _compiler(arguments.mpicc)
        folder, is_found = _folder(arguments.out)
        path = os.path.join(folder, "libcovey_mpi.so")
        print(f"covey build mpi: {compiler} makes {path}", flush=True)
        _compile(compiler, path)
        _check(folder)
    except LaunchError as error:
        sys.stderr.write(f"covey build mpi: {error}\n")
        return 2
    print(f"covey build mpi: done, and it loads ({time.monotonic() - begun:.1f} s)")
    if not is_found:
        print(f"covey build mpi: so that it is found: export COVEY_PLUGIN_PATH={folder}")
    print("covey build mpi: start a job with: mpirun -np N python SCRIPT")
    return 0


def _package() -> str:
    import covey

    return os.path.dirname(os.path.abspath(covey.__file__))


def _compiler(name: str) -> str:
    found = shutil.which(name)
    if found is not None:
        return found
    if name != "mpicc":
        raise LaunchError(f"there is no program {name}")
    raise LaunchError(
        "there is no mpicc in PATH: install an MPI with its headers (Debian, Ubuntu: apt-get "
        "install libopenmpi-dev openmpi-bin), or name its compiler with --mpicc PATH"
    )


def _folder(wanted: Any) -> Tuple[str, bool]:
    """Where to put it, and whether it is found there without being told."""
    listed = os.environ.get("COVEY_PLUGIN_PATH", "").split(":")
    if wanted is not None:
        folder = os.path.abspath(wanted)
        check_writable_folder("--out", folder)
        return folder, folder in listed
    package = _package()
    try:
        check_writable_folder("", package)
        return package, True
    except LaunchError:
        pass
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    folder = os.path.join(data, "covey", "plugins")
    try:
        check_writable_folder("", folder)
    except LaunchError:
        raise LaunchError(
            f"neither {package} nor {folder} can be written: name a folder with --out DIR"
        ) from None
    return folder, folder in listed


def _compile(compiler: str, path: str) -> None:
    """Compiles aside and moves it there: a job that starts meanwhile sees a whole file."""
    sources = os.path.join(_package(), "plugins")
    part = f"{path}.{os.getpid()}"
    source = os.path.join(sources, _SOURCE)
    command = [compiler, *_FLAGS, f"-I{sources}", source, "-o", part]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode != 0:
            sys.stderr.write(done.stdout)
            raise LaunchError(f"{' '.join(command)} ended with code {done.returncode}")
        os.replace(part, path)
    except OSError as error:
        raise LaunchError(f"{compiler} does not run: {error.strerror}") from error
    finally:
        if os.path.exists(part):
            os.unlink(part)


def _check(folder: str) -> None:
    """Raises when the plug-in cannot be opened, in a process of its own: MPI stays out of this."""
    code = "from covey import _native; _native.plugin_check('mpi')"
    env = {**os.environ, "COVEY_PLUGIN_PATH": folder}
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise LaunchError("it does not load: " + done.stderr.strip().rpartition("\n")[2])
