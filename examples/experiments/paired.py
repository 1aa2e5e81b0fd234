"""Training under random delays, all methods by one protocol (paired.md beside this).

    python paired.py fashion             all runs there are not yet, then the table and a picture
    python paired.py hyperplane          the same of the other task
    python paired.py fashion --jobs 1    one job more, no table
    python paired.py fashion --show      the table and the picture of the runs there are

First each method's learning rate (and the local steps of those that have them) is chosen on a
validation split; then come the paired seeds, each once at equal samples and once at equal wall
time. A job's figures are in its file when it has ended; what is there is not done again.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import tempfile
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import covey
from covey.bench.bound import seconds as bound_seconds
from covey.inject import drawn, parse
from paired_job import DDP, Run, job
from runs import bootstrap, check, load, save
from tasks import TASKS, Task
from wire import sent

RANKS = 8
LOCAL_STEPS = {"local": (4, 8, 16), "swarm": (2, 4, 8)}
EVALUATIONS = 6
WALL_STEPS = 2 * EVALUATIONS  # At equal wall time steps are more by a multiple of this.
TUNING_SEED = 100
SEEDS = (1, 2, 3, 4, 5)
METHODS = ("allreduce", DDP, "dpsgd", "local", "eager", "wagma", "adpsgd", "swarm")
SYNCHRONOUS = ("allreduce", DDP, "dpsgd")
SAMPLES, WALL = "equal samples", "equal wall time"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Training under random delays.")
    parser.add_argument("task", choices=sorted(TASKS))
    add_options(parser)
    return parser.parse_args()


# ---- What is run -------------------------------------------------------------------------------


class Size(NamedTuple):
    """How much: all of it, or little to try it out."""

    name: str  # Of the task.
    base_s: float
    delay_us: int
    steps: int  # At equal samples.
    rates: Tuple[float, ...]
    local_steps: Dict[str, Tuple[int, ...]]
    seeds: Tuple[int, ...]

    @property
    def task(self) -> Task:
        return TASKS[self.name]

    def settings(self) -> Dict[str, Any]:
        """What a file is of: one of other settings is not taken for it."""
        return {
            "task": self.name,
            "ranks": RANKS,
            "base_s": self.base_s,
            "delay_us": self.delay_us,
            "steps": self.steps,
            "rates": list(self.rates),
            "local_steps": {name: list(some) for name, some in self.local_steps.items()},
            "evaluations": EVALUATIONS,
            "target": self.task.target,
        }

    def inject(self, seed: int) -> str:
        return f"delay:{self.delay_us}us@1,seed={seed}"

    def run(self, method: str, lr: float, steps: int, seed: int, inject: str, test: bool) -> Run:
        return Run(self.name, method, lr, steps, EVALUATIONS, seed, inject, self.base_s, test)


def whole(name: str) -> Size:
    task = TASKS[name]
    return Size(name, task.base_s, task.delay_us, task.steps, task.rates, LOCAL_STEPS, SEEDS)


def small(name: str) -> Size:
    """For trying it out."""
    rate, steps = TASKS[name].rates[1], {"local": (4,), "swarm": (4,)}
    return Size(name, 0.0002, 600, 42, (rate,), steps, (1,))


def name_of(method: str) -> str:
    return method.partition(":")[0]


def bound(size: Size, method: str, steps: int, seed: int) -> float:
    """Seconds that the steps take at least, by the drawn delays."""
    delays = drawn(parse(size.inject(seed)), steps, RANKS)
    name, each = name_of(method), steps // EVALUATIONS
    told = re.search(r"local_steps=(\d+)", method)
    needed = RANKS if name in SYNCHRONOUS else RANKS // 2 if name == "eager" else 1
    every = {"wagma": 10, "local": int(told.group(1)) if told else 0}.get(name, 0)
    return bound_seconds(delays, size.base_s, needed, every, each)


def wall_steps(size: Size, method: str, seed: int) -> int:
    """How many steps fit into what allreduce takes for its own, both at least."""
    if name_of(method) in SYNCHRONOUS:
        return size.steps
    limit = bound(size, "allreduce", size.steps, seed)
    steps = size.steps
    while bound(size, method, steps + WALL_STEPS, seed) <= limit:
        steps += WALL_STEPS
    return steps


def tuned_texts(size: Size) -> List[str]:
    texts = []
    for name in METHODS:
        counts = size.local_steps.get(name, ())
        texts += [f"{name}:local_steps={count}" for count in counts] or [name]
    return texts


def tuning_runs(size: Size, method: str) -> List[Run]:
    """By all rates, in equal wall time. Nothing is slept where that changes nothing but time."""
    inject = "" if method in SYNCHRONOUS else size.inject(TUNING_SEED)
    steps = wall_steps(size, method, TUNING_SEED)
    return [size.run(method, lr, steps, TUNING_SEED, inject, False) for lr in size.rates]


def goodness(task: Task, score: Optional[float]) -> float:
    """More is better; a training that has no score is worst."""
    if score is None:
        return float("-inf")
    return score if task.is_better_above else -score


def chosen(
    size: Size, tuning: Dict[str, Any], names: Sequence[str] = METHODS
) -> Dict[str, Tuple[str, float]]:
    """By name the method's text and the rate with the best last score on the validation split."""
    best: Dict[str, Tuple[float, str, float]] = {}
    for text, runs in tuning["results"].items():
        for run in runs:
            name = name_of(text)
            found = goodness(size.task, run["ranks"][0]["scores"][-1])
            if name not in best or found > best[name][0]:
                best[name] = (found, text, run["run"]["lr"])
    return {name: best[name][1:] for name in names}


