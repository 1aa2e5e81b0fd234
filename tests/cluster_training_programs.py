"""Programs that cluster_training_test runs on hosts, for `python -c`. Each rank says `fine`."""

from __future__ import annotations

# `save FOLDER` or `load FOLDER`. Each method is trained for 6 steps, saved, and trained on; what it
# was then and in the end is noted, and is to be the same after the checkpoint is loaded. After a
# folder `placed`: the ranks lie elsewhere, so a sum of floats may be rounded otherwise.
CHECKPOINTS = """
import json, pathlib, sys
import torch, covey, covey.torch as hvd
from covey.torch.plain import digest, plain
torch.set_num_threads(1)
hvd.init()
rank, size = hvd.rank(), hvd.size()
METHODS = "allreduce allreduce:codec=topk@bits=4 local:local_steps=4 dpsgd dpsgd:codec=int8"
METHODS += " local:local_steps=4,codec=int8 local:local_steps=2,warmup_steps=3"
METHODS += " local:local_steps=2,then=allreduce@9 allreduce:then=dpsgd@5"

class Training:
    def __init__(self, method, seed):
        torch.manual_seed(seed)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(200, 100), torch.nn.BatchNorm1d(100), torch.nn.Dropout(0.2),
            torch.nn.Linear(100, 3))
        adam = torch.optim.Adam(self.net.parameters(), lr=0.01)
        self.optimizer = hvd.DistributedOptimizer(adam, model=self.net, method=method)
        torch.manual_seed(seed + 1 + rank)

    def train(self, first, steps):
        for step in range(first, first + steps):
            drawn = torch.Generator().manual_seed(100 * step + rank)
            self.optimizer.zero_grad()
            self.net(torch.randn(8, 200, generator=drawn)).square().mean().backward()
            self.optimizer.step()

    def now(self):
        kept = self.net.state_dict(), self.optimizer.state_dict()
        return [*(digest(plain(it, "it")) for it in kept), self.optimizer.version]

what, folder, *placed = sys.argv[1:]
for number, method in enumerate(METHODS.split()):
    path, note = f"{folder}/{number}", pathlib.Path(f"{folder}/{number}.{rank}.json")
    if what == "save":
        training = Training(method, 0)
        training.train(0, 6)
        covey.save(path, training.net, training.optimizer, step=6)
        begun = training.now()
        training.train(6, 7)
        note.write_text(json.dumps([begun, training.now()]))
    else:
        training = Training(method, 5 + rank)
        training.train(0, 2)
        loaded = covey.load(path, training.net, training.optimizer)
        assert loaded["step"] == loaded.steps == 6, (method, loaded)
        begun = training.now()
        training.train(6, 7)
        noted = json.loads(note.read_text())
        if size == loaded.size:
            assert loaded.exact and begun == noted[0], (method, loaded.reset)
        else:
            assert f"{loaded.size} ranks -> {size}" in loaded.reset, (method, loaded.reset)
            hvd.check_replicas(dict(zip("ab", map(torch.tensor, begun[2:]))))
        if not placed and size == loaded.size:
            assert training.now() == noted[1], method
    training.optimizer.finish()
    hvd.check_replicas(dict(training.net.named_parameters()))
print(f"fine {rank}", flush=True)
"""

# With a folder that all hosts see, argv[1], and one that each has for itself, argv[2].
APART = """
import pathlib, shutil, sys
import torch, covey, covey.torch as hvd
hvd.init()
shared, own = pathlib.Path(sys.argv[1], "last"), pathlib.Path(sys.argv[2], "last")
net = torch.nn.Linear(3, 2)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model=net)

def refused(call, *words):
    try:
        call(own, net, optimizer)
    except covey.InvalidArgument as error:
        said = str(error)
    assert all(word in said for word in words), said
    assert set(hvd.allgather_object(said)) == {said}

def copied(rank):
    if hvd.rank() == rank:
        shutil.copytree(shared, own, dirs_exist_ok=True)
    hvd.barrier()

everywhere = "the path has to be in a file system that all ranks share"
refused(covey.save, "rank 2: ", "was made by rank 0 and is not to be seen here", everywhere)
assert not list(own.parent.iterdir()), list(own.parent.iterdir())
refused(covey.load, f"rank 0: there is no checkpoint at {own}")
covey.save(shared, net, optimizer)
copied(0)
refused(covey.load, "rank 2: ", "was found by rank 0 and is not to be seen here", everywhere)
copied(2)
covey.load(own, net, optimizer)
covey.save(shared, net, optimizer, note="another")
copied(2)
refused(covey.load, "rank 2: ", "is another checkpoint here than on rank 0", everywhere)
print(f"fine {hvd.rank()}", flush=True)
"""

