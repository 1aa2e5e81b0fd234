"""Horovod's modules by name: which of Covey's stands for each.

    torch, tensorflow, keras               those of covey, with their modules
    torch.mpi_ops, tensorflow.mpi_ops      the module above them
    torch.elastic.state, .sampler          covey.torch.elastic
    common.exceptions, .process_sets       covey.horovod
    common.elastic                         covey.elastic
    common.util, tensorflow.util, runner.util.threads, runner.common.util.env
                                           covey.as_horovod.helpers
    runner                                 covey.as_horovod.runner

``import covey`` makes them importable below ``covey``, but for the two of ``torch.elastic``: a
script that imports ``horovod.torch.mpi_ops`` imports ``covey.torch.mpi_ops``. By ``coveyrun
--as-horovod`` all are importable below ``horovod``. Those of a framework are attributes of its
package too, as Horovod's are: ``hvd.mpi_ops.Sum``.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import types
from typing import Any, Optional, Sequence

from covey.adapters import absent

_HELPERS = ("common.util", "runner.common.util.env", "runner.util.threads", "tensorflow.util")
_MODULES = {
    "common.elastic": "covey.elastic",
    **dict.fromkeys(("common.exceptions", "common.process_sets"), "covey.horovod"),
    "runner": "covey.as_horovod.runner",
    **dict.fromkeys(_HELPERS, "covey.as_horovod.helpers"),
    "tensorflow.mpi_ops": "covey.tensorflow",
    "torch.mpi_ops": "covey.torch",
    **dict.fromkeys(("torch.elastic.sampler", "torch.elastic.state"), "covey.torch.elastic"),
}
_PACKAGES = ("common", "runner.common", "runner.common.util", "runner.util")
_FRAMEWORKS = ("keras", "tensorflow", "torch")


def _counterpart(name: str) -> Optional[str]:
    """Covey's module for Horovod's ``name``, which stands without "horovod."."""
    if name in _MODULES:
        return _MODULES[name]
    alike = f"covey.{name}"
    if name.split(".")[0] in _FRAMEWORKS and importlib.util.find_spec(alike) is not None:
        return alike
    return None


def module_in(package: str, name: str) -> types.ModuleType:
    """Covey's counterpart of Horovod's module ``name`` in ``package``.

    Raises:
        AttributeError: Horovod's package has no such module.
    """
    if f"{package}.{name}".partition(".")[2] not in _MODULES:
        raise absent(package, name)
    return importlib.import_module(f"{package}.{name}")


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


class Finder(importlib.abc.MetaPathFinder):
    """Finds Horovod's modules below ``package``: "horovod", or "covey", which has those of the
    frameworks itself. None for a module without a counterpart, and for any other package."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]] = None, target: Any = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        del path, target
        package, _, name = fullname.partition(".")
        if package != self._package:
            return None
        if name in _PACKAGES:
            return importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        found = _MODULES.get(name) if package == "covey" else _counterpart(name)
        if found is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, _Loader(found), is_package=True)