def seed_runs(size: Size, kind: str, seed: int, how: Dict[str, Tuple[str, float]]) -> List[Run]:
    """The trainings of one seed. Of those that wait for all both kinds are the same."""
    found = []
    for name, (text, lr) in how.items():
        if kind == WALL and name in SYNCHRONOUS:
            continue
        steps = size.steps if kind == SAMPLES else wall_steps(size, text, seed)
        found.append(size.run(text, lr, steps, seed, size.inject(seed), True))
    return found


class Job(NamedTuple):
    """A job to do: its runs, and where their figures belong."""

    path: str
    file: Dict[str, Any]
    key: str
    runs: List[Run]


def jobs(size: Size, folder: str) -> Iterator[Job]:
    """Those that are not done yet, in order."""
    path = os.path.join(folder, f"paired_{size.name}_tuning.json")
    tuning = load(path, size.settings())
    for text in tuned_texts(size):
        if text not in tuning["results"]:
            yield Job(path, tuning, text, tuning_runs(size, text))
    how = chosen(size, tuning)
    for seed in size.seeds:
        path = os.path.join(folder, f"paired_{size.name}_seed{seed}.json")
        file = load(path, size.settings())
        for kind in (SAMPLES, WALL):
            if kind not in file["results"]:
                yield Job(path, file, kind, seed_runs(size, kind, seed, how))


