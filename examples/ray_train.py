"""A training under Ray Train, by any method: python ray_train.py --workers 2 --method local:H=8

Ray starts the workers and tells each its place as for torch's env:// (RANK, WORLD_SIZE,
MASTER_ADDR, MASTER_PORT). Covey finds the others by it, beside the process group that Ray makes.
With --backend covey that group, which Ray's own DDP would use, is Covey's too.
Needs: pip install 'ray[train]'
"""

from __future__ import annotations

import argparse
import importlib
from typing import Any, Dict

import ray
import torch
from ray import train
from ray.train.torch import TorchConfig, TorchTrainer

import covey.torch as hvd


def know_backend() -> None:
    """At the start of each of Ray's processes: the import tells torch of the backend "covey"."""
    importlib.import_module("covey.torch")


def train_on_worker(config: Dict[str, Any]) -> str:
    """A linear model learns to add up its 8 inputs. Returns what the worker knows at the end."""
    hvd.init()
    torch.manual_seed(hvd.rank())  # Each worker draws its own data.
    model = torch.nn.Linear(8, 1)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(optimizer, model=model, method=config["method"])
    for _ in range(config["steps"]):
        inputs = torch.randn(32, 8)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        loss.backward()
        optimizer.step()
    optimizer.finish()  # All workers: equal parameters, by any method.
    train.report({"loss": loss.item()})
    models = hvd.allgather(model.weight.detach())
    same = int((models == models[0]).all(dim=1).sum())
    group = torch.distributed.get_backend()
    return (
        f"{hvd.size()} workers, {hvd.local_size()} of them on the first one's host, "
        f"{group}: {same} equal models, weight {model.weight.sum().item():.4f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="A training under Ray Train.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--method", default="allreduce")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--backend", default="gloo", help="of Ray's process group: gloo, covey")
    args = parser.parse_args()
    ray.init(runtime_env={"worker_process_setup_hook": know_backend})
    trainer = TorchTrainer(
        train_on_worker,
        train_loop_config={"method": args.method, "steps": args.steps},
        torch_config=TorchConfig(backend=args.backend),
        scaling_config=train.ScalingConfig(num_workers=args.workers),
    )
    print(trainer.fit().return_value)  # The first worker's.


if __name__ == "__main__":
    main()
