"""DiLoCo: a small language model whose workers exchange once in 20 steps, when half have come.

    coveyrun -np 4 python diloco.py
    coveyrun -np 4 --inject slow:10x@rank3 python diloco.py      # the others keep their pace

Each worker trains on text of its own, by AdamW. What it has changed is the gradient of an outer
optimizer, which all ranks do alike. No worker waits for one that is slow, stopped or dead.
"""

import argparse
import inspect
import pydoc
import tarfile
import typing

import torch

import covey.torch as hvd

BYTES, WIDTH, CONTEXT = 256, 48, 64


class Model(torch.nn.Module):
    """One layer of a transformer over bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.byte = torch.nn.Embedding(BYTES, WIDTH)
        self.place = torch.nn.Embedding(CONTEXT, WIDTH)
        self.layer = torch.nn.TransformerEncoderLayer(
            WIDTH, nhead=4, dim_feedforward=4 * WIDTH, dropout=0.0, batch_first=True
        )
        self.head = torch.nn.Linear(WIDTH, BYTES)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        length = text.shape[1]
        mask = torch.nn.Transformer.generate_square_subsequent_mask(length)
        hidden = self.byte(text) + self.place(torch.arange(length))
        return self.head(self.layer(hidden, src_mask=mask, is_causal=True))


def loss_of(model: Model, text: torch.Tensor) -> torch.Tensor:
    guessed = model(text[:, :-1])
    return torch.nn.functional.cross_entropy(guessed.flatten(0, 1), text[:, 1:].flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=16)
    arguments = parser.parse_args()
    hvd.init()
    torch.set_num_threads(1)
    sources = [typing, pydoc, inspect, argparse]  # a text for each worker, and one nobody has
    own = torch.tensor(list(inspect.getsource(sources[hvd.rank() % 4]).encode()))
    unseen = torch.tensor(list(inspect.getsource(tarfile).encode()))
    torch.manual_seed(1)
    model = Model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.AdamW(model.parameters(), lr=2e-3),
        named_parameters=model.named_parameters(),
        method="diloco:local_steps=20,admit=0.5",
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    numbers = torch.Generator().manual_seed(hvd.rank())

    def batch(text: torch.Tensor, count: int) -> torch.Tensor:
        begins = torch.randint(len(text) - CONTEXT, (count, 1), generator=numbers)
        return text[begins + torch.arange(CONTEXT)]

    for step in range(1, arguments.steps + 1):
        optimizer.zero_grad()
        loss = loss_of(model, batch(own, arguments.batch_size))
        loss.backward()
        optimizer.step()
        if step % 100 == 0 and hvd.rank() == 0:
            with torch.no_grad(), hvd.consensus(model):  # the model of all; no rank waits
                print(f"step {step}: {loss_of(model, batch(unseen, 64)):.3f} on unseen text")
    optimizer.finish()  # now all ranks have that model, with the work of all in it
    digest = sum(float(parameter.detach().double().sum()) for parameter in model.parameters())
    print(f"rank {hvd.rank()}: loss {loss.item():.3f}, weights {digest:.9f}")


if __name__ == "__main__":
    main()
