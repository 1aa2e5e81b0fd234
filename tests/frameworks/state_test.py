"""Starting from one state: broadcasts of parameters, optimizer state, objects; replica checks."""

from __future__ import annotations

import copy
import unittest
from typing import Any, Callable, Dict, List

import torch
from nets import assert_close, batch_of, loss_of, make_net, one_step
from ranks import SEED, SharedPool

import covey
import covey.torch as hvd
from covey.errors import OperationError

SIZE = 3

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


def differs(call: Callable[[], Any]) -> str:
    """The message of the error of `call`."""
    try:
        call()
    except covey.Mismatch as error:
        return str(error)
    raise AssertionError("no difference was seen")


def parameters() -> None:
    for root in range(SIZE):
        for form in ("state_dict", "named", "list"):
            torch.manual_seed(SEED + hvd.rank())
            net = torch.nn.Sequential(
                torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Conv2d(3, 2, 1)
            ).to(memory_format=torch.channels_last)
            with torch.no_grad():
                net[1].running_mean.fill_(2.0 ** hvd.rank())
                net[1].num_batches_tracked.fill_(2 ** hvd.rank())
            differs(lambda: hvd.check_replicas(net))
            own = [parameter.data_ptr() for parameter in net.parameters()]
            wanted = hvd.broadcast_object(net.state_dict(), root)
            if form == "state_dict":
                hvd.broadcast_parameters(net.state_dict(), root)
                assert net[1].running_mean[0] == 2.0**root
                assert net[1].num_batches_tracked == 2**root
                hvd.check_replicas(net)
            elif form == "named":
                hvd.broadcast_parameters(net.named_parameters(), root)
            else:
                hvd.broadcast_parameters(list(net.parameters()), root)
            for name, parameter in net.named_parameters():
                assert torch.equal(parameter, wanted[name]), (form, name)
            assert own == [parameter.data_ptr() for parameter in net.parameters()]


def wrong_parameters() -> List[str]:
    texts = []
    odd = {"fine": torch.ones(1), "odd": torch.ones(2, dtype=torch.complex64)}
    for params in (3, "text", torch.ones(3), {"a": "text"}, [3], odd):
        try:
            hvd.broadcast_parameters(params, 0)
        except ValueError as error:
            texts.append(str(error))
    return texts


OPTIMIZERS: Dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.5, 0.75), amsgrad=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "lbfgs": lambda p: torch.optim.LBFGS(list(p), lr=0.5, max_iter=2),
}


def optimizer_state() -> None:
    for kind, make in OPTIMIZERS.items():
        for wrapped in (False, True):
            for root in (0, 2):
                restore(kind, make, wrapped, root)


def restore(kind: str, make: Callable[[Any], Any], wrapped: bool, root: int) -> None:
    """The root has trained and has another learning rate; then all go on alike."""
    net = make_net()
    before = copy.deepcopy(net.state_dict())
    optimizer = make([p for p in net.parameters() if p.requires_grad])
    if hvd.rank() == root:
        optimizer.step(lambda: local_loss(optimizer, net))
        optimizer.param_groups[0]["lr"] = 0.125
    if wrapped:
        optimizer = hvd.DistributedOptimizer(optimizer)
    if hvd.rank() != root:
        assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    hvd.broadcast_parameters(net.state_dict(), root)
    hvd.broadcast_optimizer_state(optimizer, root)
    assert optimizer.param_groups[0]["lr"] == 0.125
    states = hvd.allgather_object(optimizer.state_dict())
    assert all(same(state, states[0]) for state in states), kind
    if kind != "sgd":
        assert states[0]["state"], "an empty state was sent"
    if wrapped and kind != "lbfgs":
        one_step(net, optimizer)
    hvd.check_replicas(net)


