"""Methods of training: local SGD against a slow reference, its averaging, and who may choose."""

from __future__ import annotations

import copy
import io
import os
import unittest
from typing import Any

import torch
from nets import batch_of, loss_of, make_net
from ranks import SEED, Pool, SharedPool
from references import OPTIMIZERS, Reference, agree, average, do_step

import covey
import covey.torch as hvd
from covey.method import unused

STEPS = 9

pool = SharedPool(__file__)


def setUpModule() -> None:
    print(f"seed {SEED}")


def tearDownModule() -> None:
    pool.close()


def replicas_are_equal(net: torch.nn.Module) -> bool:
    try:
        hvd.check_replicas(net)
    except covey.Mismatch:
        return False
    return True


def train_local(kind: str, every: int, warmup: int, set_to_none: bool = True) -> None:
    net = make_net()
    reference = Reference(net, kind)
    optimizer = hvd.DistributedOptimizer(
        OPTIMIZERS[kind](net.parameters()), model=net, method="local",
        local_steps=every, warmup_steps=warmup,
    )
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=set_to_none)
        loss_of(net, batch_of(step, hvd.rank())).backward()
        optimizer.step()
        assert optimizer.version == step + 1
        if step < warmup:
            reference.shared_step(step)
        else:
            reference.local_step(step)
        averages = step >= warmup and (step - warmup + 1) % every == 0
        if averages:
            average(reference.nets)
        what = (kind, every, warmup, step)
        agree(net, reference.nets[hvd.rank()], what)
        alone = hvd.size() == 1
        assert replicas_are_equal(net) == (alone or step < warmup or averages), what
    optimizer.finish()
    average(reference.nets)
    agree(net, reference.nets[0], "finish")
    hvd.check_replicas(net)


def local_equals_the_reference() -> None:
    for kind in OPTIMIZERS:
        for every in (1, 3, 4):
            for warmup in (0, 2):
                train_local(kind, every, warmup)
    train_local("momentum", 3, 2, set_to_none=False)


def one_local_step_of_sgd_is_allreduce() -> None:
    nets = [make_net(), make_net()]
    methods = ("local:H=1", "allreduce")
    optimizers = [
        hvd.DistributedOptimizer(OPTIMIZERS["sgd"](net.parameters()), model=net, method=method)
        for net, method in zip(nets, methods)
    ]
    for step in range(STEPS):
        for net, optimizer in zip(nets, optimizers):
            do_step(net, optimizer, batch_of(step, hvd.rank()))
        agree(nets[0], nets[1], step)