# Each operation eagerly and in a graph, the tape, and a training by fit.
TENSORFLOW = """
import numpy, tensorflow as tf, covey.tensorflow as hvd
hvd.init()
rank, size = hvd.rank(), hvd.size()

def of(r, count):
    return tf.constant((numpy.arange(count) % 13 + r).astype("float32"))

def same(actual, wanted, what):
    assert numpy.array_equal(actual, wanted), (what, actual, wanted)

for way in (lambda function: function, tf.function):
    for count in (1, size * 3, 20_000):
        ranks = [of(r, count) for r in range(size)]
        mine, total = ranks[rank], sum(ranks)
        run = way(lambda x: hvd.allreduce(x, op=hvd.Sum, name="sum"))
        for _ in range(3):
            same(run(mine), total, "allreduce")
        run = way(lambda x: hvd.grouped_allreduce([x, 2.0 * x], op=hvd.Sum, name="two"))
        same(run(mine)[1], 2 * total, "grouped")
        same(way(lambda x: hvd.broadcast(x, size - 1, name="root"))(mine), ranks[-1], "broadcast")
        same(way(lambda x: hvd.allgather(x, name="rows"))(mine), tf.concat(ranks, 0), "allgather")
        parts = numpy.array_split(total, size)
        run = way(lambda x: hvd.reducescatter(x, op=hvd.Sum, name="parts"))
        same(run(mine), parts[rank], "reducescatter")
    sent = tf.repeat(of(rank, size), 2)
    rows, came = way(lambda x: hvd.alltoall(x, tf.fill([size], 2), name="all"))(sent)
    same(rows, numpy.repeat([of(r, size)[rank] for r in range(size)], 2), "alltoall")
    near = way(lambda x: hvd.neighbor_allreduce(x, topology="ring", name="near"))(of(rank, 9))
    assert near.shape == [9]
    weights = tf.Variable(tf.ones([300, 70]))

    def gradient():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weights * float(rank + 1))
        return hvd.DistributedGradientTape(tape).gradient(loss, [weights])[0]

    same(way(gradient)(), numpy.full([300, 70], (size + 1) / 2, "float32"), "tape")
print(f"fine {rank}", flush=True)
"""

# By the method that the job was told.
KERAS = """
import numpy, keras, covey.keras as hvd
hvd.init()
rank, size = hvd.rank(), hvd.size()
keras.utils.set_random_seed(1 + rank)
layers = [keras.Input([20]), keras.layers.Dense(300, "relu"), keras.layers.Dense(3)]
model = keras.Sequential(layers)
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.05)), loss="mse")
drawn = numpy.random.default_rng(rank)
data = drawn.normal(size=[64, 20]).astype("float32")
begin = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
before = model.evaluate(data, data[:, :3], verbose=0)
model.fit(data, data[:, :3], batch_size=16, epochs=5, shuffle=False, verbose=0, callbacks=[begin])
assert model.evaluate(data, data[:, :3], verbose=0) < before
mine = numpy.concatenate([numpy.ravel(it) for it in model.get_weights()])
everyone = hvd.allgather_object(mine.tobytes())
assert len(set(everyone)) == 1
assert model.optimizer.version == 20, model.optimizer.version
print(f"fine {rank}", flush=True)
"""

