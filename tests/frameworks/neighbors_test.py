"""neighbor_allreduce and pair_average: weighted means of neighbors' tensors, by topologies,
matrices and weights of one's own; what is wrong is one error on every rank, and the next call
works.

Method: the matrix times all tensors, in float64, against what ranks get; and for float32 the same
sums in rank order, bit for bit. Numbers are drawn from a seed that is printed.
"""

from __future__ import annotations

import os
import signal
import unittest
from typing import Any, Callable, Dict, List, Tuple

import numpy
import torch
from ranks import SEED, Pool, SharedPool, ranks_may_die

import covey
import covey.torch as hvd

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


def drawn(rank: int, shape: Tuple[int, ...], turn: int = 0) -> numpy.ndarray:
    return numpy.random.default_rng([SEED, rank, turn]).normal(size=shape)


def mixed(weights: List[float], inputs: List[numpy.ndarray]) -> numpy.ndarray:
    """In rank order, in the arithmetic of the inputs."""
    total = None
    for weight, one in zip(weights, inputs):
        if weight:
            term = one * one.dtype.type(weight)
            total = term if total is None else total + term
    return total


# ---- On the ranks ------------------------------------------------------------------------------


def by_topologies() -> None:
    rank, size = covey.rank(), covey.size()
    names = ["ring", "exponential", "one_peer", "one-peer", "full", "matching"]
    for name in names + ["bipartite"] * (size % 2 == 0):
        chosen = covey.topology(name)
        for turn in range(5):
            for dtype in ("float32", "float64"):
                inputs = [drawn(r, (3, 501), turn).astype(dtype) for r in range(size)]
                got = covey.neighbor_allreduce(
                    inputs[rank], topology=name, round=turn, name=f"{name}.{dtype}"
                )
                wanted = mixed(chosen.weights(rank, turn), inputs)
                assert got.dtype == wanted.dtype and (got == wanted).all(), (name, turn)


def by_weights() -> None:
    rank, size = covey.rank(), covey.size()
    before, after = (rank - 1) % size, (rank + 1) % size
    inputs = [drawn(r, (40_007,)).astype("float32") for r in range(size)]
    mine = torch.from_numpy(inputs[rank].copy())
    weights = {rank: 0.75, before: 0.25}
    wanted = mixed([weights.get(r, 0) for r in range(size)], inputs)
    for turn in range(3):
        got = hvd.neighbor_allreduce(mine, 0.75, {before: 0.25}, [after], name="both")
        assert (got.numpy() == wanted).all()
        got = hvd.neighbor_allreduce(mine, src_weights={before: 0.25}, name="open")
        assert (got.numpy() == wanted).all()
        handle = hvd.neighbor_allreduce_async(mine, src_weights={before: 0.25})
        assert (handle.wait().numpy() == wanted).all()
    difference = hvd.neighbor_allreduce(mine, -1, {before: 1}, any_sum=True, name="difference")
    assert (difference.numpy() == inputs[before] - inputs[rank]).all()
    moved = hvd.neighbor_allreduce(mine, 0, {before: 1}, name="moved")
    assert (moved.numpy() == inputs[before]).all()
    strided = torch.from_numpy(inputs[rank].copy())[::2]
    hvd.neighbor_allreduce_(strided, src_weights={before: 0.25}, name="in place")
    assert (strided.numpy() == wanted[::2]).all()
    for dtype in (torch.float16, torch.bfloat16):
        halves = [torch.from_numpy(one).to(dtype) for one in inputs]
        got = hvd.neighbor_allreduce(halves[rank], 0.5, {before: 0.5}, name=str(dtype))
        pair = sorted({rank, before})
        total = sum(halves[r].float() * 0.5 for r in pair) if size > 1 else halves[rank].float()
        assert (got == total.to(dtype)).all(), dtype
    wanting = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        hvd.neighbor_allreduce_(wanting, 0.5, {before: 0.5}, name="no gradient")
    for refused in (
        lambda: hvd.neighbor_allreduce(wanting, src_weights={before: 0.5}),
        lambda: hvd.pair_average(tensor=wanting, peer=None),
    ):
        try:
            refused()
        except NotImplementedError as error:
            assert "no gradient" in str(error)
        else:
            raise AssertionError("a gradient was lost")
    nothing = hvd.neighbor_allreduce(torch.zeros(0, 3), src_weights={before: 0.5}, name="empty")
    assert nothing.shape == (0, 3)
    scalar = hvd.neighbor_allreduce(torch.tensor(float(rank)), topology="full", name="scalar")
    assert abs(float(scalar) - (size - 1) / 2) < 1e-6


