"""eager-SGD's hyperplane regression under injected delays, as published (README.md beside this).

    python hyperplane.py                 all runs, then the table and hyperplane.png
    python hyperplane.py --show          the table and the picture of the runs there are

Each run is one job: all methods in turn, one delay, one seed. Its figures go to a file of its own;
what is there is not done again, and methods that are missing in it are added.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import time
from typing import Any, Dict, List, Tuple

import torch

import covey
import covey.torch as hvd
from covey.bench.bound import seconds as bound_seconds
from covey.bench.method_text import ranks_needed
from covey.inject import drawn, parse
from covey.method import full_text
from runs import check, save, stamped

BASE_MS = 325  # One step of the paper, by its speed-ups.
PUBLISHED_SOLO = {200: 1.50, 300: 1.75, 400: 2.01}
POINTS = 32768
MOST_S = 90.0
RANKS = 8


def methods() -> Dict[str, str]:
    """Name in the table -> method."""
    known = {
        "allreduce": "allreduce",
        "solo": "eager:admit=solo,grace=0s,log=64",
        "half": "eager:admit=0.5,grace=0s,log=64",
        "five": "eager:admit=5,log=64",
    }
    if any(method["name"] == "wagma" for method in covey.methods()):
        known["wagma"] = "wagma"
    return known


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Hyperplane regression under injected delays.")
    parser.add_argument("--out", default="results", metavar="DIR", help="where files are written")
    parser.add_argument("--time-scale", type=float, default=0.1, help="of all times; default 0.1")
    parser.add_argument("--steps", type=int, default=128, help="the paper: 768, 48 epochs of 16")
    parser.add_argument("--features", type=int, default=1024, help="the paper: 8192")
    parser.add_argument("--delays", type=int, nargs="+", default=[200, 300, 400], metavar="MS")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--methods", nargs="+", default=list(methods()), choices=list(methods()))
    parser.add_argument("--show", action="store_true", help="run nothing")
    return parser.parse_args()


# ---- On the ranks ------------------------------------------------------------------------------


def make_data(features: int) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """This rank's points and their values, and the plane that all ranks look for."""
    plane = torch.randn(features, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1 + hvd.rank())
    inputs = torch.randn(POINTS // hvd.size(), features, generator=generator)
    noise = torch.randn(len(inputs), generator=generator)
    return inputs, inputs @ plane + noise, plane


def train(method: str, steps: int, base_s: float, data: Any) -> Dict[str, Any]:
    """Figures of this rank. Sleeping stands for what the paper's GPUs computed."""
    inputs, values, plane = data
    weights = torch.nn.Parameter(torch.zeros(len(plane)))
    sgd = torch.optim.SGD([weights], lr=0.05)
    optimizer: Any = hvd.DistributedOptimizer(sgd, method=method)
    batch = 2048 // hvd.size()
    hvd.barrier()
    began = time.monotonic()
    computing_s = 0.0  # of the step before, really
    for step in range(steps):
        # First, since a gradient travels from when backward() has it.
        time.sleep(max(0.0, base_s - computing_s))
        computes = time.monotonic()
        some = slice(step * batch % len(inputs), step * batch % len(inputs) + batch)
        optimizer.zero_grad()
        (inputs[some] @ weights - values[some]).square().mean().backward()
        computing_s = time.monotonic() - computes
        optimizer.step()
    ended = time.monotonic() - began
    optimizer.finish()
    figures = dict(covey.stats()["training"], own_end_s=ended, end_s=time.monotonic() - began)
    figures["error"] = float((weights.detach() - plane).norm() / plane.norm())
    hvd.check_replicas({"weights": weights.detach()})
    return figures


def job(chosen: Dict[str, str], steps: int, base_s: float, features: int) -> Any:
    """By method: the figures of all ranks. On every rank."""
    hvd.init()
    data = make_data(features)
    train("allreduce", 2, 0.0, data)  # what is done once is not to be timed
    results = {}
    for name, method in chosen.items():
        mine = train(method, steps, base_s, data)
        results[name] = hvd.allgather_object(mine, name=f"figures of {name}")
    return results


# ---- Runs --------------------------------------------------------------------------------------


def settings_of(args: argparse.Namespace, delay: int, seed: int) -> Dict[str, Any]:
    """What a run is: a file of other settings is not taken for it."""
    return {
        "ranks": RANKS,
        "steps": args.steps,
        "features": args.features,
        "points": POINTS,
        "base_ms": BASE_MS,
        "delay_ms": delay,
        "time_scale": args.time_scale,
        "seed": seed,
        "inject": f"delay:{round(delay * args.time_scale * 1000)}us@1,seed={seed}",
    }


def path_of(args: argparse.Namespace, delay: int, seed: int) -> str:
    return os.path.join(args.out, f"hyperplane_{delay}ms_seed{seed}.json")


def load(path: str, settings: Dict[str, Any], to_show: bool) -> Dict[str, Any]:
    """The run in the file, if it is of these settings; one without figures when there is none.
    ``to_show``: methods may have been given by another text, which then is said."""
    try:
        with open(path, encoding="utf-8") as file:
            run = dict(json.load(file))
    except FileNotFoundError:
        return {"settings": settings, "methods": {}, "results": {}}
    texts = methods()
    others = [f"{m} was {t}" for m, t in run["methods"].items() if texts.get(m) != t]
    if run["settings"] != settings or (others and not to_show):
        raise SystemExit(f"{path} is of other settings: remove it, or take another --out")
    if to_show:
        print(f"{path}: measured by {stamped(run)}{'; ' * bool(others)}{', '.join(others)}")
    return run


def measure(run: Dict[str, Any], names: List[str]) -> None:
    """Adds the figures of these methods, all from one job."""
    settings = run["settings"]
    base_s = settings["base_ms"] * settings["time_scale"] / 1000
    longest = base_s + settings["delay_ms"] * settings["time_scale"] / 1000
    expected = longest * settings["steps"] * len(names)
    if expected > MOST_S:
        raise SystemExit(f"a run would take {expected:.0f} s, more than {MOST_S:.0f}: take fewer "
                         "--steps, fewer --methods or a smaller --time-scale")
    chosen = {name: text for name, text in methods().items() if name in names}
    arguments = (chosen, settings["steps"], base_s, settings["features"])
    env = {"COVEY_INJECT": settings["inject"], "OMP_NUM_THREADS": "1"}
    run["results"].update(covey.run(job, arguments, np=settings["ranks"], env=env)[0])
    run["methods"].update(chosen)
    run.update(cores=len(os.sched_getaffinity(0)), torch=torch.__version__)


def rows_of(run: Dict[str, Any]) -> List[Dict[str, Any]]:
    """By method: seconds, speed-up over allreduce, and the bound of it from the drawn delays."""
    settings, results = run["settings"], run["results"]
    size, steps = settings["ranks"], settings["steps"]
    delays = drawn(parse(settings["inject"]), steps, size)
    base_s = settings["base_ms"] * settings["time_scale"] / 1000
    slowest = bound_seconds(delays, base_s, size)
    rows = []
    for name, ranks in results.items():
        text = full_text(run["methods"][name])
        needed = size if name == "allreduce" else ranks_needed(text, size)
        synced = re.search(r"sync_every=(\d+)", text)
        bound = bound_seconds(delays, base_s, needed, int(synced.group(1)) if synced else 0)
        wall = max(rank["own_end_s"] for rank in ranks)
        base_wall = max(rank["own_end_s"] for rank in results["allreduce"])
        rows.append({
            "delay": settings["delay_ms"],
            "method": name,
            "seconds": wall,
            "speedup": base_wall / wall,
            "bound": slowest / bound,
            "fresh": ranks[0].get("fresh_fraction", 1.0),
            "error": max(rank["error"] for rank in ranks),
            "busy": sum(rank["busy_fraction"] for rank in ranks) / run["cores"],
        })
    return rows


# ---- What is shown -----------------------------------------------------------------------------


def middle(rows: List[Dict[str, Any]], delay: int, method: str, key: str) -> float:
    return statistics.median(
        row[key] for row in rows if (row["delay"], row["method"]) == (delay, method)
    )


def show(rows: List[Dict[str, Any]], args: argparse.Namespace) -> None:
    """The table: medians over the seeds."""
    print(f"times x {args.time_scale:g}; medians of {len(args.seeds)} seeds; bound: from the drawn "
          "delays, with communication for nothing")
    print("delay  method     seconds  speed-up  bound  published  fresh  error   cores busy")
    for delay in args.delays:
        for method in args.methods:
            values = {key: middle(rows, delay, method, key) for key in rows[0]
                      if key not in ("delay", "method")}
            known = f"{PUBLISHED_SOLO[delay]:.2f}" if method == "solo" else ""
            print(f"{delay:5}  {method:9}  {values['seconds']:7.2f}  {values['speedup']:8.2f}  "
                  f"{values['bound']:5.2f}  {known:>9}  {values['fresh']:5.0%}  "
                  f"{values['error']:.4f}  {values['busy']:10.0%}")


def draw(rows: List[Dict[str, Any]], args: argparse.Namespace) -> None:
    """hyperplane.png, where matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        print("no picture: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4), layout="constrained")
    width = 0.8 / len(args.methods)
    for place, method in enumerate(args.methods):
        at = [i + (place - (len(args.methods) - 1) / 2) * width for i in range(len(args.delays))]
        heights = [middle(rows, delay, method, "speedup") for delay in args.delays]
        axes.bar(at, heights, width * 0.9, label=method)
        tops = [middle(rows, delay, method, "bound") for delay in args.delays]
        label = "bound from the drawn delays" if place == 0 else None
        axes.hlines(tops, [x - width / 2 for x in at], [x + width / 2 for x in at], "black",
                    label=label)
        if method == "solo":
            axes.plot(at, [PUBLISHED_SOLO[delay] for delay in args.delays], "kD", markersize=5,
                      label="published (solo)")
    axes.set_xticks(range(len(args.delays)), [f"+{d} ms" for d in args.delays])
    axes.set(xlabel="one random rank of 8 each step, base step 325 ms (all times x "
             f"{args.time_scale:g})", ylabel="speed-up over allreduce")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(ncols=2, loc="upper left")
    axes.set_ylim(0, 1.35 * max(row["bound"] for row in rows))
    path = os.path.join(args.out, "hyperplane.png")
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


def main() -> None:
    args = parse_arguments()
    if "allreduce" not in args.methods or set(args.delays) - set(PUBLISHED_SOLO):
        raise SystemExit("--methods needs allreduce to compare with; --delays are of 200 300 400")
    os.makedirs(args.out, exist_ok=True)
    print(f"time scale {args.time_scale:g}: a step computes {BASE_MS * args.time_scale:g} ms, by "
          "sleeping, so that 8 ranks on few cores do not disturb each other")
    rows: List[Dict[str, Any]] = []
    for delay in args.delays:
        for seed in args.seeds:
            path = path_of(args, delay, seed)
            run = load(path, settings_of(args, delay, seed), args.show)
            missing = [name for name in args.methods if name not in run["results"]]
            if missing and args.show:
                raise SystemExit(f"{path} has no figures of {', '.join(missing)} yet")
            if missing:
                check(run, path)
                measure(run, missing)
                save(run, path)
            rows += rows_of(run)
    show(rows, args)
    draw(rows, args)


if __name__ == "__main__":
    main()
