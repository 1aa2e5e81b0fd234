"""Goal: models are averaged in pairs between hosts that share nothing but a network: what all ranks
have learnt is in the mean of finish(), with and without a codec, a rank that is stopped holds up no
step of a rank on another host, and covey.consensus names it.
Method: hosts of tools/cluster; jobs of coveyrun -H over TCP."""

from __future__ import annotations

import unittest

from cluster_tensors_test import Tensors, training

# Progress in whole numbers: the mean of finish() is exact, but for the errors of a codec.
ARRAYS = """
import numpy, covey, covey.numpy
covey.init()
rank, size = covey.rank(), covey.size()
METHODS = "adpsgd adpsgd:topology=full swarm:H=2 swarm:H=3,exchange=nonblocking"
METHODS += " swarm:H=2,codec=bf16 adpsgd:codec=lattice@8"
def update(parameters, gradients):
    for parameter, gradient in zip(parameters, gradients):
        parameter -= gradient
for method in METHODS.split():
    parameters = [numpy.ones(3000, numpy.float32), numpy.ones(500)]
    trainer = covey.numpy.Trainer(parameters, update, method=method)
    for epoch in (1, 2):
        for step in range(20):
            trainer.step([numpy.full_like(p, rank + 1) for p in parameters])
        trainer.finish()
        expected = 1 - epoch * 20 * (size + 1) / 2
        near = 1 if "codec" in method else 1e-3
        assert numpy.abs(parameters[1] - expected).max() < 1e-9, (method, parameters[1], expected)
        assert numpy.abs(parameters[0] - expected).max() < near, (method, parameters[0], expected)
        covey.check_replicas(dict(zip("ab", parameters)))
print(f"fine {rank}", flush=True)
"""

TRAINING = training("adpsgd swarm:H=2 swarm:H=2,codec=int8", 20)

# The last rank stops itself. The others do all their steps before one of its host wakes it.
STOPPED = """
import os, pathlib, signal, time
import numpy, covey, covey.numpy
covey.init()
rank, size = covey.rank(), covey.size()
last = size - 1
others = covey.group(range(last))
pid = int(covey.allgather(numpy.array([os.getpid()]), name="pids")[last])
def update(parameters, gradients):
    parameters[0] -= gradients[0]
def is_stopped():
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
parameters = [numpy.ones(20000)]
trainer = covey.numpy.Trainer(parameters, update, method="adpsgd:topology=full")
trainer.step([numpy.full(20000, rank + 1.0)])
covey.barrier()
if rank == last:
    os.kill(pid, signal.SIGSTOP)
else:
    while rank == last - 1 and not is_stopped():
        time.sleep(0.01)
    covey.barrier(others)
    for step in range(30):
        trainer.step([numpy.full(20000, rank + 1.0)])
    covey.barrier(others)
    with covey.consensus(trainer, timeout=10 if rank == 0 else 0) as mean:
        if rank == 0:
            assert mean.missing.keys() == {last}, mean
            assert mean.missing[last].startswith("it has not answered: it is stopped"), mean
            assert mean.ages == {other: 0 for other in range(last)}, mean
    covey.barrier(others)
    if rank == last - 1:
        assert is_stopped()
        os.kill(pid, signal.SIGCONT)
trainer.finish()
expected = 1 - (31 * sum(range(1, size)) + size) / size
assert numpy.abs(parameters[0] - expected).max() < 1e-9, (parameters[0], expected)
with covey.consensus(trainer) as mean:
    assert not mean.missing and mean.distance < 1e-9, mean
covey.barrier()
print(f"fine {rank}", flush=True)
"""


class PairsTest(Tensors):
    def fine(self, code: str, hosts: str, size: int, *more: str) -> None:
        status, said = self.run_job("-H", hosts, *more, *self.python_of(code))
        self.assertEqual(status, 0, said)
        self.check_fine(said + "\n", size)

    def test_arrays_of_two_and_two(self) -> None:
        self.fine(ARRAYS, "a:2,b:2", 4)

    def test_arrays_of_two_and_one_and_one_without_encryption(self) -> None:
        self.fine(ARRAYS, "a:2,b:1,c:1", 4, "--network-security", "auth")

    def test_a_torch_model_of_two_and_two(self) -> None:
        self.fine(TRAINING, "a:2,b:2", 4)

    def test_a_stopped_rank_holds_up_no_step_of_another(self) -> None:
        self.fine(STOPPED, "a:2,b:2", 4)

    def test_ranks_of_a_host_that_share_no_memory(self) -> None:
        status, said = self.run_job("-H", "a:2,b:1", *self.python_of(ARRAYS),
                                    COVEY_HOST_MEMORY="never")
        self.assertEqual(status, 0, said)
        self.check_fine(said + "\n", 3)


if __name__ == "__main__":
    unittest.main()
