"""covey.numpy.Trainer: the same numbers as covey.torch, bit for bit; errors; checkpoints.

Method: the same gradients for both, and plain SGD whose learning rate is a power of two, so that
torch's fused multiply-add rounds as NumPy's two steps do.
"""

from __future__ import annotations

import unittest
from typing import Any, Dict, List, Tuple

import numpy
import torch
from numpy_training import RATE, STEPS, numbers, update
from ranks import HOSTS, SEED, SharedPool, refusal_of

import covey
import covey.numpy
import covey.torch as hvd

MOMENTUM = 0.5
METHODS = (
    "allreduce",
    "allreduce:then=local@4:H=2",
    "local:H=3",
    "local:H=2,warmup_steps=3,then=allreduce@7",
    "dpsgd:topology=ring",
    "dpsgd:topology=one_peer,order=atc,warmup_steps=2",
    "dpsgd",
    "dpsgd:then=local@5:H=3",
    "eager:admit=all,max_wait=60s",
    "allreduce:max_wait=60s",
    "allreduce:then=eager@4:admit=all,max_wait=60s",
    "eager:admit=all,max_wait=60s,warmup_steps=2,then=local@6:H=3",
    "diloco:H=3,outer_lr=0.5,outer_momentum=0.5,admit=all,max_wait=60s",
    "wagma:S=2,tau=3,admit=all,max_wait=60s",
    "local:H=3,max_wait=60s",
    "wagma:S=2,tau=3,admit=all,max_wait=60s,warmup_steps=2,then=allreduce@8",
    "allreduce:then=local@5:H=2,codec=int8",
    "local:H=2,codec=topk@bits=4+block=64",
    "dpsgd:codec=int8,topology=one_peer",
)

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


# ---- On the ranks ------------------------------------------------------------------------------


def by_numpy(method: str, dtype: str) -> List[bytes]:
    """The parameters after each step and after finish()."""
    seen = []
    with covey.numpy.Trainer(numbers(hvd.rank(), -1, dtype), update, method=method) as trainer:
        for step in range(STEPS):
            trainer.step(numbers(hvd.rank(), step, dtype))
            seen.append(b"".join(array.tobytes() for array in trainer.parameters))
        assert trainer.version == STEPS
        trainer.finish()
        seen.append(b"".join(array.tobytes() for array in trainer.parameters))
    return seen


def by_numpy_with_momentum(method: str, dtype: str) -> List[bytes]:
    """The same of SGD with momentum, as torch has it."""
    parameters, seen = numbers(hvd.rank(), -1, dtype), []
    momenta = [numpy.zeros_like(array) for array in parameters]
    steps = [numpy.zeros(1, "int64")]

    def update(parameters: List[Any], gradients: List[Any]) -> None:
        steps[0] += 1
        for parameter, gradient, momentum in zip(parameters, gradients, momenta):
            momentum *= parameter.dtype.type(MOMENTUM)
            momentum += gradient
            parameter -= parameter.dtype.type(RATE) * momentum

    state = momenta + steps
    with covey.numpy.Trainer(parameters, update, method=method, state=state) as trainer:
        for step in range(STEPS):
            trainer.step(numbers(hvd.rank(), step, dtype))
            seen.append(b"".join(array.tobytes() for array in trainer.parameters))
        trainer.finish()
        seen.append(b"".join(array.tobytes() for array in trainer.parameters))
    assert steps[0][0] == STEPS, "the greatest of all: counts are equal"
    return seen


def by_torch(method: str, dtype: str, momentum: float = 0.0) -> List[bytes]:
    parameters = [torch.nn.Parameter(torch.tensor(it)) for it in numbers(0, -1, dtype)]
    sgd = torch.optim.SGD(parameters, lr=RATE, momentum=momentum)
    optimizer = hvd.DistributedOptimizer(sgd, method=method)
    seen = []

    def look() -> None:
        seen.append(b"".join(it.detach().numpy().tobytes() for it in parameters))

    for step in range(STEPS):
        optimizer.zero_grad()
        gradients = [torch.tensor(it) for it in numbers(hvd.rank(), step, dtype)]
        sum((a * b).sum() for a, b in zip(parameters, gradients)).backward()
        optimizer.step()
        look()
    optimizer.finish()
    look()
    return seen


