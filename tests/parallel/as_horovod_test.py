"""`coveyrun --as-horovod`: scripts written for Horovod run without a change.

Method: jobs run such scripts. The name horovod means Covey's own modules, so a class is the same by
both names.
"""

from __future__ import annotations

import os
import sys
import tempfile
import unittest

from harness import TENSORFLOW, WHY_NO_TENSORFLOW, preload, run_launcher, with_operations

preload("torch")

SCRIPT = """
import torch
import horovod
import horovod.torch as hvd
from horovod.torch.compression import Compression
from horovod.torch.functions import allgather_object, broadcast_object
from horovod.torch.mpi_ops import allreduce, rank
from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from horovod.common.elastic import ObjectState
from horovod.common.process_sets import ProcessSet, add_process_set, global_process_set
from horovod.common.util import env, gloo_built, is_version_greater_equal_than, nccl_built
from horovod.runner import run
from horovod.runner.common.util.env import get_env_rank_and_size
from horovod.runner.util.threads import in_thread
from horovod.torch.elastic import ElasticSampler
from horovod.torch.elastic.sampler import ElasticSampler as Sampler
from horovod.torch.elastic.state import StateHandler, TorchState, get_handler_registry
import covey.torch
import os
from covey.common.exceptions import HorovodInternalError as by_its_own_name
from covey.common.elastic import ObjectState as state_by_its_own_name
from covey.torch.mpi_ops import allreduce as allreduce_by_its_own_name

assert get_env_rank_and_size() == (int(os.environ["RANK"]), 2)
hvd.init()
torch.manual_seed(1)
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1 * hvd.size())
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=net.named_parameters(), compression=Compression.none)
hvd.broadcast_parameters(net.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
for step in range(3):
    optimizer.zero_grad()
    net(torch.ones(4, 3) * (hvd.rank() + 1)).square().mean().backward()
    optimizer.step()
assert hvd is covey.torch and Compression is hvd.Compression
assert issubclass(HorovodInternalError, RuntimeError)
assert by_its_own_name is HorovodInternalError and state_by_its_own_name is ObjectState
assert allreduce_by_its_own_name is allreduce
assert is_version_greater_equal_than("2.13.0+cpu", "2.9") and "EXTRA" not in os.environ
assert not is_version_greater_equal_than("1.9", "1.10.0")
with env(EXTRA="1", RANK=None):
    in_thread(lambda name: print("in", name, os.environ["EXTRA"]), ("EXTRA",)).join()
assert "EXTRA" not in os.environ and "RANK" in os.environ
assert ObjectState is hvd.elastic.ObjectState and ElasticSampler is hvd.elastic.ElasticSampler
assert Sampler is ElasticSampler and TorchState is hvd.elastic.TorchState and run is horovod.run
assert issubclass(get_handler_registry()[0][1], StateHandler)
assert isinstance(global_process_set, ProcessSet) and ProcessSet is hvd.ProcessSet
assert hvd.__spec__.name == "covey.torch" and horovod.__version__
optimizer.finish()
same = hvd.allgather(net.weight.detach())
assert torch.equal(same[0], same[-1])
print("sum", allreduce(torch.ones(1) * rank(), average=False).item())
try:
    import horovod.spark
except ModuleNotFoundError as error:
    print(error)
"""
ATTRIBUTES = """
import covey.{0}
import horovod.{0} as hvd
hvd.init()
assert hvd.mpi_ops.Sum is hvd.Sum and covey.{0}.mpi_ops is hvd.mpi_ops
assert hvd.compression.Compression is hvd.Compression and hvd.functions is not None
print("an attribute" if "{0}" == "torch" or hvd.util else "")
try:
    hvd.mpi_opps
except AttributeError as error:
    print(error)
"""
KERAS = """
import horovod.tensorflow as tf_hvd
from horovod.tensorflow.mpi_ops import size
from horovod.tensorflow.util import _executing_eagerly
import horovod.tensorflow.keras as hvd
import horovod.keras
import keras, numpy as np
hvd.init()
model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
model.fit(np.ones((8, 2)), np.ones((8, 1)), epochs=1, verbose=0,
          callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
assert size is tf_hvd.size and _executing_eagerly()
print("size", tf_hvd.size())
"""


class AsHorovodTest(unittest.TestCase):
    def run_script(self, text: str, *options: str, **extra: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            arguments = ["-np", "2", *options, sys.executable, path]
            code, out, errors = run_launcher(arguments, env={**with_operations(), **extra})
        said = "\n".join(out + errors)
        self.assertEqual(code, 0, said)
        return said

    def test_a_script_for_torch(self) -> None:
        for options in ((), ("--method", "eager")):
            said = self.run_script(SCRIPT, "--as-horovod", *options)
            self.assertEqual(said.count("sum 1.0"), 2, said)
            self.assertIn("has no horovod.spark", said)
            self.assertEqual(said.count("in EXTRA 1"), 2, said)

    def test_modules_of_torch_are_attributes(self) -> None:
        said = self.run_script(ATTRIBUTES.format("torch"), "--as-horovod")
        self.assertEqual(said.count("an attribute"), 2, said)
        self.assertIn("module 'covey.torch' has no attribute 'mpi_opps'", said)

    @unittest.skipUnless(TENSORFLOW, WHY_NO_TENSORFLOW)
    def test_modules_of_tensorflow_are_attributes(self) -> None:
        said = self.run_script(
            ATTRIBUTES.format("tensorflow"), "--as-horovod", COVEY_PRELOAD="tensorflow"
        )
        self.assertEqual(said.count("an attribute"), 2, said)

    @unittest.skipUnless(TENSORFLOW, WHY_NO_TENSORFLOW)
    def test_a_script_for_keras(self) -> None:
        said = self.run_script(KERAS, "--as-horovod", COVEY_PRELOAD="tensorflow")
        self.assertEqual(said.count("size 2"), 2, said)

    def test_the_ranks_see_no_variable_of_it(self) -> None:
        said = self.run_script(
            "import os; print([n for n in os.environ if 'AS_HOROVOD' in n], "
            "os.environ['PYTHONPATH'].split(':')[0])",
            "--as-horovod",
        )
        self.assertEqual(said.count("[] "), 2, said)
        self.assertIn("covey/as_horovod", said)


if __name__ == "__main__":
    unittest.main()
