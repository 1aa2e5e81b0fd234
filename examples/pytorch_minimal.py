"""The smallest data-parallel training: coveyrun -np 2 python pytorch_minimal.py"""

import torch

import covey.torch as hvd

hvd.init()
torch.manual_seed(hvd.rank())  # every rank has data of its own
inputs = torch.randn(256, 8)
wanted = inputs.sum(dim=1, keepdim=True)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
for _ in range(100):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), wanted)
    loss.backward()
    optimizer.step()
print(f"rank {hvd.rank()} of {hvd.size()}: loss {loss.item():.6f}, weight {model.weight.sum():.4f}")