def clipped(limit: float) -> Tuple[float, float]:
    """The norm of what two ranks' gradients become, all before and after."""
    met: List[float] = []

    def measure(_: List[Any], gradients: List[Any]) -> None:
        met.append(float(numpy.sqrt(sum((it.astype("float64") ** 2).sum() for it in gradients))))

    for method in ("allreduce", f"allreduce:clip_norm={limit}"):
        with covey.numpy.Trainer(numbers(0, -1, "float32"), measure, method=method) as trainer:
            trainer.step(numbers(hvd.rank(), 0, "float32"))
    return met[0], met[1]


def wrong_calls() -> Dict[str, str]:
    """What each says."""
    said: Dict[str, str] = {}
    parameters = [numpy.ones(3), numpy.ones((2, 2))]

    def note(what: str, call: Any) -> None:
        said[what] = refusal_of(call)

    note("method", lambda: covey.numpy.Trainer(parameters, update, method="alreduce"))
    note("unserved", lambda: covey.numpy.Trainer(parameters, update, method="swarm:codec=lattice"))
    note("none", lambda: covey.numpy.Trainer([], update))
    for what in ("int64", "bool", "complex64", ">f8"):
        odd = [*parameters, numpy.ones(3, what)]
        note(what, lambda odd=odd: covey.numpy.Trainer(odd, update))  # type: ignore[misc]
    kept = [numpy.ones(2), numpy.ones(2, "complex64")]
    note("kept", lambda: covey.numpy.Trainer(parameters, update, state=kept))
    half = [numpy.ones(2), numpy.ones(2, "float16")]
    note("half", lambda: covey.numpy.Trainer(half, update, method="diloco"))
    different = [numpy.ones(3 + hvd.rank())]
    note("shapes", lambda: covey.numpy.Trainer(different, update))
    more = [numpy.ones(2)] * hvd.rank()
    note("state", lambda: covey.numpy.Trainer(parameters, update, state=more))
    trainer = covey.numpy.Trainer(parameters, update)
    note("count", lambda: trainer.step([numpy.ones(3)]))
    note("shape", lambda: trainer.step([numpy.ones(3), numpy.ones(4)]))
    unfit = "2 NaN" if hvd.rank() == 1 else ""
    note("unfit", lambda: trainer.step([numpy.ones(3), numpy.ones((2, 2))], unfit=unfit))
    note("after", lambda: trainer.step([numpy.ones(3), numpy.ones((2, 2))]))
    said["model"] = str(trainer.parameters[0].tolist())
    note("hypers", lambda: trainer.step([numpy.ones(3), numpy.ones((2, 2))], hypers=(0.5,)))
    trainer.close()
    note("closed", lambda: trainer.finish())
    return said


def update_that_raises() -> Tuple[str, List[float], int]:
    """An update that fails once is asked for again, with the gradients that it had."""
    times: List[int] = []

    def fails(parameters: List[Any], gradients: List[Any]) -> None:
        times.append(1)
        if len(times) == 1:
            raise KeyError("once")
        update(parameters, gradients)

    said = ""
    with covey.numpy.Trainer([numpy.zeros(2)], fails) as trainer:
        try:
            trainer.step([numpy.full(2, 8.0)])
        except KeyError as error:
            said = repr(error)
        trainer.step([numpy.full(2, 800.0)])
        return said, trainer.parameters[0].tolist(), trainer.version


def go_on(method: str) -> Tuple[bytes, bytes]:
    """A training, and the same one loaded after five steps."""
    ends = []
    with covey.numpy.Trainer(numbers(0, -1, "float32"), update, method=method) as trainer:
        for step in range(5):
            trainer.step(numbers(hvd.rank(), step, "float32"))
        saved = trainer.state_dict()
        for step in range(5, STEPS):
            trainer.step(numbers(hvd.rank(), step, "float32"))
        ends.append(b"".join(array.tobytes() for array in trainer.parameters))
    with covey.numpy.Trainer(numbers(0, -1, "float32"), update, method=method) as trainer:
        trainer.load_state_dict(saved)
        for step in range(5, STEPS):
            trainer.step(numbers(hvd.rank(), step, "float32"))
        ends.append(b"".join(array.tobytes() for array in trainer.parameters))
    return ends[0], ends[1]