def measure(one: Job) -> None:
    """Does a job and writes its figures."""
    check(one.file, one.path)
    with tempfile.TemporaryDirectory() as folder:
        env = {"OMP_NUM_THREADS": "1"}
        found = covey.run(job, (one.runs, folder), np=RANKS, env=env)[0]
    one.file["results"][one.key] = [
        {"run": run._asdict(), "ranks": ranks} for run, ranks in zip(one.runs, found)
    ]
    one.file["cores"] = len(os.sched_getaffinity(0))
    save(one.file, one.path)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of every script that has such jobs to do."""
    parser.add_argument("--out", default="results", metavar="DIR", help="where files are written")
    parser.add_argument("--jobs", type=int, metavar="N", help="do so many jobs at most, no table")
    parser.add_argument("--show", action="store_true", help="run nothing")
    parser.add_argument("--small", action="store_true", help="few steps, to try it out")


def do(what: Iterator[Job], args: argparse.Namespace) -> bool:
    """As many as ``--jobs`` allows. False: that was not all of them."""
    os.makedirs(args.out, exist_ok=True)
    left = args.jobs if args.jobs is not None else 1 << 30
    for one in what:
        if args.show:
            raise SystemExit(f"{one.path} has no figures of {one.key} yet")
        if left == 0:
            return False
        print(f"{os.path.basename(one.path)}: {one.key}, {len(one.runs)} runs", flush=True)
        measure(one)
        left -= 1
    return True


# ---- What is shown -----------------------------------------------------------------------------


def row_of(size: Size, file: Dict[str, Any], entry: Dict[str, Any]) -> Dict[str, Any]:
    run, ranks = entry["run"], entry["ranks"]
    seconds, scores = ranks[0]["seconds"], ranks[0]["scores"]
    wanted = goodness(size.task, size.task.target)
    reached = [at for at, score in zip(seconds, scores) if goodness(size.task, score) >= wanted]
    distances = [one for one in ranks[0]["distances"] if one is not None]
    model = sum(p.numel() * p.element_size() for p in size.task.make().parameters())
    return {
        "score": float("nan") if scores[-1] is None else scores[-1],
        "seconds": seconds[-1],
        "pace": run["steps"] / seconds[-1],
        "bound": bound(size, run["method"], run["steps"], run["seed"]),
        "steps": run["steps"],
        "target_s": reached[0] if reached else None,
        "distance": statistics.fmean(distances) if distances else float("nan"),
        "sent": sent(run["method"], RANKS, model) / model,
        "busy": sum(rank["processor_s"] for rank in ranks) / seconds[-1] / file["cores"],
        "curve": [(at, one) for at, one in zip(seconds, scores) if one is not None],
    }


Rows = Dict[str, Dict[str, List[Dict[str, Any]]]]


def rows(size: Size, folder: str) -> Rows:
    """By kind and name: a row for each seed."""
    found: Rows = {SAMPLES: {}, WALL: {}}
    for seed in size.seeds:
        file = load(os.path.join(folder, f"paired_{size.name}_seed{seed}.json"), size.settings())
        for kind, entries in file["results"].items():
            for entry in entries:
                name = name_of(entry["run"]["method"])
                row = row_of(size, file, entry)
                found[kind].setdefault(name, []).append(row)
                if name in SYNCHRONOUS:
                    found[WALL].setdefault(name, []).append(row)
    return found


def score_at(curve: Sequence[Tuple[float, float]], seconds: float) -> float:
    """Between the two tests beside that moment; beyond the last, the last."""
    before = curve[0]
    for at, score in curve:
        if at >= seconds:
            share = (seconds - before[0]) / (at - before[0]) if at > before[0] else 1.0
            return before[1] + (score - before[1]) * share
        before = (at, score)
    return before[1]


def by_the_clock(found: Rows) -> Dict[str, float]:
    """By name the mean difference to allreduce's last score, at the moment of that score."""
    base = found[WALL]["allreduce"]
    return {
        name: statistics.fmean(
            score_at(row["curve"], other["seconds"]) - other["score"]
            for row, other in zip(found[WALL][name], base)
        )
        for name in METHODS
        if name != "allreduce"
    }


def clock_row(found: Rows) -> str:
    """The same as the row of paired.md's table."""
    score = statistics.fmean(row["score"] for row in found[WALL]["allreduce"])
    cells = " | ".join(f"{points:+.2f}" for points in by_the_clock(found).values())
    return f"| points beside allreduce's {score:.2f} % | {cells} |"


def verdict(low: float, high: float, margin: float) -> str:
    """What the interval of how much better it is than allreduce says."""
    if low > 0:
        return "better"
    if high < -margin:
        return "worse by more than the margin"
    if high < 0:
        return "worse" if low > -margin else "worse, maybe by more than the margin"
    return "not inferior" if low > -margin else "undecided"


