"""Goal: ranks of torch, TensorFlow and NumPy train one model together, by every method, with the
numbers of a job of one framework, bit for bit; operations between them; what differs, or cannot be
mixed, is refused on every rank. One process may use both torch and TensorFlow.
Method: real processes; the same gradients for all, and SGD whose rate is a power of two."""

from __future__ import annotations

import sys
import unittest
import unittest.mock
from typing import Any, Dict, List, Tuple

import mixed_training
from mixed_training import MIXES, check_the_numbers, trained
from ranks import Pool, SharedPool, also, refusal_of
from tensorflows import IS_RANK, set_up

if IS_RANK:
    import keras
    import numpy
    import tensorflow as tf
    import torch
    from keras_training import bytes_of
    from mixed_training import RATE, update

    import covey
    import covey.numpy
    import covey.tensorflow
    import covey.torch

METHODS = (
    "allreduce",
    "eager:admit=all,max_wait=60s",
    "wagma:S=2,tau=3,admit=all,max_wait=60s",
    "local:H=3",
    "diloco:H=3,admit=all,max_wait=60s",
    "dpsgd",
    *also(
        "allreduce:clip_norm=0.5",
        "allreduce:max_wait=60s",
        "dpsgd:topology=one_peer,order=atc,warmup_steps=2",
        "local:H=2,warmup_steps=3,then=allreduce@7",
        "eager:admit=all,max_wait=60s,warmup_steps=2,then=local@6:H=3",
    ),
)
PAIRS = ("adpsgd", "swarm:H=2")

pool = SharedPool(__file__)


def setUpModule() -> None:
    set_up(pool)


# ---- On the ranks ------------------------------------------------------------------------------


def rounded(frameworks: Tuple[str, ...]) -> bytes:
    """The model after finish(), by a rate that is no power of two: frameworks round its product
    with a gradient, or only the sum of that and a parameter."""
    with unittest.mock.patch.object(mixed_training, "RATE", 0.1):
        return trained(frameworks, "allreduce")[-1]


class Stepper:
    """A training by the framework of this rank, one step at a time.

    Args:
        framework: "torch", "tensorflow" or "numpy".
        shapes: of the parameters, which are zeros.
        options: of the optimizer.
    """

    def __init__(self, framework: str, shapes: List[Tuple[int, ...]], **options: Any) -> None:
        self.framework, zeros = framework, [numpy.zeros(it, "float32") for it in shapes]
        self.trainer: Any = None
        if framework == "torch":
            self.parameters = [torch.nn.Parameter(torch.tensor(it)) for it in zeros]
            sgd = torch.optim.SGD(self.parameters, lr=RATE)
            self.trainer = covey.torch.DistributedOptimizer(sgd, **options)
        elif framework == "tensorflow":
            self.parameters = [tf.Variable(it) for it in zeros]
            sgd = keras.optimizers.SGD(RATE)
            self.trainer = covey.tensorflow.DistributedOptimizer(sgd, **options)
        else:
            self.parameters = zeros
            self.trainer = covey.numpy.Trainer(zeros, update, num_hypers=1, **options)

    def step(self, number: float, rate: float = 0.125) -> None:
        """With gradients that are this number."""
        gradients = [numpy.full(it.shape, number, "float32") for it in self.parameters]
        if self.framework == "numpy":
            self.trainer.step(gradients, hypers=[rate])
        elif self.framework == "tensorflow":
            self.trainer.learning_rate = rate
            self.trainer.apply([tf.constant(it) for it in gradients], self.parameters)
        else:
            self.trainer.param_groups[0]["lr"] = rate
            for parameter, gradient in zip(self.parameters, gradients):
                parameter.grad = torch.tensor(gradient)
            self.trainer.step()

    def bytes(self) -> bytes:
        """The parameters."""
        return bytes_of([it.detach() if self.framework == "torch" else it
                         for it in self.parameters])

    def close(self) -> None:
        """Gives its memory back."""
        of_torch = self.framework == "torch"
        (self.trainer._covey_trainer if of_torch else self.trainer).close()


