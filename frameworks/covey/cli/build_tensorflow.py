"""The part tensorflow of `covey build`: the operations of covey.tensorflow, for the TensorFlow that
this Python imports. TensorFlow says itself how to compile against it."""

from __future__ import annotations

import argparse
import glob
import json
import os
import subprocess
import sys

from covey.cli.build_part import Part, find_compiler
from covey.launch.spec import LaunchError

_FLAGS = ("-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-w")
# In a process of its own: importing TensorFlow takes seconds and a gigabyte, and it talks.
_ASK = """
import json, sys, tensorflow as tf
asked = tf.version.VERSION, tf.sysconfig.get_compile_flags(), tf.sysconfig.get_link_flags()
print(json.dumps(asked))
"""


def describe(arguments: argparse.Namespace, sources: str) -> Part:
    """How to make it from the folder `sources`. Raises LaunchError without TensorFlow or compiler.
    """
    compiler = find_compiler(
        arguments.cxx,
        "g++",
        "there is no g++ in PATH: install one (Debian, Ubuntu: apt-get install g++), or name "
        "another compiler with --cxx PATH",
    )
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
    version, compile_flags, link_flags = json.loads(done.stdout.strip().rpartition("\n")[2])
    # Needed by its soname, without a path: covey._native has loaded it before.
    library = os.path.join(os.path.dirname(sources), "libcovey.so")
    folder = os.path.join(sources, "frameworks", "tensorflow")
    units = sorted(glob.glob(os.path.join(glob.escape(folder), "*.cc")))
    return Part(
        f"libcovey_tensorflow_{version}.so",
        [compiler, *compile_flags, *_FLAGS, f"-I{sources}", *units, library, *link_flags],
        "import covey.tensorflow",
        "use it with: import covey.tensorflow as hvd",
    )
