"""The wheel in a new, empty virtual environment, without the sources: what a user has."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import tempfile
import venv
from typing import List, Optional

ROOT = pathlib.Path(__file__).absolute().parents[2]


def wheel() -> pathlib.Path:
    (found,) = sorted((ROOT / "wheel").glob("*.whl"))
    return found


class Installed:
    """Commands of the environment run in `folder`, which is empty. Close it at the end.

    Without `has_pip` the pip of this Python installs the wheel there: to install pip first takes
    three times as long as the wheel."""

    def __init__(self, has_pip: bool = False) -> None:
        self._home = tempfile.TemporaryDirectory()
        home = pathlib.Path(self._home.name)
        self.bin = home / "venv" / "bin"
        self.folder = home / "empty"
        self.folder.mkdir()
        spec = None if has_pip else importlib.util.find_spec("pip")
        venv.create(home / "venv", with_pip=spec is None)
        pip = ["pip"] if spec is None else ["python", os.path.dirname(str(spec.origin))]
        # This pip looks beside itself first, and would take a covey there for an installed one.
        words = [
            "--disable-pip-version-check",
            "install",
            "--quiet",
            "--no-index",
            "--ignore-installed",
        ]
        self.run([*pip, *words, str(wheel())])

    def close(self) -> None:
        self._home.cleanup()

    def environment(self, **extra: str) -> dict:
        """As in a shell in which the environment is activated."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("COVEY_", "PYTHON"))}
        env.setdefault("HOME", self._home.name)  # Bazel takes it away, and Open MPI 5 needs one.
        env["PATH"] = f"{self.bin}:{env['PATH']}"
        env.update(extra)
        return env

    def run(self, command: List[str], fails: bool = False, **extra: str) -> str:
        """What a command says. `extra`: variables."""
        done = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.folder,
            env=self.environment(**extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
        )
        if (done.returncode != 0) != fails:
            raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def lend_torch(self) -> Optional[str]:
        """The torch of the test, for PYTHONPATH; None: it has none."""
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.origin is None:
            return None
        packages = self.folder.parent / "torch-and-what-it-needs"
        if not packages.exists():
            packages.mkdir()
            for path in pathlib.Path(spec.origin).parents[1].iterdir():
                if not path.name.startswith(("covey", "pip", "__")):
                    (packages / path.name).symlink_to(path)
        return str(packages)
