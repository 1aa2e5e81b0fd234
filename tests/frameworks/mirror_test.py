"""Goal: every method trains parameters on a device as those on the CPU, bit for bit, also where a
rank is late, goes on from a snapshot, overflows, saves and loads, or goes to another method.
Method: a device that does everything as late as it may (``late_cuda``), so that a copy nobody waits
for gives other numbers; ranks step in turn where a method lets them come as they like. The tests of
the device say that it is late.
"""

from __future__ import annotations

import tempfile
import unittest
from typing import Any, Dict, List, Tuple

import torch
import trainings
from late_cuda import Event, Stream, running
from mirror_training import (
    IN_TURN,
    TOGETHER,
    Training,
    check_both,
    digest,
    in_turn,
    there_is,
    together,
)
from ranks import SEED, SharedPool, also, on_one_host

import covey
import covey.torch as hvd
from covey.torch.trainer import mirror

pool = SharedPool(__file__)


def of(size: int, methods: Any) -> List[str]:
    """Among four ranks those that go by groups, neighbours or pairs; with --slow all."""
    kinds = ("wagma:S", "dpsgd", "adpsgd", "swarm")
    return [it for it in methods if size == 2 or it.startswith(kinds) or also(it)]


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def from_a_snapshot(device: str) -> Tuple[str, int, int]:
    """Rank 1 comes after more steps of rank 0 than the log reaches back."""
    with there_is(device):
        training = Training(device, "eager:admit=solo,log=2,max_wait=100ms")
        for _ in range(6 if hvd.rank() == 0 else 1):
            training.step()
        hvd.barrier()
        for _ in range(3):
            training.step()
        done, recovered = training.end(), trainings.counts(training.optimizer)["snapshots"]
        steps = {
            state["step"].device.type for state in training.optimizer.state.values() if state
        }
        assert steps == {"cpu"}, steps
        return done, training.optimizer.version, recovered


def saves_and_loads(device: str, method: str, path: str) -> List[Any]:
    """What comes of going on, and of loading and going on; and what is seen in between."""
    with there_is(device):
        training = Training(device, method)
        for _ in range(5):
            training.step()
        training.digest()
        hvd.save(path, training.net, training.optimizer)
        found = []
        for exact in (True, False):
            hvd.barrier()
            with covey.consensus(training.net, exact=exact) as mean:
                means = digest(training.optimizer, training.net)
            alike = device == "cpu" or not method.startswith(("local:H", "dpsgd"))
            found.append((means, mean.distance, mean.ages, mean.missing) if exact or alike else 0)
        for _ in range(4):
            training.step()
        one = training.digest()
        hvd.barrier()
        hvd.load(path, training.net, training.optimizer)
        training.done = 5
        for _ in range(4):
            training.step()
        return [found, one, training.digest()]


def unseen(method: str) -> Dict[int, str]:
    """Who cannot be looked at alone, and why."""
    with there_is("cuda"):
        training = Training("cuda", method)
        training.step()
        training.digest()
        hvd.barrier()
        try:
            with covey.consensus(training.net) as mean:
                missing = mean.missing
        except covey.Unsupported as error:
            missing = {-1: str(error)}
        hvd.barrier()
        training.end()
        return missing


def waits(method: str) -> Tuple[int, int]:
    """How often a step waits for the device, and how much there is to be copied."""
    with running() as stats:
        training = Training("cuda", method)
        for _ in range(3):
            training._step(False)
        before = stats["waits"]
        training._step(False)
        count = stats["waits"] - before - 1  # The inputs: a copy that blocks.
        training.end()
        trainer = training.optimizer._covey_trainer
        copies = len(trainer.plans)
        trainer.close()
        return count, copies


def without(name: str, method: str) -> bool:
    """Whether a training comes to the same without that part of a mirror, or of an event."""
    wanted = together("cpu", method, False)
    owner = mirror._Far if hasattr(mirror._Far, name) else Event
    kept = getattr(owner, name)
    setattr(owner, name, lambda *_: None)
    try:
        return together("cuda", method, False) == wanted
    except covey.Mismatch:  # Not even the replicas are equal.
        return False
    finally:
        setattr(owner, name, kept)