def by_codecs() -> List[float]:
    """The mean stays, equal tensors do, and ones that are apart come near: how far they are off."""
    rank, size = covey.rank(), covey.size()
    inputs = [torch.from_numpy(drawn(r, (4_099,)).astype("float32")) for r in range(size)]
    own, worst = inputs[rank], []
    for codec, step in (("bf16", 2**-7), ("fp16", 2**-10), ("int8", 2**-6), ("qsgd", 2**-2)):
        exact = hvd.neighbor_allreduce(own, topology="ring", name=f"{codec} exact")
        got = hvd.neighbor_allreduce(own, topology="ring", name=codec, codec=codec)
        handle = covey.neighbor_allreduce_async(own.numpy(), topology="ring", codec=codec)
        off = float((got - exact).abs().max())
        assert (off > 0) == (size > 1) and off < 4 * step, (codec, off)
        assert abs(handle.wait() - exact.numpy()).max() < 4 * step
        before, after = hvd.allreduce(own, op=hvd.Sum), hvd.allreduce(got, op=hvd.Sum)
        worst.append(float((before - after).abs().max()))
        same = hvd.neighbor_allreduce(inputs[0], topology="ring", name=f"{codec} same", codec=codec)
        assert torch.equal(same, inputs[0])
        if size % 2 == 0:
            pair = hvd.pair_average_(own.clone(), rank ^ 1, name=f"{codec} pair", codec=codec)
            total = hvd.allreduce(pair, op=hvd.Sum)
            worst.append(float((before - total).abs().max()))
            mean = (own + inputs[rank ^ 1]) / 2
            assert float((pair - mean).abs().max()) < 4 * step
    whole = hvd.neighbor_allreduce(own.double(), topology="ring", name="whole", codec="int8")
    assert torch.allclose(whole.float(), exact, atol=1e-5)
    return worst


def by_matrix() -> None:
    """Of a group, in its order; a matrix that moves the mean."""
    rank, size = covey.rank(), covey.size()
    members = [r for r in range(size) if r != 1]
    group = covey.group(members)
    if rank not in members:
        return
    n, index = len(members), members.index(rank)
    rows = numpy.random.default_rng(SEED).random((n, n)) * (
        numpy.random.default_rng(SEED + 1).random((n, n)) < 0.6
    ) + numpy.eye(n)
    rows /= rows.sum(1, keepdims=True)
    inputs = [drawn(r, (77,)) for r in members]
    got = covey.neighbor_allreduce(inputs[index], topology=rows, group=group, name="matrix")
    assert (got == mixed(list(rows[index]), inputs)).all()
    numpy.testing.assert_allclose(got, (rows @ numpy.stack(inputs))[index], rtol=1e-12)
    chosen = covey.topology(rows)
    assert chosen.size == n and chosen.is_connected == (covey.topology(rows.tolist()).is_connected)
    numpy.testing.assert_allclose(
        chosen.column_error, numpy.abs(rows.sum(0) - 1).max(), atol=1e-12
    )


def in_pairs() -> None:
    rank, size = covey.rank(), covey.size()
    peer = rank ^ 1
    lone = peer >= size
    mine = torch.full((5,), float(rank))
    got = hvd.pair_average(mine, None if lone else peer, name="pair")
    assert (got == (rank if lone else (rank + peer) / 2)).all()
    assert (covey.pair_average(mine.numpy(), None) == rank).all()
    hvd.pair_average_(mine, None if lone else peer, name="pair in place")
    assert torch.equal(mine, got)


def what_fails(case: str, odd: int) -> Tuple[str, str, int]:
    """The error of one case, in which rank `odd` does something else; then a call that works."""
    is_odd = covey.rank() == odd
    answer = ("", "nothing", -1)
    try:
        CASES[case](is_odd)
    except covey.CoveyError as error:
        answer = (type(error).__name__, str(error), error.peer_rank)
    array = numpy.full(4, float(covey.rank()))
    total = covey.neighbor_allreduce(array, topology="full", name="x")
    assert numpy.allclose(total, (covey.size() - 1) / 2)
    return answer


def mine() -> numpy.ndarray:
    return numpy.ones(4)


def around(is_odd: bool, **other: Any) -> Dict[str, Any]:
    """A directed ring with both sides said; what `other` has instead on the odd rank."""
    rank, size = covey.rank(), covey.size()
    said: Dict[str, Any] = {
        "self_weight": 0.5,
        "src_weights": {(rank - 1) % size: 0.5},
        "dst_ranks": [(rank + 1) % size],
        "name": "x",
    }
    return {**said, **other} if is_odd else said


