"""The shared object with Covey's operations for TensorFlow: its name, and loading it. Internal.

It is compiled for one version of TensorFlow, whose C++ is another in each, and is named after it:
one for another version is never opened.
"""

from __future__ import annotations

import os
import re
from typing import Any, List

import tensorflow as tf

from covey import _native  # noqa: F401  # Brings libcovey.so, which the operations need.
from covey.plugin_path import plugin_folders

_NAME = "libcovey_tensorflow_{}.so"
_HOW = "run `covey build tensorflow` (in a clone of the sources: tools/setup --with tensorflow)"


def file_name(version: str) -> str:
    """The file name of the operations for this version of TensorFlow."""
    return _NAME.format(version)


def load() -> Any:
    """The operations for the TensorFlow that is here, as functions of a module.

    Raises:
        ImportError: there are none for this version, or they do not load; says what to do.
    """
    name = file_name(tf.version.VERSION)
    folders = plugin_folders()
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return _load(path)
    others = _other_versions(folders)
    raise ImportError(
        f"covey.tensorflow needs its operations compiled for TensorFlow {tf.version.VERSION}, but "
        f"{name} is in none of {', '.join(folders)}"
        + (f" (there is one for {', '.join(others)})" if others else "")
        + f": {_HOW}"
    )


def _load(path: str) -> Any:
    try:
        return tf.load_op_library(path)
    except (tf.errors.OpError, RuntimeError) as error:
        why = str(getattr(error, "message", error))
        raise ImportError(f"{path} cannot be loaded ({why}): {_HOW}") from error


def _other_versions(folders: List[str]) -> List[str]:
    pattern = re.compile(re.escape(_NAME).replace(r"\{\}", "(.+)"))
    names = {name for folder in folders if os.path.isdir(folder) for name in os.listdir(folder)}
    return sorted(found.group(1) for found in map(pattern.fullmatch, names) if found)
