"""`covey build`: compiles a part that is bound to something of this machine, from sources of Covey.

The common code is here; the differences are a Part: build_grpc.py, build_mpi.py,
build_oneccl.py, build_tensorflow.py.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, List, NamedTuple, Optional, Tuple

from covey.cli import build_grpc, build_mpi, build_oneccl, build_tensorflow
from covey.cli.build_part import Part
from covey.launch.check import check_writable_folder
from covey.launch.spec import LaunchError
from covey.plugin_path import package_folder

_HELP = "compile a part that is bound to a library of this machine"
_EPILOG = """examples:
  covey build mpi                             with the mpicc in PATH, into the installed package
  covey build mpi --mpicc /opt/mpi/bin/mpicc  for another MPI
  covey build tensorflow                      for the TensorFlow of this Python
  covey build grpc                            for the gRPC of this machine; takes a minute
  covey build mpi --out DIR                   then set COVEY_PLUGIN_PATH=DIR

mpi: with it `mpirun -np N python SCRIPT` and `srun -n N python SCRIPT` start a job. grpc: what
`coveyrun --serve` and `--join` speak with each other. tensorflow: the operations of
covey.tensorflow. oneccl: a peer of `covey bench`. Each is for one version of its
library: build it again after a change.
"""
_PARTS = {
    "mpi": build_mpi,
    "grpc": build_grpc,
    "tensorflow": build_tensorflow,
    "oneccl": build_oneccl,
}


class _Target(NamedTuple):
    """Where the part goes."""

    folder: str
    is_found: bool  # there, without being told


def add_to(commands: Any) -> None:
    """Adds `build` to the subcommands of `covey`."""
    parser = commands.add_parser(
        "build", help=_HELP, description=f"{_HELP[0].upper()}{_HELP[1:]}.", epilog=_EPILOG
    )
    parser.add_argument("part", choices=sorted(_PARTS), metavar="PART", help=" or ".join(_PARTS))
    parser.add_argument("--out", metavar="DIR", help="where to put it (beside libcovey.so)")
    parser.add_argument("--mpicc", metavar="PATH", default="mpicc", help="MPI's compiler (mpicc)")
    parser.add_argument("--cxx", metavar="PATH", default="g++", help="C++ compiler (g++)")
    parser.set_defaults(act=_act, parser=parser)


def _act(arguments: argparse.Namespace) -> int:
    begun, what = time.monotonic(), f"covey build {arguments.part}"
    try:
        part = _PARTS[arguments.part].describe(arguments, os.path.join(package_folder(), "plugins"))
        target = _Target(*_folder(arguments.out))
        path = os.path.join(target.folder, part.file_name)
        print(f"{what}: {part.command[0]} makes {path}", flush=True)
        _compile(part, path)
        _check(part, target.folder)
    except LaunchError as error:
        sys.stderr.write(f"{what}: {error}\n")
        return 2
    print(f"{what}: done, and it loads ({time.monotonic() - begun:.1f} s)")
    if not target.is_found:
        print(f"{what}: so that it is found: export COVEY_PLUGIN_PATH={target.folder}")
    print(f"{what}: {part.next_step}")
    return 0


def _folder(wanted: Any) -> Tuple[str, bool]:
    """Where to put it, and whether it is found there without being told."""
    listed = os.environ.get("COVEY_PLUGIN_PATH", "").split(":")
    if wanted is not None:
        folder = os.path.abspath(wanted)
        check_writable_folder("--out", folder)
        return folder, folder in listed
    package = package_folder()
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


def _compile(part: Part, path: str) -> None:
    """Compiles aside and moves it there: a job that starts meanwhile sees a whole file."""
    aside = f"{path}.{os.getpid()}"
    try:
        with tempfile.TemporaryDirectory() as folder:
            for command in part.before:
                _run(command, folder)
            _run([*part.command, "-o", aside], folder if part.before else None)
        os.replace(aside, path)
    finally:
        if os.path.exists(aside):
            os.unlink(aside)


def _run(command: List[str], folder: Optional[str]) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise LaunchError(f"{command[0]} does not run: {error.strerror}") from error
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        raise LaunchError(f"{' '.join(command)} ended with code {done.returncode}")


def _check(part: Part, folder: str) -> None:
    """Raises when it cannot be opened, in a process of its own: its library stays out of this."""
    env = {**os.environ, "COVEY_PLUGIN_PATH": folder}
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", part.check],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise LaunchError("it does not load: " + done.stderr.strip().rpartition("\n")[2])
