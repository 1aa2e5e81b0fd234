"""Kill a worker, watch the others go on without it, and another one come in its place.

    coveyrun -np 4 --min-np 2 --preload torch python elastic.py

Each worker prints a line for every tenth step, with its process id. In another terminal
`kill -9 PID` ends one. The others go back to their last commit and go on, as fewer ranks; coveyrun
starts another process, which joins them at a commit. Every sample of an epoch is used: those of
the killed one in this epoch are divided anew.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import torch

import covey
import covey.torch as hvd


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A training to kill workers of.")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the data (10)")
    parser.add_argument("--step", type=float, default=0.1, metavar="S", help="seconds each (0.1)")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    hvd.init()
    torch.manual_seed(0)
    inputs, wanted = torch.randn(1920, 8), torch.arange(8.0)
    data = torch.utils.data.TensorDataset(inputs, inputs @ wanted)
    model = torch.nn.Linear(8, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.02), model=model)
    sampler = hvd.elastic.ElasticSampler(data)
    loader = torch.utils.data.DataLoader(data, batch_size=8, sampler=sampler)

    @hvd.elastic.run
    def train(state: Any) -> None:
        while state.epoch < args.epochs:
            for number, (batch, targets) in enumerate(loader):
                time.sleep(args.step)  # Stands for computing.
                optimizer.zero_grad()
                (model(batch).squeeze(1) - targets).square().mean().backward()
                optimizer.step()
                state.sampler.record_batch(number, len(batch))
                if number % 10 == 9:
                    error = float((model.weight.detach() - wanted).norm())
                    where = f"rank {hvd.rank()} of {hvd.size()}, epoch {state.epoch}"
                    print(f"pid {os.getpid()}: {where}, error {error:.4f}", flush=True)
                    state.commit()
            state.epoch += 1
            state.sampler.set_epoch(state.epoch)
            state.commit()

    train(hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0))
    optimizer.finish()
    covey.check_replicas(model)
    print(f"pid {os.getpid()}: the end, parameters equal on all {hvd.size()} workers", flush=True)


if __name__ == "__main__":
    main()
