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
