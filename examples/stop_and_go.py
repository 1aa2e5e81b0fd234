"""Stop a worker, watch the others go on, let it run again.

    coveyrun -np 4 --method eager python stop_and_go.py

Every worker prints a line each second with its process id. In another terminal `kill -STOP PID`
stops one, whole; `kill -CONT PID` lets it run. The others wait for it once, for max_wait (a second
here); when it runs again it catches up, and at the end all have the same parameters. With
`coveyrun --keep-going` one may be killed for good too, `kill -9 PID`: the others end with the same
parameters, and the job with exit code 0.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import time

import torch

import covey
import covey.torch as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A training to stop workers of.")
    parser.add_argument("--versions", type=int, default=600, help="updates to do (600)")
    parser.add_argument("--step", type=float, default=0.1, metavar="S", help="seconds each (0.1)")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    hvd.init()
    torch.manual_seed(hvd.rank())  # Each rank has data of its own.
    wanted = torch.arange(8.0)
    model = torch.nn.Linear(8, 1)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model=model)
    shown = 0
    while optimizer.version < args.versions:
        time.sleep(args.step)  # Stands for computing.
        inputs = torch.randn(16, 8)
        optimizer.zero_grad()
        (model(inputs).squeeze(1) - inputs @ wanted).square().mean().backward()
        optimizer.step()
        if optimizer.version // 10 > shown:
            shown = optimizer.version // 10
            error = float((model.weight.detach() - wanted).norm())
            print(f"pid {os.getpid()}: version {optimizer.version}, error {error:.4f}", flush=True)
    try:
        optimizer.finish()
        covey.check_replicas(model)
        found = "equal on all workers"
    except hvd.HorovodInternalError as error:  # One was killed: of the others each says its own.
        digest = hashlib.blake2b(model.weight.detach().numpy().tobytes(), digest_size=4)
        found = f"{digest.hexdigest()}; not all are left: {error}"
    print(f"pid {os.getpid()}: the end, parameters {found}", flush=True)


if __name__ == "__main__":
    main()
