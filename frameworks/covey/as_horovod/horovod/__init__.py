"""Covey by the name of Horovod: ``import horovod.torch`` gives ``covey.torch``, the same module.

:mod:`covey.as_horovod.modules` lists the modules there are. Another one raises ModuleNotFoundError.
"""

from __future__ import annotations

import importlib.abc
import sys
from typing import Any, Optional, Sequence

from covey import __version__, run
from covey.as_horovod.modules import Finder

__all__ = ["__version__", "run"]


class _Refusal(importlib.abc.MetaPathFinder):
    """Names a module of Horovod that Covey does not have."""

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