# Odd ranks by torch, even ones by TensorFlow: one model.
MIXED = """
import numpy, covey
covey.init()
rank, size = covey.rank(), covey.size()
numbers = [numpy.random.default_rng(r).normal(size=[200, 70]).astype("float32")
           for r in range(size)]
for method in ("allreduce", "local:local_steps=2", "dpsgd"):
    if rank % 2:
        import torch, covey.torch as hvd
        weights = torch.nn.Parameter(torch.zeros(200, 70))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weights], lr=0.25), method=method)
        for step in range(6):
            optimizer.zero_grad()
            (weights * torch.tensor(numbers[rank])).sum().backward()
            optimizer.step()
        optimizer.finish()
        now = weights.detach().numpy()
    else:
        import keras, tensorflow as tf, covey.tensorflow as hvd
        weights = tf.Variable(tf.zeros([200, 70]))
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.25), method=method)
        for step in range(6):
            optimizer.apply_gradients([(tf.constant(numbers[rank]), weights)])
        optimizer.finish()
        now = weights.numpy()
    wanted = -0.25 * 6 * numpy.mean(numbers, 0)
    assert numpy.allclose(now, wanted, atol=1e-4), (method, now, wanted)
    assert len(set(covey.allgather_object(now.tobytes()))) == 1, method
print(f"fine {rank}", flush=True)
"""

# The backend of torch.distributed: all that it has, and DDP.
BACKEND = """
import torch, torch.distributed as dist, covey.torch
torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("covey")
rank, size = dist.get_rank(), dist.get_world_size()

def of(r, count):
    return (torch.arange(count) % 13 + r).float()

def same(actual, wanted, what):
    assert torch.equal(actual, wanted), (what, actual, wanted)

for count in (1, 7, 50_000):
    ranks = [of(r, count) for r in range(size)]
    total, mine = sum(ranks), lambda: of(rank, count)
    for turn in range(3):
        one = mine()
        dist.all_reduce(one)
        same(one, total, "all_reduce")
        one = mine()
        work = dist.all_reduce(one, op=dist.ReduceOp.MAX, async_op=True)
        work.wait()
        same(one, ranks[-1], "all_reduce MAX")
        one = mine()
        dist.broadcast(one, size - 1)
        same(one, ranks[-1], "broadcast")
        rows = [torch.empty(count) for _ in range(size)]
        dist.all_gather(rows, mine())
        same(torch.stack(rows), torch.stack(ranks), "all_gather")
        rows = torch.empty(size * count)
        dist.all_gather_into_tensor(rows, mine())
        same(rows, torch.cat(ranks), "all_gather_into_tensor")
        rows = [torch.empty(count) for _ in range(size)] if rank == 1 else None
        dist.gather(mine(), rows, dst=1)
        if rank == 1:
            same(torch.stack(rows), torch.stack(ranks), "gather")
        dist.barrier()
for ranks in ([0, size - 1], [size - 1], list(range(size))):
    group = dist.new_group(ranks)
    if rank in ranks:
        one = of(rank, 1000)
        dist.all_reduce(one, group=group)
        same(one, sum(of(r, 1000) for r in ranks), "group")
        where = [None] * len(ranks)
        dist.all_gather_object(where, {"rank": rank}, group=group)
        assert where == [{"rank": r} for r in ranks], where
objects = [{"of": rank}, rank]
dist.broadcast_object_list(objects, src=size - 1)
assert objects == [{"of": size - 1}, size - 1], objects
everyone = [None] * size if rank == 0 else None
dist.gather_object(f"of {rank}", everyone, dst=0)
assert rank or everyone == [f"of {r}" for r in range(size)], everyone
one = of(rank, 1000)
dist.reduce(one, 0)
same(one, sum(of(r, 1000) for r in range(size)) if rank == 0 else of(rank, 1000), "reduce")
came = torch.empty(1000)
ring = [dist.isend(of(rank, 1000), (rank + 1) % size), dist.irecv(came, (rank - 1) % size)]
for message in ring:
    message.wait()
same(came, of((rank - 1) % size, 1000), "a message")
if rank == 0:
    assert {dist.recv(came) for _ in range(size - 1)} == set(range(1, size))
else:
    dist.send(of(rank, 1000), 0)
swapped = torch.empty(size)
dist.all_to_all_single(swapped, torch.arange(float(size)) + 10 * rank)
assert swapped.tolist() == [rank + 10.0 * r for r in range(size)], swapped
part = torch.empty(2)
dist.reduce_scatter_tensor(part, torch.arange(2.0 * size))
assert part.tolist() == [2.0 * rank * size, (2.0 * rank + 1) * size], part
dist.scatter(part, [torch.full((2,), float(r)) for r in range(size)] if rank == 0 else None)
assert part.tolist() == [rank, rank], part

net = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.ReLU(), torch.nn.Linear(300, 10))
ddp = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.1)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for step in range(5):
    optimizer.zero_grad()
    drawn = torch.Generator().manual_seed(rank + 10 * step)
    if step == 2:
        with ddp.no_sync():
            ddp(torch.ones(8, 300)).square().mean().backward()
    ddp(torch.randn(8, 300, generator=drawn)).square().mean().backward()
    optimizer.step()
mine = torch.cat([p.detach().flatten() for p in net.parameters()])
all_ranks = [torch.empty_like(mine) for _ in range(size)]
dist.all_gather(all_ranks, mine)
assert all(torch.equal(theirs, mine) for theirs in all_ranks)
print(f"fine {rank}", flush=True)
dist.destroy_process_group()
"""

