"""`covey.run`: a Python function on N ranks of this host, results back as a list.

The call and the results travel through files in a private folder (mode 0700), never over a socket.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
from multiprocessing import spawn
from typing import Any, Callable, Dict, List, Optional, Sequence

from covey.launch.job import Job, Outcome
from covey.launch.spec import JobFailed, JobSpec, LaunchError

_KEPT = ["sys_path", "sys_argv", "dir"]
_MAIN = ["init_main_from_name", "init_main_from_path"]


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Dict[str, Any]] = None,
    num_proc: int = 1,
    np: Optional[int] = None,
    output_dir: Optional[str] = None,
    env: Optional[Dict[str, str]] = None,
    verbose: bool = False,
) -> List[Any]:
    """Calls `func(*args, **kwargs)` in `num_proc` new processes, the ranks of one job.

    Args:
        func: a function of a module or of the main script (which then needs the usual
            `if __name__ == "__main__"`); with cloudpickle installed also a lambda or a local one.
        args: its arguments, the same on every rank.
        kwargs: its keyword arguments.
        num_proc: number of ranks.
        np: the same by another name.
        output_dir: folder for rank.N/stdout and rank.N/stderr beside what is shown.
        env: further environment variables of the ranks.
        verbose: tell what the launcher does.

    Returns:
        The results by rank.

    Raises:
        JobFailed: a rank failed; the text names it and ends with its traceback.
        LaunchError: the job could not start, or the function or a result cannot be pickled.
        KeyboardInterrupt: Ctrl-C; the ranks have ended.
    """
    num_proc = num_proc if np is None else np
    if not isinstance(num_proc, int) or isinstance(num_proc, bool) or num_proc < 1:
        raise ValueError(f"num_proc must be a positive integer, not {num_proc!r}")
    with tempfile.TemporaryDirectory(prefix="covey-run-") as folder:
        with open(os.path.join(folder, "call"), "wb") as file:
            file.write(_pickled_call(func, args, kwargs or {}))
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "call.py")
        spec = JobSpec(
            command=(sys.executable, script, folder),
            size=num_proc,
            output_dir=output_dir,
            extra_env=dict(env or {}),
            verbose=verbose,
            program="covey.run",
        )
        _raise_unless_done(Job(spec).run())
        return [_result(folder, rank) for rank in range(num_proc)]


def _pickled_call(func: Callable[..., Any], args: Sequence[Any], kwargs: Dict[str, Any]) -> bytes:
    """(surroundings, pickled call): see `call`."""
    surroundings = spawn.get_preparation_data("covey.run")
    keep = _KEPT
    try:
        try:
            import cloudpickle

            call = cloudpickle.dumps((func, tuple(args), kwargs))
        except ImportError:
            call = pickle.dumps((func, tuple(args), kwargs))
            keep = _KEPT + _MAIN
    except Exception as error:  # picklers raise what they like
        name = getattr(func, "__qualname__", repr(func))
        raise LaunchError(f"cannot send {name} and its arguments to the ranks: {error}") from error
    kept = {key: value for key, value in surroundings.items() if key in keep}
    return pickle.dumps((kept, call))


def _raise_unless_done(outcome: Outcome) -> None:
    if outcome.exit_code == 0:
        return
    if outcome.failure is not None:
        raise JobFailed("\n".join(outcome.summary), outcome.failure.rank, outcome.exit_code)
    number = outcome.exit_code - 128
    if number == signal.SIGPIPE:
        raise BrokenPipeError("the output of covey.run was closed")
    signal.raise_signal(number)  # as if it had not been caught; SIGINT: KeyboardInterrupt
    raise JobFailed(f"ended by {signal.Signals(number).name}", -1, outcome.exit_code)


def _result(folder: str, rank: int) -> Any:
    try:
        with open(os.path.join(folder, f"result.{rank}"), "rb") as file:
            return pickle.load(file)
    except FileNotFoundError:
        text = f"rank {rank} exited with code 0 before the function had returned"
        raise JobFailed(text, rank, 0) from None