CASES: Dict[str, Callable[[bool], Any]] = {
    "shape": lambda odd: covey.neighbor_allreduce(
        numpy.ones(5 if odd else 4), topology="ring", name="x"
    ),
    "dtype": lambda odd: covey.neighbor_allreduce(
        mine().astype("float32" if odd else "float64"), topology="ring", name="x"
    ),
    "does not take": lambda odd: covey.neighbor_allreduce(
        mine(), **around(odd, src_weights={}, self_weight=1.0)
    ),
    "sum": lambda odd: covey.neighbor_allreduce(mine(), **around(odd, self_weight=0.4)),
    "negative": lambda odd: covey.neighbor_allreduce(
        mine(), **around(odd, self_weight=1.5, src_weights={(covey.rank() - 1) % 4: -0.5})
    ),
    "codec": lambda odd: covey.neighbor_allreduce(
        mine().astype("float32"), **around(False), codec="bf16" if odd else None
    ),
    "not finite": lambda odd: covey.neighbor_allreduce(
        mine(), **around(odd, self_weight=float("nan"))
    ),
    "all zero": lambda odd: covey.neighbor_allreduce(
        mine(), **around(odd, self_weight=0, src_weights={}, any_sum=True)
    ),
    "out of range": lambda odd: covey.neighbor_allreduce(
        mine(), **around(odd, src_weights={9: 0.5})
    ),
    "receiver out of range": lambda odd: covey.neighbor_allreduce(
        mine(), **around(odd, dst_ranks=[-3])
    ),
    "itself": lambda odd: covey.neighbor_allreduce(
        mine(), **around(odd, src_weights={covey.rank(): 0.5})
    ),
    "does not send": lambda odd: covey.neighbor_allreduce(mine(), **around(odd, dst_ranks=[])),
    "sends too far": lambda odd: covey.neighbor_allreduce(
        mine(), **around(odd, dst_ranks=[r for r in range(covey.size()) if r != covey.rank()])
    ),
    "pair": lambda odd: covey.pair_average(
        mine(), (covey.rank() + 2) % 4 if odd else covey.rank() ^ 1, name="x"
    ),
}


def wrong_here() -> List[str]:
    """What is refused before anything is submitted."""
    said, small = [], mine().astype("float32")
    for call in (
        lambda: covey.neighbor_allreduce(mine(), name="x"),
        lambda: covey.neighbor_allreduce(mine(), 0.5, topology="ring"),
        lambda: covey.neighbor_allreduce(mine(), topology="rings"),
        lambda: covey.neighbor_allreduce(mine(), topology=[[1.0]]),
        lambda: covey.neighbor_allreduce(mine().astype("int64"), topology="ring"),
        lambda: covey.topology([[0.5, 0.5], [0.5, 0.4]]),
        lambda: covey.topology([[0.5, 0.5], [1.0]]),
        lambda: covey.topology(3),
        lambda: covey.topology("bipartite", size=3),
        lambda: covey.topology([["a", 1], [0, 1]]),
        lambda: covey.topology("matching", size=4, seed=-1),
        lambda: covey.topology("ring", size="4"),
        lambda: covey.neighbor_allreduce(mine(), 0.5, [1]),
        lambda: covey.neighbor_allreduce(mine(), 0.5, {1.5: 0.5}),
        lambda: covey.neighbor_allreduce(mine(), 0.5, {1: "half"}),
        lambda: covey.neighbor_allreduce(mine(), 0.5, {1: 0.5}, 2),
        lambda: covey.pair_average(mine(), "1"),
        lambda: covey.pair_average(mine(), 1 << 40),
        lambda: covey.neighbor_allreduce(small, topology="ring", codec="topk"),
        lambda: covey.neighbor_allreduce(small, topology="ring", codec="lattice"),
        lambda: covey.neighbor_allreduce(small, 1, {1: 1}, any_sum=True, codec="int8"),
    ):
        try:
            call()
            said.append("nothing")
        except (covey.InvalidArgument, covey.Unsupported) as error:
            said.append(str(error))
    return said


def until_lost(method: str, victim: int) -> int:
    """Averages, or trains, until a rank is killed in the middle of it; which one is said to be."""
    w = torch.nn.Parameter(torch.ones(1000))
    trains = method and hvd.DistributedOptimizer(torch.optim.SGD([w], lr=0.1), method=method)
    try:
        for turn in range(10_000):
            if covey.rank() == victim and turn == 7:
                os.kill(os.getpid(), signal.SIGKILL)
            if trains:
                w.sum().backward()
                trains.step()
            else:
                hvd.neighbor_allreduce_(w.data, topology="ring", name="w")
    except covey.Aborted as error:
        return error.peer_rank
    return -1


# ---- The tests ---------------------------------------------------------------------------------


