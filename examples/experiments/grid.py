"""SwarmSGD's local steps against bits per number, by the protocol of paired.py (paired.md).

    python grid.py               all runs there are not yet, then the table
    python grid.py --show        the table of the runs there are

Equal samples of Fashion-MNIST under random delays, the same paired seeds; the learning rate is the
one that paired.py has chosen for swarm, and its figures have to be there.
"""

from __future__ import annotations

import argparse
import os
import statistics
from typing import Any, Dict, Iterator, List, Tuple

from paired import Job, Size, add_options, chosen, do, row_of, small, whole
from runs import bootstrap, load

TASK = "fashion"
LOCAL_STEPS = (1, 2, 4, 8)
BITS = (32, 8, 6, 4)
Cell = Tuple[int, int]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="SwarmSGD: local steps x bits.")
    add_options(parser)
    return parser.parse_args()


def text_of(local_steps: int, bits: int) -> str:
    codec = "" if bits == 32 else f",codec=lattice@{bits}"
    return f"swarm:local_steps={local_steps}{codec}"


def cells() -> List[Cell]:
    return [(steps, bits) for steps in LOCAL_STEPS for bits in BITS]


def jobs(size: Size, folder: str) -> Iterator[Job]:
    """Those that are not done yet: one for each seed."""
    tuning = load(os.path.join(folder, f"paired_{TASK}_tuning.json"), size.settings())
    if "swarm" not in {text.partition(":")[0] for text in tuning["results"]}:
        raise SystemExit(f"swarm has no learning rate yet: run paired.py {TASK} before")
    rate = chosen(size, tuning, ("swarm",))["swarm"][1]
    for seed in size.seeds:
        path = os.path.join(folder, f"grid_seed{seed}.json")
        file = load(path, size.settings())
        texts = [text_of(*cell) for cell in cells()]
        inject = size.inject(seed)
        runs = [size.run(text, rate, size.steps, seed, inject, True) for text in texts]
        if "grid" not in file["results"]:
            yield Job(path, file, "grid", runs)


def rows(size: Size, folder: str) -> Dict[Cell, List[Dict[str, Any]]]:
    """By cell: a row for each seed."""
    found: Dict[Cell, List[Dict[str, Any]]] = {cell: [] for cell in cells()}
    for seed in size.seeds:
        file = load(os.path.join(folder, f"grid_seed{seed}.json"), size.settings())
        for cell, entry in zip(cells(), file["results"]["grid"]):
            found[cell].append(row_of(size, file, entry))
    return found


def show(size: Size, found: Dict[Cell, List[Dict[str, Any]]]) -> None:
    print(f"{len(size.seeds)} paired seeds, {size.steps} steps; difference to 32 bits and as many "
          "local steps in points, 95% interval; sent: by each rank per step, in models")
    print("local steps  bits    sent  distance  accuracy  difference")
    for (steps, bits), some in found.items():
        means = {key: statistics.fmean(row[key] for row in some)
                 for key in ("sent", "distance", "score")}
        base = [row["score"] for row in found[steps, 32]]
        mean, low, high = bootstrap([row["score"] - other for row, other in zip(some, base)])
        words = "" if bits == 32 else f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"
        print(f"{steps:11}  {bits:4}  {means['sent']:6.3f}  {means['distance']:8.1e}  "
              f"{means['score']:7.2f}%  {words}".rstrip())


def main() -> None:
    args = parse_arguments()
    size = small(TASK) if args.small else whole(TASK)
    if do(jobs(size, args.out), args):
        show(size, rows(size, args.out))


if __name__ == "__main__":
    main()
