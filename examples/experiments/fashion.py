"""Fashion-MNIST under random delays: five methods by one protocol (README.md beside this).

    python fashion.py                    all runs there are not yet, then the table and fashion.png
    python fashion.py --jobs 1           one job more, no table
    python fashion.py --show             the table and the picture of the runs there are

First each method's learning rate (and local's H) is chosen on a validation split; then come the
paired seeds, each once at equal samples and once at equal wall time. A job's figures are in its
file when it has ended; what is there is not done again.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

import covey
from covey.bench.bound import seconds as bound_seconds
from covey.inject import drawn, parse
from fashion_job import DDP, Run, job
from runs import bootstrap, load, save

RANKS = 8
BASE_S, DELAY_MS = 0.020, 60  # A late rank's step is four times as long.
RATES = (0.05, 0.1, 0.2, 0.4)
LOCAL_STEPS = (4, 8, 16)
EVALUATIONS = 6
SAMPLE_STEPS = 240  # Of all methods at equal samples, and of allreduce and DDP in any case.
WALL_STEPS = 60  # At equal wall time steps are a multiple of this.
TUNING_SEED = 100
SEEDS = (1, 2, 3, 4, 5)
TARGET, MARGIN = 86.5, 0.5  # Percent of test accuracy; points.
METHODS = ("allreduce", "ddp", "local", "eager", "wagma")
SYNCHRONOUS = ("allreduce", DDP)
SAMPLES, WALL = "equal samples", "equal wall time"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fashion-MNIST under random delays.")
    parser.add_argument("--out", default="results", metavar="DIR", help="where files are written")
    parser.add_argument("--jobs", type=int, metavar="N", help="do so many jobs at most, no table")
    parser.add_argument("--show", action="store_true", help="run nothing")
    parser.add_argument("--small", action="store_true", help="few steps, to try it out")
    return parser.parse_args()


# ---- What is run -------------------------------------------------------------------------------


class Size(NamedTuple):
    """How much: all of it, or little to try it out."""

    base_s: float
    sample_steps: int
    rates: Tuple[float, ...]
    local_steps: Tuple[int, ...]
    seeds: Tuple[int, ...]

    @property
    def delay_us(self) -> int:
        return round(DELAY_MS * 1000 * self.base_s / BASE_S)

    def settings(self) -> Dict[str, Any]:
        """What a file is of: one of other settings is not taken for it."""
        return {
            "ranks": RANKS,
            "base_s": self.base_s,
            "delay_us": self.delay_us,
            "steps": self.sample_steps,
            "rates": list(self.rates),
            "local_steps": list(self.local_steps),
            "evaluations": EVALUATIONS,
            "target": TARGET,
        }

    def inject(self, seed: int) -> str:
        return f"delay:{self.delay_us}us@1,seed={seed}"


WHOLE = Size(BASE_S, SAMPLE_STEPS, RATES, LOCAL_STEPS, SEEDS)
SMALL = Size(0.0002, 60, (0.1,), (4,), (1,))


def bound(size: Size, method: str, steps: int, seed: int) -> float:
    """Seconds that the steps take at least, by the drawn delays."""
    delays = drawn(parse(size.inject(seed)), steps, RANKS)
    name, _, settings = method.partition(":")
    each = steps // EVALUATIONS
    needed = {"eager": RANKS // 2, "wagma": 1, "local": 1}.get(name, RANKS)
    every = {"wagma": 10, "local": int(settings.partition("=")[2] or 0)}.get(name, 0)
    return bound_seconds(delays, size.base_s, needed, every, each)


def wall_steps(size: Size, method: str, seed: int) -> int:
    """How many steps fit into what allreduce takes for its own, both at least."""
    if method in SYNCHRONOUS:
        return size.sample_steps
    limit = bound(size, "allreduce", size.sample_steps, seed)
    steps = size.sample_steps
    while bound(size, method, steps + WALL_STEPS, seed) <= limit:
        steps += WALL_STEPS
    return steps


def tuned_texts(size: Size) -> List[str]:
    local = [f"local:local_steps={steps}" for steps in size.local_steps]
    return ["allreduce", DDP, *local, "eager", "wagma"]


def tuning_runs(size: Size, method: str) -> List[Run]:
    """By all rates, in equal wall time. Nothing is slept where that changes nothing but time."""
    inject = "" if method in SYNCHRONOUS else size.inject(TUNING_SEED)
    steps = wall_steps(size, method, TUNING_SEED)
    return [
        Run(method, lr, steps, EVALUATIONS, TUNING_SEED, inject, size.base_s, False)
        for lr in size.rates
    ]


def chosen(tuning: Dict[str, Any]) -> Dict[str, Tuple[str, float]]:
    """By name the method's text and the rate with the best last accuracy on the validation
    split."""
    best: Dict[str, Tuple[float, str, float]] = {}
    for text, runs in tuning["results"].items():
        for run in runs:
            name = text.partition(":")[0]
            found = (run["ranks"][0]["accuracies"][-1], text, run["run"]["lr"])
            if name not in best or found[0] > best[name][0]:
                best[name] = found
    return {name: best[name][1:] for name in METHODS}


def seed_runs(size: Size, kind: str, seed: int, how: Dict[str, Tuple[str, float]]) -> List[Run]:
    """The trainings of one seed. Of allreduce and DDP both kinds are the same."""
    found = []
    for name, (text, lr) in how.items():
        if kind == WALL and name in SYNCHRONOUS:
            continue
        steps = size.sample_steps if kind == SAMPLES else wall_steps(size, text, seed)
        found.append(
            Run(text, lr, steps, EVALUATIONS, seed, size.inject(seed), size.base_s, True)
        )
    return found


class Job(NamedTuple):
    """A job to do: its runs, and where their figures belong."""

    path: str
    file: Dict[str, Any]
    key: str
    runs: List[Run]


def jobs(size: Size, folder: str) -> Iterator[Job]:
    """Those that are not done yet, in order."""
    path = os.path.join(folder, "fashion_tuning.json")
    tuning = load(path, size.settings())
    for text in tuned_texts(size):
        if text not in tuning["results"]:
            yield Job(path, tuning, text, tuning_runs(size, text))
    how = chosen(tuning)
    for seed in size.seeds:
        path = os.path.join(folder, f"fashion_seed{seed}.json")
        file = load(path, size.settings())
        for kind in (SAMPLES, WALL):
            if kind not in file["results"]:
                yield Job(path, file, kind, seed_runs(size, kind, seed, how))


def measure(one: Job) -> None:
    """Does a job and writes its figures."""
    with tempfile.TemporaryDirectory() as folder:
        env = {"OMP_NUM_THREADS": "1"}
        found = covey.run(job, (one.runs, folder), np=RANKS, env=env)[0]
    one.file["results"][one.key] = [
        {"run": run._asdict(), "ranks": ranks} for run, ranks in zip(one.runs, found)
    ]
    one.file["cores"] = len(os.sched_getaffinity(0))
    save(one.file, one.path)


# ---- What is shown -----------------------------------------------------------------------------


def row_of(size: Size, file: Dict[str, Any], entry: Dict[str, Any]) -> Dict[str, Any]:
    run, ranks = entry["run"], entry["ranks"]
    seconds = [max(rank["seconds"][i] for rank in ranks) for i in range(run["evaluations"])]
    accuracies = ranks[0]["accuracies"]
    reached = [at for at, accuracy in zip(seconds, accuracies) if accuracy >= TARGET]
    return {
        "accuracy": accuracies[-1],
        "seconds": seconds[-1],
        "bound": bound(size, run["method"], run["steps"], run["seed"]),
        "steps": run["steps"],
        "target_s": reached[0] if reached else None,
        "busy": sum(rank["processor_s"] for rank in ranks) / seconds[-1] / file["cores"],
        "curve": list(zip(seconds, accuracies)),
    }


def rows(size: Size, folder: str) -> Dict[str, Dict[str, List[Dict[str, Any]]]]:
    """By kind and name: a row for each seed."""
    found: Dict[str, Dict[str, List[Dict[str, Any]]]] = {SAMPLES: {}, WALL: {}}
    for seed in size.seeds:
        file = load(os.path.join(folder, f"fashion_seed{seed}.json"), size.settings())
        for kind, entries in file["results"].items():
            for entry in entries:
                name = entry["run"]["method"].partition(":")[0]
                row = row_of(size, file, entry)
                found[kind].setdefault(name, []).append(row)
                if name in SYNCHRONOUS:
                    found[WALL].setdefault(name, []).append(row)
    return found


def verdict(low: float, high: float) -> str:
    """What the interval of the difference to allreduce says."""
    if low > 0:
        return "better"
    if high < -MARGIN:
        return "worse by more than the margin"
    if high < 0:
        return "worse" if low > -MARGIN else "worse, maybe by more than the margin"
    return "not inferior" if low > -MARGIN else "undecided"


def show(size: Size, found: Dict[str, Dict[str, List[Dict[str, Any]]]], folder: str) -> None:
    """Means over the seeds."""
    how = chosen(load(os.path.join(folder, "fashion_tuning.json"), size.settings()))
    for name, (text, lr) in how.items():
        print(f"{name}: {text}, rate {lr:g}")
    for kind in (SAMPLES, WALL):
        print(f"\n{kind}, {len(size.seeds)} paired seeds; difference to allreduce in points, "
              f"95% interval; margin {MARGIN:g}; target {TARGET:g}%")
        print("method     steps  accuracy  seconds  bound  difference            to target s  "
              "cores busy")
        base = [row["accuracy"] for row in found[kind]["allreduce"]]
        for name in METHODS:
            some = found[kind][name]
            means = {key: statistics.fmean(row[key] for row in some)
                     for key in ("steps", "accuracy", "seconds", "bound", "busy")}
            differences = [row["accuracy"] - other for row, other in zip(some, base)]
            mean, low, high = bootstrap(differences)
            words = f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]" if name != "allreduce" else ""
            reached = [row["target_s"] for row in some if row["target_s"] is not None]
            target = f"{statistics.fmean(reached):.1f}" if reached else "-"
            if len(reached) < len(some):
                target += f" ({len(reached)} of {len(some)})"
            said = verdict(low, high) if words else ""
            print(f"{name:9}  {means['steps']:5.0f}  {means['accuracy']:7.2f}%  "
                  f"{means['seconds']:7.2f}  {means['bound']:5.2f}  {words:20}  {target:>11}  "
                  f"{means['busy']:10.0%}  {said}".rstrip())


def draw(found: Dict[str, Dict[str, List[Dict[str, Any]]]], folder: str) -> None:
    """fashion.png, where matplotlib is installed: accuracy over seconds, each seed and the mean."""
    try:
        import matplotlib
    except ImportError:
        print("no picture: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
    for axes, kind in zip(panels, (SAMPLES, WALL)):
        for colour, name in enumerate(METHODS):
            curves = [row["curve"] for row in found[kind][name]]
            for curve in curves:
                axes.plot(*zip(*curve), color=f"C{colour}", alpha=0.2, linewidth=1)
            mean = [[statistics.fmean(both) for both in zip(*points)] for points in zip(*curves)]
            axes.plot(*zip(*mean), "o-", color=f"C{colour}", label=name)
        axes.axhline(TARGET, color="black", linewidth=0.8, linestyle="--")
        axes.set(title=kind, xlabel="seconds")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("test accuracy, %")
    panels[0].set_ylim(75.0)
    panels[1].legend()
    figure.suptitle("Fashion-MNIST, 8 ranks, one random rank of them late by 3 steps each step")
    path = os.path.join(folder, "fashion.png")
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


def main() -> None:
    args = parse_arguments()
    size = SMALL if args.small else WHOLE
    os.makedirs(args.out, exist_ok=True)
    left = args.jobs if args.jobs is not None else 1 << 30
    for one in jobs(size, args.out):
        if args.show:
            raise SystemExit(f"{one.path} has no figures of {one.key} yet")
        if left == 0:
            return
        print(f"{os.path.basename(one.path)}: {one.key}, {len(one.runs)} runs", flush=True)
        measure(one)
        left -= 1
    found = rows(size, args.out)
    show(size, found, args.out)
    draw(found, args.out)


if __name__ == "__main__":
    main()
