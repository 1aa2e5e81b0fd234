"""A training that goes on where it was: coveyrun -np 2 python resume.py FOLDER

Stop it at any time, also with kill -9: run again, it goes on from the last checkpoint.
"""

import argparse
import os

import torch

import covey
import covey.torch as hvd

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", help="where the checkpoint is, or will be")
parser.add_argument("--steps", type=int, default=100, help="in all")
options = parser.parse_args()

hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Linear(8, 1)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(optimizer, model=model)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
begin = 0
if os.path.isdir(options.folder):
    begin = covey.load(options.folder, model, optimizer, scheduler=scheduler)["steps"]
for step in range(begin, options.steps):
    inputs = torch.randn(32, 8)
    loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if (step + 1) % 10 == 0 or step + 1 == options.steps:
        covey.save(options.folder, model, optimizer, scheduler=scheduler, steps=step + 1)
optimizer.finish()
if hvd.rank() == 0:
    print(f"steps {begin} to {options.steps}, weight {model.weight.sum().item()!r}")