def show(size: Size, found: Rows, folder: str) -> None:
    """Means over the seeds."""
    task = size.task
    tuning = load(os.path.join(folder, f"paired_{size.name}_tuning.json"), size.settings())
    for name, (text, lr) in chosen(size, tuning).items():
        print(f"{name}: {text}, rate {lr:g}")
    print("sent: by each rank per step, in models; distance: of models from their mean, in parts "
          "of its norm")
    for kind in (SAMPLES, WALL):
        print(f"\n{kind}, {len(size.seeds)} paired seeds; score in {task.unit}; difference to "
              f"allreduce in points, 95% interval; margin {task.margin:g}; target {task.target:g}")
        print("method     steps  steps/s  bound   sent  distance   score  difference            "
              "to target s  cores busy")
        base = [row["score"] for row in found[kind]["allreduce"]]
        for name in METHODS:
            some = found[kind][name]
            means = {key: statistics.fmean(row[key] for row in some)
                     for key in ("steps", "pace", "score", "distance", "sent", "busy")}
            possible = statistics.fmean(row["steps"] / row["bound"] for row in some)
            differences = [row["score"] - other for row, other in zip(some, base)]
            mean, low, high = bootstrap(differences)
            words = f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]" if name != "allreduce" else ""
            reached = [row["target_s"] for row in some if row["target_s"] is not None]
            target = f"{statistics.fmean(reached):.1f}" if reached else "-"
            if len(reached) < len(some):
                target += f" ({len(reached)} of {len(some)})"
            ends = (low, high) if task.is_better_above else (-high, -low)
            said = verdict(*ends, task.margin) if words else ""
            print(f"{name:9}  {means['steps']:5.0f}  {means['pace']:7.1f}  {possible:5.1f}  "
                  f"{means['sent']:5.2f}  {means['distance']:8.1e}  {means['score']:6.2f}  "
                  f"{words:20}  {target:>11}  {means['busy']:10.0%}  {said}".rstrip())
    print("\nby the clock, when allreduce ended:")
    print(" | ".join(by_the_clock(found)))
    print(clock_row(found))


def draw(size: Size, found: Rows, folder: str) -> None:
    """A picture, where matplotlib is installed: score over seconds, each seed and the mean."""
    try:
        import matplotlib
    except ImportError:
        print("no picture: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    task = size.task
    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4), sharey=True, layout="constrained")
    for axes, kind in zip(panels, (SAMPLES, WALL)):
        for colour, name in enumerate(METHODS):
            curves = [row["curve"] for row in found[kind][name]]
            for curve in curves:
                axes.plot(*zip(*curve), color=f"C{colour}", alpha=0.15, linewidth=1)
            mean = [[statistics.fmean(both) for both in zip(*points)] for points in zip(*curves)]
            axes.plot(*zip(*mean), "o-", color=f"C{colour}", label=name, markersize=4)
        axes.axhline(task.target, color="black", linewidth=0.8, linestyle="--")
        axes.set(title=kind, xlabel="seconds")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel(f"score of the mean of all models, {task.unit}")
    if task.is_better_above:
        panels[0].set_ylim(task.target - 12)
    else:
        panels[0].set_yscale("log")
    panels[1].legend()
    late = task.delay_us / 1e6 / task.base_s
    figure.suptitle(f"{task.title}, {RANKS} ranks, one random rank of them late by {late:.2g} "
                    "steps each step")
    path = os.path.join(folder, f"paired_{size.name}.png")
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


def main() -> None:
    args = parse_arguments()
    size = small(args.task) if args.small else whole(args.task)
    if not do(jobs(size, args.out), args):
        return
    found = rows(size, args.out)
    show(size, found, args.out)
    draw(size, found, args.out)


if __name__ == "__main__":
    main()
