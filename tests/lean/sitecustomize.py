"""torch's compiler is loaded when a test compiles something, not when it makes an optimizer.

Of the processor's time in which torch starts and makes its first optimizer, more than half goes
into torch._dynamo, of which an optimizer wants two functions that do nothing outside of the
compiler. Here those two are there at once, and whatever else is asked of torch._dynamo loads it.
Python imports this file by its name in every process that has its folder in PYTHONPATH, as those
that tests start have. TEST_WHOLE_TORCH=1 leaves torch as it is.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import types
from typing import Any, Optional

_NAME = "torch._dynamo"


class _Later(types.ModuleType):
    """torch._dynamo, not yet loaded."""

    @staticmethod
    def graph_break(msg: str = "") -> None:
        """Nothing, outside of the compiler."""

    @staticmethod
    def disable(fn: Any = None, recursive: bool = True, **_: Any) -> Any:
        """The function as it is: nothing compiles it."""
        return fn if fn is not None else lambda function: function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_load(), name)


class _Finder:
    """Finds torch._dynamo, and is its loader, until it is loaded."""

    def find_spec(self, name: str, *_: Any) -> Optional[Any]:
        if name == _NAME:
            spec = _spec_of(self)
            spec.loader = self
            return spec
        if name.startswith(_NAME + "."):
            _load()
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Later(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing to run."""


_FINDER = _Finder()


def _spec_of(finder: _Finder) -> Any:
    """What the others find."""
    sys.meta_path.remove(finder)
    try:
        return importlib.util.find_spec(_NAME)
    finally:
        sys.meta_path.insert(0, finder)


def _load() -> types.ModuleType:
    """torch._dynamo itself."""
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
        sys.modules.pop(_NAME, None)
    return importlib.import_module(_NAME)


if os.environ.get("TEST_WHOLE_TORCH") != "1":
    sys.meta_path.insert(0, _FINDER)
