"""Goal: the method eager trains over MPI as on one host: replicas are equal bit for bit, every step
counts once, one that is stopped holds up nobody and catches up, and what is held up without a
majority says so.
Method: real mpirun; whole numbers as gradients, so that what counts can be counted; SIGSTOP and
SIGCONT between versions that are counted in a file, not timed. Without an MPI on the machine all is
skipped."""

from __future__ import annotations

import unittest

from harness import also
from mpi_job import HAS_MPI, WHY_NOT, MpiJob

# Each rank's gradient of each step is 1 at an element of its own: after finish() the model says how
# many steps of each rank count.
COUNTING = """
    import os, signal, subprocess, sys, time
    import numpy, torch, covey, covey.torch as hvd
    torch.set_num_threads(1)
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    class Net(torch.nn.Module):
        def __init__(self, more=0):
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(size))
            self.more = torch.nn.Parameter(torch.zeros(more + 1))
    def make(method, more=0):
        net = Net(more)
        return net, hvd.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=1.0), model=net, op=hvd.Sum, method=method)
    def step(net, optimizer):
        optimizer.zero_grad()
        (-net.w[rank] + net.more.sum() * 0.001).backward()
        optimizer.step()
    def finish(optimizer):
        while True:
            try:
                return optimizer.finish(strict=True)
            except covey.Timeout:
                pass
"""

TRAINS = (
    COUNTING
    + """
    for method in ("eager:admit=all", "eager:admit=solo,log=200", "eager:admit=majority,log=200",
                   "allreduce:max_wait=20s"):
        net, optimizer = make(method, more=300_000)  # longer than a frame
        for _ in range(20):
            step(net, optimizer)
            mine = covey.allreduce(numpy.ones(1000), name="beside", op=covey.Sum)
            assert (mine == size).all()
        finish(optimizer)
        assert net.w.tolist() == [20.0] * size, (method, net.w)
        hvd.check_replicas(net)
        for _ in range(rank + 1):  # training goes on
            step(net, optimizer)
        finish(optimizer)
        assert net.w.tolist() == [21.0 + r for r in range(size)], (method, net.w)
        hvd.check_replicas(net)
    stats = covey.stats()
    assert stats["round_versions"] >= 60 and stats["malformed_messages"] == 0, stats
"""
)

# Each rank that is told stops itself, one after the other; a child wakes it when the others have
# gone far beyond its log.
STOPS = (
    COUNTING
    + """
    def count():
        return covey.stats()["round_versions"]
    def stops(stopped, folder, method):
        def path(r):
            return os.path.join(folder, f"ahead.{r}.of.{stopped}")
        net, optimizer = make(method)
        before = covey.stats()["round_snapshots"]
        for _ in range(5):
            step(net, optimizer)
        steps = 5
        if rank == stopped:
            others = [path(r) for r in range(size) if r != rank]
            code = ("import os, signal, sys, time\\n"
                    "pid, *paths = sys.argv[1:]\\n"
                    "end = time.monotonic() + 60\\n"
                    "while time.monotonic() < end and not all(map(os.path.exists, paths)):\\n"
                    "    time.sleep(0.01)\\n"
                    "os.kill(int(pid), signal.SIGCONT)\\n")
            subprocess.Popen([sys.executable, "-c", code, str(os.getpid()), *others])
            os.kill(os.getpid(), signal.SIGSTOP)
            assert all(map(os.path.exists, others)), "the others were held up"
        else:
            begin = count()
            while count() < begin + 25:
                step(net, optimizer)
                steps += 1
            open(path(rank), "w").close()
        for _ in range(3):
            step(net, optimizer)
            steps += 1
        finish(optimizer)
        hvd.check_replicas(net)
        assert net.w[rank].item() == steps, (net.w, steps)
        taken = covey.stats()["round_snapshots"] - before
        print(f"{stopped} stopped, snapshots: {taken}", flush=True)
    for stopped in map(int, sys.argv[2].split(",")):
        stops(stopped, *sys.argv[3:])
    print("fine", rank, flush=True)
"""
)

# Of two ranks the second waits for the first, and says whom it waits for.
HELD_UP = (
    COUNTING
    + """
    net, optimizer = make("eager:admit=solo,max_wait=100ms")
    for _ in range(3):
        step(net, optimizer)
    if rank == 0:
        code = ("import os, signal, sys, time; time.sleep(4); "
                "os.kill(int(sys.argv[1]), signal.SIGCONT)")
        subprocess.Popen([sys.executable, "-c", code, str(os.getpid())])
        os.kill(os.getpid(), signal.SIGSTOP)
    for _ in range(3):
        step(net, optimizer)
    finish(optimizer)
    assert net.w.tolist() == [6.0, 6.0], net.w
    hvd.check_replicas(net)
    print("fine", rank, flush=True)
"""
)

