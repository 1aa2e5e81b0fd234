"""The program of a rank of `covey.run`: `python call.py FOLDER`.

Reads FOLDER/call, calls the function in it, writes the result to FOLDER/result.RANK, by its last
rank. Run by path, so that the caller's sys.path, which may be what makes `covey` importable, can be
set first.
"""

from __future__ import annotations

import os
import pickle
import sys
from multiprocessing import process, spawn


def main(folder: str) -> None:
    """Calls the function; its exception ends the process with a traceback, as any script's."""
    sys.path.pop(0)  # this file's own folder
    with open(os.path.join(folder, "call"), "rb") as file:
        surroundings, call = pickle.load(file)
    rank = process.current_process()
    rank._inheriting = True  # type: ignore[attr-defined]  # covey.run refuses to run meanwhile.
    spawn.prepare(surroundings)
    del rank._inheriting  # type: ignore[attr-defined]
    function, args, kwargs = pickle.loads(call)
    result = function(*args, **kwargs)
    path = os.path.join(folder, f"result.{_rank()}")
    with open(path + ".part", "wb") as file:
        file.write(_pickler().dumps(result))
    os.rename(path + ".part", path)


def _rank() -> int:
    state = getattr(sys.modules.get("covey.state"), "state", None)
    if state is not None and state.elastic is not None and state.rendezvous_settings is not None:
        return int(state.rendezvous_settings["rank"])
    return int(os.environ["COVEY_RANK"])


def _pickler():  # type: ignore[no-untyped-def]
    """cloudpickle when there is one: it also takes lambdas and local classes."""
    try:
        import cloudpickle

        return cloudpickle
    except ImportError:
        return pickle


if __name__ == "__main__":
    main(sys.argv[1])
