"""Goal: what training needs beside operations and methods is right between hosts that share nothing
but a network: checkpoints, TensorFlow and Keras, the backend of torch.distributed, NumPy's trainer.
A steady step costs no message to or from the coordinator.
Method: hosts of tools/cluster, whose files are shared but for /dev/shm, two of them mostly."""

from __future__ import annotations

import importlib.util
import pathlib
import tempfile
import unittest

import cluster_tensors_test as tensors
import cluster_training_programs as programs
from cluster_hosts_test import has_tcp

_OPERATIONS = pathlib.Path(__file__).absolute().parent / "tensorflow_operations"
_TWO = "a:2,b:2"


@unittest.skipUnless(has_tcp(), "libcovey_tcp.so is not there")
class Training(tensors.Tcp):
    HOSTS = "4"

    def fine_with(self, code: str, hosts: str, size: int, *arguments: str, **env: str) -> None:
        """A command of a program with arguments."""
        status, said = self.run_job("-H", hosts, *self.python_of(code), *arguments, **env)
        self.assertEqual(status, 0, said)
        self.check_fine(said + "\n", size)


class CheckpointsTest(Training):
    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_training_goes_on_on_the_same_and_on_other_hosts(self) -> None:
        self.fine_with(programs.CHECKPOINTS, _TWO, 4, "save", self.folder)
        self.fine_with(programs.CHECKPOINTS, _TWO, 4, "load", self.folder)
        self.fine_with(programs.CHECKPOINTS, "a,b,c,d", 4, "load", self.folder, "placed")
        self.fine_with(programs.CHECKPOINTS, "a:2,b", 3, "load", self.folder)

    def test_a_folder_that_a_host_does_not_see_is_named_on_every_rank(self) -> None:
        self.do("exec", "all", "mkdir", "/dev/shm/own")
        self.fine_with(programs.APART, _TWO, 4, self.folder, "/dev/shm/own")


@unittest.skipUnless(importlib.util.find_spec("tensorflow"), "TensorFlow is not installed")
class TensorflowTest(Training):
    def learns(self, code: str, **more: str) -> None:
        env = {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", **more}
        if _OPERATIONS.is_dir():  # By hand the first import compiles them.
            env["COVEY_PLUGIN_PATH"] = str(_OPERATIONS)
        self.fine_with(code, _TWO, 4, **env)

    def test_operations_and_the_tape(self) -> None:
        self.learns(programs.TENSORFLOW)

    def test_keras_by_the_method_of_the_job(self) -> None:
        for method in ("allreduce", "local:local_steps=2"):
            self.learns(programs.KERAS, COVEY_METHOD=method)

    def test_ranks_of_torch_and_tensorflow_train_one_model(self) -> None:
        self.learns(programs.MIXED)


class FrameworksTest(Training):
    def test_backend_of_torch_distributed(self) -> None:
        self.fine(programs.BACKEND, "a:2,b", 3)

    def test_trainer_of_numpy_arrays(self) -> None:
        self.fine(programs.NUMPY, _TWO, 4)

    def test_a_steady_step_sends_the_coordinator_nothing(self) -> None:
        self.fine(programs.STEADY, _TWO, 4)


if __name__ == "__main__":
    unittest.main()