def late(frameworks: Tuple[str, ...], who: int, steps: int) -> Tuple[int, bytes]:
    """One rank begins when the others have done all steps, and are further than the log reaches."""
    method = "eager:admit=solo,grace=0s,log=2,max_staleness=1000,max_wait=60s"
    mine = Stepper(frameworks[covey.rank()], [(4,), (3, 2)], method=method)
    is_late = covey.rank() == who
    if is_late:
        covey.barrier()
    for step in range(1 if is_late else steps):
        mine.step(1.0, 0.5 / (step + 1))
    if not is_late:
        covey.barrier()
    mine.trainer.finish()
    answer = int(mine.trainer.version), mine.bytes()
    mine.close()
    return answer


def operations() -> List[str]:
    """Results as texts: rank 0 has torch, rank 1 TensorFlow, rank 2 NumPy."""
    rank = covey.rank()
    hvd = (covey.torch, covey.tensorflow, covey.numpy)[rank]
    make = (torch.tensor, tf.constant, numpy.asarray)[rank]
    of = (covey.torch, covey.tensorflow, covey)[rank]
    numbers = make(numpy.arange(3, dtype="float32") + rank)
    rows = make(numpy.full((rank + 1, 1), rank))
    grouped = hvd.grouped_allreduce([numbers, make(numpy.ones(2))], op=covey.Sum, name="grouped")
    received = hvd.alltoall(make(numpy.arange(3) + 10 * rank), name="all to all")
    if isinstance(received, (list, tuple)):
        received = received[0]
    results = [
        hvd.allreduce(numbers, op=covey.Sum, name="sum"),
        hvd.allreduce(numbers, op=covey.Max),
        hvd.broadcast(numbers, 1, name="root"),
        hvd.allgather(rows, name="rows"),
        hvd.reducescatter(numbers, op=covey.Sum, name="part"),
        received,
        *grouped,
    ]
    texts = [str(numpy.asarray(it).tolist()) for it in results]
    texts.append(str(of.broadcast_object({"rank": rank}, 2, name="object")))
    texts.append(str(of.allgather_object(rank, name="objects")))
    try:
        hvd.allreduce(make(numpy.zeros(2 + rank)), name="other")
    except Exception as error:  # pylint: disable=broad-except  # Each framework has its own.
        texts.append(str(error))
    return texts


def refusals() -> Dict[str, str]:
    """The message of each refusal: rank 0 has torch, rank 1 TensorFlow."""
    said: Dict[str, str] = {}
    framework = ("torch", "tensorflow")[covey.rank()]

    def note(what: str, shapes: List[Tuple[int, ...]], **options: Any) -> None:
        def step() -> None:
            mine = Stepper(framework, shapes, **options)
            mine.step(1.0)
            mine.close()

        said[what] = refusal_of(step)

    is_torch = framework == "torch"
    note("shape", [(3,), (4, 2) if is_torch else (2, 4)])
    note("count", [(3,)] if is_torch else [(3,), (5,)])
    note("method", [(3,)], method="allreduce" if is_torch else "local:H=2")
    note("factor", [(3,)], **({"gradient_predivide_factor": 2.0} if is_torch else {}))
    note("none", [(3,), (4, 2)])
    mine = Stepper(framework, [(3,)], method="local:H=2")
    mine.step(1.0)
    mine.step(1.0)
    model = torch.nn.Module()
    if is_torch:
        model.weight = mine.parameters[0]
        said["synchronize"] = refusal_of(mine.trainer.synchronize)
        said["version"] = refusal_of(lambda: setattr(mine.trainer, "version", 7))
        added = {"params": [torch.nn.Parameter(torch.ones(2))]}
        said["add"] = refusal_of(lambda: mine.trainer.add_param_group(added))
    of_model = model if is_torch else mine.trainer
    said["save"] = refusal_of(lambda: covey.save("never", of_model, mine.trainer))
    said["consensus"] = refusal_of(lambda: covey.consensus(of_model).__enter__())
    mine.step(1.0)
    mine.trainer.finish()
    said["model"] = str(numpy.frombuffer(mine.bytes(), "float32").tolist())
    mine.close()
    return said


