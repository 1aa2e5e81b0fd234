"""The parts of `covey build`: their description, where they go, and compiling one. Internal."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from typing import List, NamedTuple, Optional, Tuple

from covey.launch.check import check_writable_folder
from covey.launch.spec import LaunchError
from covey.plugin_path import home_folder, package_folder


class Part(NamedTuple):
    """One thing to compile.

    Attributes:
        file_name: of the result.
        command: compiles it; `-o FILE` is added.
        check: Python that raises when the result cannot be used.
        next_step: the advice to the user afterwards.
        before: commands that make what `command` compiles; all run in one empty folder.
        is_found_at_home: whether it is looked for in home_folder() too.
    """

    file_name: str
    command: List[str]
    check: str
    next_step: str
    before: Tuple[List[str], ...] = ()
    is_found_at_home: bool = False


class CompilerFailed(LaunchError):
    """A compiler has refused the sources.

    Attributes:
        output: all that it has said.
    """

    def __init__(self, command: List[str], code: int, output: str) -> None:
        super().__init__(f"{' '.join(command)} ended with code {code}")
        self.output = output


def find_compiler(name: str, usual: str, advice: str) -> str:
    """The path of a compiler; of the usual one the error has an advice."""
    found = shutil.which(name)
    if found is not None:
        return found
    raise LaunchError(f"there is no program {name}" if name != usual else advice)


def find_cxx(name: str) -> str:
    """The path of the C++ compiler `name`. Raises LaunchError with an advice."""
    advice = "there is no g++ in PATH: install one (Debian, Ubuntu: apt-get install g++), or name "
    return find_compiler(name, "g++", advice + "another compiler with --cxx PATH")


def writable_folder(advice: str) -> str:
    """The folder of the package, or home_folder() if that cannot be written.

    Raises LaunchError when neither can; its text ends with `advice`.
    """
    package, home = package_folder(), home_folder()
    for folder in (package, home):
        try:
            check_writable_folder("", folder)
            return folder
        except LaunchError:
            pass
    raise LaunchError(f"neither {package} nor {home} can be written{advice}")


def compile_part(part: Part, path: str) -> None:
    """Compiles aside and moves it there: a job that starts meanwhile sees a whole file, and a
    compiler that is killed leaves none.

    Raises:
        CompilerFailed: the compiler refuses the sources.
        LaunchError: it does not run.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = os.path.join(folder, part.file_name)
        for command in part.before:
            _run(command, folder)
        _run([*part.command, "-o", made], folder if part.before else None)
        _move(made, path)


def _move(made: str, path: str) -> None:
    """A rename, by way of a copy beside `path`: `made` may lie on another file system."""
    aside = f"{path}.{os.getpid()}"
    try:
        shutil.copyfile(made, aside)
        os.chmod(aside, 0o755)
        os.replace(aside, path)
    except OSError as error:
        raise LaunchError(f"cannot make {path}: {error.filename}: {error.strerror}") from error
    finally:
        if os.path.exists(aside):
            os.unlink(aside)


def _run(command: List[str], folder: Optional[str]) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise LaunchError(f"{command[0]} does not run: {error.strerror}") from error
    if done.returncode != 0:
        raise CompilerFailed(command, done.returncode, done.stdout)
