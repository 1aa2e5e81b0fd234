"""Goal: under `coveyrun --keep-going` a rank that is killed ends nobody else, and who is left is
told; by a method that waits for nobody the others finish their training, with one model.
Method: real `coveyrun` processes; a rank kills itself in the middle."""

from __future__ import annotations

import re
import sys
import unittest

from harness import HOSTS, also, preload, run_launcher

preload("torch")

PLAIN = """
import os, signal, sys
rank = int(os.environ["COVEY_RANK"])
if rank in map(int, sys.argv[1].split(",")): os.kill(os.getpid(), signal.SIGKILL)
"""
TRAINS = """
import os, signal, sys, torch, covey.torch as hvd
hvd.init()
torch.manual_seed(0)
net = torch.nn.Linear(20, 3)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)
for step in range(30):
    if step == 10 and hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    net(torch.randn(8, 20)).square().mean().backward()
    optimizer.step()
optimizer.finish()
print("model", net.weight.double().sum().item().hex(), flush=True)
"""


def keep_going(size: int, code: str, *arguments: str, flags: tuple = ()) -> tuple:
    """(exit code, lines of the ranks, lines of the launcher)."""
    command = [sys.executable, "-c", code, *arguments]
    exit_code, out, err = run_launcher(["-np", str(size), "--keep-going", *flags, *command])
    return exit_code, out, [line for line in err if line.startswith("coveyrun: ")]


LEAVES = TRAINS.replace("os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)")
LEAVES_AFTER = TRAINS.replace("os.kill(os.getpid(), signal.SIGKILL)", "pass") + "os._exit(0)\n"


class LeaveTest(unittest.TestCase):
    def test_who_ends_well_in_the_middle_of_training_is_named(self) -> None:
        wanted = "coveyrun: rank 1 ended with exit code 0 in the middle of training: neither finish"
        quiet = "--quiet"
        more = also(("wagma", quiet), ("wagma",), ("swarm", quiet))
        for flags in (("eager",), ("eager", quiet), ("swarm",), *more):
            with self.subTest(flags=flags):
                exit_code, _, said = keep_going(3, LEAVES, flags=("--method", *flags))
                self.assertEqual(exit_code, 0, said)
                self.assertTrue(any(line.startswith(wanted) for line in said), said)

    def test_a_job_has_failed_if_nobody_has_ended_its_training(self) -> None:
        fails = LEAVES.replace("optimizer.finish()", "sys.exit(3)")
        exit_code, _, said = keep_going(2, fails, flags=("--method", "eager"))
        self.assertEqual(exit_code, 3, said)
        self.assertIn("coveyrun: rank 0 failed, and nobody is left", said)

    def test_who_leaves_after_finish_is_not(self) -> None:
        for code in (LEAVES_AFTER, TRAINS.replace("== 10", "== 99")):
            exit_code, _, said = keep_going(3, code, flags=("--method", "eager"))
            self.assertEqual(exit_code, 0, said)
            self.assertFalse(any("middle of training" in line for line in said), said)


class KeepGoingTest(unittest.TestCase):
    @unittest.skipIf(HOSTS > 1, "between hosts the lines name the host of a rank, too")
    def test_the_others_go_on_and_the_job_has_done_its_work(self) -> None:
        exit_code, _, said = keep_going(4, PLAIN, "1,2")
        self.assertEqual(exit_code, 0, said)
        last = "coveyrun: ranks 1 and 2 failed; ranks 0 and 3 went on and ended with exit code 0"
        self.assertEqual(said[-1], last)
        for rank in (1, 2):
            line = rf"^coveyrun: rank {rank} \(pid \d+\) has failed: killed by SIGKILL; the job g"
            self.assertTrue(any(re.match(line, one) for one in said), said)

    def test_when_all_fail_so_does_the_job(self) -> None:
        exit_code, _, said = keep_going(2, PLAIN, "0,1")
        self.assertEqual(exit_code, 128 + 9)
        self.assertTrue(any("failed first: killed by SIGKILL" in line for line in said), said)

    def test_training_goes_on(self) -> None:
        for method in ("eager", "adpsgd", *also("wagma", "local:max_wait=1s", "swarm")):
            with self.subTest(method=method):
                flags = ("--method", method, "--summary")
                exit_code, out, said = keep_going(3, TRAINS, flags=flags)
                self.assertEqual(exit_code, 0, said)
                models = [line.split("model ")[1] for line in out if "model " in line]
                self.assertEqual((len(models), len(set(models))), (2, 1), out)
                self.assertIn("coveyrun: rank 1: killed by SIGKILL", said)

    def test_by_a_method_that_waits_for_all_the_others_are_told_who_is_gone(self) -> None:
        exit_code, _, said = keep_going(3, TRAINS, flags=("--method", "allreduce"))
        self.assertEqual(exit_code, 128 + 9)
        first = next(line for line in said if "failed first" in line)
        self.assertRegex(first, r"rank 1 .*killed by SIGKILL")
        # The error names the rank that saw the death, if another rank did so first.
        told = [re.search(r"rank 1 has (died|gone \(seen by)", line) for line in said]
        self.assertEqual(sum(it is not None and "then" in it.string for it in told), 2, said)


if __name__ == "__main__":
    unittest.main()
