"""Goal: in an elastic job (coveyrun --min-np) ranks that are killed are replaced, the others go on
meanwhile, and nothing that was committed is lost.
Method: real `coveyrun` processes; a rank kills itself at a step. All ranks compute the same
gradients, so whatever ranks there are, the model is that of one process after as many steps."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import unittest
from typing import List, Tuple

import torch
from harness import REPOSITORY, Launched, also, preload, run_launcher

preload("torch")

EXAMPLES = REPOSITORY / "examples"
COMMON = """
import os, signal, sys, torch, covey.torch as hvd
METHOD, FOLDER = sys.argv[1:3]
hvd.init()
torch.manual_seed(0)
net = torch.nn.Linear(4, 2)

def is_killed(step, *ranks):
    if step == 10 and hvd.rank() in ranks and not is_new:
        open(os.path.join(FOLDER, "killed"), "w").close()
        os.kill(os.getpid(), signal.SIGKILL)

def gradients(step):
    torch.manual_seed(step)
    net(torch.randn(8, 4)).square().mean().backward()
"""
MAKES = """
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(net.parameters(), lr=0.125), model=net, method=METHOD)
"""
TRAINS = COMMON + MAKES + """
is_new = os.path.exists(os.path.join(FOLDER, "killed"))
sizes, resets = [], []
state = hvd.elastic.TorchState(net, optimizer, step=0, size=0)
state.register_reset_callbacks([lambda: resets.append(hvd.size())])

@hvd.elastic.run
def train(state):
    sizes.append(hvd.size())
    hvd.barrier()  # By eager a rank may be killed before another one has come to its first step.
    state.size = state.size or hvd.size()
    while state.step < 20 or hvd.size() < state.size or len(sizes) + is_new < 2:
        optimizer.zero_grad()
        gradients(state.step)
        optimizer.step()
        state.step += 1
        is_killed(state.step, *map(int, sys.argv[3].split(",")))
        state.commit()
    optimizer.finish()

train(state)
numbers = net.weight.double().sum().item().hex()
assert sizes[1:] == resets, (sizes, resets)
print("end", hvd.rank(), state.step, sizes, numbers, flush=True)
"""
LASTS = TRAINS.replace("hvd.size() < state.size", "False").replace("+ is_new < 2", "< 1")
STOPS = LASTS.replace("state.step += 1", """state.step += 1
        if state.step == 10 and hvd.rank() == 2: os.kill(os.getpid(), signal.SIGSTOP)""")
MADE_INSIDE = TRAINS.replace(MAKES, "").replace("sizes.append", """global optimizer
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.125), model=net, method=METHOD)
    sizes.append""").replace("TorchState(net, optimizer,", "TorchState(net,")
SYNCHRONOUS = ("allreduce", "local:local_steps=2")
PLAIN = COMMON + """
is_new = False
for step in range(20):
    is_killed(step, 1)
    hvd.allreduce(torch.ones(1))
"""

OTHERS = """
import os, signal, sys, numpy, torch, covey.numpy, covey.torch as hvd
import torch.distributed as dist
hvd.init()

def refused(make):
    try:
        make()
        print("made", flush=True)
    except covey.Unsupported as error:
        print("refused:", error, flush=True)

def trainer():
    def update(parameters, gradients):
        parameters[0] -= gradients[0]
    return covey.numpy.Trainer([weight], update)

weight = numpy.zeros(2)
refused(trainer)
refused(lambda: covey.torch.DistributedDataParallel(torch.nn.Linear(1, 1)))
refused(lambda: dist.init_process_group("covey"))
is_new = os.path.exists(os.path.join(sys.argv[2], "killed"))
state = hvd.elastic.ObjectState(weight=weight, step=0)
worlds = 0

