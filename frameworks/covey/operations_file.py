"""The shared object with the operations of covey.tensorflow: its name, and where it lies. Internal.

It is compiled for one version of TensorFlow, whose C++ is another in each, from sources that go
with this libcovey.so. Its name holds both: one for another version, or from other sources, is never
opened.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
from typing import List, Optional

from covey.plugin_path import home_folder, package_folder, plugin_folders

_NAME = "libcovey_tensorflow_{version}_{sources}.so"
_OF_ANY = re.compile(r"libcovey_tensorflow_(.+?)(?:_[0-9a-f]{8})?\.so")


def sources_folder() -> str:
    """The folder from which the sources include each other."""
    return os.path.join(package_folder(), "plugins")


def units() -> List[str]:
    """The paths of the C++ files to compile."""
    return _sources("frameworks", "tensorflow", "*.cc")


def file_name(version: str) -> str:
    """The file name of the operations for this version of TensorFlow."""
    digest = hashlib.sha256()
    headers = _sources("frameworks", "tensorflow", "*.h") + _sources("core", "api", "*.h")
    for path in units() + headers:
        with open(path, "rb") as file:
            digest.update(hashlib.sha256(file.read()).digest())
    return _NAME.format(version=version, sources=digest.hexdigest()[:8])


def folders() -> List[str]:
    """Where it is looked for: as other plug-ins, then where it is put if the package's folder
    cannot be written."""
    return [*plugin_folders(), home_folder()]


def find(version: str) -> Optional[str]:
    """The path of the operations for this version of TensorFlow; None: there are none."""
    name = file_name(version)
    paths = (os.path.join(folder, name) for folder in folders())
    return next(filter(os.path.exists, paths), None)


def others() -> List[str]:
    """The versions of TensorFlow for which there are operations, from any sources."""
    there = [folder for folder in folders() if os.path.isdir(folder)]
    names = {name for folder in there for name in os.listdir(folder)}
    return sorted({found.group(1) for found in map(_OF_ANY.fullmatch, names) if found})


def _sources(*parts: str) -> List[str]:
    return sorted(glob.glob(os.path.join(glob.escape(sources_folder()), *parts)))
