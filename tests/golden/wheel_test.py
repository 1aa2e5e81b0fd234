"""Goal: the wheel installs into an empty environment without a network, and works there.
Method: a new virtual environment, pip with no index, then the commands, a job of one rank, and a
training of two with the torch of the test lent to it."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import venv
import zipfile
from typing import List

_ROOT = pathlib.Path(__file__).absolute().parents[2]


def _wheel() -> pathlib.Path:
    (found,) = sorted((_ROOT / "wheel").glob("*.whl"))
    return found


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        venv.create(cls.folder.name, with_pip=True)
        cls.bin = pathlib.Path(cls.folder.name) / "bin"
        pip = ["pip", "--disable-pip-version-check", "install", "--quiet", "--no-index"]
        cls.run_there([*pip, str(_wheel())])

    @classmethod
    def tearDownClass(cls) -> None:
        cls.folder.cleanup()

    @classmethod
    def run_there(cls, command: List[str], **extra: str) -> str:
        """Runs a command of the environment, outside the source tree."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("COVEY_", "PYTHON"))}
        env.update(extra)
        done = subprocess.run(
            [str(cls.bin / command[0]), *command[1:]],
            cwd=cls.folder.name,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        if done.returncode != 0:
            raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def test_a_job_of_one_rank_needs_no_framework(self) -> None:
        code = "import covey; covey.init(); print(covey.rank(), covey.size()); covey.shutdown()"
        self.assertEqual(self.run_there(["python", "-c", code]).split(), ["0", "1"])

    def test_is_imported_from_where_it_was_installed(self) -> None:
        where = self.run_there(["python", "-c", "import covey; print(covey.__file__)"])
        self.assertIn("site-packages", where)

    def test_trains_once_torch_is_there(self) -> None:
        spec = importlib.util.find_spec("torch")
        self.assertIsNotNone(spec, "tools/setup installs torch")
        packages = pathlib.Path(self.folder.name, "torch-and-what-it-needs")
        packages.mkdir()
        for path in pathlib.Path(spec.origin).parents[1].iterdir():
            if not path.name.startswith(("covey", "pip", "__")):
                (packages / path.name).symlink_to(path)
        example = _ROOT / "examples" / "pytorch_minimal.py"
        command = ["coveyrun", "-np", "2", str(self.bin / "python"), str(example)]
        lines = self.run_there(command, PYTHONPATH=str(packages)).splitlines()
        weights = {line.rpartition("weight ")[2] for line in lines if "weight " in line}
        self.assertEqual(len(weights), 1, lines)
        self.assertAlmostEqual(float(weights.pop()), 8.0, places=2)

    def test_brings_both_commands(self) -> None:
        self.assertIn("covey", self.run_there(["covey", "--version"]))
        self.assertIn("-np", self.run_there(["coveyrun", "--help"]))

    @unittest.skipIf(shutil.which("mpicc") is None, "there is no mpicc")
    def test_makes_the_plug_in_for_mpi_beside_the_library(self) -> None:
        said = self.run_there(["covey", "build", "mpi"])
        self.assertRegex(said, r"makes \S+/site-packages/covey/libcovey_mpi.so")
        self.assertNotIn("COVEY_PLUGIN_PATH", said)
        code = "from covey import _native; _native.plugin_check('mpi')"
        self.run_there(["python", "-c", code])

    def test_records_every_file(self) -> None:
        with zipfile.ZipFile(_wheel()) as archive:
            names = set(archive.namelist())
            (record,) = [name for name in names if name.endswith(".dist-info/RECORD")]
            lines = archive.read(record).decode("utf-8").splitlines()
        self.assertEqual({line.split(",")[0] for line in lines}, names)

    def test_depends_on_nothing(self) -> None:
        code = (
            "import importlib.metadata as m\n"
            "print(*(d.metadata['Name'] for d in m.distributions()))"
        )
        installed = set(self.run_there(["python", "-c", code]).split())
        self.assertEqual(installed - {"pip", "setuptools"}, {"covey"})


if __name__ == "__main__":
    unittest.main()