def same(a: Any, b: Any) -> bool:
    """Deep equality that knows tensors."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def local_loss(optimizer: Any, net: torch.nn.Module) -> torch.Tensor:
    optimizer.zero_grad()
    loss = loss_of(net, batch_of(0, hvd.rank()))
    loss.backward()
    return loss


def checkpoint() -> None:
    """A run that is stopped and restored goes on as one that was not."""
    net, never = make_net(), make_net()
    optimizer = hvd.DistributedOptimizer(torch.optim.Adam(net.parameters(), lr=0.01), model=net)
    plain = hvd.DistributedOptimizer(torch.optim.Adam(never.parameters(), lr=0.01), model=never)
    for step in range(3):
        one_step(net, optimizer, step)
        one_step(never, plain, step)
    saved = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
    assert saved[1].keys() == {"state", "param_groups"}
    restored = make_net()
    restored.load_state_dict(saved[0])
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(restored.parameters(), lr=0.5), model=restored
    )
    optimizer.load_state_dict(saved[1])
    for step in range(3, 6):
        one_step(restored, optimizer, step)
        one_step(never, plain, step)
    assert_close(restored, never, "restored", 0)


def objects() -> None:
    for root in range(SIZE):
        sent = {"rank": hvd.rank(), "list": list(range(1000 * (hvd.rank() + 1))), "none": None}
        got = hvd.broadcast_object(sent, root)
        assert got["rank"] == root and len(got["list"]) == 1000 * (root + 1)
        assert (got is sent) == (hvd.rank() == root)
        assert hvd.broadcast_object(None, root, name="named") is None
    gathered = hvd.allgather_object("x" * hvd.rank(), name="texts")
    assert gathered == ["", "x", "xx"]
    assert covey.allgather_object((hvd.rank(),)) == [(0,), (1,), (2,)]


def unwritten() -> List[str]:
    """One rank has what cannot be pickled; then all have something else."""
    odd = (i for i in range(2)) if hvd.rank() == 1 else None
    calls = (lambda: hvd.broadcast_object(odd, 1), lambda: hvd.allgather_object(odd, "odd"))
    texts = []
    for call in calls:
        try:
            call()
        except (TypeError, OperationError) as error:
            texts.append(f"{type(error).__name__}: {error}")
    assert hvd.broadcast_object(b"!", 1) == b"!"
    return texts


def replicas() -> List[str]:
    net = make_net()
    hvd.check_replicas(net)
    covey.check_replicas(net)
    covey.check_replicas(net.state_dict())
    with torch.no_grad():
        if hvd.rank() == 1:
            net.hidden.weight[7, 3] += 1e-6
    first = differs(lambda: covey.check_replicas(net))
    covey.check_replicas(net, covey.group([hvd.rank()]))
    second = differs(
        lambda: covey.check_replicas({"a": torch.ones(2 if hvd.rank() else 3), "b": torch.ones(1)})
    )
    several = {str(i): torch.ones(1) for i in range(hvd.rank())}
    third = differs(lambda: covey.check_replicas(several))
    return [first, second, third]


class StateTest(unittest.TestCase):
    def run_on_all(self, function: Callable[..., Any]) -> List[Any]:
        return pool(SIZE).call(function, timeout=120)

    def test_broadcast_parameters(self) -> None:
        self.run_on_all(parameters)

    def test_wrong_parameters(self) -> None:
        for texts in self.run_on_all(wrong_parameters):
            self.assertEqual(len(texts), 6)
            self.assertRegex(texts[-1], "^odd: tensors of torch.complex64 cannot be sent")

    def test_broadcast_optimizer_state(self) -> None:
        self.run_on_all(optimizer_state)

    def test_checkpoint(self) -> None:
        self.run_on_all(checkpoint)

    def test_objects(self) -> None:
        self.run_on_all(objects)

    def test_no_rank_waits_for_an_object_that_cannot_be_pickled(self) -> None:
        why = "TypeError: cannot pickle 'generator' object"
        for rank, texts in enumerate(self.run_on_all(unwritten)):
            self.assertEqual(len(texts), 2)
            for text, what in zip(texts, ("broadcast_object", "allgather_object")):
                heard = f"OperationError: {what}: rank 1 cannot pickle its object: {why}"
                self.assertEqual(text, why if rank == 1 else heard)

    def test_check_replicas_names_the_tensor_and_the_ranks(self) -> None:
        for first, second, third in self.run_on_all(replicas):
            self.assertIn("hidden.weight", first)
            self.assertIn("ranks 0, 2", first)
            self.assertIn("rank 1", first)
            self.assertIn("rank 0: torch.float32 [3]", second)
            self.assertIn("rank 0: no such tensor", third)


if __name__ == "__main__":
    unittest.main()
