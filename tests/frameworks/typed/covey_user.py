"""A user's script for a type checker: operations of any framework. See ../typing_test.py."""

from typing import List

import numpy
import torch

import covey

covey.init(settings={"log_level": "error"})
array = numpy.ones(3)
total = covey.allreduce(array, op=covey.Sum, name="total")
tensor = covey.allreduce_(torch.ones(3), op=covey.Average, group=covey.world)
handle = covey.allgather_async(array, name="rows")
rows = covey.synchronize(handle)
pair: covey.Group = covey.group([0])
names: List[str] = [str(method["name"]) for method in covey.methods()]
ring: covey.Topology = covey.topology("ring", size=4)
gap: float = ring.gap
flat = covey.arena_empty((16,), torch.float32)
steps = covey.stats(flat=True).get("training.steps", 0)
try:
    covey.barrier()
except covey.Aborted as error:
    peer: int = error.peer_rank
results = covey.run(print, args=("hello",), np=2)
covey.shutdown()
