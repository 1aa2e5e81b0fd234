"""How long a sum keeps a rank that comes to it, when ranks come one after the other (README.md
beside this): eager-SGD's micro-benchmark, beside MPI_Allreduce in the same processes.

    python latency.py            measures, writes latency.json and latency.png
    python latency.py --show     the table and the picture of the figures there are

Needs Open MPI and mpi4py (tools/setup --with bench-peers); goes without them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from typing import Any, Dict, Tuple

import covey
from covey.bench import mpis
from covey.bench.collectives import size_in_words
from latency_job import ALL, HALF, MAJORITY, MPI, SOLO, job
from runs import load, save

RANKS = 8


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Latency of sums under linear skew.")
    parser.add_argument("--out", default="results", metavar="DIR", help="where files are written")
    parser.add_argument("--skew", type=float, default=1.0, metavar="MS", help="rank r: r x MS (1)")
    parser.add_argument("--times", type=int, default=64, help="sums of each kind (64)")
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 4096, 1 << 18, 1 << 22],
                        metavar="BYTES")
    parser.add_argument("--show", action="store_true", help="run nothing")
    return parser.parse_args()


# ---- What is shown -----------------------------------------------------------------------------


def bounds(skew_ms: float) -> Dict[str, float]:
    """Mean milliseconds in a sum when nothing but the skew costs any time."""

    def waiting_for(last: int) -> float:
        return skew_ms * statistics.fmean(max(0, last - rank) for rank in range(RANKS))

    drawn = statistics.fmean(waiting_for(last) for last in range(RANKS))
    everybody = waiting_for(RANKS - 1)
    return {MPI: everybody, ALL: everybody, SOLO: 0.0, HALF: waiting_for(RANKS // 2 - 1),
            MAJORITY: drawn}


def means(run: Dict[str, Any]) -> Dict[Tuple[int, str], float]:
    """Milliseconds by size and name: the median over the sums of the mean over the ranks."""
    return {
        (one["size"], one["name"]):
            1e3 * statistics.median(statistics.fmean(call) for call in zip(*one["seconds"]))
        for one in run["results"]["figures"]
    }


def show(run: Dict[str, Any]) -> None:
    found, least = means(run), bounds(run["settings"]["skew_ms"])
    names = [name for name in least if any(name == key[1] for key in found)]
    base = MPI if MPI in names else ALL
    print(f"{RANKS} ranks on {run['cores']} cores, rank r comes r x "
          f"{run['settings']['skew_ms']:g} ms late; mean ms in a sum (times less than {base})")
    print("            " + "".join(f"{name:>20}" for name in names))
    for size in run["settings"]["sizes"]:
        cells = [f"{found[size, name]:.3f} ({found[size, base] / found[size, name]:5.1f})"
                 for name in names]
        print(f"{size_in_words(size):>12}" + "".join(f"{cell:>20}" for cell in cells))
    print("  least, ms " + "".join(f"{least[name]:>20.3f}" for name in names))


def draw(run: Dict[str, Any], path: str) -> None:
    """Where matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        print("no picture: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    found, least = means(run), bounds(run["settings"]["skew_ms"])
    sizes = run["settings"]["sizes"]
    figure, axes = pyplot.subplots(figsize=(8, 4), layout="constrained")
    for colour, name in enumerate(least):
        if (sizes[0], name) not in found:
            continue
        axes.plot(sizes, [found[size, name] for size in sizes], "o-", color=f"C{colour}",
                  label=name)
        if least[name] > 0:
            axes.axhline(least[name], color=f"C{colour}", linestyle="--", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="bytes",
             ylabel="mean ms in a sum (dashed: by the skew alone)",
             title=f"{RANKS} ranks, rank r comes r x {run['settings']['skew_ms']:g} ms late")
    axes.set_xticks(sizes, [size_in_words(size) for size in sizes])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


def main() -> None:
    args = parse_arguments()
    os.makedirs(args.out, exist_ok=True)
    path = os.path.join(args.out, "latency.json")
    settings = {"ranks": RANKS, "skew_ms": args.skew, "times": args.times, "sizes": args.sizes}
    run = load(path, settings)
    if not run["results"]:
        if args.show:
            raise SystemExit(f"{path} has no figures yet")
        found = mpis.find("openmpi")
        arguments = (args.sizes, args.times, args.skew / 1000, not isinstance(found, str))
        if isinstance(found, str):
            print(f"without MPI: {found}")
            figures = covey.run(job, arguments, np=RANKS)[0]
        else:
            with tempfile.TemporaryDirectory() as folder:
                figures = mpis.run(found, RANKS, folder, job, arguments)
        run.update(results={"figures": figures}, cores=len(os.sched_getaffinity(0)))
        save(run, path)
    show(run)
    draw(run, os.path.join(args.out, "latency.png"))


if __name__ == "__main__":
    main()