def settled(method: str) -> List[List[List[float]]]:
    """The model where it is saved, after each of four further steps, and after finish(): of a
    training, and of the same one that was loaded. Ranks step one after the other; all that they
    learn is a whole number, so that sums are exact."""

    def train(trainer: covey.numpy.Trainer, steps: int) -> List[List[float]]:
        seen = [trainer.parameters[0].tolist()]
        for step in range(steps):
            for rank in reversed(range(hvd.size())):
                if rank == hvd.rank():
                    trainer.step([numpy.full(2, 8.0 + rank + 2 * step)])
                covey.barrier()
            seen.append(trainer.parameters[0].tolist())
        return seen

    found = []
    with covey.numpy.Trainer([numpy.zeros(2)], update, method=method) as trainer:
        train(trainer, 5)
        trainer.settle()
        saved = trainer.state_dict()
        for _ in range(2):
            found.append(train(trainer, 4))
            trainer.finish()
            found[-1].append(trainer.parameters[0].tolist())
            trainer.load_state_dict(saved)
    return found


def with_momentum(late: int, steps: int) -> Tuple[int, List[bytes], float]:
    """A training by SGD with momentum, whose rate travels with the gradients. One rank begins when
    the others have done all steps, and are further than the log reaches.

    Returns:
        Its version; the bytes of parameters and momenta; the sum of the first parameter.
    """
    parameters = [numpy.zeros(4), numpy.zeros((3, 2))]
    momenta = [numpy.zeros_like(array) for array in parameters]

    def update(parameters: List[Any], gradients: List[Any], hypers: Tuple[float, ...]) -> None:
        for parameter, gradient, momentum in zip(parameters, gradients, momenta):
            momentum *= 0.5
            momentum += gradient
            parameter -= hypers[0] * momentum

    method = "eager:admit=solo,grace=0s,log=2,max_staleness=1000,max_wait=60s"
    with covey.numpy.Trainer(
        parameters, update, method=method, state=momenta, num_hypers=1
    ) as trainer:
        if hvd.rank() == late:
            covey.barrier()
        for step in range(1 if hvd.rank() == late else steps):
            trainer.step([numpy.ones(4), numpy.ones((3, 2))], hypers=(0.5 / (step + 1),))
        if hvd.rank() != late:
            covey.barrier()
        trainer.finish()
        everything = [array.tobytes() for array in parameters + momenta]
        return trainer.version, everything, float(parameters[0].sum())


# ---- The tests ---------------------------------------------------------------------------------


