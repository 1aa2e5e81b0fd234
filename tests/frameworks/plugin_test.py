"""Goal: a job runs over a transport that only a plug-in holds, and one that asks for a plug-in that
is not there says so from init(), from the launcher, and for a CUDA tensor.
Method: tests/plugins has a real plug-in named ucx whose transport is its own copy of the shared
memory's."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import unittest
from typing import Any

import numpy
from ranks import Pool, on_one_host

import covey

_PLUGINS = str(pathlib.Path(__file__).absolute().parents[1] / "plugins")


def init_or_why(settings: Any) -> str:
    try:
        covey.init(settings=settings)
    except covey.Unsupported as error:
        return str(error)
    covey.allreduce(numpy.ones(3), name="x")
    return ""


def loaded_plugins() -> Any:
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sorted({os.path.basename(line.split()[-1]) for line in maps if "libcovey_" in line})


class PluginTest(unittest.TestCase):
    @on_one_host("between hosts the plug-in of this test is refused")
    def test_a_job_runs_over_a_plug_in(self) -> None:
        env = {"COVEY_PLUGIN_PATH": _PLUGINS, "COVEY_TRANSPORT": "ucx"}
        with Pool(2, __file__, init=False, env=env) as pool:
            self.assertEqual(pool.call(loaded_plugins), [[], []])
            self.assertEqual(pool.call(init_or_why, None), ["", ""])
            self.assertEqual(pool.call(loaded_plugins), [["libcovey_ucx.so"]] * 2)

    def test_init_names_an_absent_plug_in(self) -> None:
        with Pool(2, __file__, init=False) as pool:
            for text in pool.call(init_or_why, {"transport": "mpi", "plugin_path": _PLUGINS}):
                self.assertIn("transport mpi: the plug-in libcovey_mpi.so is in none of", text)
                self.assertIn(f"{_PLUGINS} (COVEY_PLUGIN_PATH)", text)
            self.assertEqual(pool.call(init_or_why, None), ["", ""])

    def test_the_launcher_says_it_before_it_starts_a_rank(self) -> None:
        code = "import sys; from covey.cli import coveyrun_main; sys.exit(coveyrun_main())"
        env = {k: v for k, v in os.environ.items() if not k.startswith("COVEY_")}
        env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        done = subprocess.run(
            [sys.executable, "-c", code, "-np", "2", "sh", "-c", "echo started"],
            env={**env, "COVEY_TRANSPORT": "mpi"},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("coveyrun: transport mpi: the plug-in libcovey_mpi.so", done.stderr)

    def test_the_cuda_plug_in_is_named(self) -> None:
        import torch  # Ranks of the other tests do not need it.

        from covey.torch.tensors import FRAMEWORK

        class OnCuda(torch.Tensor):
            device = torch.device("cuda:0")
            is_cpu = False
            is_cuda = True

        with self.assertRaises(covey.Unsupported) as caught:
            FRAMEWORK.code(torch.ones(3).as_subclass(OnCuda))
        text = str(caught.exception)
        self.assertIn("the tensor is on cuda:0: the plug-in cuda reaches no device: ", text)
        self.assertIn("use tensor.cpu()", text)


if __name__ == "__main__":
    unittest.main()
