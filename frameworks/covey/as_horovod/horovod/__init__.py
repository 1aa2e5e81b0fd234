"""Covey by the name of Horovod: ``import horovod.torch`` gives ``covey.torch``, the same module.

:mod:`covey.horovod_modules` lists the modules there are. Another one raises ModuleNotFoundError.
"""

from __future__ import annotations

import importlib.abc
import sys
from typing import Any, Optional, Sequence

from covey import __version__, run
from covey.horovod_modules import Finder

__all__ = ["__version__", "run"]


class _Refusal(importlib.abc.MetaPathFinder):
    """Says which package lacks the module."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]] = None, target: Any = None
    ) -> None:
        del path, target
        if fullname.startswith("horovod."):
            raise ModuleNotFoundError(
                f"Covey, which stands for Horovod here (coveyrun --as-horovod), has no {fullname}",
                name=fullname,
            )


sys.meta_path[:0] = [Finder("horovod"), _Refusal()]
