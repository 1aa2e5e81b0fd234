"""Calls with an argument of the wrong kind, for the tests of each framework's functions. Imported
by ranks: all make the same calls, one after the other."""

from __future__ import annotations

import inspect
import types
from typing import Any, Callable, Dict, Iterable, Iterator, List, Tuple

_THING = object()
# By the argument's name: values that it cannot have. Each refusal names it.
_WRONG: Dict[str, Tuple[Any, ...]] = {
    "name": (5, b"x", _THING, ["x"]),
    "average": ("x", 3.5, [], {}, _THING),
    "op": ("x", -1, 10**6, 3.5, [], _THING),
    "prescale_factor": (None, "x", [], _THING, float("nan"), 0),
    "postscale_factor": (None, "x", {}, _THING, float("inf"), 0.0),
    "process_set": (None, "x", -1, 3.5, [], _THING),
    "codec": (-1, 3.5, [], b"int8", _THING),
    "compression": (None, "x", 5, [], {}, _THING),
    "root_rank": (None, "x", 3.5, [], _THING),
    "tensors": (None, -1, 3.5, _THING),
    "variables": (None, -1, 3.5, _THING),
    "splits": ("x", [1.5], _THING),
    "model": ("x", -1, [], _THING),
    "named_parameters": (-1, 3.5, _THING),
    "groups": (3.5, "x", b"x", _THING),
    "num_groups": (3.5, "x", b"x", _THING),
    "sparse_as_dense": ("x", 3.5, [], _THING),
    "bucket_bytes": (None, "x", 3.5, _THING),
    "backward_passes_per_step": (None, "x", 0, 1.5, _THING),
    "gradient_predivide_factor": (None, "x", 0, _THING),
    "process_set_id": (None, "x", 3.5, [], _THING),
    "local_layers": (-1, 3.5, _THING),
    "module": (None, "x", -1, [], _THING),
    "device_ids": (-1, 3.5, _THING),
    "bucket_cap_mb": ("x", [], _THING, float("nan")),
    "file_path": (None, -1, b"x", _THING),
}


def _cases(function: Any, given: Dict[str, Callable[[], Any]]) -> Iterator[Tuple[str, Any, Any]]:
    """An argument's name, its wrong value, and all arguments of that call."""
    parameters = inspect.signature(function).parameters.values()
    needed = [it.name for it in parameters if it.default is it.empty and it.kind != it.VAR_KEYWORD]
    for parameter in parameters:
        for value in _WRONG.get(parameter.name, ()):
            arguments = {name: given[name]() for name in needed if name != parameter.name}
            yield parameter.name, value, {**arguments, parameter.name: value}


def not_refused(
    module: types.ModuleType,
    functions: Iterable[str],
    given: Dict[str, Callable[[], Any]],
    right: Iterable[str] = (),
) -> Tuple[int, List[str]]:
    """How many wrong calls there are, and those that are not refused with the argument's name.
    ``given``: makes the other arguments that a function needs; ``right``: how calls begin
    that are right, such as "function(argument"."""
    count, found = 0, []
    for function in functions:
        for name, value, arguments in _cases(getattr(module, function), given):
            call = f"{function}({name}={value!r})"
            if call.startswith(tuple(right)):
                continue
            count += 1
            said = "nothing"
            try:
                getattr(module, function)(**arguments)
            except (ValueError, TypeError) as error:
                said = f"{type(error).__name__}: {error}"
            if name.partition("_set_id")[0].replace("num_", "") not in said:
                found.append(f"{call}: {said}")
    return count, found
