"""`coveyrun --as-horovod`: scripts whose imports say horovod run on Covey, unchanged.

The folder of this file goes to the front of the ranks' PYTHONPATH. In it the package ``horovod``
stands for Covey, whatever else is installed by that name.
"""

from __future__ import annotations

import pathlib
from typing import Dict

VARIABLE = "COVEY_AS_HOROVOD"
"""Tells the launchers of a job; ranks do not have it."""


def take_part(env: Dict[str, str]) -> None:
    """In a rank's environment: if the variable is there, the path to the package instead."""
    if env.pop(VARIABLE, None) is None:
        return
    folder = str(pathlib.Path(__file__).resolve().parent)
    others = env.get("PYTHONPATH")
    env["PYTHONPATH"] = f"{folder}:{others}" if others else folder