# The trainer of NumPy arrays.
NUMPY = """
import numpy, covey, covey.numpy
covey.init()
rank, size = covey.rank(), covey.size()
numbers = [numpy.random.default_rng(r).normal(size=[200, 70]) for r in range(size)]

def update(parameters, gradients):
    for parameter, gradient in zip(parameters, gradients):
        parameter -= 0.25 * gradient

METHODS = "allreduce allreduce:codec=int8 local:local_steps=2 dpsgd eager:admit=all,max_wait=60s"
METHODS += " diloco:local_steps=2,admit=all,max_wait=60s local:local_steps=2,then=allreduce@4"
METHODS += " local:local_steps=2,max_wait=60s local:local_steps=2,max_wait=60s,then=allreduce@4"
METHODS += " wagma:S=2,tau=3,admit=all,max_wait=60s"
for method in METHODS.split():
    for dtype in ("float32", "float64")[: 1 if "codec" in method else 2]:
        weights = numpy.full([200, 70], float(rank), dtype)
        trainer = covey.numpy.Trainer([weights], update, method=method)
        for step in range(6):
            trainer.step([numbers[rank].astype(dtype)])
        trainer.finish()
        assert len(set(covey.allgather_object(weights.tobytes()))) == 1, method
        wanted = -0.25 * 6 * numpy.mean(numbers, 0)
        if "diloco" not in method:
            near = 0.1 if "codec" in method else 1e-4
            assert numpy.allclose(weights, wanted, atol=near), (method, weights, wanted)
print(f"fine {rank}", flush=True)
"""

# Messages to and from the coordinator in ten steps, after three.
STEADY = """
import numpy, torch, covey, covey.torch as hvd
torch.set_num_threads(1)
hvd.init()
rank, size = hvd.rank(), hvd.size()
ones, many = numpy.ones(1000, "float32"), numpy.ones(300_000, "float32")

def streams():
    order = range(20) if rank % 2 else reversed(range(20))
    for handle in [covey.allreduce_async(ones, name=f"stream.{i}") for i in order]:
        handle.wait()

def training(method):
    net = torch.nn.Sequential(torch.nn.Linear(200, 100), torch.nn.ReLU(), torch.nn.Linear(100, 3))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.01), model=net, method=method)

    def step():
        optimizer.zero_grad()
        net(torch.ones(2, 200)).square().mean().backward()
        optimizer.step()
    return step, optimizer.finish

steps = {
    "small": (lambda: covey.allreduce(ones, name="small"), None),
    "large": (lambda: covey.allreduce(many, name="large"), None),
    "unnamed": (lambda: covey.allreduce(ones), None),
    "grouped": (lambda: covey.grouped_allreduce([ones, many], name="grouped"), None),
    "broadcast": (lambda: covey.broadcast(many, 1, name="broadcast"), None),
    "allgather": (lambda: covey.allgather(ones, name="allgather"), None),
    "streams": (streams, None),
    **{method: training(method) for method in (
        "allreduce", "allreduce:codec=int8", "local:local_steps=2", "dpsgd",
        "local:local_steps=2,codec=int8", "diloco:local_steps=2")},
}
for name, (step, end) in steps.items():
    for _ in range(4):
        step()
    before = covey.stats()
    for _ in range(10):
        step()
    after = covey.stats()
    messages = after["coordinator_messages"] - before["coordinator_messages"]
    assert messages == 0, (name, messages)
    if name.partition(":")[0] not in ("dpsgd", "diloco"):  # These need no exchange of the engine.
        assert after["exchanges"] - before["exchanges"] >= 5, name
    if end is not None:
        end()
print(f"fine {rank}", flush=True)
"""
