"""Lightning, Accelerate, Transformers and Ray Train train by a method of Covey's.

Method: jobs of two ranks, whose models are their own by local steps that do not end, and are equal
where the training ends with ``finish()``. Of Ray it is its example, whose launcher Ray is. Each is
skipped where its package is missing.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

from harness import REPOSITORY, environment, run_launcher

RAY_LIMIT_S = 240  # Ray starts ten processes, each of which imports torch.
OWN = "local:local_steps=100"
LIGHTNING = """
import torch, covey.torch, lightning, sys
from lightning.pytorch.strategies import DDPStrategy

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(3, 1)
    def training_step(self, batch, _):
        return self.net(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

torch.manual_seed(0)
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.randn(32, 3)), batch_size=4)
if sys.argv[1] == "strategy":
    from covey.lightning import CoveyStrategy
    strategy = CoveyStrategy(method="local", local_steps=100, process_group_backend="gloo")
else:
    strategy = DDPStrategy(process_group_backend="gloo")
trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy=strategy, max_epochs=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
model = Net()
trainer.fit(model, loader)
both = covey.torch.allgather(model.net.weight.detach())
print("steps", trainer.optimizers[0].version, "same", torch.equal(both[0], both[1]))
"""
ACCELERATE = """
import torch, covey.torch
import torch.distributed as dist
from accelerate import Accelerator

dist.init_process_group("gloo")
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.randn(32, 3)), batch_size=4)
net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
for (inputs,) in loader:
    with accelerator.accumulate(net):
        accelerator.backward(net(inputs).square().mean())
        accelerator.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
def show():
    both = covey.torch.allgather(accelerator.unwrap_model(net).weight.detach())
    print("steps", optimizer.optimizer.version, "same", torch.equal(both[0], both[1]))
show()
net.finish()
show()
dist.destroy_process_group()
"""
TRANSFORMERS = """
import torch, covey.torch, sys
from transformers import Trainer, TrainingArguments

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(3, 1)
    def forward(self, inputs, labels=None):
        out = self.net(inputs)
        return {"loss": (out - labels).square().mean(), "logits": out}

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, i):
        inputs = torch.randn(3, generator=torch.Generator().manual_seed(i))
        return {"inputs": inputs, "labels": torch.zeros(1)}

arguments = TrainingArguments(
    sys.argv[2], use_cpu=True, ddp_backend="gloo", per_device_train_batch_size=4, report_to=[],
    num_train_epochs=1, save_strategy="no", gradient_accumulation_steps=2, disable_tqdm=True)
trainer = Trainer(Net(), arguments, train_dataset=Data())
trainer.train()
def show():
    both = covey.torch.allgather(trainer.model.net.weight.detach())
    version = trainer.optimizer.optimizer.version
    print("steps", version, "same", torch.equal(both[0], both[1]))
show()
trainer.model_wrapped.finish()
show()
"""


def needs(package: str) -> object:
    """Skips a test where the package is missing."""
    is_here = importlib.util.find_spec(package) is not None
    return unittest.skipUnless(is_here, f"the package {package} is not installed")


class TrainersTest(unittest.TestCase):
    def run_script(self, text: str, *options: str, how: str = "") -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            command = ["-np", "2", *options, sys.executable, path, how, folder]
            code, out, errors = run_launcher(command)
            said = "\n".join(out + errors)
            self.assertEqual(code, 0, said)
        return said

    @needs("lightning")
    def test_lightning(self) -> None:
        said = self.run_script(LIGHTNING, "--method", OWN)
        self.assertEqual(said.count("steps 4 same False"), 2, said)
        said = self.run_script(LIGHTNING, how="strategy")
        self.assertEqual(said.count("steps 4 same True"), 2, said)

    @needs("accelerate")
    def test_accelerate(self) -> None:
        said = self.run_script(ACCELERATE, "--method", OWN)
        self.assertEqual(said.count("steps 2 same False"), 2, said)
        self.assertEqual(said.count("steps 2 same True"), 2, said)

    @needs("transformers")
    def test_transformers(self) -> None:
        said = self.run_script(TRANSFORMERS, "--method", OWN)
        self.assertEqual(said.count("steps 2 same False"), 2, said)
        self.assertEqual(said.count("steps 2 same True"), 2, said)

    @needs("ray")
    def test_ray_train(self) -> None:
        script = str(REPOSITORY / "examples" / "ray_train.py")
        command = [sys.executable, script, "--method", OWN, "--backend", "covey"]
        with tempfile.TemporaryDirectory() as home:
            ours = {"HOME": home, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
            ran = subprocess.run(
                command,
                env=environment(**ours),
                timeout=RAY_LIMIT_S,
                capture_output=True,
                text=True,
                check=False,
            )
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertIn("2 workers, 2 of them on the first one's host, covey: ", ran.stdout)
        self.assertIn("covey: 2 equal models, weight 8.0", ran.stdout)


if __name__ == "__main__":
    unittest.main()
