"""The setting codec= of a method: gradients travel as by Compression.of, models as what they have
moved, or with neighbors as they are; replicas are equal bit for bit, nothing that is fed back is
lost, also when buckets are made anew, a training that was loaded draws as the one that was saved,
and what makes no sense is refused with the reason.

Method: trainings beside each other that must agree; a loss whose gradient is constant, so that the
model at the end is known.
"""

from __future__ import annotations

import tempfile
import unittest
from typing import Any, Dict, List, Tuple

import torch
from nets import batch_of, loss_of, make_net
from ranks import SEED, SharedPool
from whole_numbers import digest

import covey
import covey.torch as hvd

CODECS = ("bf16", "fp16", "int8", "int8@64", "qsgd", "qsgd@bits=4", "topk@bits=4+block=512")
STEPS = 24
WIDTH = 500
pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def train(**options: Any) -> Tuple[List[str], float, float]:
    """The model's hash after each step and after finish(), and its loss before and after."""
    net = make_net()
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    sgd = torch.optim.SGD(net.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(sgd, model=net, **options)

    def loss() -> float:
        own = sum(float(loss_of(net, batch_of(step, hvd.rank()))) for step in range(4))
        return float(hvd.allreduce(torch.tensor(own), name="loss"))

    begin, seen = loss(), []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(net, batch_of(step % 4, hvd.rank())).backward()
        optimizer.step()
        seen.append(digest(net.parameters()))
    optimizer.finish()
    seen.append(digest(net.parameters()))
    return seen, begin, loss()


def train_by(codec: str) -> Tuple[List[str], float, float]:
    return train(compression=hvd.Compression.of(codec.replace("+", ",")))


def train_told(settings: Dict[str, Any]) -> Tuple[List[str], float, float]:
    return train(**settings)


def left_out_of(optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """What a codec of gradients has left out up to now, on average over the ranks."""
    parts = [
        left for bucket in optimizer._covey_reducer.buckets for left in bucket.left_out.values()
    ]
    return hvd.allreduce(torch.cat([part.reshape(-1) for part in parts]), name="left out")


def rebuild(method: str) -> Tuple[float, float]:
    """How far what has travelled, and what is still left out, are from all there was to send, when
    buckets are made anew on the way; how much is left out."""
    own = torch.Generator().manual_seed(SEED + hvd.rank())
    gradient = torch.randint(-50, 51, (WIDTH,), generator=own).float()
    parameter = torch.nn.Parameter(torch.zeros(WIDTH))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), method=method)
    for step in range(1, 32):
        optimizer.zero_grad()
        (parameter * gradient).sum().backward()
        optimizer.step()
        if step in (7, 20):
            optimizer.rebuild_buckets()
    is_of_models = method.startswith("local")
    left = torch.zeros(()) if is_of_models else left_out_of(optimizer)
    optimizer.finish()
    wanted = hvd.allreduce(gradient, name="gradient") * -31
    return float((parameter.detach() - left - wanted).abs().max()), float(left.abs().max())


def go_on(folder: str, method: str) -> Tuple[List[str], List[str]]:
    """The models of the steps after a save, and those after the load in another optimizer."""
    seen: List[List[str]] = []
    for is_loaded in (False, True):
        net = make_net()
        sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
        optimizer = hvd.DistributedOptimizer(sgd, model=net, method=method)
        if is_loaded:
            covey.torch.load(folder, net, optimizer)
        seen.append([])
        for step in range(optimizer.version, 9):
            if step == 5 and not is_loaded:
                covey.torch.save(folder, net, optimizer)
            optimizer.zero_grad()
            loss_of(net, batch_of(step, hvd.rank())).backward()
            optimizer.step()
            seen[-1] += [digest(net.parameters())] if step >= 5 else []
    return seen[0], seen[1]


def alike(method: str) -> bool:
    """Whether models that are equal, with equal gradients, stay so."""
    net = make_net()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.01), model=net, method=method
    )
    reference = make_net()
    sgd = torch.optim.SGD(reference.parameters(), lr=0.01)
    is_alike = True
    for step in range(4):
        for model, by in ((net, optimizer), (reference, sgd)):
            by.zero_grad()
            loss_of(model, batch_of(step, 0)).backward()
            by.step()
        is_alike &= digest(net.parameters()) == digest(reference.parameters())
    return is_alike


