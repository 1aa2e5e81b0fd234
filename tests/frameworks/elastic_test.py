"""hvd.elastic over a fixed world: a state goes back to its last commit when an operation has failed
on all ranks, a rank's death ends the training, and a sampler leaves out what was processed.

Method: ranks cause a mismatch at a step; what they train afterwards is compared with a training
without one.
"""

from __future__ import annotations

import os
import unittest
from typing import Any, List, Tuple

import torch
from nets import batch_of, loss_of, make_net
from ranks import Pool, SharedPool, ranks_may_die

import covey
import covey.torch as hvd

pool = SharedPool(__file__)
SIZE = 3


def tearDownModule() -> None:
    pool.close()


def mismatch() -> None:
    hvd.allreduce(torch.ones(1 + hvd.rank()), name="mismatch")


def trained(fails_at: Tuple[int, ...], commit_every: int) -> Any:
    """(the model's parameters, events). The model of rank 0 is what all begin with."""
    net = make_net()
    with torch.no_grad():
        net.scale.add_(hvd.rank())
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9), model=net, method="allreduce"
    )
    state = hvd.elastic.TorchState(net, optimizer, step=hvd.rank(), seen=[])
    left, events = list(fails_at), []
    state.register_reset_callbacks([lambda: events.append(("reset", state.step))])

    @hvd.elastic.run
    def train(state: Any, until: int) -> str:
        while state.step < until:
            optimizer.zero_grad()
            loss_of(net, batch_of(state.step, hvd.rank())).backward()
            optimizer.step()
            if left and state.step == left[0]:
                left.pop(0)
                mismatch()
            state.seen.append(state.step)
            state.step += 1
            if state.step % commit_every == 0:
                state.commit()
        return "done"

    assert train(state, 6) == "done"
    assert state.seen == list(range(6)), state.seen
    return [it.detach().numpy().copy() for it in net.parameters()], events


def gives_up() -> Any:
    """It fails again and again without a commit between."""
    state = hvd.elastic.ObjectState(epoch=0)
    calls: List[int] = []

    def train(state: Any) -> None:
        calls.append(state.epoch)
        state.epoch += 1
        mismatch()

    try:
        hvd.elastic.run(train)(state)
    except hvd.HorovodInternalError as error:
        return type(error).__name__, calls, state.epoch
    return None


def loses_a_rank() -> Any:
    state = hvd.elastic.ObjectState(epoch=0)

    def train(state: Any) -> None:
        state.epoch += 1
        if hvd.rank() == 2:
            os._exit(1)
        hvd.allreduce(torch.ones(1), name="all")

    try:
        hvd.elastic.run(train)(state)
    except covey.Aborted as error:
        return error.peer_rank, state.epoch
    return None


def objects() -> None:
    inner = {"list": [1, 2]}
    state = hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, kept=inner)
    state.kept["list"].append(3)
    state.restore()
    assert state.kept == {"list": [1, 2]} and inner["list"] == [1, 2, 3]
    state.kept = hvd.rank()
    state.commit()
    state.sync()
    assert state.kept == 0
    assert issubclass(hvd.elastic.HostsUpdatedInterrupt, RuntimeError)


def sampled() -> Any:
    """Half an epoch, then the rest of it after a sync, with another batch size."""
    sampler = hvd.elastic.ElasticSampler(range(20), shuffle=True, seed=3)
    state = hvd.elastic.TorchState(sampler=sampler)
    loader = torch.utils.data.DataLoader(range(20), sampler=sampler, batch_size=2)
    first = []
    for number, batch in enumerate(loader):
        if number == 2:
            break
        first += batch.tolist()
        sampler.record_batch(number, 2)
    state.commit()
    state.sync()
    second = list(sampler)
    assert len(sampler) == len(second) == 3  # 8 are left.
    sampler.record_batch(0, 2)
    kept = sampler.state_dict()
    state.restore()
    assert len(sampler.processed_indices) == 12
    sampler.load_state_dict(kept)
    assert len(sampler.processed_indices) == 14
    sampler.set_epoch(1)
    assert len(sampler) == 7 and not sampler.processed_indices
    assert kept["epoch"] == 0
    return first, second, list(sampler)


