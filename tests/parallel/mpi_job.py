"""Scripts under a real mpirun, with the plug-in that the machine's mpicc makes."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest
from typing import List

from harness import LIMIT_S, environment

HAS_MPI = shutil.which("mpirun") is not None and shutil.which("mpicc") is not None
WHY_NOT = "there is no mpirun and mpicc: apt-get install openmpi-bin libopenmpi-dev"
BUILD = "import sys; from covey.cli import main; sys.exit(main(['build', 'mpi', *sys.argv[1:]]))"


def run_here(command: List[str], **extra: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        env=environment(**extra),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=3 * LIMIT_S,
        check=False,
    )


class MpiJob(unittest.TestCase):
    """Its tests start jobs; they are skipped by themselves where there is no MPI."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        done = run_here([sys.executable, "-c", BUILD, "--out", cls.folder.name])
        assert done.returncode == 0, done.stderr
        cls.said = done.stdout

    @classmethod
    def tearDownClass(cls) -> None:
        cls.folder.cleanup()

    def new_folder(self) -> str:
        return tempfile.mkdtemp(dir=self.folder.name)

    def mpirun(
        self, size: int, code: str, *arguments: str, **extra: str
    ) -> "subprocess.CompletedProcess[str]":
        script = pathlib.Path(self.folder.name, "script.py")
        script.write_text(textwrap.dedent(code), encoding="ascii")
        env = {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMP_NUM_THREADS": "1",
            "MPI4PY_MPIABI": "openmpi",
            "COVEY_HOST_MEMORY": "never",  # the network itself is tested
            "TMPDIR": self.folder.name,
            "COVEY_PLUGIN_PATH": self.folder.name,  # the installed package needs none
        }
        command = ["mpirun", "--oversubscribe", "-np", str(size), sys.executable, str(script)]
        return run_here([*command, str(size), *arguments], **{**env, **extra})

    def check_fine(
        self, size: int, code: str, *arguments: str, **extra: str
    ) -> "subprocess.CompletedProcess[str]":
        done = self.mpirun(size, code, *arguments, **extra)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for rank in range(size):
            self.assertIn(f"fine {rank}\n", done.stdout, done.stderr)
        return done