def both() -> List[str]:
    """Whether torch was imported first; torch and TensorFlow take turns in each process, each with
    a training of its own: both models."""
    order = [name for name in sys.modules if name in ("torch", "tensorflow")]
    mine = [Stepper(it, [(2,)], method="local:H=2") for it in ("torch", "tensorflow")]
    for step in range(4):
        for one in mine:
            one.step(float(covey.rank() + step))
        total = covey.torch.allreduce(torch.ones(2), op=covey.Sum, name="torch")
        assert covey.tensorflow.allreduce(tf.constant(total.numpy()), name="tf").shape == (2,)
    for one in mine:
        one.trainer.finish()
    answer = [str(order[0] == "torch")]
    answer += [str(numpy.frombuffer(one.bytes(), "float32").tolist()) for one in mine]
    for one in mine:
        one.close()
    return answer


# ---- The tests ---------------------------------------------------------------------------------


class MixedTest(unittest.TestCase):
    def test_the_numbers_are_those_of_one_framework(self) -> None:
        for mix in MIXES:
            for method in METHODS:
                with self.subTest(mix=mix, method=method):
                    check_the_numbers(self, pool, trained, mix, method)

    def test_finish_leaves_one_model_where_frameworks_round_otherwise(self) -> None:
        mix = ("tensorflow", "torch", "numpy")
        self.assertEqual(len(set(pool(3).call(rounded, mix))), 1)

    def test_pairs_end_with_one_model(self) -> None:
        for mix in MIXES:
            for method in PAIRS:
                with self.subTest(mix=mix, method=method):
                    found = pool(len(mix)).call(trained, mix, method)
                    self.assertEqual(len({seen[-1] for seen in found}), 1)

    def test_a_rank_that_has_fallen_behind_goes_on_from_another_framework(self) -> None:
        mix = ("torch", "numpy", "tensorflow")
        for who in (0, 1):
            ends = pool(3).call(late, mix, who, 9)
            self.assertEqual(ends, ends[:1] * 3, mix[who])
            self.assertGreater(ends[0][0], 8)

    def test_operations(self) -> None:
        zeros = "[[0], [1], [1], [2], [2], [2]]"
        for rank, texts in enumerate(pool(3).call(operations)):
            wanted = [
                "[3.0, 6.0, 9.0]", "[2.0, 3.0, 4.0]", "[1.0, 2.0, 3.0]", zeros,
                str([3.0 * (rank + 1)]), str([rank, 10 + rank, 20 + rank]),
                "[3.0, 6.0, 9.0]", "[3.0, 3.0]", "{'rank': 2}", "[0, 1, 2]",
            ]
            self.assertEqual(texts[:-1], wanted)
            self.assertIn("rank 0 has [2], rank 1 has [3]", texts[-1])

    def test_refusals_are_on_every_rank_and_the_next_training_works(self) -> None:
        for rank, said in enumerate(pool(2).call(refusals)):
            differs = "Mismatch: DistributedOptimizer differs between the ranks: "
            for what, words in {
                "shape": differs + "parameter 1: rank 0 (torch) has param.0.1: float32 [4, 2], "
                         "rank 1 (TensorFlow) has Variable:0: float32 [2, 4]",
                "count": differs + "parameter 1: rank 0 (torch) has nothing, rank 1 (TensorFlow) ",
                "method": differs + "rank 0 (torch) has method allreduce, op Average",
                "factor": "Unsupported: ranks of torch and TensorFlow train together, and rank 0 "
                          "(torch) cannot: gradient_predivide_factor must be 1",
                "none": "nothing",
                "save": "Unsupported: save: the ranks of this training have several frameworks",
                "consensus": "consensus: the ranks of this training have several frameworks",
            }.items():
                self.assertIn(words, said[what], what)
            self.assertEqual(said["model"], str([-3 * 0.125] * 3))
            if rank == 0:
                self.assertIn("before_update(function)", said["synchronize"])
                for what in ("version", "add"):
                    self.assertIn("have several frameworks", said[what])

    def test_torch_and_tensorflow_in_one_process(self) -> None:
        wanted = str([-0.125 * (4 * 0.5 + 0 + 1 + 2 + 3)] * 2)
        with Pool(2, __file__, {**pool.env, "TEST_TORCH_FIRST": "1"}) as torch_first:
            answers = {True: torch_first.call(both)}
        answers[False] = pool(2).call(both)  # Forks of a process that has imported TensorFlow.
        for is_first, found in answers.items():
            self.assertEqual(found, [[str(is_first), wanted, wanted]] * 2)


if __name__ == "__main__":
    unittest.main()