class Counter:
    """No plain object: neither copied nor pickled."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a Counter is not copied")


class CounterHandler(hvd.elastic.StateHandler):
    """As scripts for Horovod have it: only what its base asks for."""

    def __init__(self, value: Counter) -> None:
        super().__init__(value)
        self.saved = value.count

    def save(self) -> None:
        self.saved = self.value.count

    def restore(self) -> None:
        self.value.count = self.saved

    def sync(self) -> None:
        self.value.count = hvd.broadcast_object(self.value.count, root_rank=0)


class FrozenHandler(hvd.elastic.ModelStateHandler):
    """A handler of modules that never change."""

    def sync(self) -> None:
        pass


def handled() -> None:
    """Objects by a handler of the script's own; of two that fit, the first counts."""
    before = hvd.elastic.get_handler_registry()
    hvd.elastic.set_handler_registry([(torch.nn.Dropout, FrozenHandler), *before])
    try:
        hvd.elastic.get_handler_registry().append((Counter, CounterHandler))
        frozen, net = torch.nn.Dropout(), torch.nn.Linear(1, 1)
        frozen.register_buffer("own", torch.tensor(float(hvd.rank())))
        net.weight.data.fill_(hvd.rank())
        state = hvd.elastic.TorchState(net, counter=Counter(hvd.rank() + 5), frozen=frozen)
    finally:
        hvd.elastic.set_handler_registry(before)
    state.sync()
    assert net.weight.item() == 0 and frozen.own.item() == hvd.rank()
    assert state.counter.count == 5
    state.counter.count = 9
    state.restore()  # To the sync.
    assert state.counter.count == 5
    other = state.counter = Counter(hvd.rank() + 20)
    state.commit()
    other.count = 0
    state.restore()
    assert state.counter is other and other.count == hvd.rank() + 20
    another = state.counter = Counter(hvd.rank() + 30)
    state.sync()
    assert state.counter is another and another.count == 30


def with_a_scheduler() -> None:
    """A scheduler and a scaler go back with their optimizer, and rank 0's count after a sync."""
    net = torch.nn.Linear(1, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=8.0), model=net)
    scheduler: Any = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 + hvd.rank())
    state = hvd.elastic.TorchState(net, optimizer, scheduler=scheduler, scaler=scaler, seen=0)
    state.sync()
    assert state.scheduler is scheduler and scaler.scale(torch.ones(1)).item() == 2.0
    optimizer.step()
    scheduler.step()
    state.commit()
    scheduler.step()
    scaler.update(1.0)
    state.restore()
    assert scaler.get_scale() == 2.0
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 2.0, optimizer.param_groups[0]["lr"]
    optimizer.finish()


def raised_by_the_script() -> List[int]:
    """The count with which each call begins: of the third the state stays as it is."""
    begins: List[int] = []
    state = hvd.elastic.ObjectState(count=0)

    @hvd.elastic.run
    def train(state: Any) -> List[int]:
        begins.append(state.count)
        state.count += 1
        if len(begins) == 1:
            raise hvd.HorovodInternalError("mine")
        state.commit()
        state.count += hvd.rank()
        if len(begins) < 4:
            raise hvd.elastic.HostsUpdatedInterrupt(skip_sync=len(begins) == 3)
        return begins

    return train(state)


class ElasticTest(unittest.TestCase):
    def test_schedulers_and_scalers(self) -> None:
        pool(SIZE).call(with_a_scheduler)

    def test_what_the_script_raises(self) -> None:
        for rank, begins in enumerate(pool(SIZE).call(raised_by_the_script)):
            self.assertEqual(begins, [0, 0, 1, 2 + rank])

    def test_goes_back_to_the_last_commit(self) -> None:
        wanted, events = pool(SIZE).call(trained, (), 2)[0]
        self.assertEqual(events, [])
        for found, events in pool(SIZE).call(trained, (3, 5), 2):
            self.assertEqual(events, [("reset", 2), ("reset", 4)])
            for one, other in zip(found, wanted):
                self.assertTrue((one == other).all())

    def test_gives_up_without_progress(self) -> None:
        self.assertEqual(pool(SIZE).call(gives_up), [("Mismatch", [0, 0], 0)] * SIZE)

    @ranks_may_die
    def test_a_lost_rank_ends_it_at_the_last_commit(self) -> None:
        with Pool(SIZE, __file__) as apart:
            apart.send(loses_a_rank)
            self.assertEqual(apart.collect(may_end=True)[:2], [(2, 0)] * 2)

    def test_objects(self) -> None:
        pool(SIZE).call(objects)

    def test_handlers_of_ones_own(self) -> None:
        pool(SIZE).call(handled)

    def test_the_registry_takes_pairs_of_classes(self) -> None:
        before = hvd.elastic.get_handler_registry()
        bad: List[Any] = [Counter, (Counter,), (Counter, 1), ("Counter", CounterHandler)]
        for entry in bad:
            with self.assertRaisesRegex(TypeError, "takes pairs"):
                hvd.elastic.set_handler_registry([*before, entry])
        self.assertIs(hvd.elastic.get_handler_registry(), before)
        before.append(Counter)  # type: ignore[arg-type]
        self.addCleanup(before.pop)
        with self.assertRaisesRegex(TypeError, "takes pairs .* not <class .*Counter"):
            hvd.elastic.TorchState(epoch=0)

    def test_a_sampler_leaves_out_what_is_done(self) -> None:
        found = pool(SIZE).call(sampled)
        first = [i for one, _, _ in found for i in one]
        second = [i for _, one, _ in found for i in one]
        self.assertEqual(len(set(first)), 12)
        self.assertEqual(set(first) | set(second), set(range(20)))
        self.assertFalse(set(first) & set(second))
        self.assertEqual({i for _, _, one in found for i in one}, set(range(20)))


if __name__ == "__main__":
    unittest.main()
