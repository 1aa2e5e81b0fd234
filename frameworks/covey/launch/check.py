"""Mistakes in a command, found before a single rank starts. Each is one LaunchError sentence."""

from __future__ import annotations

import difflib
import os
import shlex
import shutil
import subprocess
import sys
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from covey.launch.spec import LaunchError

_PYTHON_OPTIONS_WITH_VALUE = ("--check-hash-based-pycs",)
_IMPORT_TIMEOUT_S = 60.0


def nearest(word: str, words: Sequence[str]) -> str:
    """` (did you mean X?)`, or nothing when none of `words` is near."""
    found = difflib.get_close_matches(word, words, n=1)
    return f" (did you mean {found[0]}?)" if found else ""


def is_python(program: str) -> bool:
    """True for python, python3, python3.11, pypy3."""
    name = os.path.basename(program)
    stem = name.rstrip("0123456789.")
    return stem in ("python", "pypy")


class PythonCommand(NamedTuple):
    """A command line of a Python interpreter.

    Attributes:
        options: of the interpreter.
        kind: "-m" or "-c"; empty: a script.
        target: the module, the code, or the script.
        arguments: the target's.
    """

    options: Sequence[str]
    kind: str
    target: str
    arguments: Sequence[str]


def python_command(words: Sequence[str]) -> Optional[PythonCommand]:
    """The words behind the interpreter; None: they name no target, or it is the standard input.

    Example:
        >>> python_command(["-u", "-X", "dev", "train.py", "-c"])
        PythonCommand(options=['-u', '-X', 'dev'], kind='', target='train.py', arguments=['-c'])
    """
    options: List[str] = []
    left = list(words)
    while left and left[0] != "-":
        word = left.pop(0)
        if not word.startswith("-"):
            return PythonCommand(options, "", word, left)
        flags, kind, value = _split_option(word)
        if kind in ("-c", "-m"):
            target = [value] if value else left[:1]
            del left[: 0 if value else 1]
            options += [f"-{flags}"] if flags else []
            return PythonCommand(options, kind, target[0], left) if target else None
        options.append(word)
        if kind and not value:
            options += left[:1]
            del left[:1]
    return None


def python_of(command: Sequence[str]) -> Optional[PythonCommand]:
    """None: it is not `python TARGET`."""
    return python_command(command[1:]) if is_python(command[0]) else None


def _split_option(word: str) -> Tuple[str, str, str]:
    """Of `-uXdev`: u, -X, dev. The last two are empty where it is flags alone."""
    if word in _PYTHON_OPTIONS_WITH_VALUE:
        return "", word, ""
    at = next((i for i, letter in enumerate(word) if letter in "cmWX"), 0)
    if word.startswith("--") or at == 0:
        return word[1:], "", ""
    return word[1:at], "-" + word[at], word[at + 1 :]


def python_script(arguments: Sequence[str]) -> Optional[str]:
    """The script among a Python interpreter's `arguments`; None for -m, -c, - and none at all."""
    command = python_command(arguments)
    return command.target if command is not None and not command.kind else None


def check_command(
    command: Sequence[str],
    size: int,
    program: str,
    env: Dict[str, str],
    has_package: bool = False,
) -> None:
    """Raises LaunchError when `command` cannot run as a rank.

    The import of the package costs one start of the interpreter; it is made only for a Python, and
    not where it is known to work: `has_package`.
    """
    if not command:
        raise LaunchError(f"no command to run: {program} -np {size} python train.py")
    path = shutil.which(command[0], path=env.get("PATH"))
    if path is None:
        raise LaunchError(_why_not_found(command[0], size, program))
    if not is_python(command[0]):
        return
    script = python_script(command[1:])
    if script is not None and not os.path.exists(script):
        folder = os.path.dirname(script)
        raise LaunchError(f"no such script: {script}{_near_file(script, folder)}")
    if not has_package:
        _check_package(path, env)


def _why_not_found(name: str, size: int, program: str) -> str:
    if os.path.isdir(name):
        return f"{name} is a folder, not a program"
    if os.path.exists(name):
        if name.endswith(".py"):
            return f"{name} is a script: {program} -np {size} python {name}"
        return f"{name} is not executable"
    if os.path.dirname(name):
        return f"no such program: {name}{_near_file(name, os.path.dirname(name))}"
    if is_python(name):
        return f"no such program: {name}; {_ways_to_own_python(name)}"
    return f"no such program: {name}{nearest(name, ('python', 'python3', 'torchrun', 'bash'))}"


def _ways_to_own_python(name: str) -> str:
    """How a rank gets the Python that this program runs with, which has the package."""
    activate = os.path.join(sys.prefix, "bin", "activate")
    written = f"{shlex.quote(sys.executable)} for {name}"
    if sys.prefix == sys.base_prefix or not os.path.exists(activate):
        return f"write {written}"
    return f"type `. {shlex.quote(activate)}` first, or write {written}"


def _near_file(path: str, folder: str) -> str:
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return f" (there is no folder {folder})" if folder and not os.path.isdir(folder) else ""
    return nearest(os.path.basename(path), names)


def _check_package(python: str, env: Dict[str, str]) -> None:
    """Raises LaunchError when `python` cannot import the runtime."""
    try:
        result = subprocess.run(
            [python, "-c", "import covey._native"],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_IMPORT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"{python} does not run: {error}") from error
    if result.returncode != 0:
        lines: List[str] = result.stderr.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1] if lines else f"exit code {result.returncode}"
        hint = ""
        if "No module named 'covey'" in why:
            hint = f"; {_ways_to_own_python(python)}, or install Covey's wheel there"
        raise LaunchError(f"{python} cannot import the package covey: {why}{hint}")


def working_folder() -> str:
    """That of this process. Raises LaunchError: it has been deleted."""
    try:
        return os.getcwd()
    except OSError as error:
        raise LaunchError(
            f"the working folder cannot be found ({error.strerror}): go to one that exists"
        ) from error


def check_writable_folder(flag: str, path: str) -> None:
    """Makes the folder `path` if need be. Raises LaunchError when files cannot be made in it."""
    probe = os.path.join(path, f".covey-{os.getpid()}")
    try:
        os.makedirs(path, exist_ok=True)
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.unlink(probe)
    except OSError as error:
        raise LaunchError(f"{flag} {path}: cannot write there: {error.strerror}") from error


def has_traces(folder: Optional[str]) -> bool:
    """Whether there is a trace in the folder of --timeline."""
    return folder is not None and any(name.endswith(".json") for name in os.listdir(folder))