@hvd.elastic.run
def train(state):
    global worlds, weight
    weight, worlds = state.weight, worlds + 1
    with trainer() as made:
        while state.step < 5 or worlds + is_new < 2 or hvd.size() < 3:
            made.step([numpy.ones(2)])
            state.weight, state.step = weight.copy(), state.step + 1
            if hvd.rank() == 1 and state.step == 3 and not is_new:
                open(os.path.join(sys.argv[2], "killed"), "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            state.commit()

train(state)
print("end", hvd.rank(), state.weight.tolist() == [-float(state.step)] * 2, flush=True)
"""


LEAVES = """
import sys, numpy, covey.numpy
from covey.elastic import ObjectState, run
covey.init()
state = ObjectState(step=0)

@run
def train(state):
    while state.step < 20:
        covey.numpy.allreduce(numpy.ones(1))
        state.step += 1
        state.commit()
        if state.step == 5 and covey.rank() == 1:
            sys.exit(0)

train(state)
"""


def model_after(steps: int) -> str:
    """Of one process."""
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.125)
    for step in range(steps):
        torch.manual_seed(step)
        optimizer.zero_grad()
        net(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    return float(net.weight.detach().double().sum()).hex()


def elastic(size: int, code: str, *arguments: str, flags: Tuple[str, ...] = ()) -> tuple:
    """(exit code, lines of the ranks, lines of the launcher)."""
    with tempfile.TemporaryDirectory() as folder:
        method, *others = arguments
        command = [sys.executable, "-c", code, method, folder, *others]
        exit_code, out, err = run_launcher(["-np", str(size), *flags, *command])
    return exit_code, out, err


class ElasticTest(unittest.TestCase):
    def ends(self, out: List[str], method: str = "allreduce") -> List[Tuple[int, List[int]]]:
        """(rank, sizes of its worlds) of each rank. Models are equal; where all ranks wait for each
        other, they are those of one process."""
        found, models = [], set()
        for line in out:
            match = re.fullmatch(r"\[\d+\] end (\d+) (\d+) (\[.*\]) (\S+)", line)
            if match is None:
                continue
            models.add(match[4])
            got, wanted = float.fromhex(match[4]), float.fromhex(model_after(int(match[2])))
            if method in SYNCHRONOUS:
                self.assertAlmostEqual(got, wanted, places=5)
            found.append((int(match[1]), eval(match[3])))  # pylint: disable=eval-used
        self.assertEqual(len(models), 1)
        return sorted(found)

    def test_a_killed_rank_is_replaced_and_the_others_go_on_meanwhile(self) -> None:
        more = also(*"wagma dpsgd swarm adpsgd local:local_steps=2".split())
        for method in ("allreduce", "eager", "diloco:local_steps=2", *more):
            with self.subTest(method=method):
                code, out, err = elastic(4, TRAINS, method, "1", flags=("--min-np", "2"))
                self.assertEqual(code, 0, err)
                ends = self.ends(out, method)
                self.assertEqual([rank for rank, _ in ends], [0, 1, 2, 3], (out, err))
                self.assertEqual(ends[3][1], [4], "the newcomer is the last rank")
                for _, sizes in ends[:3]:
                    self.assertIn(sizes, ([4, 3, 4], [4, 4]), "one may miss a short world")
                said = "\n".join(err)
                self.assertIn("rank 1 (pid", said)
                self.assertIn("the job goes on (--min-np)", said)
                self.assertRegex(said, "1 process failed; ranks 0, 1, 2 and 3 ended with exit code")

    def test_without_restarts_the_others_are_fewer(self) -> None:
        flags = ("--min-np", "2", "--max-restarts", "0")
        code, out, err = elastic(4, LASTS, "allreduce", "1,3", flags=flags)
        self.assertEqual(code, 0, err)
        ends = self.ends(out)
        self.assertEqual([rank for rank, _ in ends], [0, 1], (out, err))
        self.assertTrue(all(sizes[0] == 4 and sizes[-1] == 2 for _, sizes in ends), ends)

    def test_rank_0_may_be_killed(self) -> None:
        code, out, err = elastic(3, TRAINS, "allreduce", "0", flags=("--min-np", "1"))
        self.assertEqual(code, 0, err)
        self.assertEqual([rank for rank, _ in self.ends(out)], [0, 1, 2], (out, err))

    def test_with_all_ranks_needed_the_others_wait_for_the_new_one(self) -> None:
        code, out, err = elastic(2, TRAINS, "allreduce", "1", flags=("--min-np", "2"))
        self.assertEqual(code, 0, err)
        self.assertEqual(self.ends(out), [(0, [2, 2]), (1, [2])], (out, err))

    def test_a_rank_that_is_stopped_is_ended_when_the_others_have_waited_enough(self) -> None:
        flags = ("--min-np", "1", "--max-restarts", "0", "--elastic-timeout", "2")
        code, out, err = elastic(3, STOPS, "allreduce", "1", flags=flags)
        self.assertEqual(code, 0, (out, err))
        self.assertEqual(self.ends(out), [(0, [3, 1])], (out, err))
        self.assertTrue(any("rank 2 (pid" in line and "SIGKILL" in line for line in err), err)

    def test_an_optimizer_may_be_made_within_the_function(self) -> None:
        code, out, err = elastic(3, MADE_INSIDE, "allreduce", "1", flags=("--min-np", "2"))
        self.assertEqual(code, 0, err)
        self.assertEqual([rank for rank, _ in self.ends(out)], [0, 1, 2], (out, err))

    def test_too_few_ranks_end_the_job_with_the_reason(self) -> None:
        flags = ("--min-np", "3", "--max-restarts", "0")
        code, _, err = elastic(3, LASTS, "allreduce", "1", flags=flags)
        self.assertEqual(code, 137, err)
        wanted = "2 of 3 ranks are left (--min-np), and no more are started: --max-restarts 0"
        self.assertTrue(any(line.endswith(wanted) for line in err), err)

    def test_a_rank_that_leaves_early_with_code_0_ends_no_job_well(self) -> None:
        code, out, err = elastic(3, LEAVES, "allreduce", flags=("--min-np", "2"))
        self.assertEqual(code, 1, (out, err))
        wanted = "no place in another world: another rank has ended with exit code 0"
        self.assertTrue(any(line.endswith(wanted) for line in err), err)
        self.assertFalse(any("the job goes on" in line for line in err), err)

    def test_ranks_that_use_no_runtime_end_well(self) -> None:
        for flags in ((), ("--keep-going",)):
            command = ["-np", "3", "--min-np", "2", *flags, "true"]
            self.assertEqual(run_launcher(command), (0, [], []))

    def test_a_script_without_states_fails_as_in_any_job(self) -> None:
        code, _, err = elastic(3, PLAIN, "allreduce", flags=("--min-np", "2"))
        self.assertEqual(code, 137, err)
        wanted = "rank 1 failed before a rank had a state (hvd.elastic.run)"
        self.assertTrue(any(line.endswith(wanted) for line in err), err)


class ExampleTest(unittest.TestCase):
    def test_the_others_go_on_and_another_one_comes(self) -> None:
        script = [sys.executable, str(EXAMPLES / "elastic.py"), "--epochs", "1000"]
        flags = ["-np", "3", "--min-np", "2"]
        with Launched([*flags, *script, "--step", "0.001"]) as launched:
            pids = [launched.wait_for(rf"pid (\d+): rank {it} of 3")[0][1] for it in range(3)]
            os.kill(int(pids[1]), signal.SIGKILL)
            launched.wait_for(rf"pid {pids[2]}: rank 1 of 2")
            launched.wait_for(rf"pid (?!{'|'.join(pids)})\d+: rank 2 of 3")
            launched.send(signal.SIGTERM)
            self.assertEqual(launched.finish(), 128 + signal.SIGTERM)

    def test_it_ends_with_one_model(self) -> None:
        script = [sys.executable, str(EXAMPLES / "elastic.py"), "--epochs", "1", "--step", "0"]
        code, out, err = run_launcher(["-np", "2", "--min-np", "1", *script])
        self.assertEqual(code, 0, err)
        self.assertEqual(sum("the end, parameters equal on all 2" in line for line in out), 2, out)


class OthersTest(unittest.TestCase):
    def test_what_ends_with_its_ranks_is_made_within_the_function(self) -> None:
        code, out, err = elastic(3, OTHERS, "allreduce", flags=("--min-np", "2"))
        self.assertEqual(code, 0, (out, err))
        for what in ("a Trainer is made", "a DistributedDataParallel is made", "there is none"):
            self.assertEqual(sum(what in line for line in out), 4, (what, out))
        self.assertFalse(any(line.endswith("made") for line in out), out)
        ends = sorted(line.partition(" ")[2] for line in out if "] end " in line)
        self.assertEqual(ends, [f"end {rank} True" for rank in range(3)], (out, err))


class OptionsTest(unittest.TestCase):
    def test_wrong_options_are_refused(self) -> None:
        for flags, wanted in (
            (("--min-np", "3"), "--min-np 3: there are only -np 2 ranks"),
            (("--min-np", "1", "--max-np", "1"), "--max-np 1: there are -np 2 ranks at first"),
            (("--max-restarts", "1"), "--max-restarts needs --min-np N"),
            (("--min-np", "1", "--join", "a:1"), "--min-np is for one coveyrun, which starts all"),
        ):
            with self.subTest(flags=flags):
                code, _, err = run_launcher(["-np", "2", *flags, "true"])
                self.assertEqual(code, 2)
                self.assertIn(wanted, err[-1])


if __name__ == "__main__":
    unittest.main()
