"""The part ucx of `covey build`: the network of InfiniBand and RoCE, against the UCX of this
machine."""

from __future__ import annotations

import argparse
import glob
import os
import re
import subprocess
from typing import List, NamedTuple

from covey.cli.build_part import Part, find_cxx
from covey.launch.spec import LaunchError

_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-z,defs")
_LIBRARIES = ("-lucp", "-luct", "-lucs")
_OLDEST = (1, 11)
_ADVICE = (
    "install UCX with its headers (Debian, Ubuntu: apt-get install libucx-dev; Fedora, RHEL: "
    "ucx-devel), or name where it is with --prefix PATH"
)
_VERSION = re.compile(r"UCP_API_(MAJOR|MINOR)\s+(\d+)")


class _Ucx(NamedTuple):
    """Where the UCX of this machine is."""

    compile_flags: List[str]
    link_flags: List[str]
    include: str  # The folder of its headers.


def describe(arguments: argparse.Namespace, sources: str) -> Part:
    """How to make it from the folder `sources`. Raises LaunchError without a UCX that will do."""
    compiler = find_cxx(arguments.cxx)
    ucx = _at(arguments.prefix) if arguments.prefix else _by_pkg_config()
    _check_version(ucx.include)
    files = [
        os.path.join(sources, "core", "base", "clock.cc"),
        *sorted(glob.glob(os.path.join(sources, "ops", "transports", "ucx", "*.cc"))),
    ]
    return Part(
        "libcovey_ucx.so",
        [compiler, *_FLAGS, f"-I{sources}", *ucx.compile_flags, *files, *ucx.link_flags],
        "from covey import _native; _native.plugin_check('ucx')",
        "on every host; then jobs on several hosts with InfiniBand or RoCE take it: coveyrun -H "
        "HOST:N,HOST:N python SCRIPT",
    )


def _at(prefix: str) -> _Ucx:
    include = os.path.join(prefix, "include")
    folders = [os.path.join(prefix, name) for name in ("lib64", "lib")]
    found = [folder for folder in folders if os.path.exists(os.path.join(folder, "libucp.so"))]
    if not found or not os.path.exists(_header(include)):
        raise LaunchError(f"--prefix {prefix}: there is no UCX with headers: {_ADVICE}")
    folder = os.path.abspath(found[0])
    include = os.path.abspath(include)
    return _Ucx([f"-I{include}"], [f"-L{folder}", f"-Wl,-rpath,{folder}", *_LIBRARIES], include)


def _by_pkg_config() -> _Ucx:
    """As pkg-config says; without its word, in the folders of the system."""
    said = _pkg_config("--variable=includedir")
    if said and os.path.exists(_header(said)):
        libraries = _pkg_config("--libs-only-L").split()
        folders = [f"-Wl,-rpath,{flag[2:]}" for flag in libraries]
        return _Ucx(_pkg_config("--cflags").split(), [*libraries, *folders, *_LIBRARIES], said)
    if os.path.exists(_header("/usr/include")):
        return _Ucx([], list(_LIBRARIES), "/usr/include")
    raise LaunchError(f"this machine has no UCX with headers: {_ADVICE}")


def _pkg_config(what: str) -> str:
    try:
        asked = subprocess.run(
            ["pkg-config", what, "ucx"], capture_output=True, text=True, check=False
        )
    except OSError:  # There is none.
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""


def _header(include: str) -> str:
    return os.path.join(include, "ucp", "api", "ucp_version.h")


def _check_version(include: str) -> None:
    with open(_header(include), encoding="utf-8") as header:
        numbers = dict(_VERSION.findall(header.read()))
    version = int(numbers.get("MAJOR", 0)), int(numbers.get("MINOR", 0))
    if version < _OLDEST:
        raise LaunchError(
            f"the UCX in {include} is {version[0]}.{version[1]}: {_OLDEST[0]}.{_OLDEST[1]} or "
            "newer is needed"
        )