LEAVES = (
    COUNTING
    + """
    net, optimizer = make("eager:admit=all,max_wait=200ms,log=200")
    for _ in range(5):
        step(net, optimizer)
    if rank == 0:
        covey.shutdown()
    else:
        for _ in range(10):
            step(net, optimizer)
        finish(optimizer)
        assert net.w.tolist() == [5.0] + [15.0] * (size - 1), net.w
    print("fine", rank, flush=True)
"""
)

# A step that leaves its gradients out counts for no rank.
NULLS = """
    print("nulls", flush=True)
    net, optimizer = make("eager:admit=all")
    for turn in range(6):
        if turn % size == rank:
            optimizer.grad_scale, optimizer.found_inf = torch.ones(1), torch.ones(1)
        step(net, optimizer)
    finish(optimizer)
    wanted = [float(6 - len([t for t in range(6) if t % size == r])) for r in range(size)]
    assert net.w.tolist() == wanted, (net.w, wanted)
    hvd.check_replicas(net)
"""

# Without updates a step is the matrix of its topology; with them the mean of all moves by theirs.
NEIGHBORS = """
    print("neighbors", flush=True)
    for name in ("ring", "one_peer", "full"):
        for order in ("cwa", "atc"):
            for rate in (0.0, 1.0):
                w = torch.nn.Parameter(torch.full((200_003,), float(rank), dtype=torch.float64))
                optimizer = hvd.DistributedOptimizer(
                    torch.optim.SGD([w], lr=rate), method=f"dpsgd:topology={name},order={order}")
                wanted = [float(r) for r in range(size)]
                for step in range(5):
                    rows = [covey.topology(name).weights(r, step) for r in range(size)]
                    moves = [-rate * (r + step) for r in range(size)]
                    if order == "atc":
                        wanted = [a + b for a, b in zip(wanted, moves)]
                    wanted = [sum(a * b for a, b in zip(row, wanted)) for row in rows]
                    if order == "cwa":
                        wanted = [a + b for a, b in zip(wanted, moves)]
                    optimizer.zero_grad()
                    (w * (rank + step)).sum().backward()
                    optimizer.step()
                    assert (w - wanted[rank]).abs().max() < 1e-9, (name, order, step)
                optimizer.finish()
                hvd.check_replicas({"w": w})
                assert (w - sum(wanted) / size).abs().max() < 1e-9
"""

# Versions of deltas, with gradients that the script keeps.
DELTAS = """
    for method in ("diloco:local_steps=2", "local:local_steps=2,max_wait=60s"):
        print("deltas", method, flush=True)
        torch.manual_seed(0)
        net = torch.nn.Linear(30, 20)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1), model=net, method=method)
        for step in range(8):
            optimizer.zero_grad()
            net(torch.full((1, 30), hvd.rank() + 1.0)).square().mean().backward()
            optimizer.step()
        optimizer.finish()
        hvd.check_replicas(net)
"""

# Models, averaged in groups.
MODELS = """
    print("models", flush=True)
    net = torch.nn.Linear(3, 2)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), model=net, method="wagma:group_size=2")
    for step in range(8):
        optimizer.zero_grad()
        net(torch.full((1, 3), rank + 1.0)).sum().backward()
        optimizer.step()
    optimizer.finish()
    hvd.check_replicas(net)
    print("fine", rank, flush=True)
"""


@unittest.skipUnless(HAS_MPI, WHY_NOT)
class MpiRoundsTest(MpiJob):
    def test_what_every_rank_takes_part_in(self) -> None:
        # One job: the start of torch costs more than any of these trainings.
        for size in (4, *also(2)):
            self.check_fine(size, TRAINS + NULLS + NEIGHBORS + DELTAS + MODELS)

    def test_one_that_is_stopped_holds_up_nobody_and_catches_up(self) -> None:
        for method in ("eager:admit=all,max_wait=200ms,log=4", *also("allreduce:max_wait=200ms")):
            # The last one, and the leader.
            out = self.check_fine(4, STOPS, "3,0", self.new_folder(), method).stdout
            for stopped in (3, 0):
                self.assertRegex(out, f"{stopped} stopped, snapshots: [1-9]")

    def test_of_two_ranks_the_second_says_that_it_waits_for_the_first(self) -> None:
        err = self.check_fine(2, HELD_UP).stderr
        self.assertRegex(err, "covey rank 1 warning: version .* is held up.* rank 0 for ")

    def test_one_that_leaves_is_waited_for_no_longer(self) -> None:
        self.check_fine(3, LEAVES)


if __name__ == "__main__":
    unittest.main()