def drift(method: str, steps: int) -> Tuple[List[float], Dict[str, float]]:
    """How far a model that moves by a constant gradient of each rank is from what it must be after
    finish(); what has travelled."""
    own = torch.Generator().manual_seed(SEED + hvd.rank())
    gradient = torch.randint(-50, 51, (WIDTH,), generator=own).float()
    parameter = torch.nn.Parameter(torch.zeros(WIDTH))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), method=method)
    before = covey.stats()
    for _ in range(steps):
        optimizer.zero_grad()
        (parameter * gradient).sum().backward()
        optimizer.step()
    after = covey.stats()
    optimizer.finish()
    hvd.check_replicas({"parameter": parameter})
    mean = hvd.allreduce(gradient, name="gradient") * -steps
    travelled = {key: after[key] - before[key] for key in ("moved_bytes", "wire_bytes")}
    return (parameter.detach() - mean).abs().tolist(), travelled


def refusals() -> List[str]:
    single = [torch.nn.Parameter(torch.zeros(3))]
    double = [torch.nn.Parameter(torch.zeros(3, dtype=torch.float64))]
    int8 = hvd.Compression.of("int8")
    said = []
    for parameters, options in (
        (single, {"method": "allreduce:codec=int8", "compression": int8}),
        (single, {"method": "allreduce:codec=int8,then=allreduce@9:codec=topk"}),
        (single, {"method": "local:then=allreduce@9:codec=int8,warmup_steps=3"}),
        (double, {"method": "allreduce:codec=int8"}),
        (double, {"method": "local", "codec": "int8"}),
        (single, {"method": "allreduce:codec=lattice@8"}),
        (single, {"method": "eager", "codec": "int8"}),
        (single, {"method": "local:max_wait=2s", "codec": "int8"}),
        (single, {"method": "allreduce", "codec": "qsgd@bits=3,block=512"}),
        (single, {"method": "dpsgd", "codec": "topk@bits=4,block=512"}),
        (single, {"method": "dpsgd:codec=lattice"}),
        (single, {"method": "dpsgd", "codec": "qsgd@bits=4"}),
        (single, {"method": "dpsgd", "codec": "int9"}),
        (single, {"method": "adpsgd", "codec": "topk"}),
        (single, {"method": "swarm:codec=qsgd@4"}),
        (double, {"method": "dpsgd:codec=int8"}),
        (double, {"method": "adpsgd:codec=int8"}),
    ):
        try:
            hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), **options)
            said.append("nothing was refused")
        except ValueError as error:
            said.append(str(error))
    return said


REASONS = (
    "not both",
    "one codec from the first step to the last, not by int8@block=256 and topk@bits=1+block=1024",
    "nothing was refused",
    "for float32 on the CPU, and there are parameters of torch.float64 on cpu only",
    "for float32 on the CPU, and there are parameters of torch.float64 on cpu only",
    "decodes beside a model that the receiver has near",
    "the method eager has no codec",
    "leave out max_wait or codec",
    "bits 3 is not a multiple of 4 from 4 to 8",
    "leaves most of what it encodes out: a model is no sparse thing",
    "decodes beside one other model",
    "too coarse for models as they are",
    "there are bf16, fp16, int8, qsgd; the nearest is int8",
    "leaves most of what it encodes out: a model is no sparse thing",
    "too coarse for models as they are",
    "for float32 on the CPU, and there are parameters of torch.float64 on cpu only",
    "for float32 on the CPU, and there are parameters of torch.float64 on cpu only",
)


# ---- The tests ---------------------------------------------------------------------------------


