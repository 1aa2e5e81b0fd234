"""A training of an elastic job that needs no framework, for tests on hosts."""

from __future__ import annotations

# Each step adds the number of ranks; it goes on until the file "end" is there, seen by rank 0.
TRAINS = """
import os, socket, sys, numpy, covey
from covey import elastic
covey.init()
state = elastic.ObjectState(step=0, total=0)

@elastic.run
def train(state):
    place = f"{covey.rank()} of {covey.size()}, on {socket.gethostname()}"
    print(f"pid {os.getpid()} of {os.getppid()} is {place}", flush=True)
    ends = False
    while not ends:
        state.total += int(covey.allreduce(numpy.ones(1), op=covey.Sum)[0])
        state.step += 1
        ends = covey.broadcast_object(os.path.exists(os.path.join(sys.argv[1], "end")))
        state.commit()

train(state)
totals = covey.allgather_object(state.total)
print(f"end {covey.rank()} of {covey.size()}: {len(set(totals))}", flush=True)
"""