class Branches(torch.nn.Module):
    """a: used by all; b: by rank 1 only; c: by nobody. And a buffer of each rank's own."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(6, 3)
        self.b = torch.nn.Linear(6, 3)
        self.c = torch.nn.Linear(6, 3)
        self.late = torch.nn.Linear(6, 3).requires_grad_(False)
        self.wide = torch.nn.Linear(6, 3).double()
        self.register_buffer("own", torch.tensor([0.0]))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        out = self.a(inputs) + self.late(inputs) + self.wide(inputs.double()).float()
        return out + self.b(inputs) if hvd.rank() == 1 else out


def parameters_of_all_kinds() -> str:
    net = make_net(Branches)
    start = copy.deepcopy(net)
    net.own.fill_(hvd.rank())
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), model=net, method="local", local_steps=2
    )
    before = covey.stats()["exchanges"]
    for step in range(4):
        do_step(net, optimizer, batch_of(step, hvd.rank()))
    exchanges = covey.stats()["exchanges"] - before
    # Of each averaging one per dtype, and one that counts the ranks in it; one compares the start.
    assert exchanges == 2 * 3 + 1
    assert net.own.item() == hvd.rank(), "buffers are left alone"
    assert torch.equal(net.c.weight, start.c.weight) and net.c.weight.grad is None
    assert (hvd.rank() == 1) == (net.b.weight.grad is not None)
    assert not torch.equal(net.b.weight, start.b.weight), "the mean with rank 1's"
    assert torch.equal(net.late.weight, start.late.weight)
    net.own.zero_()
    hvd.check_replicas(net)

    net.late.requires_grad_(True)
    message = ""
    optimizer.zero_grad()
    loss_of(net, batch_of(4, hvd.rank())).backward()
    try:
        optimizer.step()
    except RuntimeError as error:
        message = str(error)
    optimizer.zero_grad()
    optimizer.rebuild_buckets()
    for step in (4, 5):
        do_step(net, optimizer, batch_of(step, hvd.rank()))
    assert not torch.equal(net.late.weight, start.late.weight)
    hvd.check_replicas(net)
    return message


def two_optimizers_and_more_groups() -> None:
    net = make_net()
    layers = [p for p in net.out.parameters()], [p for p in net.embed.parameters()]
    first = hvd.DistributedOptimizer(
        torch.optim.SGD(layers[0], lr=0.05), method="local", local_steps=2
    )
    second = hvd.DistributedOptimizer(
        torch.optim.SGD(layers[1], lr=0.05), method="local", local_steps=3
    )
    for step in range(12):
        net.zero_grad()
        loss_of(net, batch_of(step, hvd.rank())).backward()
        first.step()
        second.step()
        if step == 5:
            first.add_param_group({"params": list(net.hidden.parameters()), "lr": 0.02})
    hvd.check_replicas(net)


def elsewhere_and_back() -> None:
    """Parameters that are pointed to other memory between two averagings are found again."""
    net = make_net()
    optimizer = hvd.DistributedOptimizer(
        OPTIMIZERS["momentum"](net.parameters()), model=net, method="local:H=1"
    )
    reference = Reference(net, "momentum")
    for step in range(4):
        do_step(net, optimizer, batch_of(step, hvd.rank()))
        reference.local_step(step)
        average(reference.nets)
        net.hidden.weight.data = net.hidden.weight.data.clone().t().contiguous().t()
        net.load_state_dict(copy.deepcopy(net.state_dict()))
        agree(net, reference.nets[hvd.rank()], step)


def state_loads_in_plain_torch() -> None:
    net = make_net()
    optimizer = hvd.DistributedOptimizer(
        OPTIMIZERS["adam"](net.parameters()), model=net, method="local", local_steps=2
    )
    for step in range(4):
        do_step(net, optimizer, batch_of(step, hvd.rank()))
    file = io.BytesIO()
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file)
    plain = make_net()
    plain.load_state_dict(saved["net"])
    other = OPTIMIZERS["adam"](plain.parameters())
    other.load_state_dict(saved["optimizer"])
    do_step(plain, other, batch_of(4, hvd.rank()))
    do_step(net, optimizer, batch_of(4, hvd.rank()))
    agree(net, plain, "taken up in plain torch")

    again = hvd.DistributedOptimizer(other, model=plain, method="local", local_steps=2)
    again.version = 5
    do_step(plain, again, batch_of(5, hvd.rank()))
    do_step(net, optimizer, batch_of(5, hvd.rank()))
    agree(net, plain, "taken up in the middle of the local steps")
    hvd.check_replicas(plain)


def uneven_ends() -> None:
    """Rank 0 has one averaging less; those that go on average without it."""
    net = make_net()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.0), model=net, method="local:H=1"
    )
    do_step(net, optimizer, batch_of(0, hvd.rank()))
    wanted = copy.deepcopy(net)
    if hvd.rank() != 0:
        do_step(net, optimizer, batch_of(1, hvd.rank()))
    hvd.join()
    agree(net, wanted, "a joined rank's zeros are no model")


def two_in_one_memory() -> str:
    net = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 3), "b": torch.nn.Linear(3, 3)})
    net["b"].weight.data = net["a"].weight.data
    try:
        hvd.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1), model=net, method="local:H=1"
        )
    except covey.InvalidArgument as error:
        return str(error)
    return ""


def disagreement() -> str:
    net = make_net()
    try:
        hvd.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1), method="local", H=2 + hvd.rank()
        )
    except covey.Mismatch as error:
        return str(error)
    return ""


def chosen(method: Any = None, settings: Any = None) -> str:
    net = torch.nn.Linear(2, 2)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1), method=method, **(settings or {})
    )
    return optimizer._covey_progress.method


def knows_no_methods() -> None:
    unused("SomethingElse")


def started_differently() -> str:
    rank = int(os.environ["TEST_RANK"])
    covey.init(settings={"method": f"local:H={2 + rank}"})
    try:
        covey.allreduce(torch.ones(1), name="first")
    except covey.CoveyError as error:
        return str(error)
    return ""


def started_with(method: str) -> str:
    covey.init(settings={"method": method})
    return chosen()


def init_error() -> str:
    try:
        covey.init()
    except covey.InvalidArgument as error:
        return str(error)
    return ""


def all_of_one_size() -> None:
    """One job does all: starting ranks takes longer than these."""
    local_equals_the_reference()
    one_local_step_of_sgd_is_allreduce()
    two_optimizers_and_more_groups()
    elsewhere_and_back()
    state_loads_in_plain_torch()


class MethodTest(unittest.TestCase):
    def test_alone(self) -> None:
        pool(1).call(all_of_one_size)

    def test_by_two(self) -> None:
        pool(2).call(all_of_one_size)
        for message in pool(2).call(parameters_of_all_kinds):
            self.assertRegex(message, "late.weight began to require a gradient")
        for message in pool(2).call(two_in_one_memory):
            self.assertRegex(message, "a.weight and b.weight are two parameters in the same memory")
        for message in pool(2).call(disagreement):
            self.assertRegex(message, "local_steps=2,.*rank 1 has .*local_steps=3,")

    def test_by_three(self) -> None:
        pool(3).call(all_of_one_size)
        pool(3).call(uneven_ends)


class ChoiceTest(unittest.TestCase):
    def said(self, ranks: Pool) -> str:
        """The lines of rank 0, without the method's card and UCX's warning about encryption."""
        lines = ranks.stderr(0).splitlines(keepends=True)
        others = ("covey | ", "covey rank 0 warning: tensors travel between hosts by ucx, not")
        return "".join(line for line in lines if not line.startswith(others))

    def test_the_script_wins_over_the_environment_and_says_so_once(self) -> None:
        with Pool(2, __file__, env={"COVEY_METHOD": "local:H=5"}) as ranks:
            told = "local:local_steps=5"
            self.assertEqual(ranks.call(chosen), [told] * 2)
            self.assertEqual(ranks.call(chosen, "local", {"local_steps": 5}), [told] * 2)
            self.assertEqual(self.said(ranks), "")
            for _ in range(2):
                self.assertEqual(ranks.call(chosen, "allreduce"), ["allreduce"] * 2)
            self.assertRegex(
                self.said(ranks),
                r"^covey: COVEY_METHOD=local:H=5 ignored: .*method_test.py:\d+ says "
                r"method='allreduce'\n$",
            )
            for _ in range(2):
                ranks.call(knows_no_methods)
            self.assertRegex(
                self.said(ranks).partition("\n")[2],
                r"^covey: COVEY_METHOD=local:H=5 ignored: SomethingElse \(.*method_test.py:\d+\) "
                r"knows no methods but allreduce\n$",
            )
            self.assertEqual(ranks.stderr(1), "")

    def test_settings_of_init_are_the_script(self) -> None:
        for force, by, holds, line in (
            ("variable", "COVEY_METHOD=local:H=5", "local:local_steps=3",
             r"^covey: COVEY_METHOD=local:H=5 ignored: .*:\d+ says init\(settings={"),
            ("flag", "--method local:H=5", "local:local_steps=3", r"^covey: --method local:H=5 i"),
            ("force", "--method local:H=5", "local:local_steps=5",
             r"^covey: .*:\d+ says init\(.*ignored: --force-method, so --method local:H=5"),
        ):
            env = {"COVEY_METHOD": "local:H=5", "COVEY_METHOD_BY": force}
            with self.subTest(by), Pool(2, __file__, env=env, init=False) as ranks:
                self.assertEqual(ranks.call(started_with, "local:H=3"), [holds] * 2)
                self.assertRegex(self.said(ranks), line)
                self.assertEqual(self.said(ranks).count("\n"), 1)
                self.assertEqual(ranks.stderr(1), "")

    def test_ranks_started_differently_are_refused(self) -> None:
        with Pool(2, __file__, init=False) as ranks:
            for message in ranks.call(started_differently):
                self.assertRegex(message, "local:local_steps=2.*local:local_steps=3")

    def test_a_wrong_method_is_refused_at_start(self) -> None:
        with Pool(1, __file__, env={"COVEY_METHOD": "lokal"}, init=False) as ranks:
            self.assertRegex(ranks.call(init_error)[0], '^COVEY_METHOD.*no method "lokal".*"local"')

    def test_methods_are_listed(self) -> None:
        names = [method["name"] for method in covey.methods()]
        self.assertEqual(names, sorted(names))
        self.assertLessEqual({"allreduce", "local"}, set(names))


if __name__ == "__main__":
    unittest.main()
