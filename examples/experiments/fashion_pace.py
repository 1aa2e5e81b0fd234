"""Images per second of Fashion-MNIST by Keras's fit and by a loop of PyTorch, by one process and by
several, in turns, on this machine.

    python fashion_pace.py --ranks 4 --turns 3

The examples are keras_fashion_mnist.py and fashion_mnist/train.py: the same network, schedule and
batches, averaged by `--method`. One process runs on one core, as each of several does. An epoch is
a figure; the first of each job is left out, for it compiles.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
from typing import Dict, List, Tuple

EXAMPLES = pathlib.Path(__file__).resolve().parents[1]
SCRIPTS = {"keras": "keras_fashion_mnist.py", "torch": "fashion_mnist/train.py"}
PACE = re.compile(r"([\d,]+) images/s\b")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fashion-MNIST's pace by Keras and by PyTorch.")
    parser.add_argument("--ranks", type=int, default=4, help="of the jobs beside one process")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--method", default="allreduce")
    parser.add_argument("--data", metavar="DIR", help="folder with the four .gz files")
    parser.add_argument("--max-steps", type=int, help="at most so many steps per epoch")
    return parser.parse_args()


def paces(framework: str, ranks: int, arguments: argparse.Namespace) -> List[float]:
    """Images of all ranks per second, in each epoch but the first."""
    script = [str(EXAMPLES / SCRIPTS[framework]), "--epochs", str(arguments.epochs)]
    for name in ("data", "max_steps"):
        if getattr(arguments, name) is not None:
            script += [f"--{name.replace('_', '-')}", str(getattr(arguments, name))]
    launcher = [sys.executable, "-m", "covey.cli", "run", "-np", str(ranks)]
    command = [*launcher, "--method", arguments.method, sys.executable, *script]
    if ranks == 1:
        command = ["taskset", "-c", "0", *command]
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ}
    out = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
    found = [float(it.replace(",", "")) for it in PACE.findall(out.stdout)]
    if out.returncode != 0 or len(found) < arguments.epochs:
        raise SystemExit(f"{framework}, {ranks} ranks: the job has failed\n{out.stderr}")
    return found[1 : arguments.epochs]


def main() -> None:
    arguments = parse_arguments()
    jobs: List[Tuple[str, int]] = [
        (name, ranks) for ranks in (1, arguments.ranks) for name in SCRIPTS
    ]
    found: Dict[Tuple[str, int], List[float]] = {job: [] for job in jobs}
    for turn in range(arguments.turns):
        for job in jobs:
            found[job] += paces(*job, arguments)
        print(f"turn {turn + 1} of {arguments.turns}", flush=True)
    print("images/s of an epoch (median / best):")
    for (name, ranks), seen in found.items():
        print(f"  {name}, {ranks} ranks: {statistics.median(seen):8,.0f} / {max(seen):,.0f}")
    for kind, of in (("medians", statistics.median), ("best epochs", max)):
        gain = {name: of(found[name, arguments.ranks]) / of(found[name, 1]) for name in SCRIPTS}
        print(
            f"  gain by {arguments.ranks} ranks, {kind}: keras {gain['keras']:.2f}, "
            f"torch {gain['torch']:.2f}: {gain['keras'] / gain['torch']:.2f} of it"
        )


if __name__ == "__main__":
    main()
