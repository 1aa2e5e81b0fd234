"""The part oneccl of `covey build`: oneCCL as a peer of `covey bench`, from its wheels and those of
Intel's runtime, which `tools/setup --with bench-peers` brings."""

from __future__ import annotations

import argparse
import os
import sys

from covey.cli.build_part import Part, find_cxx
from covey.launch.spec import LaunchError

_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w", "-Wl,-z,defs")
# The archive's needs: Debian's hwloc, Intel's own memcpy.
_NEEDED = ("-l:libhwloc.so.15", "-l:libintlc.so.5", "-ldl", "-lpthread")


def describe(arguments: argparse.Namespace, sources: str) -> Part:
    """How to make it from the folder `sources`. Raises LaunchError without oneCCL or compiler."""
    compiler = find_cxx(arguments.cxx)
    folder = os.path.join(sys.prefix, "share", "covey-peers", "oneccl")
    library = os.path.join(folder, "lib")
    archive = os.path.join(library, "ccl", "cpu", "lib", "libccl.a")
    if not os.path.exists(archive):
        raise LaunchError(f"there is no {archive}: tools/setup --with bench-peers brings it")
    source = os.path.join(sources, "oneccl_peer.cc")
    return Part(
        "libcovey_oneccl_peer.so",
        [
            *(compiler, *_FLAGS, f"-I{os.path.join(folder, 'include')}", source, archive),
            *(f"-L{library}", f"-Wl,-rpath,{library}", *_NEEDED),
        ],
        "import ctypes; from covey.bench import oneccl; ctypes.CDLL(oneccl.find())",
        "use it with: covey bench allreduce --vs oneccl",
    )
