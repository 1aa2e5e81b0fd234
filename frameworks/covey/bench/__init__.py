"""`covey bench`: Covey beside torch's Gloo and DDP, MPI and oneCCL, alternating in the same
processes.

A machine's speed wanders, so two figures can be compared only when they were taken side by side:
the contestants of a table take turns within every round. `contest` does that; `ratio` says how sure
a ratio of two is; `flag` calibrates; `collectives`, `step`, `model` and `methods` say what is
measured; `peers`, `mpis` and `oneccl` start the other runtimes; `on_hosts` starts jobs on several
hosts; `shapes` knows ResNet; `show` prints and saves, `picture` draws. `waiting` is of another
kind: it measures the cost of late ranks, and `bound` computes the best possible result under the
delays that were drawn.
"""
