"""The part tensorflow of `covey build`: the operations of covey.tensorflow, for the TensorFlow that
this Python imports. TensorFlow says itself how to compile against it."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import List, NamedTuple

from covey import operations_file
from covey.cli.build_part import Part, find_compiler
from covey.launch.spec import LaunchError
from covey.plugin_path import package_folder

_FLAGS = ("-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w")
# In a process of its own: importing TensorFlow takes seconds and a gigabyte, and it talks.
_ASK = """
import json, sys, tensorflow as tf
asked = tf.version.VERSION, tf.sysconfig.get_compile_flags(), tf.sysconfig.get_link_flags()
print(json.dumps(asked))
"""


class Installed(NamedTuple):
    """A TensorFlow, and how it says that an operation is compiled for it."""

    version: str
    compile_flags: List[str]
    link_flags: List[str]


def describe(arguments: argparse.Namespace, _: str) -> Part:
    """How to make it. Raises LaunchError without TensorFlow or compiler."""
    compiler = compiler_of(arguments.cxx)
    done = subprocess.run(
        [sys.executable, "-c", _ASK],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        why = done.stderr.strip().rpartition("\n")[2]
        raise LaunchError(
            f"{sys.executable} cannot import tensorflow ({why}): pip install tensorflow-cpu"
        )
    installed = Installed(*json.loads(done.stdout.strip().rpartition("\n")[2]))
    return part_for(installed, compiler)


def compiler_of(name: str = "g++") -> str:
    """The path of the C++ compiler of this name. Raises LaunchError."""
    return find_compiler(
        name,
        "g++",
        "there is no g++ in PATH: install one (Debian, Ubuntu: apt-get install g++), or name "
        "another compiler with --cxx PATH",
    )


def part_for(installed: Installed, compiler: str) -> Part:
    """How `compiler` makes it for that TensorFlow.

    The files are one translation unit: TensorFlow's headers, which take most of the time, are read
    once. Raises LaunchError when the package lacks them.
    """
    units = operations_file.units()
    if not units:
        raise LaunchError(f"{operations_file.sources_folder()} lacks the sources: reinstall covey")
    included = [word for unit in units for word in ("-include", unit)]
    # Needed by its soname, without a path: covey._native has loaded it before.
    library = os.path.join(package_folder(), "libcovey.so")
    return Part(
        operations_file.file_name(installed.version),
        [
            *(compiler, *installed.compile_flags, *_FLAGS),
            *(f"-I{operations_file.sources_folder()}", *included, "-x", "c++", os.devnull),
            *("-x", "none", library, *installed.link_flags),
        ],
        "import covey.tensorflow",
        "use it with: import covey.tensorflow as hvd",
        is_found_at_home=True,
    )
