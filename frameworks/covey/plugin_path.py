"""Where plug-ins are looked for. Internal."""

from __future__ import annotations

import os
from typing import List


def package_folder() -> str:
    """The folder of this package, where libcovey.so lies too."""
    return os.path.dirname(os.path.abspath(__file__))


def plugin_folders() -> List[str]:
    """The folders of COVEY_PLUGIN_PATH, then the package's: the order of
    core/transport/plugin.h."""
    listed = os.environ.get("COVEY_PLUGIN_PATH", "").split(":")
    return [folder for folder in listed if folder] + [package_folder()]


def home_folder() -> str:
    """Where a plug-in is put if the package's folder cannot be written."""
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.path.join(data, "covey", "plugins")
