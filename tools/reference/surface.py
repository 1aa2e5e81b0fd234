"""The public names of the package covey, and what each says of itself."""

from __future__ import annotations

import ast
import enum
import functools
import importlib
import inspect
import re
import sys
from types import ModuleType
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from tools.reference import docstring

MODULES = (
    "covey",
    "covey.elastic",
    "covey.torch",
    "covey.torch.elastic",
    "covey.tensorflow",
    "covey.keras",
    "covey.keras.callbacks",
    "covey.keras.elastic",
    "covey.tensorflow.elastic",
    "covey.numpy",
    "covey.loggers",
)
"""The modules that users import. Each needs the framework of its name."""

_MOST_DOCUMENTS = 12
_SEE_MODULE = re.compile(r"[Ss]ee :mod:`([\w.]+)`")
_CONSTANTS = ("covey.reduce_op", "covey.group", "covey.handles", "covey.horovod")


class Name(NamedTuple):
    """A public name of a module.

    Attributes:
        module: "covey.torch".
        name: "allreduce".
        value: what it stands for.
        is_known: of a method: a base class of another package has it, and documents it.
        is_bound: of a method: its first argument is the object.
    """

    module: str
    name: str
    value: Any
    is_known: bool = False
    is_bound: bool = False

    @property
    def text(self) -> str:
        """Its docstring; of a constant, the text below it in the source."""
        described = (inspect.isclass, inspect.isroutine, inspect.ismodule, inspect.isdatadescriptor)
        if any(holds(self.value) for holds in described):
            own = inspect.getdoc(self.value) or ""
            alias = getattr(self.value, "__name__", self.name) != self.name
            return constants().get(self.name, own) if alias else own
        return constants().get(self.name, "")

    @property
    def signature(self) -> Optional[inspect.Signature]:
        """Its arguments; None: it takes none, or none can be found."""
        is_fixed = is_error(self.value) or isinstance(self.value, enum.EnumMeta)
        if is_fixed or not callable(self.value):
            return None
        try:
            found = inspect.signature(self.value)
        except (TypeError, ValueError):
            return None
        return found.replace(parameters=list(found.parameters.values())[int(self.is_bound) :])


def is_error(value: Any) -> bool:
    """Whether this is the class of an exception."""
    return inspect.isclass(value) and issubclass(value, BaseException)


@functools.lru_cache(maxsize=None)
def constants() -> Dict[str, str]:
    """By name the texts below assignments of module level."""
    found = {}
    for module in _CONSTANTS:
        tree = ast.parse(inspect.getsource(importlib.import_module(module)))
        for before, node in zip(tree.body, tree.body[1:]):
            if not isinstance(before, ast.Assign) or not isinstance(node, ast.Expr):
                continue
            if isinstance(node.value, ast.Constant):
                for target in before.targets:
                    found[ast.unparse(target)] = inspect.cleandoc(str(node.value.value))
    return found


def names(module: str) -> List[Name]:
    """The public names of an imported or importable module, in the order of the alphabet."""
    imported = importlib.import_module(module)
    return [Name(module, name, getattr(imported, name)) for name in sorted(imported.__all__)]


def members(name: Name) -> Iterator[Name]:
    """The methods and properties of a class that Covey defines, but for those that say Internal; of
    a function those of the private class that it returns."""
    kind = name.value if inspect.isclass(name.value) else _private_result(name.value)
    if kind is None or is_error(kind):
        return
    for attribute in sorted(dir(kind)):
        homes = [base for base in kind.__mro__ if attribute in vars(base)]
        if attribute.startswith("_") or not _is_of_covey(homes[0]):
            continue
        value = vars(homes[0])[attribute]
        is_bound = not isinstance(value, (staticmethod, property))
        value = getattr(value, "__func__", value)  # of a static method
        is_internal = "Internal." in (getattr(value, "__doc__", None) or "")
        if not is_internal and (inspect.isroutine(value) or isinstance(value, property)):
            is_known = not all(map(_is_of_covey, homes))
            yield Name(name.module, f"{name.name}.{attribute}", value, is_known, is_bound)


def _private_result(function: Any) -> Optional[type]:
    """The class of Covey that has no public name, and that a function of its module returns."""
    result = getattr(function, "__annotations__", {}).get("return")
    if not isinstance(result, str) or not result.startswith("_"):
        return None
    kind = getattr(sys.modules[function.__module__], result, None)
    return kind if inspect.isclass(kind) and _is_of_covey(kind) else None


def _is_of_covey(kind: type) -> bool:
    return kind.__module__.split(".")[0] == "covey"


def documents(name: Name) -> List[docstring.Docstring]:
    """Its docstring, and those to which that refers, and they in turn."""
    seen: Dict[str, str] = {}
    _collect(name, seen)
    return [docstring.parse(text) for text in seen.values()]


def _collect(name: Name, seen: Dict[str, str]) -> None:
    key = f"{name.module}.{name.name}"
    if len(seen) > _MOST_DOCUMENTS or key in seen:
        return
    seen[key] = name.text
    home = getattr(name.value, "__module__", None) or name.module
    for module in _SEE_MODULE.findall(name.text):
        seen[module] = importlib.import_module(module).__doc__ or ""
    for link in docstring.links(name.text):
        within = f"{name.name.rpartition('.')[0]}.{link}".lstrip(".")
        found = _resolved(within, (name.module,)) or _resolved(link, (home, name.module, "covey"))
        if found is not None:
            _collect(found, seen)
    above = type(name.value) if isinstance(name.value, enum.Enum) else _error_above(name.value)
    if above is not None:
        _collect(Name(home, above.__name__, above), seen)


def _error_above(value: Any) -> Optional[type]:
    """The class of Covey's errors from which that of another one is derived."""
    above = value.__mro__[1] if is_error(value) else object
    return above if _is_of_covey(above) else None


def _resolved(link: str, homes: Any) -> Optional[Name]:
    """The name that a reference means, of one of these modules or of the module that it tells."""
    path, _, last = link.rpartition(".")
    for home in (path,) if path.startswith("covey") else homes:
        try:
            module = importlib.import_module(home)
        except ImportError:
            continue
        value: Any = module
        for part in (link if home != path else last).split("."):
            value = getattr(value, part, None)
        if value is not None and not isinstance(value, ModuleType):
            return Name(home, link if home != path else last, value)
    return None
