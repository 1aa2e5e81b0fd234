"""The part mpi of `covey build`: one file of C over MPI's point-to-point calls, mpi_link.c."""

from __future__ import annotations

import argparse
import os
import subprocess

from covey.cli.build_part import Part, find_compiler

_OPEN_MPI = (
    "; Open MPI's mpirun wants --oversubscribe for more ranks than cores, and of root "
    "--allow-run-as-root"
)
_FLAGS = ("-O2", "-fPIC", "-shared", "-fvisibility=hidden")


def describe(arguments: argparse.Namespace, sources: str) -> Part:
    """How to make it from the folder `sources`. Raises LaunchError without a compiler."""
    compiler = find_compiler(
        arguments.mpicc,
        "mpicc",
        "there is no mpicc in PATH: install an MPI with its headers (Debian, Ubuntu: apt-get "
        "install libopenmpi-dev openmpi-bin), or name its compiler with --mpicc PATH",
    )
    return Part(
        "libcovey_mpi.so",
        [compiler, *_FLAGS, f"-I{sources}", os.path.join(sources, "mpi_link.c")],
        "from covey import _native; _native.plugin_check('mpi')",
        "start a job with: mpirun -np N python SCRIPT"
        + (_OPEN_MPI if _is_open_mpi(compiler) else ""),
    )


def _is_open_mpi(compiler: str) -> bool:
    try:
        asked = subprocess.run([compiler, "--showme:version"], capture_output=True, check=False)
    except OSError:  # It is no program: compiling says so.
        return False
    return b"Open MPI" in asked.stdout + asked.stderr