class NumpyTrainerTest(unittest.TestCase):
    def test_the_numbers_are_those_of_torch(self) -> None:
        for size in (2, 3, 4):
            for method in METHODS:
                dtype = "float64" if method == "dpsgd" else "float32"
                with self.subTest(size=size, method=method):
                    ours = pool(size).call(by_numpy, method, dtype)
                    theirs = pool(size).call(by_torch, method, dtype)
                    for rank, (one, other) in enumerate(zip(ours, theirs)):
                        for step, (a, b) in enumerate(zip(one, other)):
                            self.assertEqual(a, b, f"rank {rank}, step {step}")
                    self.assertEqual(len({seen[-1] for seen in ours}), 1)

    def test_momenta_are_averaged_where_a_method_goes_over_to_another_one(self) -> None:
        """Replicas stay equal from there on, and are those of torch."""
        methods = (
            "local:H=2,then=allreduce@4",
            "dpsgd:topology=one_peer,order=atc,then=allreduce@5",
            "wagma:S=2,tau=3,admit=all,max_wait=60s,then=allreduce@6",
            "adpsgd:then=allreduce@4",
            "eager:admit=all,max_wait=60s,then=local@3:H=2,then=allreduce@7",
        )
        for size in (2, 4):
            for method in methods:
                with self.subTest(method=method, size=size):
                    ours = pool(size).call(by_numpy_with_momentum, method, "float32")
                    for step in range(8, STEPS + 1):
                        self.assertEqual(len({seen[step] for seen in ours}), 1, step)
                    if "adpsgd" in method:
                        continue  # Its averages are not the same twice.
                    theirs = pool(size).call(by_torch, method, "float32", MOMENTUM)
                    self.assertEqual(ours, theirs)

    def test_gradients_are_clipped_after_they_were_averaged(self) -> None:
        for before, after in pool(2).call(clipped, 0.5):
            self.assertGreater(before, 1)
            self.assertAlmostEqual(after, 0.5, delta=1e-5)

    def test_wrong_calls_name_the_cause_and_the_next_one_works(self) -> None:
        for rank, said in enumerate(pool(2).call(wrong_calls)):
            self.assertIn('the nearest is "allreduce"', said["method"])
            self.assertIn("no parameter is of it: leave out codec", said["unserved"])
            self.assertIn("there are no parameters", said["none"])
            for what in ("int64", "bool"):
                words = f"parameter 2 is of {what}: parameters are floating-point"
                self.assertIn(words, said[what])
            for what in ("complex64", ">f8"):
                words = f"Unsupported: parameter 2: arrays of {what} cannot be sent"
                self.assertIn(words, said[what])
            self.assertIn("Unsupported: array of state 1: arrays of complex64", said["kept"])
            self.assertIn("float32 and float64, and parameter 1 is of float16", said["half"])
            self.assertIn("Mismatch: trainer", said["shapes"])
            self.assertIn("float64[4]", said["shapes"])
            self.assertRegex(said["state"], "Mismatch: .*1 arrays of state")
            self.assertIn("1 gradients, 0 hypers of 2 parameters", said["count"])
            self.assertIn("1 hypers of 2 parameters, 0 hypers", said["hypers"])
            self.assertIn("gradient 1 has the shape (4,)", said["shape"])
            self.assertIn("NotFinite: ", said["unfit"])
            self.assertIn("rank 1 has 2 NaN", said["unfit"], rank)
            self.assertEqual(said["after"], "nothing")
            self.assertEqual(said["model"], str([1 - RATE] * 3))
            self.assertIn("there is no such trainer", said["closed"])

    def test_an_update_that_failed_is_asked_for_again(self) -> None:
        for said, parameters, version in pool(2).call(update_that_raises):
            self.assertEqual(said, "KeyError('once')")
            self.assertEqual(parameters, [-1.0, -1.0])
            self.assertEqual(version, 1)

    def test_a_rank_that_has_fallen_behind_goes_on_from_the_state_of_another(self) -> None:
        ends = pool(3).call(with_momentum, 1, 9)
        for version, everything, total in ends:
            self.assertEqual(version, ends[0][0])
            self.assertEqual(everything, ends[0][1])
            self.assertLess(total, 0)

    def test_a_loaded_training_goes_on_as_the_saved_one(self) -> None:
        eager = "eager:admit=all,max_wait=60s"
        for method in ("allreduce", "local:H=4", "dpsgd:topology=one_peer", eager):
            with self.subTest(method=method):
                for saved, loaded in pool(2).call(go_on, method):
                    self.assertEqual(saved, loaded)

    def test_what_ranks_of_pairs_save_once_settled_is_all_that_they_have_learnt(self) -> None:
        """Rank 1 steps first in each turn, so that rank 0 averages with a model of which rank 1 has
        not taken its part. When swarm averages is drawn anew where pairs begin."""
        learnt = sum(8.5 + 2 * step for step in (*range(5), *range(4)))
        for method in ("adpsgd", "swarm:H=2"):
            with self.subTest(method=method):
                for went_on, loaded in pool(2).call(settled, method):
                    self.assertEqual(went_on[0], loaded[0])
                    self.assertEqual(went_on[-1], [-RATE * learnt] * 2)
                    self.assertEqual(loaded[-1], went_on[-1])
                    # Between hosts two models are averaged when messages come, and so not in turn.
                    if method == "adpsgd" and HOSTS == 1:
                        self.assertEqual(loaded, went_on)


if __name__ == "__main__":
    unittest.main()
