"""Goal: a checkpoint is read by another number of ranks, by another method, and by plain torch;
what is reset then is said, and saving changes nothing where it need not.
Method: new processes load what others have saved; means are computed again.
"""

from __future__ import annotations

import os
import pathlib
import tempfile
import unittest
from typing import Any, Dict, List, Tuple

import torch
from ranks import SEED, Pool
from save_nets import Net, Training

import covey
import covey.torch as hvd
from covey.torch.plain import digest, plain

FIRST, THEN = 6, 7


def setUpModule() -> None:
    print(f"seed {SEED}")


# ---- On the ranks ------------------------------------------------------------------------------


def saves(method: str, path: str) -> None:
    training = Training(method)
    training.train(0, FIRST)
    training.save(path, step=FIRST)


def loads(method: str, path: str) -> Tuple[Dict[str, Any], List[str], str]:
    """As it is then, what was reset, and that all ends well."""
    training = Training(method, SEED + 5 + hvd.rank())
    training.train(0, 2)
    loaded = training.load(path)
    begun = training.parts()
    hvd.check_replicas({name: it.data for name, it in training.net.named_parameters()})
    training.train(FIRST, THEN)
    training.optimizer.finish()
    hvd.check_replicas(dict(training.net.named_parameters()))
    return begun, loaded.reset, str(loaded.method)


def saves_or_does_not(method: str, path: str) -> None:
    ends = []
    for does in (True, False):
        training = Training(method)
        training.train(0, FIRST)
        if does:
            training.save(path)
        training.train(FIRST, THEN)
        ends.append(training.parts())
    assert ends[0] == ends[1], method


def mean_of_models(method: str, path: str) -> None:
    """``model.pt`` is the mean of what ranks have, and ``rank0.pt`` what each has."""
    training = Training(method)
    training.train(0, FIRST)
    training.save(path)
    mean = torch.load(f"{path}/model.pt", weights_only=True)
    for name, parameter in training.net.named_parameters():
        wanted = hvd.allreduce(parameter.detach(), name=name)
        torch.testing.assert_close(mean[name], wanted)
    buffers = dict(training.net.named_buffers())
    before = digest(plain(buffers, "buffers"))
    wanted = hvd.allreduce(buffers["norm.running_mean"], name="running")
    torch.testing.assert_close(mean["norm.running_mean"], wanted)
    with covey.consensus(training.net, exact=True):
        assert torch.equal(buffers["norm.running_mean"], mean["norm.running_mean"])
        buffers["norm.running_mean"].zero_()  # Is gone afterwards.
    assert digest(plain(buffers, "buffers")) == before
    with covey.consensus(training.net):
        assert digest(plain(buffers, "buffers")) == before
    own = torch.load(f"{path}/rank{hvd.rank()}.pt", weights_only=True)
    with covey.consensus(training.net, exact=True) as found:
        is_apart = found.distance > 0
    assert is_apart or not method.startswith("local")
    assert ("parameters" in own) == is_apart
    for name, parameter in training.net.named_parameters():
        kept = own["parameters"][name] if is_apart else mean[name]
        assert torch.equal(kept, parameter), name


def horovod_pattern(path: str) -> None:
    """One rank saves by torch, after finish(), as Horovod's users do; all load it."""
    training = Training("allreduce")
    training.train(0, 3)
    if hvd.rank() == 0:
        kept = {"model": training.net.state_dict(), "optimizer": training.optimizer.state_dict()}
        torch.save(kept, path)
    hvd.barrier()
    before = training.parts()
    training.train(3, 2)
    kept = torch.load(path, weights_only=True)
    training.net.load_state_dict(kept["model"])
    training.optimizer.load_state_dict(kept["optimizer"])
    assert training.parts()["optimizer"] == before["optimizer"]
    plain = torch.optim.Adam([p for p in Net().parameters() if p.requires_grad], lr=1.0)
    plain.load_state_dict(training.optimizer.state_dict())


