"""`covey bench`: Covey beside torch's Gloo and DDP, alternating in the same processes.

A machine's speed wanders, so two figures can be compared only when they were taken side by side:
the contestants of a table take turns within every round, and a ratio is the median over the rounds
of the ratio within a round. `contest` does that; `collectives`, `step` and `model` say what is
measured; `peers` starts the other runtimes; `shapes` knows ResNet; `show` prints, saves and draws.
"""