class MethodCodecTest(unittest.TestCase):
    def test_of_gradients_is_that_of_the_compression(self) -> None:
        for size in (2, 3):
            for codec in CODECS:
                with self.subTest(size=size, codec=codec):
                    told = pool(size).call(train_told, {"method": "allreduce", "codec": codec})
                    by = pool(size).call(train_by, codec.replace("int8@64", "int8@block=64"))
                    self.assertEqual([seen for seen, _, _ in told], [seen for seen, _, _ in by])
                    self.assertEqual(len({tuple(seen) for seen, _, _ in told}), 1)

    def test_of_models_replicas_are_equal_after_each_average(self) -> None:
        for size in (2, 3, 4):
            _, begin, end = pool(size).call(train_told, {"method": "local:H=4"})[0]
            for codec in CODECS:
                with self.subTest(size=size, codec=codec):
                    told = pool(size).call(
                        train_told, {"method": "local:H=4,warmup_steps=4", "codec": codec}
                    )
                    for step in range(STEPS):
                        models = {seen[step] for seen, _, _ in told}
                        self.assertEqual(len(models) == 1, step < 4 or step % 4 == 3, step)
                    self.assertEqual(len({seen[-1] for seen, _, _ in told}), 1)
                    self.assertGreater(begin - told[0][2], 0.5 * (begin - end))

    def test_what_is_fed_back_is_in_the_model_at_the_end(self) -> None:
        for size in (2, 4):
            for method in ("local:H=3,codec=topk@bits=4+block=64", "local:H=3",
                           "local:H=5,codec=topk@bits=4,then=local@17:H=2"):
                with self.subTest(size=size, method=method):
                    for wrong, _ in pool(size).call(drift, method, 40):
                        self.assertLess(max(wrong), 1e-2)

    def test_what_is_fed_back_outlives_the_buckets(self) -> None:
        for method in ("allreduce:codec=topk@bits=4+block=64", "local:H=3,codec=topk@bits=4"):
            for wrong, left in pool(2).call(rebuild, method):
                self.assertLess(wrong, 1e-2)
                self.assertEqual(left > 1, method.startswith("allreduce"))

    def test_a_training_that_was_loaded_draws_as_the_one_that_was_saved(self) -> None:
        for method in ("allreduce:codec=qsgd", "local:H=2,codec=bf16@random",
                       "dpsgd:codec=bf16@random,topology=ring"):
            with self.subTest(method=method), tempfile.TemporaryDirectory() as folder:
                for saved, loaded in pool(3).call(go_on, folder, method):
                    self.assertEqual(saved, loaded)

    def test_with_neighbors_the_mean_stays_and_equal_models_do(self) -> None:
        codecs = {2: ("bf16", "fp16"), 3: ("int8", "bf16@random"), 4: ("qsgd", "int8"),
                  8: ("bf16@random",)}
        for size in (2, 3, 4, 8):
            for codec in codecs[size]:
                topology = {2: "full", 3: "ring", 4: "one_peer", 8: "exponential"}[size]
                order = "atc" if size == 4 else "cwa"
                method = f"dpsgd:codec={codec},topology={topology},order={order}"
                with self.subTest(size=size, method=method):
                    for wrong, travelled in pool(size).call(drift, method, 20):
                        self.assertLess(max(wrong), 1e-2)  # Of float32's rounding.
                        parts = 1.5 if "16" in codec else 2.5
                        self.assertLess(travelled["wire_bytes"], travelled["moved_bytes"] / parts)
                    self.assertTrue(all(pool(size).call(alike, method)))

    def test_with_neighbors_training_comes_as_far(self) -> None:
        _, begin, end = pool(3).call(train_told, {"method": "dpsgd"})[0]
        told = pool(3).call(train_told, {"method": "dpsgd:warmup_steps=2", "codec": "qsgd"})
        self.assertEqual(len({seen[-1] for seen, _, _ in told}), 1)
        self.assertGreater(begin - told[0][2], 0.5 * (begin - end))

    def test_models_travel_smaller(self) -> None:
        for size in (2, 3):
            for _, travelled in pool(size).call(drift, "local:H=1,codec=int8", 50):
                self.assertLess(travelled["wire_bytes"], travelled["moved_bytes"] / 2.5)

    def test_what_makes_no_sense_is_refused(self) -> None:
        for said in pool(2).call(refusals):
            self.assertEqual(len(said), len(REASONS))
            for text, reason in zip(said, REASONS):
                self.assertIn(reason, text)


if __name__ == "__main__":
    unittest.main()