def in_a_group(path: str) -> str:
    """Ranks 0 and 2 train together; the other one has no part in it."""
    group = hvd.add_process_set([0, 2])
    net = torch.nn.Linear(3, 2)
    sgd = torch.optim.SGD(net.parameters(), lr=1.0 + hvd.rank(), momentum=0.9)
    optimizer = hvd.DistributedOptimizer(sgd, method="local:H=9", process_set=group)
    net(torch.full((4, 3), 1.0 + hvd.rank())).sum().backward()
    optimizer.step()
    try:
        hvd.save(path, net, optimizer, rank=hvd.rank())
        before = digest(plain(net.state_dict(), "net"))
        with torch.no_grad():
            net.weight.zero_()
        assert hvd.load(path, net, optimizer)["rank"] == hvd.rank()
        assert digest(plain(net.state_dict(), "net")) == before
    except covey.InvalidArgument as error:
        return str(error)
    return "\n".join(sorted(os.listdir(path)))


# ---- The tests ---------------------------------------------------------------------------------


class SaveElsewhereTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def path(self, method: str) -> str:
        return str(self.folder / method.replace(":", " "))

    def test_other_ranks_and_methods_go_on_from_the_mean_and_say_so(self) -> None:
        with Pool(3, __file__) as job:
            for method in ("allreduce", "local:H=4", "adpsgd"):
                job.call(saves, method, self.path(method))
        with Pool(2, __file__) as job:
            for before in ("allreduce", "local:H=4", "adpsgd"):
                for after in ("allreduce", "local:H=4", "eager", "wagma", "adpsgd"):
                    with self.subTest(before=before, after=after):
                        reports = job.call(loads, after, self.path(before))
                        for begun, reset, method in reports:
                            said = "\n".join(reset)
                            self.assertTrue(method.startswith(before.partition(":")[0]))
                            self.assertIn("3 ranks -> 2", said)
                            self.assertIn("random numbers", said)
                            self.assertIn("buffers: their mean", said)
                            self.assertEqual(f"method {method} ->" in said, before != after)
                            is_mean = "the mean of all ranks'" in said
                            self.assertEqual(is_mean, before != "allreduce")
                            self.assertEqual(begun["optimizer"], reports[0][0]["optimizer"])
                            self.assertEqual(begun["version"], FIRST)
            self.assertIn("covey: load", job.stderr(0))
            self.assertNotIn("covey: load", job.stderr(1))

    def test_plain_torch_reads_it(self) -> None:
        for method in ("local:H=100", "adpsgd", "swarm:H=4"):
            path = self.path(method)
            with Pool(3, __file__) as job:
                job.call(mean_of_models, method, path)
            net = Net()
            net.load_state_dict(torch.load(f"{path}/model.pt", weights_only=True))
            trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
            adam = torch.optim.Adam(trained)
            adam.load_state_dict(torch.load(f"{path}/optimizer.pt", weights_only=True))
            self.assertEqual(float(adam.state[trained[0]]["step"]), FIRST)
            self.assertLess(adam.param_groups[0]["lr"], 0.01)  # By the schedule.

    def test_horovods_way_still_works(self) -> None:
        with Pool(2, __file__) as job:
            job.call(horovod_pattern, str(self.folder / "last.pt"))

    def test_some_of_the_ranks(self) -> None:
        with Pool(3, __file__) as job:
            found = job.call(in_a_group, str(self.folder / "it"))
        files = "manifest.json\nmodel.pt\noptimizer.pt\nrank0.pt\nrank1.pt"
        self.assertEqual([found[0], found[2]], [files] * 2)
        self.assertIn("the optimizer trains on the ranks [0, 2]", found[1])

    def test_saving_changes_nothing_where_nobody_goes_ahead(self) -> None:
        with Pool(2, __file__) as job:
            for method in ("allreduce", "local:H=4", "eager:admit=all,max_wait=60s"):
                job.call(saves_or_does_not, method, self.path(method))


if __name__ == "__main__":
    unittest.main()
