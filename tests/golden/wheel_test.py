"""Goal: the wheel installs into an empty environment without a network, and works there.
Method: a new virtual environment, pip with no index, then the commands, a job of one rank, and a
training of two with the torch of the test lent to it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import unittest
import zipfile

from installed import ROOT, Installed, wheel

_TORCHRUN = ["python", "-m", "torch.distributed.run", "--standalone"]


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.there = Installed(has_pip=True)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.there.close()

    def test_a_job_of_one_rank_needs_no_framework(self) -> None:
        code = "import covey; covey.init(); print(covey.rank(), covey.size()); covey.shutdown()"
        self.assertEqual(self.there.run(["python", "-c", code]).split(), ["0", "1"])

    def test_is_imported_from_where_it_was_installed(self) -> None:
        where = self.there.run(["python", "-c", "import covey; print(covey.__file__)"])
        self.assertIn("site-packages", where)

    def lend_torch(self) -> str:
        """For PYTHONPATH; torch starts in half the time."""
        packages = self.there.lend_torch()
        assert packages is not None, "tools/setup installs torch"
        return f"{ROOT / 'tests' / 'lean'}:{packages}"

    def test_measures_once_torch_is_there(self) -> None:
        """Its ranks import the installed command, which must not start ranks again."""
        command = "covey bench latency --small --rounds 1 --samples 1 --sizes 8 --vs none".split()
        self.assertIn("8 B", self.there.run(command, PYTHONPATH=self.lend_torch()))

    def test_trains_once_torch_is_there(self) -> None:
        packages = self.lend_torch()
        example = ROOT / "examples" / "pytorch_minimal.py"
        command = ["coveyrun", "-np", "2", "python", str(example)]
        lines = self.there.run(command, PYTHONPATH=packages).splitlines()
        weights = {line.rpartition("weight ")[2] for line in lines if "weight " in line}
        self.assertEqual(len(weights), 1, lines)
        self.assertAlmostEqual(float(weights.pop()), 8.0, places=2)

    def test_torch_knows_the_backend_by_its_name(self) -> None:
        """Without an import; and a program that has no use for Covey does not import it."""
        train = (
            "import sys, torch, torch.distributed as dist\n"
            "assert not any(name.startswith('covey.') for name in sys.modules)\n"
            "dist.init_process_group('covey')\n"
            "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1, bias=False))\n"
            "model(torch.ones(1, 2) * dist.get_rank()).sum().backward()\n"
            "assert model.module.weight.grad.tolist() == [[0.5, 0.5]]\n"
            "dist.destroy_process_group()\n"
        )
        launchers = (["coveyrun", "-np", "2", "python"], [*_TORCHRUN, "--nproc-per-node", "2"])
        (self.there.folder / "train.py").write_text(train)
        for launcher in launchers:
            with self.subTest(launcher[0]):
                command = [*launcher, str(self.there.folder / "train.py")]
                said = self.there.run(command, PYTHONPATH=self.lend_torch())
                self.assertNotIn("Device capability", said)

    def test_brings_both_commands(self) -> None:
        self.assertIn("covey", self.there.run(["covey", "--version"]))
        self.assertIn("-np", self.there.run(["coveyrun", "--help"]))

    def test_a_ctrl_c_at_any_import_says_one_line(self) -> None:
        """From the first that the installed command does on."""
        (self.there.folder / "sitecustomize.py").write_text(
            "import os, sys\n"
            "class Interrupt:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            "        if name == os.environ.get('MODULE'):\n"
            "            os.kill(os.getpid(), 2)\n"
            "sys.meta_path.insert(0, Interrupt())\n"
        )
        for module in ("re", "signal", "covey", "covey.cli.run_command"):
            with self.subTest(module):
                command = ["coveyrun", "-np", "1", "python", "-c", "print('ran')"]
                extra = {"MODULE": module, "PYTHONPATH": str(self.there.folder)}
                said = self.there.run(command, fails=True, **extra)
                self.assertEqual(said, "coveyrun: interrupted\n")

    @unittest.skipIf(shutil.which("mpicc") is None, "there is no mpicc")
    def test_makes_the_plug_in_for_mpi_beside_the_library(self) -> None:
        said = self.there.run(["covey", "build", "mpi"])
        self.assertRegex(said, r"makes \S+/site-packages/covey/libcovey_mpi.so")
        self.assertNotIn("COVEY_PLUGIN_PATH", said)
        asked = subprocess.run(["mpicc", "--showme:version"], capture_output=True, text=True)
        of_root = "Open MPI" in asked.stdout + asked.stderr
        self.assertEqual("of root --allow-run-as-root" in said, of_root, said)
        code = "from covey import _native; _native.plugin_check('mpi')"
        self.there.run(["python", "-c", code])

    def test_records_every_file(self) -> None:
        with zipfile.ZipFile(wheel()) as archive:
            names = set(archive.namelist())
            (record,) = [name for name in names if name.endswith(".dist-info/RECORD")]
            lines = archive.read(record).decode("utf-8").splitlines()
        self.assertEqual({line.split(",")[0] for line in lines}, names)

    def test_has_every_header_of_the_exported_functions(self) -> None:
        folder = "covey/plugins/core/api/"
        with zipfile.ZipFile(wheel()) as archive:
            found = {it[len(folder) :] for it in archive.namelist() if it.startswith(folder)}
        parts = ("control", "methods", "neighbors", "trainer", "values", "waiting")
        self.assertEqual(found, {"covey.h", *(f"covey_{part}.h" for part in parts)})

    def test_is_described(self) -> None:
        said = self.there.run(["pip", "--disable-pip-version-check", "show", "covey"])
        fields = dict(line.partition(": ")[::2] for line in said.splitlines())
        self.assertIn("distributed training", fields["Summary"])
        self.assertTrue(fields["Author"])
        ask = "import importlib.metadata as m; print(m.metadata('covey')[%r])"
        licence = self.there.run(["python", "-c", ask % "License-Expression"])
        self.assertEqual(licence, "Apache-2.0\n")
        text = "import importlib.metadata as m; print(m.distribution('covey').read_text(%r)[:80])"
        said = self.there.run(["python", "-c", text % "licenses/LICENSE"])
        self.assertIn("Apache License", said)
        kinds = "import importlib.metadata as m; print(m.metadata('covey').get_all('Classifier'))"
        self.assertIn("Typing :: Typed", self.there.run(["python", "-c", kinds]))
        self.assertEqual(self.there.run(["python", "-c", ask % "Requires-Python"]), ">=3.9\n")
        self.assertIn("coveyrun -np 4", self.there.run(["python", "-c", ask % "Description"]))

    def test_both_ways_to_its_python_are_named_and_work(self) -> None:
        code = "import covey; covey.init(); print('rank', covey.rank())"
        elsewhere = {"PATH": "/usr/bin:/bin"}
        for name in ("python9", os.path.realpath(sys.executable)):
            command = ["coveyrun", "-np", "2", name, "-c", code]
            said = self.there.run(command, fails=True, **elsewhere)
            found = re.search(r"; type `\. (\S+)` first, or write (\S+) for \S*python", said)
            self.assertIsNotNone(found, said)
            activate, program = found.groups()
            for line in (
                f". {activate} && coveyrun -np 2 python",
                f"{self.there.bin}/coveyrun -np 2 {program}",
            ):
                done = subprocess.run(
                    ["bash", "-c", f"{line} -c {shlex.quote(code)}"],
                    env=self.there.environment(**elsewhere),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=60,
                )
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertEqual(done.stdout.count("rank "), 2, done.stdout)

    def test_depends_on_nothing(self) -> None:
        code = (
            "import importlib.metadata as m\n"
            "print(*(d.metadata['Name'] for d in m.distributions()))"
        )
        installed = set(self.there.run(["python", "-c", code]).split())
        self.assertEqual(installed - {"pip", "setuptools"}, {"covey"})


if __name__ == "__main__":
    unittest.main()
