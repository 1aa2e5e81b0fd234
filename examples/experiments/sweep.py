"""One worker that is slow for good, by method: AD-PSGD's experiment (README.md beside this).

    python sweep.py              all runs there are not yet, then the table and sweep.png
    python sweep.py --show       the table and the picture of the runs there are

One of 8 ranks takes 2, 10, 100 times as long for each step. The measured figure is the others'
pace, in parts of their pace when no rank is slow.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any, Dict, List, Tuple

import torch

import covey
import covey.torch as hvd
from runs import check, load, save

RANKS = 8  # The last one is slow.
FACTORS = (1, 2, 10, 100)
METHODS = ("allreduce", "local:local_steps=8", "dpsgd", "eager", "wagma", "adpsgd", "swarm")
SYNCHRONOUS = ("allreduce", "local", "dpsgd")  # As long as they are told no max_wait.
BASE_S, SECONDS, WAIT_S = 0.020, 6.0, 1.0
NUMBERS = 1 << 18


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="One worker that is slow for good.")
    parser.add_argument("--out", default="results", metavar="DIR", help="where files are written")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each run; default 6")
    parser.add_argument("--show", action="store_true", help="run nothing")
    return parser.parse_args()


def text_of(method: str) -> str:
    """Methods that wait for some time for a slow rank do so before the clock starts."""
    return f"{method}:max_wait={WAIT_S:g}s" if method in ("eager", "wagma") else method


# ---- On the ranks ------------------------------------------------------------------------------


def train(method: str, factor: int, seconds: float) -> Dict[str, Any]:
    """Steps of this rank per second. All do equally many where all wait for all, else each as many
    as it can."""
    parameter = torch.nn.Parameter(torch.zeros(NUMBERS))
    parameter.grad = torch.zeros(NUMBERS)
    sgd = torch.optim.SGD([parameter], lr=0.1)
    optimizer: Any = hvd.DistributedOptimizer(sgd, method=text_of(method))
    waits = method.partition(":")[0] in SYNCHRONOUS
    computes = BASE_S * (factor if hvd.rank() == hvd.size() - 1 else 1)
    settles = 0.0 if waits or factor == 1 else 3 * WAIT_S

    def step() -> None:
        optimizer.zero_grad()
        time.sleep(computes)
        parameter.grad = torch.full((NUMBERS,), 1e-3)
        optimizer.step()

    def steps_until(end: float) -> int:
        done = 0
        while time.monotonic() + computes < end:
            step()
            done += 1
        return done

    hvd.barrier()
    began = time.monotonic()
    if waits:
        count = max(8, round(seconds / (BASE_S * factor) / 8) * 8)
        for _ in range(count):
            step()
        pace = count / (time.monotonic() - began)
    else:
        steps_until(began + settles)
        starts = time.monotonic()
        count = steps_until(starts + seconds)
        pace = count / (time.monotonic() - starts) if count else 0.0
    optimizer.finish()
    hvd.check_replicas({"parameter": parameter.detach()})
    return {"pace": pace, "steps": count}


def job(method: str, factors: List[int], seconds: float) -> Any:
    """By factor: the figures of all ranks. On every rank."""
    hvd.init()
    return [
        hvd.allgather_object(train(method, factor, seconds), name=f"figures {factor}")
        for factor in factors
    ]


# ---- What is shown -----------------------------------------------------------------------------


def healthy_pace(ranks: List[Dict[str, Any]]) -> float:
    return statistics.fmean(one["pace"] for one in ranks[:-1])


def shares(results: Dict[str, Any]) -> Dict[str, Tuple[float, List[float]]]:
    """By method: steps/s of the healthy when no rank is slow, and their pace in parts of it."""
    found = {}
    for method, by_factor in results.items():
        free = healthy_pace(by_factor[0])
        found[method] = free, [healthy_pace(ranks) / free for ranks in by_factor[1:]]
    return found


def show(results: Dict[str, Any]) -> None:
    """The table."""
    print(f"{RANKS} ranks, a step computes {BASE_S * 1000:g} ms (at most {1 / BASE_S:g} steps/s); "
          "pace of the other 7 in parts of their free pace when one is slower for good")
    heads = "  ".join(f"{factor:>4}x" for factor in FACTORS[1:])
    print(f"method               free steps/s  {heads}")
    for method, (free, parts) in shares(results).items():
        cells = "  ".join(f"{part:>5.0%}" for part in parts)
        print(f"{method:20} {free:>12.1f}  {cells}")


def draw(results: Dict[str, Any], folder: str) -> None:
    """sweep.png, where matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        print("no picture: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4), layout="constrained")
    for method, (_, parts) in shares(results).items():
        axes.plot(FACTORS, [1.0, *parts], "o-", label=method.partition(":")[0])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(FACTORS, [f"{factor}x" for factor in FACTORS])
    axes.set(xlabel="how much slower one of 8 ranks is", ylabel="pace of the others, free pace = 1")
    axes.set_title("pace alone: nothing here says how well a method learns")
    axes.grid(alpha=0.3)
    axes.legend()
    path = os.path.join(folder, "sweep.png")
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


def main() -> None:
    args = parse_arguments()
    os.makedirs(args.out, exist_ok=True)
    path = os.path.join(args.out, "sweep.json")
    settings = {"ranks": RANKS, "factors": list(FACTORS), "base_s": BASE_S, "numbers": NUMBERS,
                "seconds": args.seconds}
    run = load(path, settings)
    for method in METHODS:
        if method in run["results"]:
            continue
        if args.show:
            raise SystemExit(f"{path} has no figures of {method} yet")
        check(run, path)
        print(f"sweep.json: {method}", flush=True)
        arguments = (method, list(FACTORS), args.seconds)
        env = {"OMP_NUM_THREADS": "1"}
        run["results"][method] = covey.run(job, arguments, np=RANKS, env=env)[0]
        save(run, path)
    show(run["results"])
    draw(run["results"], args.out)


if __name__ == "__main__":
    main()
