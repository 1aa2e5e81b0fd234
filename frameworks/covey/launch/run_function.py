"""`covey.run`: a Python function on N ranks of this host, results back as a list.

The call and the results travel through files in a private folder (mode 0700), never over a socket.
"""

from __future__ import annotations

import os
import pathlib
import pickle
import signal
import sys
import tempfile
from multiprocessing import process, spawn
from typing import Any, Callable, Dict, List, Optional, Sequence

from covey.arguments import dict_of, list_of, path_of, text_of
from covey.errors import InvalidArgument
from covey.launch.guard import UNGUARDED, refuse_unguarded
from covey.launch.horovod_arguments import taken
from covey.launch.job import Job
from covey.launch.outcome import Outcome
from covey.launch.preload import configured
from covey.launch.spec import JobFailed, JobSpec, LaunchError
from covey.method import check

_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "call.py")
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
    method: Optional[str] = None,
    quiet: bool = False,
    preload: Sequence[str] = (),
    **others: Any,
) -> List[Any]:
    """Calls `func(*args, **kwargs)` in `num_proc` new processes, the ranks of one job.

    Args:
        func: a function of a module or of the main script (which then needs the usual
            `if __name__ == "__main__"`); with cloudpickle installed also a lambda, a local one, or
            one of an interactive session or notebook.
        args: its arguments, the same on every rank.
        kwargs: its keyword arguments.
        num_proc: number of ranks.
        np: the same by another name.
        output_dir: folder for rank.N/stdout and rank.N/stderr beside what is shown.
        env: further environment variables of the ranks.
        verbose: tell what the launcher does.
        method: how the ranks train together, as `coveyrun --method`.
        quiet: no method card, notices, warnings or table, as `coveyrun --quiet`.
        preload: modules that one process imports, of which the ranks are forks, as
            `coveyrun --preload`; they are found without what this process has put into sys.path.
        others: further ones of `horovod.run`: `hosts` (this one), `start_timeout` (seconds),
            `output_filename`, and `min_num_proc`, `max_num_proc` and `reset_limit`, by which ranks
            may come and go as by `coveyrun --min-np`. One without a meaning, such as `use_gloo`, is
            ignored with a line; what needs several hosts is a LaunchError.

    Returns:
        The results by rank; where ranks come and go, of those that the job had at its end.

    Raises:
        InvalidArgument: (a ValueError) an argument of another kind, by its name; there is no such
            method, with the nearest.
        JobFailed: a rank failed; the text names it and ends with its traceback.
        LaunchError: the job could not start, or the function or a result cannot be pickled.
        KeyboardInterrupt: Ctrl-C; the ranks have ended.
    """
    num_proc = _size("num_proc", num_proc) if np is None else _size("np", np)
    args, kwargs = list_of("args", args), dict_of("kwargs", kwargs or {})
    also = taken(others, num_proc)
    env, output_dir = {**also.variables, **_environment(env or {})}, output_dir or also.folder
    _refuse_within_a_rank()
    _tell([] if quiet else also.lines)
    with tempfile.TemporaryDirectory(prefix="covey-run-") as folder:
        pathlib.Path(folder, "call").write_bytes(_pickled_call(func, args, kwargs))
        command = (sys.executable, _PROGRAM, folder)
        spec = JobSpec(
            command=command,
            size=num_proc,
            output_dir=path_of("output_dir", output_dir) if output_dir else None,
            extra_env=env,
            settings_env=_settings(method, quiet),
            preload=_modules(preload) or configured({**os.environ, **env}, command),
            verbose=bool(verbose),
            quiet=quiet,
            program="covey.run",
            keep_going=also.elastic is not None,
            elastic=also.elastic,
        )
        _raise_unless_done(Job(spec).run())
        return [_result(folder, rank) for rank in range(_ranks_at_end(spec, folder))]


def _tell(lines: Sequence[str]) -> None:
    for line in lines:
        print(f"covey.run: {line}", file=sys.stderr)


def _ranks_at_end(spec: JobSpec, folder: str) -> int:
    if spec.elastic is None:
        return spec.size
    return len([name for name in os.listdir(folder) if name.startswith("result.")])


def _size(name: str, given: Any) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise InvalidArgument(f"{name} must be a positive integer, not {given!r}")
    return given


def _environment(given: Any) -> Dict[str, str]:
    return {name: text_of(f"env[{name!r}]", it) for name, it in dict_of("env", given).items()}


def _modules(given: Any) -> Sequence[str]:
    return [text_of("a module of preload", it) for it in list_of("preload", given)]


def _refuse_within_a_rank() -> None:
    """A rank that imports the main script must not run the script's own call of `run`."""
    if getattr(process.current_process(), "_inheriting", False):
        sys.exit(UNGUARDED)


def _settings(method: Optional[str], quiet: bool) -> Dict[str, str]:
    settings = {}
    if method is not None:
        check(text_of("method", method))
        settings.update(COVEY_METHOD=method, COVEY_METHOD_BY="flag")
    if quiet:
        settings["COVEY_LOG_LEVEL"] = "error"
    return settings


def _pickled_call(func: Callable[..., Any], args: Sequence[Any], kwargs: Dict[str, Any]) -> bytes:
    """(surroundings, pickled call): see `call`."""
    if not callable(func):
        raise InvalidArgument(f"func must be a function, not {func!r}")
    surroundings = spawn.get_preparation_data("covey.run")
    keep = _KEPT
    try:
        try:
            import cloudpickle

            call = cloudpickle.dumps((func, tuple(args), kwargs))
        except ImportError:
            call = pickle.dumps((func, tuple(args), kwargs))
            keep = _KEPT + _MAIN
            if not os.path.isfile(surroundings.get("init_main_from_path", __file__)):
                del surroundings["init_main_from_path"]  # A script from standard input: "<stdin>".
            _refuse_interactive(func, surroundings)
            if any(key in surroundings for key in _MAIN):
                refuse_unguarded()
    except LaunchError:
        raise
    except Exception as error:  # picklers raise what they like
        name = getattr(func, "__qualname__", repr(func))
        remedy = "" if _has_cloudpickle() else "; cloudpickle, if installed, sends lambdas too"
        raise LaunchError(f"cannot send {name} to the ranks: {error}{remedy}") from error
    kept = {key: value for key, value in surroundings.items() if key in keep}
    return pickle.dumps((kept, call))


def _has_cloudpickle() -> bool:
    try:
        import cloudpickle  # noqa: F401
    except ImportError:
        return False
    return True


def _refuse_interactive(func: Callable[..., Any], surroundings: Dict[str, Any]) -> None:
    """A function of a session without a file cannot be imported by the ranks."""
    is_of_main = getattr(func, "__module__", None) == "__main__"
    if is_of_main and not any(key in surroundings for key in _MAIN):
        name = getattr(func, "__qualname__", repr(func))
        raise LaunchError(
            f"{name} is defined in an interactive session, which the ranks cannot import: "
            "install cloudpickle, which sends it, or put it into a module"
        )


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
