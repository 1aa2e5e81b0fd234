"""The names of Horovod 0.28.1 and what Covey has of each."""

from __future__ import annotations

import ast
import importlib
import inspect
import pathlib
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

_LIST = pathlib.Path(__file__).with_name("horovod.txt")
_OF_LAUNCHER = pathlib.Path(__file__).with_name("horovodrun.txt")

# By name, or by module and name: why Covey has it not.
ABSENT: Dict[str, str] = {}

# The difference in what a call does; the arguments are compared.
DIFFERS = {
    "elastic": "ranks come and go with `coveyrun --min-np`, else they stay the same",
    "HorovodInternalError": "the base of `Mismatch` and `Aborted`",
    "ProcessSet": "`Group`: takes ranks, no communicator of MPI; its id is read only",
    "init": "`comm` is None or the list of all ranks; groups need no registration",
    "remove_process_set": "nothing to remove: False for the set of all ranks, else True",
    "start_timeline": "one file per rank; `mark_cycles` has no effect: there are no cycles",
    "join": "a joined rank changes no Min, Max or Product either",
    "poll": "handles are objects",
    "synchronize": "handles are objects",
    "nccl_built": "0: NCCL is loaded when CUDA tensors are there",
    "mpi_built": "False: MPI is a plug-in",
    "mpi_enabled": "False: MPI is a plug-in",
    "mpi_threads_supported": "False: MPI is a plug-in",
    "gloo_built": "False: no Gloo underneath",
    "gloo_enabled": "False: no Gloo underneath",
    "ddl_built": "False",
    "ccl_built": "False: no oneCCL underneath",
    "rocm_built": "False",
    "tensorflow.broadcast_global_variables": "for graphs of TensorFlow 1 only",
    "keras.broadcast_global_variables": "Keras 3 makes no such graph: the callback does it",
    "keras.allreduce": "the arguments are those of `horovod.tensorflow.keras`",
    "keras.DistributedOptimizer": "another class, with `inner_optimizer`; the arguments are those "
    "of `horovod.tensorflow.keras`",
    "keras.callbacks.BestModelCheckpoint": "the arguments are those of `horovod.tensorflow.keras`",
    "keras.load_model": "`legacy_opts=True` is refused: Keras 3 has no legacy optimizers",
}
_KERAS = ("tensorflow.keras", "keras", "tensorflow.keras.callbacks", "keras.callbacks")


class Symbol(NamedTuple):
    """A public name of Horovod: "tensorflow.keras", "allgather", ("value", "name"). The arguments
    of a constant or a module are None."""

    module: str
    name: str
    arguments: Optional[Tuple[str, ...]]


class Verdict(NamedTuple):
    """Whether Covey has a name: "yes", "differs" or "no", and how, or why not."""

    symbol: Symbol
    answer: str
    how: str


def flags() -> List[str]:
    """The flags of horovodrun."""
    return [
        word for word in _OF_LAUNCHER.read_text(encoding="utf-8").split("\n") if word[:1] == "-"
    ]


def variables() -> List[str]:
    """The variables that a job of horovodrun reads."""
    text = _OF_LAUNCHER.read_text(encoding="utf-8")
    return [word for word in text.split("\n") if word.startswith("HOROVOD_")]


def symbols() -> Iterator[Symbol]:
    """The symbols of the list."""
    for line in _LIST.read_text(encoding="utf-8").splitlines():
        module, _, call = line.partition(" ")
        if module == "#":
            continue
        name, bracket, _ = call.partition("(")
        yield Symbol(module, name, _arguments(call) if bracket else None)


def _arguments(call: str) -> Tuple[str, ...]:
    """The names in a signature."""
    rest = call[call.index("(") :]
    given = ast.parse(f"lambda {rest[1:-1]}: None", mode="eval").body
    assert isinstance(given, ast.Lambda)
    return tuple(one.arg for one in given.args.args)


def told(table: Dict[str, str], symbol: Symbol) -> str:
    """A table's remark on a name: for its module, for the modules of Keras, for all; or ""."""
    family = "keras" + (".callbacks" if symbol.module.endswith("callbacks") else "")
    keys = [f"{symbol.module}.{symbol.name}", symbol.name]
    if symbol.module in _KERAS:
        keys.insert(1, f"{family}.{symbol.name}")
    return next((table[key] for key in keys if key in table), "")


def verdict(symbol: Symbol) -> Verdict:
    """The verdict on one name. Needs the framework of its module."""
    value = _of_covey(symbol)
    if value is None:
        return Verdict(symbol, "no", told(ABSENT, symbol))
    how = told(DIFFERS, symbol)
    return Verdict(symbol, "differs" if how else "yes", how or _more(symbol, value))


def _of_covey(symbol: Symbol) -> Any:
    module = importlib.import_module(f"covey.{symbol.module}")
    return getattr(module, symbol.name, None)


def ours(value: Any) -> List[str]:
    """The arguments of something of Covey's."""
    try:
        given = inspect.signature(value).parameters.values()
        return [one.name for one in given if one.kind != one.VAR_KEYWORD and one.name != "self"]
    except (TypeError, ValueError):
        return []


def missing_arguments(symbol: Symbol) -> List[str]:
    """Arguments of Horovod's call that Covey's does not take, or at another place."""
    value = _of_covey(symbol)
    if symbol.arguments is None or value is None or not callable(value):
        return []
    mine = ours(value)
    return [one for place, one in enumerate(symbol.arguments) if mine[place : place + 1] != [one]]


def _more(symbol: Symbol, value: Any) -> str:
    if symbol.arguments is None or not callable(value):
        return ""
    more = [name for name in ours(value) if name not in symbol.arguments]
    return f"also {', '.join(f'`{name}`' for name in more)}" if more else ""
