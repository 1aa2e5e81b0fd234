"""Covey by the name of Horovod: ``import horovod.torch`` gives ``covey.torch``, the same module.

    horovod.torch, horovod.tensorflow, horovod.keras   those of covey, with their modules
    horovod.torch.mpi_ops, horovod.tensorflow.mpi_ops  the module above them
    horovod.torch.elastic.state, .sampler              covey.torch.elastic
    horovod.common.exceptions, .process_sets, .util    covey.horovod
    horovod.common.elastic                             covey.elastic
    horovod.run, horovod.runner.run                    covey.run

Another module raises ModuleNotFoundError.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from typing import Any, Optional, Sequence

from covey import __version__, run

__all__ = ["__version__", "run"]
_OTHERS = {
    "common.elastic": "covey.elastic",
    **dict.fromkeys(("common.exceptions", "common.process_sets", "common.util"), "covey.horovod"),
    "runner": "covey",
    **dict.fromkeys(("torch.elastic.state", "torch.elastic.sampler"), "covey.torch.elastic"),
}
_FRAMEWORKS = ("torch", "tensorflow", "keras")


def _counterpart(name: str) -> Optional[str]:
    """Covey's module for ``name``, which begins with "horovod."."""
    _, _, rest = name.partition(".")
    if rest in _OTHERS:
        return _OTHERS[rest]
    parts = rest.split(".")
    if parts[0] not in _FRAMEWORKS:
        return None
    if parts[-1] == "mpi_ops":
        parts.pop()
    found = ".".join(["covey", *parts])
    return found if importlib.util.find_spec(found) is not None else None


class _Loader(importlib.abc.Loader):
    """Gives a module that is there by another name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._spec: Optional[importlib.machinery.ModuleSpec] = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._spec  # The import has set that of the other name.


class _Finder(importlib.abc.MetaPathFinder):
    """Finds all modules in the package."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Any = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        del path, target
        if not fullname.startswith("horovod."):
            return None
        if fullname == "horovod.common":
            spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
            return spec
        name = _counterpart(fullname)
        if name is None:
            raise ModuleNotFoundError(
                f"Covey, which stands for Horovod here (coveyrun --as-horovod), has no {fullname}",
                name=fullname,
            )
        return importlib.machinery.ModuleSpec(fullname, _Loader(name), is_package=True)


sys.meta_path.insert(0, _Finder())
