"""Goal: `cross_every` of a method averages within hosts, and between them in every so-many-th step:
each model is what the rows of covey.topology make of the models of all, also where hosts have
unequal numbers of ranks. Method: hosts of tools/cluster; each rank computes all models itself."""

from __future__ import annotations

import unittest
from typing import Sequence

from cluster_hosts_test import Hosts

# A rank's update at step s adds a number of its own: its gradient does not depend on the model.
_TRAINING = """
import sys, torch, covey, covey.torch as hvd
hosts, every, topology = eval(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
torch.set_num_threads(1)
hvd.init()
rank, size = hvd.rank(), hvd.size()
rows = covey.topology(topology, size=size, hosts=hosts, cross_every=every)
net = torch.nn.Linear(50, 1, bias=False).double()
with torch.no_grad():
    net.weight.fill_(rank)
method = f"dpsgd:topology={topology},order=atc,cross_every={every}"
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(net.parameters(), lr=1), model=net, method=method)
models = [float(r) for r in range(size)]
crossed = 0
for step in range(3 * every):
    optimizer.zero_grad()
    (net.weight * -float(rank * step)).sum().backward()
    optimizer.step()
    updated = [model + r * step for r, model in enumerate(models)]
    weights = [rows.weights(r, step) for r in range(size)]
    models = [sum(w * x for w, x in zip(row, updated)) for row in weights]
    crossed += any(weights[rank][r] for r in range(size) if hosts[r] != hosts[rank])
    assert torch.allclose(net.weight, torch.tensor(models[rank]).double()), (step, models)
assert crossed in (0, 3), crossed  # A rank may have no counterpart on another host.
assert hvd.allreduce(torch.tensor([crossed]), op=hvd.Max, name="crossed").item() == 3
optimizer.finish()
print(f"fine {rank}", flush=True)
"""


class CrossingTest(Hosts):
    HOSTS = "2"

    def fine(self, hosts: str, of_rank: Sequence[int], *more: str) -> None:
        code, said = self.run_job("-H", hosts, *self.python_of(_TRAINING, str(of_rank), *more))
        self.assertEqual(code, 0, said)
        for rank in range(len(of_rank)):
            self.assertEqual((said + "\n").count(f"fine {rank}\n"), 1, said)

    def test_two_and_two(self) -> None:
        self.fine("a:2,b:2", [0, 0, 1, 1], "2", "exponential")

    def test_three_and_one_in_pairs(self) -> None:
        self.fine("a:3,b:1", [0, 0, 0, 1], "3", "bipartite")


if __name__ == "__main__":
    unittest.main()
