"""`covey build`: compiles a part that is bound to something of this machine, from sources of Covey.

The common code is here; the differences are a Part: build_grpc.py, build_mpi.py,
build_oneccl.py, build_tensorflow.py, build_ucx.py.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from typing import Any, Tuple

from covey.cli import build_grpc, build_mpi, build_oneccl, build_tensorflow, build_ucx
from covey.cli.build_part import CompilerFailed, Part, compile_part, writable_folder
from covey.cli.say import say
from covey.launch.check import check_writable_folder
from covey.launch.spec import LaunchError
from covey.plugin_path import home_folder, package_folder

_HELP = "compile a part that is bound to a library of this machine"
_EPILOG = """examples:
  covey build mpi                             with the mpicc in PATH, into the installed package
  covey build mpi --mpicc /opt/mpi/bin/mpicc  for another MPI
  covey build ucx --prefix /opt/ucx           with another UCX than the system's
  covey build tensorflow                      for the TensorFlow of this Python
  covey build grpc                            for the gRPC of this machine; takes a minute
  covey build mpi --out DIR                   then set COVEY_PLUGIN_PATH=DIR

mpi: with it `mpirun -np N python SCRIPT` and `srun -n N python SCRIPT` start a job. ucx: with it
jobs on several hosts use InfiniBand and RoCE; UCX 1.11 or newer. grpc: what `coveyrun --serve` and
`--join` speak with each other. tensorflow: the operations of
covey.tensorflow, which its import makes too where they are missing. oneccl: a peer of
`covey bench`. Each is for one version of its library: build it again after a change.
"""
_PARTS = {
    "mpi": build_mpi,
    "ucx": build_ucx,
    "grpc": build_grpc,
    "tensorflow": build_tensorflow,
    "oneccl": build_oneccl,
}


def add_to(commands: Any) -> None:
    """Adds `build` to the subcommands of `covey`."""
    parser = commands.add_parser(
        "build", help=_HELP, description=f"{_HELP[0].upper()}{_HELP[1:]}.", epilog=_EPILOG
    )
    parser.add_argument("part", choices=sorted(_PARTS), metavar="PART", help=" or ".join(_PARTS))
    parser.add_argument("--out", metavar="DIR", help="where to put it (beside libcovey.so)")
    parser.add_argument("--mpicc", metavar="PATH", default="mpicc", help="MPI's compiler (mpicc)")
    parser.add_argument("--prefix", metavar="PATH", help="where UCX is (as pkg-config says)")
    parser.add_argument("--cxx", metavar="PATH", default="g++", help="C++ compiler (g++)")
    parser.set_defaults(act=_act, parser=parser)


def _act(arguments: argparse.Namespace) -> int:
    begun, what = time.monotonic(), f"covey build {arguments.part}"
    try:
        part = _PARTS[arguments.part].describe(arguments, os.path.join(package_folder(), "plugins"))
        folder, is_found = _folder(arguments.out)
        path = os.path.join(folder, part.file_name)
        print(f"{what}: {part.command[0]} makes {path}", flush=True)
        compile_part(part, path)
        _check(part, folder)
    except LaunchError as error:
        if isinstance(error, CompilerFailed):
            sys.stderr.write(error.output)
        say(what, str(error))
        return 2
    print(f"{what}: done, and it loads ({time.monotonic() - begun:.1f} s)")
    if not is_found and not (part.is_found_at_home and folder == home_folder()):
        print(f"{what}: so that it is found: export COVEY_PLUGIN_PATH={folder}")
    print(f"{what}: {part.next_step}")
    return 0


def _folder(wanted: Any) -> Tuple[str, bool]:
    """Where to put it, and whether every plug-in is found there without being told."""
    listed = os.environ.get("COVEY_PLUGIN_PATH", "").split(":")
    if wanted is not None:
        folder = os.path.abspath(wanted)
        check_writable_folder("--out", folder)
    else:
        folder = writable_folder(": name a folder with --out DIR")
    return folder, folder in [*listed, package_folder()]


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
