"""Trains Fashion-MNIST twice while one random worker is late in each step: the usual way, then with
one argument more. Shows both accuracies, both times, and the waits of each rank for others.

    python race.py                          allreduce against eager
    python race.py --method wagma           against another method

Both runs are of train.py, unchanged. Their whole output goes to race/METHOD.log.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import subprocess
import sys
import time
from typing import Dict, List, NamedTuple, Tuple

TRAIN = pathlib.Path(__file__).resolve().parent / "train.py"
USUAL = "allreduce"
ENTRY = "import sys; from covey.cli import coveyrun_main; sys.exit(coveyrun_main())"
PREFIX = re.compile(r"^(\[0\]|coveyrun:) ")


class Lap(NamedTuple):
    """What one run came to.

    Attributes:
        method: its name.
        accuracy: on the test set, percent.
        seconds: training alone, on worker 0.
        epochs: seconds and accuracy at the end of each.
        waited, held_up: seconds by worker: what it waited, and how long it alone was missing.
        hashes: of the parameters, by worker.
    """

    method: str
    accuracy: float
    seconds: float
    epochs: List[Tuple[float, float]]
    waited: List[float]
    held_up: List[float]
    hashes: List[str]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Two methods on Fashion-MNIST, a worker late.")
    parser.add_argument("--method", default="eager", help="raced against allreduce (eager)")
    parser.add_argument("-np", "--workers", type=int, default=4, metavar="N")
    parser.add_argument("--late", type=int, default=30, metavar="MS", help="each step, one (30)")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--max-steps", type=int, help="at most so many steps per epoch")
    parser.add_argument("--data", metavar="DIR", help="folder with the four .gz files")
    parser.add_argument("--out", default="race", metavar="DIR", help="folder for logs and pictures")
    return parser.parse_args()


def command(args: argparse.Namespace, method: str) -> List[str]:
    """What a person would type, and a test may."""
    inject = f"delay:{args.late}ms@1"
    chosen = [] if method == USUAL else ["--method", method]
    run = [*chosen, "--inject", inject, "--summary", sys.executable, str(TRAIN)]
    train = ["--epochs", str(args.epochs), "--out", os.path.join(args.out, name_of(method))]
    for flag, value in (("--max-steps", args.max_steps), ("--data", args.data)):
        train += [] if value is None else [flag, str(value)]
    return [sys.executable, "-c", ENTRY, "-np", str(args.workers), *run, *train]


def name_of(method: str) -> str:
    return method.partition(":")[0]


def drive(args: argparse.Namespace, method: str) -> Lap:
    """One run: its epochs as they end, the rest into its log."""
    path = os.path.join(args.out, f"{name_of(method)}.log")
    lines: List[str] = []
    with open(path, "w", encoding="utf-8") as log:
        job = subprocess.Popen(
            command(args, method), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert job.stdout is not None
        with job.stdout:
            for line in job.stdout:
                log.write(line)
                lines.append(PREFIX.sub("", line.rstrip("\n")))
                epoch = re.match(r"(epoch \d+/\d+).*?(accuracy \S+).*?(waiting .*)", lines[-1])
                if epoch:
                    print("  " + "  ".join(epoch.groups()), flush=True)
        code = job.wait()
    if code != 0:
        sys.stderr.write("".join(f"{line}\n" for line in lines[-30:]))
        raise SystemExit(f"race: {method} ended with code {code}; {path} has all of its output")
    return lap_of(name_of(method), lines)


def lap_of(method: str, lines: List[str]) -> Lap:
    """Reads what train.py and the launcher have printed."""
    epochs, seconds = [], 0.0
    for line in lines:
        found = re.search(r"accuracy ([\d.]+)% .* waiting [\d.]+ of ([\d.]+) s", line)
        if found:
            seconds += float(found[2])
            epochs.append((seconds, float(found[1])))
    hashes = [found[1] for line in lines if (found := re.search(r" ([0-9a-f]{8}) equal$", line))]
    table = closing_table(lines)
    return Lap(
        method,
        epochs[-1][1],
        seconds,
        epochs,
        [float(row["waiting s"]) for row in table],
        [float(row["held up s"]) for row in table],
        hashes,
    )


def closing_table(lines: List[str]) -> List[Dict[str, str]]:
    """The launcher's, by worker."""
    at = next(i for i, line in enumerate(lines) if re.match(r"rank +steps +steps/s", line))
    names = re.split(r"  +", lines[at].strip())
    rows = []
    for line in lines[at + 1 :]:
        cells = line.split()
        if len(cells) != len(names) or not cells[0].isdigit():
            break
        rows.append(dict(zip(names, cells)))
    return rows


def show(laps: List[Lap], args: argparse.Namespace) -> None:
    """The waits, the small table and the sentence."""
    usual, other = laps
    print("\nwho waited for whom, in seconds")
    print(f"              {usual.method:>18}    {other.method:>18}")
    print("worker          waited   held up      waited   held up")
    for worker, row in enumerate(zip(usual.waited, usual.held_up, other.waited, other.held_up)):
        print("{:6}        {:8.1f}  {:8.1f}    {:8.1f}  {:8.1f}".format(worker, *row))
    print("\nmethod     accuracy  seconds  waited s  replicas")
    for lap in laps:
        same = "equal, " + lap.hashes[0] if len(set(lap.hashes)) == 1 else "DIFFERENT"
        print(f"{lap.method:9}  {lap.accuracy:7.2f}%  {lap.seconds:7.1f}  {sum(lap.waited):8.1f}  "
              f"{same}")
    faster, points = usual.seconds / other.seconds, other.accuracy - usual.accuracy
    than = "higher" if points >= 0 else "lower"
    print(f"\nOne random worker of {args.workers} was {args.late} ms late in each step. "
          f"With --method {args.method} the same script\ntook {other.seconds:.0f} s instead of "
          f"{usual.seconds:.0f} s ({faster:.1f} times as fast); its accuracy is "
          f"{abs(points):.2f} points {than}.\n{then(usual, other.seconds)}")


def then(lap: Lap, seconds: float) -> str:
    """Where a run was at that time."""
    done = [accuracy for at, accuracy in lap.epochs if at <= seconds]
    at = f"{done[-1]:.2f}% after epoch {len(done)} of {len(lap.epochs)}" if done else "in epoch 1"
    return f"After {seconds:.0f} s {lap.method} was at {at}."


def main() -> None:
    args = parse_arguments()
    os.makedirs(args.out, exist_ok=True)
    laps = []
    for method, title in ((USUAL, "the usual way"), (args.method, f"--method {args.method}")):
        print(f"\n{title}: {args.workers} workers, a random one {args.late} ms late in each step",
              flush=True)
        began = time.monotonic()
        laps.append(drive(args, method))
        print(f"  {time.monotonic() - began:.0f} s with starting and testing")
    show(laps, args)


if __name__ == "__main__":
    main()
