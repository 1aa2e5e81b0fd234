"""Parts of torch that few tests use are loaded when they are asked for; no garbage is collected
while a framework is imported.

Of the processor's time in which torch starts and makes its first optimizer, two thirds go into its
compiler (torch._dynamo, of which an optimizer wants two functions that do nothing outside of it,
and torch.distributed two), into torch.export, and into what operations give on the device
"meta". The compiler, once loaded, finds all of them. The first torch.testing.assert_close takes as
long again: it imports DTensor, and SymPy with it. Here it looks for DTensors if they are loaded. A
third of the time of TensorFlow, and of torch, goes into the search for garbage among objects that
they keep for ever, a sixth of TensorFlow's into Matplotlib. Python imports this file by its name in
every process that has its folder in PYTHONPATH, as those that tests start have.
TEST_WHOLE_TORCH=1 leaves all as it is.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
import types
from typing import Any, Callable, Optional

_DYNAMO = "torch._dynamo"
_META = "torch._meta_registrations"  # imported for what it registers
_LATER = [_DYNAMO, "torch.export", _META]  # those that are not yet loaded
_FRAMEWORKS = ("torch", "tensorflow")
_PLOTS = "matplotlib"  # Keras, which TensorFlow imports, does without.
_ASKS = "_HAS_DTENSOR"  # assert_close asks whether to look for DTensors.


class _Later(types.ModuleType):
    """A module that is not yet loaded."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_load(self.__name__), name)


class _Part:
    """A module of torch._dynamo of which some functions are known before it is loaded."""

    def __init__(self, name: str, **known: Callable[[], Any]) -> None:
        self._name = name
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(_load(_DYNAMO), self._name), name)


def _dynamo() -> _Later:
    """torch._dynamo, not yet loaded: some of its functions as they are outside of the compiler."""

    def graph_break(msg: str = "") -> None:
        del msg

    def disable(fn: Any = None, recursive: bool = True, **_: Any) -> Any:
        del recursive
        return fn if fn is not None else lambda function: function

    module = _Later(_DYNAMO)
    utils = _Part("utils", get_optimize_ddp_mode=lambda: "ddp_optimizer")
    rules = _Part("trace_rules", clear_lru_cache=lambda: None)
    module.__dict__.update(graph_break=graph_break, disable=disable, utils=utils, trace_rules=rules)
    return module


class _IfLoaded:
    """Whether a module is loaded, asked each time."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __bool__(self) -> bool:
        return self._name in sys.modules


class _Finder:
    """Finds the modules of _LATER, and is their loader."""

    def find_spec(self, name: str, *_: Any) -> Optional[Any]:
        if name in _LATER:
            spec = _spec_of(name)
            spec.loader = self
            return spec
        if name in _FRAMEWORKS:
            spec = _spec_of(name)
            if spec is not None:
                spec.loader.exec_module = _lean(spec.loader.exec_module)
            return spec
        package = name.rpartition(".")[0]
        if package in _LATER:
            _load(package)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _dynamo() if spec.name == _DYNAMO else _Later(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Does of what the module does when it is imported what others cannot do without."""
        if module.__name__ == _META:
            import torch

            if hasattr(torch._C, "_set_generator_metaclass"):  # torch 2.12 and later
                from torch._opaque_base import OpaqueBaseMeta

                torch._C._set_generator_metaclass(OpaqueBaseMeta)


_FINDER = _Finder()


def _lean(execute: Callable[[types.ModuleType], None]) -> Callable[[types.ModuleType], None]:
    """The same without a search for garbage, then or later, among what a framework makes, and
    without what few tests use."""

    def exec_module(module: types.ModuleType) -> None:
        gc.disable()
        is_first = _PLOTS not in sys.modules  # Not within another framework's import.
        sys.modules.setdefault(_PLOTS, None)  # type: ignore[arg-type]
        try:
            execute(module)
        finally:
            if is_first:
                del sys.modules[_PLOTS]
            gc.freeze()
            gc.enable()
        comparison = sys.modules.get("torch.testing._comparison")
        if hasattr(comparison, _ASKS):
            setattr(comparison, _ASKS, _IfLoaded("torch.distributed.tensor"))

    return exec_module


def _spec_of(name: str) -> Any:
    """What the others find."""
    sys.meta_path.remove(_FINDER)
    try:
        return importlib.util.find_spec(name)
    finally:
        sys.meta_path.insert(0, _FINDER)


def _load(name: str) -> types.ModuleType:
    """The module itself; what it needs of the others is loaded before it."""
    for wanted in (_META, name):
        if wanted in _LATER:
            _LATER.remove(wanted)
            sys.modules.pop(wanted, None)
            importlib.import_module(wanted)
    return sys.modules[name]


if os.environ.get("TEST_WHOLE_TORCH") != "1":
    sys.meta_path.insert(0, _FINDER)