class NeighborsTest(unittest.TestCase):
    def test_it_is_the_matrix_times_the_tensors(self) -> None:
        for size in (3, 2, 1, 4):  # The tests below use the last; operations_test has 8.
            ranks = pool(size)
            ranks.call(by_topologies)
            ranks.call(in_pairs)
            self.assertLess(max(ranks.call(by_codecs)[0]), 1e-5)
            if size > 1:
                ranks.call(by_weights)
            if size in (3, 4):
                ranks.call(by_matrix)

    def check(self, case: str, odd: int, *texts: str) -> None:
        answers = pool(4).call(what_fails, case, odd)
        for kind, message, _ in answers:
            self.assertEqual(kind, "Mismatch", (case, message))
            for text in texts:
                self.assertIn(text, message)
        self.assertEqual(len({message for _, message, _ in answers}), 1, answers)

    def test_what_is_wrong_is_said_on_every_rank(self) -> None:
        odd = SEED % 4
        rank, after, before = f"rank {odd}", f"rank {(odd + 1) % 4}", f"rank {(odd - 1) % 4}"
        self.check("shape", odd, "shapes differ", "[5]", "[4]")
        self.check("dtype", odd, "dtypes differ", "float32", "float64")
        self.check("sum", odd, f"{rank}'s weights sum to 0.9 and not to 1", "own 0.4")
        self.check("negative", odd, f"{rank} has a weight that is less than 0", "any_sum")
        self.check("codec", odd, "codecs differ", "bf16")
        self.check("not finite", odd, f"{rank} has a weight that is not finite")
        self.check("all zero", odd, f"{rank} has no weight other than 0")
        self.check("out of range", odd, f"{rank} takes from rank 9, which is not a member", "of 4")
        self.check("receiver out of range", odd, f"{rank} sends to rank -3, which is not a member")
        self.check("itself", odd, f"{rank} takes from itself")
        text = f"{after} takes from {rank}, which does not send to {after}"
        self.check("does not send", odd, text)
        text = f"{before} sends to {rank}, which does not take from {before}"
        self.check("does not take", odd, text)
        self.check("sends too far", odd, f"{rank} sends to rank", "which does not take from")
        self.check("pair", odd, "which does not")

    def test_what_is_wrong_by_itself_is_said_at_once(self) -> None:
        said = pool(4).call(wrong_here)[0]
        for text, wanted in zip(
            said,
            (
                "give src_weights={rank: weight}, or a topology",
                "a topology says with whom",
                "did you mean ring?",
                "a topology of 4 ranks has rows of [1]",
                "floating-point",
                "row 1",
                "rows of [1, 2] weights",
                "a name or a matrix",
                "even",
                "a name or a matrix",
                "the seed of a topology is a whole number from 0, not -1",
                "the size of a topology is a whole number from 0, not '4'",
                "src_weights is [1], not a dict",
                "src_weights has 1.5, which is no rank",
                "a weight is 'half', which is no number",
                "dst_ranks is 2, not a list of ranks",
                "peer has '1', which is no rank",
                "which is no rank",
                "a model is no sparse thing",
                "decodes beside one other model",
                "for weights that sum to 1",
            ),
        ):
            self.assertIn(wanted, text)

    @ranks_may_die
    def test_a_killed_rank_is_named_by_all(self) -> None:
        for victim, method in ((SEED % 3, ""), (2 - SEED % 3, "dpsgd:topology=ring")):
            with Pool(3, __file__) as job:
                job.send(until_lost, method, victim)
                named = job.collect(may_end=True)
            self.assertEqual(named, [None if r == victim else victim for r in range(3)])

    def test_a_topology_says_how_fast_it_mixes(self) -> None:
        for size in (2, 3, 5, 8, 16):
            for name in ("ring", "exponential", "full"):
                found = covey.topology(name, size=size)
                matrix = numpy.array([found.weights(i) for i in range(size)])
                values = numpy.linalg.svd(matrix, compute_uv=False)
                self.assertAlmostEqual(found.contraction, values[1], places=6)
                self.assertAlmostEqual(found.gap, 1 - values[1], places=6)
                self.assertEqual(found.column_error, 0 if name == "full" else found.column_error)
                self.assertLess(found.column_error, 1e-12)
                self.assertTrue(found.is_connected)
                for i in range(size):
                    takers = [j for j in range(size) if j != i and matrix[j, i]]
                    self.assertEqual(found.receivers(i), takers)
        self.assertEqual(covey.topology("one_peer", size=8).period, 3)
        self.assertLess(covey.topology("one_peer", size=8).contraction, 1e-6)
        self.assertFalse(covey.topology([[1, 0], [0.5, 0.5]]).is_connected)
        self.assertEqual(covey.topology([[1, 0], [0.5, 0.5]]).column_error, 0.5)


if __name__ == "__main__":
    unittest.main()