# ---- Here --------------------------------------------------------------------------------------


class LateCudaTest(unittest.TestCase):
    """The device of these tests."""

    def test_what_nobody_waits_for_is_late(self) -> None:
        with running():
            near, far = torch.zeros(3), torch.ones(3, device="cuda")
            near.copy_(far * 2, non_blocking=True)
            self.assertEqual(near.tolist(), [0.0] * 3)
            torch.cuda.current_stream().synchronize()
            self.assertEqual(near.tolist(), [2.0] * 3)
            far.copy_(near, non_blocking=True)
            near.fill_(7)
            self.assertEqual(far.tolist(), [7.0] * 3)

    def test_streams_are_in_no_order_without_an_event(self) -> None:
        with running():
            for in_order in (False, True):
                far, other = torch.ones(3, device="cuda"), Stream()
                torch.cuda.current_stream().synchronize()
                far.mul_(3)
                event = Event()
                event.record()
                with torch.cuda.stream(other):
                    if in_order:
                        other.wait_event(event)
                    self.assertEqual(float(far.sum()), 9.0 if in_order else 3.0)

    def test_devices_do_not_mix(self) -> None:
        with running():
            with self.assertRaisesRegex(RuntimeError, "on the same device"):
                torch.ones(3, device="cuda").add_(torch.ones(3))


class MirrorTest(unittest.TestCase):
    def test_what_waits_for_all(self) -> None:
        for size in (2, 4):
            for method in of(size, TOGETHER):
                check_both(self, pool(size), together, method, False)

    def test_overflows(self) -> None:
        for method in ("eager:admit=all", "wagma:S=2,tau=3,admit=all,max_wait=60s",
                       "local:H=3,max_wait=60s"):
            check_both(self, pool(2), together, method, True)

    @on_one_host("between hosts two models are averaged when messages come, and so not in turn")
    def test_what_waits_for_nobody(self) -> None:
        for size in (2, 4):
            for method in of(size, IN_TURN):
                check_both(self, pool(size), in_turn, method)

    def test_saves_loads_and_shows(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for method in ("eager:admit=all,max_wait=60s", "wagma:S=2,tau=3,admit=all,max_wait=60s",
                           "local:H=3,max_wait=60s", "local:H=3"):
                with self.subTest(method=method):
                    near, far = (
                        pool(2).call(saves_and_loads, at, method, f"{folder}/{at}.{method[:5]}")
                        for at in ("cpu", "cuda")
                    )
                    for one, other in zip(near, far):
                        self.assertEqual(one[1], one[2])
                        self.assertEqual(one[1:], other[1:])
                        self.assertEqual(one[0][0], other[0][0])

    def test_a_model_on_a_device_is_not_read_by_others(self) -> None:
        for method in ("local:H=5", "dpsgd"):
            for missing in pool(2).call(unseen, method):
                self.assertTrue(missing)
                for why in missing.values():
                    self.assertIn("on a device", why)

    def test_a_step_waits_for_nothing_but_its_copies(self) -> None:
        for method in ("eager:admit=all", "wagma:S=2,tau=9,admit=all", "adpsgd"):
            for count, copies in pool(2).call(waits, method):
                self.assertEqual(count, copies, method)

    def test_without_a_part_numbers_are_wrong(self) -> None:
        for name, method in (("synchronize", "eager:admit=all"), ("synchronize", "wagma:tau=1"),
                             ("wait", "wagma:tau=1"), ("fetch", "wagma:tau=1"),
                             ("put", "wagma:tau=1")):
            with self.subTest(name=name, method=method):
                self.assertEqual(pool(2).call(without, name, method), [False] * 2)

    def test_who_is_far_behind_goes_on_from_a_snapshot(self) -> None:
        results = pool(2).call(from_a_snapshot, "cuda")
        self.assertEqual(len({(state, version) for state, version, _ in results}), 1, results)
        self.assertGreaterEqual(results[1][2], 1)


if __name__ == "__main__":
    unittest.main()
