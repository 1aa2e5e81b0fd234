"""Which adapter a tensor's framework has. A framework is imported when one of its tensors is seen.
Internal."""

from __future__ import annotations

import difflib
import importlib
import sys
from types import ModuleType
from typing import Any, Dict, Iterable, Sequence, Tuple


def absent(module: str, name: str) -> AttributeError:
    """The error for ``module.name``, which there is not; it says which name is near."""
    public = [one for one in dir(sys.modules.get(module)) if not one.startswith("_")]
    near = difflib.get_close_matches(name, public, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}")


_ADAPTERS = {"torch": "covey.torch", "numpy": "covey.numpy", "tensorflow": "covey.tensorflow"}
_known: Dict[type, ModuleType] = {}


def _adapter_of_type(kind: type, what: str) -> ModuleType:
    found = _known.get(kind)
    if found is not None:
        return found
    for base in kind.__mro__:
        adapter = _ADAPTERS.get(base.__module__.split(".")[0])
        if adapter is not None:
            _known[kind] = importlib.import_module(adapter)
            return _known[kind]
    raise TypeError(f"covey works on torch, TensorFlow and numpy tensors, not on {what}")


def adapter_of(tensor: Any) -> ModuleType:
    """The adapter module of the framework of ``tensor``. Raises TypeError when there is none."""
    return _adapter_of_type(type(tensor), f"a {type(tensor).__name__}")


def adapter_of_dtype(dtype: Any) -> ModuleType:
    """The adapter module of the framework of ``dtype``; names and Python types are NumPy's."""
    if isinstance(dtype, (str, type)):
        return importlib.import_module("covey.numpy")
    return _adapter_of_type(type(dtype), f"the dtype {dtype!r}")


def adapter_of_all(tensors: Iterable[Any]) -> Tuple[ModuleType, Sequence[Any]]:
    """The adapter module that all of ``tensors`` have, and these as a list. Raises TypeError when
    there is none."""
    listed = list(tensors)
    adapters = {adapter_of(tensor) for tensor in listed}
    if len(adapters) != 1:
        raise TypeError("a grouped operation needs at least one tensor, all of one framework")
    return adapters.pop(), listed


def given(**arguments: Any) -> Dict[str, Any]:
    """Those that the user has given: not every adapter knows them."""
    return {name: value for name, value in arguments.items() if value is not None}
