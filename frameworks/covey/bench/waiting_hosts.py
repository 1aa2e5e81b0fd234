"""`covey bench waiting -H`: how long a late rank, or a lost host, delays the ranks of other hosts.

The questions of `waiting`, and one more: the last host is out of reach for seconds, or its ranks
stand still. A host of tools/cluster takes its own link down. On any other host that would cost more
than the job, so there its ranks are stopped instead; their kernel goes on answering.

`allreduce`, which waits for all ranks, shows what the others save.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, replace
from typing import Any, Dict, List, NamedTuple, Optional

import covey
from covey.bench.bound import ends
from covey.bench.method_text import setting
from covey.bench.on_hosts import Where, last_line
from covey.bench.waiting import (
    SLOW,
    SMALL,
    Effort,
    Trainer,
    percent_of_free_pace,
    random_on_rank,
    start,
    timed,
)
from covey.bench.waiting_show import Line, Panel
from covey.inject import drawn, parse
from covey.method import full_text, plan

CONTRAST = "allreduce"
METHODS = (CONTRAST, "eager", "wagma", "diloco:local_steps=4", "adpsgd", "swarm")
# An exchange of diloco takes place after several steps: no best pace of single steps is known.
RANDOM = (CONTRAST, "eager", "wagma", "adpsgd", "swarm")
NEAR_BOUND = 0.92  # of the best possible pace, as wanted
NEAR_PACE = 95.0  # percent of the free pace, as wanted
PAIRS_FACTOR = 2.0  # A step of pairs waits for no rank: so much of its usual length is wanted.
_LINK = "eth0"  # of a host of tools/cluster


class Place(NamedTuple):
    """Where a rank is.

    Attributes:
        host: its name.
        pid: of the rank, there.
        local_rank: its number there.
        cores: of the host.
        unplugs: it can take the host's link down, and nothing but the cluster depends on that.
        shares: the machine that all hosts are made of; "": the host is a machine.
    """

    host: str
    pid: int
    local_rank: int
    cores: int
    unplugs: bool
    shares: str


def here() -> Place:
    """The place of this rank."""
    names = os.environ.get("LAB_CLUSTER_HOSTS", "").split(",")
    made = socket.gethostname() in names
    return Place(
        host=socket.gethostname(),
        pid=os.getpid(),
        local_rank=covey.local_rank(),
        cores=len(os.sched_getaffinity(0)),
        unplugs=made and os.geteuid() == 0 and shutil.which("ip") is not None,
        shares=os.environ["LAB_CLUSTER"] if made else "",
    )


# ---- On the ranks ------------------------------------------------------------------------------


class Fault(NamedTuple):
    """Shell commands that make a fault and end it, and the rank beside which they run."""

    begin: str
    end: str
    rank: int

    def run(self, after_s: float, seconds: float) -> Optional["subprocess.Popen[bytes]"]:
        """Begins it after so long, for so long; by a process that outlives this rank."""
        if covey.rank() != self.rank:
            return None
        words = f"sleep {after_s}; {self.begin}; sleep {seconds}; {self.end}"
        return subprocess.Popen(["sh", "-c", words], start_new_session=True)


def stop_of(places: List[Place], ranks: List[int]) -> Fault:
    """Stops these ranks, which are of one host."""
    pids = " ".join(str(places[rank].pid) for rank in ranks)
    return Fault(f"kill -STOP {pids}", f"kill -CONT {pids}", ranks[0])


def host_fault(places: List[Place]) -> Fault:
    """The fault of the last host."""
    ranks = of_last_host(places)
    if not places[-1].unplugs:
        return stop_of(places, ranks)
    return Fault(f"ip link set {_LINK} down", f"ip link set {_LINK} up", ranks[0])


def of_last_host(places: List[Place]) -> List[int]:
    """Its ranks."""
    return [rank for rank, place in enumerate(places) if place.host == places[-1].host]


def _train(trainer: Trainer, method: str, seconds: float, step_s: float, all_s: float) -> None:
    """For so long; as many steps on each rank where each waits for all, the slowest by `all_s`."""
    if plan(full_text(method), 0, 0).in_rounds:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            trainer.step(step_s)
        return
    for _ in range(max(1, round(seconds / all_s))):
        trainer.step(step_s)


def under_fault(method: str, effort: Effort, fault: Fault) -> Dict[str, Any]:
    """The figures of this rank while the fault begins and ends."""
    before_s = 20 * effort.step_s
    seconds = 2 * before_s + effort.stop_s + effort.wait_s

    def work(trainer: Trainer) -> None:
        running = fault.run(before_s, effort.stop_s)
        _train(trainer, method, seconds, effort.step_s, effort.step_s)
        if running is not None:
            running.wait()

    return timed(work, effort.method(method), effort.step_s)


def slow_or_free(method: str, effort: Effort, is_free: bool) -> Dict[str, Any]:
    """The figures of this rank where the last one is slow, or none."""
    is_slow = not is_free and covey.rank() == covey.size() - 1
    slowest_s = effort.step_s * (1 if is_free else SLOW)

    def work(trainer: Trainer) -> None:
        seconds = effort.slow_s / 3 if is_free else effort.slow_s
        _train(trainer, method, seconds, effort.step_s * (SLOW if is_slow else 1), slowest_s)

    return timed(work, effort.method(method), effort.step_s)


def rank_main(effort: Effort) -> Optional[Dict[str, Any]]:
    """All figures of all ranks, on the first one."""
    start()
    places: List[Place] = covey.allgather_object(here())
    found: Dict[str, Any] = {"places": [place._asdict() for place in places]}
    last, host = stop_of(places, [len(places) - 1]), host_fault(places)
    for method in METHODS:
        found[method] = {
            "in_pairs": plan(full_text(method), 0, 0).in_pairs,
            "stopped": covey.allgather_object(under_fault(method, effort, last)),
            "host": covey.allgather_object(under_fault(method, effort, host)),
            "free": covey.allgather_object(slow_or_free(method, effort, True)),
            "slow": covey.allgather_object(slow_or_free(method, effort, False)),
        }
    delays = _delays(effort, len(places))
    base_s = 2 * effort.step_s
    random = random_on_rank(RANDOM, delays, base_s, effort.steps)
    found["random"] = dict(zip(RANDOM, random))
    rank = covey.rank()
    covey.shutdown()
    return found if rank == 0 else None


def _delays(effort: Effort, size: int) -> List[List[float]]:
    return drawn(parse(f"delay:{round(6e6 * effort.step_s)}us@1"), effort.steps, size)


# ---- Questions ---------------------------------------------------------------------------------


def _name(method: str) -> str:
    return method.partition(":")[0]


def _busy(ranks: List[Dict[str, Any]], places: List[Place]) -> float:
    """Processor time of all ranks in parts of all machines' cores."""
    machines = {place.shares or place.host: place.cores for place in places}
    seconds = max(rank["seconds"] for rank in ranks)
    return sum(rank["processor_s"] for rank in ranks) / seconds / sum(machines.values())


def _wanted(
    method: str, in_pairs: bool, others: List[List[float]], effort: Effort
) -> Optional[float]:
    """The longest step of a rank that has no fault."""
    if method == CONTRAST:
        return None
    lengths = [length for rank in others for length in rank]
    if in_pairs:
        return PAIRS_FACTOR * statistics.median(lengths)
    ordinary = [length for length in lengths if length < 0.8 * effort.wait_s]
    return effort.wait_s + max(ordinary, default=effort.step_s)


def lost_s(lengths: List[float]) -> float:
    """Seconds that steps took beyond their median length."""
    usual = statistics.median(lengths)
    return sum(length - usual for length in lengths if length > 2 * usual)


class UnderFault(NamedTuple):
    """The effect of a fault on the ranks without it, by method: their longest step, the seconds
    that the mean one lost, and their pace after the first wait."""

    longest: List[Line]
    lost: List[Line]
    pace: List[Line]


def _under_fault(
    question: str, found: Dict[str, Any], places: List[Place], faulty: List[int], effort: Effort
) -> UnderFault:
    answer = UnderFault([], [], [])
    for method in METHODS:
        ranks = found[method][question]
        others = [rank for i, rank in enumerate(ranks) if i not in faulty]
        lengths = [rank["lengths"] for rank in others]
        busy, name = _busy(ranks, places), _name(method)
        raw = {"ranks": ranks, "faulty": faulty}
        wanted = _wanted(method, found[method]["in_pairs"], lengths, effort)
        answer.longest.append(Line(name, max(map(max, lengths)), wanted, None, busy, raw))
        lost = statistics.fmean(map(lost_s, lengths))
        answer.lost.append(Line(name, lost, wanted, None, busy, {}))
        pace = percent_of_free_pace(others, found[method]["free"], effort.wait_s)
        answer.pace.append(Line(name, pace, _wanted_pace(method), 100.0, busy, {}))
    return answer


def _wanted_pace(method: str) -> Optional[float]:
    return None if method == CONTRAST else NEAR_PACE


def _random(found: Dict[str, Any], places: List[Place], effort: Effort) -> List[Line]:
    size, base_s, lines = len(places), 2 * effort.step_s, []
    delays = _delays(effort, size)
    for method, ranks in found["random"].items():
        needed = 1 if found[method]["in_pairs"] else ranks[0]["needed"]
        tau = int(setting(full_text(method), "sync_every", "0"))
        last = ends(delays, base_s, needed, tau, begun=ranks[0]["begun"])
        bound = effort.steps * size / sum(last)
        value = effort.steps * size / sum(rank["seconds"] for rank in ranks)
        wanted = None if method == CONTRAST else NEAR_BOUND * bound
        lines.append(Line(method, value, wanted, bound, _busy(ranks, places), {"ranks": ranks}))
    return lines


def panels(found: Dict[str, Any], effort: Effort) -> List[Panel]:
    """The answers, from what the ranks have measured."""
    places = [Place(**place) for place in found["places"]]
    size, hosts = len(places), len({place.host for place in places})
    of_all = f"of {size} ranks on {hosts} hosts"
    stopped = _under_fault("stopped", found, places, [size - 1], effort)
    host = _under_fault("host", found, places, of_last_host(places), effort)
    slow = []
    for method in METHODS:
        ranks, free = found[method]["slow"], found[method]["free"]
        pace = percent_of_free_pace(ranks[:-1], free, effort.wait_s)
        busy, raw = _busy(ranks, places), {"ranks": ranks, "free": free}
        slow.append(Line(_name(method), pace, _wanted_pace(method), 100.0, busy, raw))
    what = "unplugged" if places[-1].unplugs else "stopped: all its ranks,"
    one_stopped = f"one {of_all} stopped for {effort.stop_s:g} s"
    one_slow = f"one {of_all} {SLOW} times slower for good"
    of_host = f"host {places[-1].host} {what} for {effort.stop_s:g} s"
    late = (
        f"one random rank {of_all} late by {6e3 * effort.step_s:g} ms each step of "
        f"{2e3 * effort.step_s:g} ms, {effort.steps} steps"
    )
    after, free_pace = "pace of the others after the first wait", "% of free pace"
    return [
        Panel(f"{one_stopped}: longest step of the others", "s", True, stopped.longest),
        Panel(f"{one_stopped}: {after}", free_pace, False, stopped.pace),
        Panel(f"{one_slow}: {after}", free_pace, False, slow),
        Panel(late, "steps/s", False, _random(found, places, effort)),
        Panel(f"{of_host}: longest step of the ranks of other hosts", "s", True, host.longest),
        Panel(f"{of_host}: time that a rank of another host lost by it", "s", True, host.lost),
        Panel(f"{of_host}: {after}", free_pace, False, host.pace),
    ]


def bench(where: Where, small: bool) -> List[Panel]:
    """Measures on these hosts. Raises JobFailed."""
    effort = replace(SMALL if small else Effort(), ranks=0)
    found = last_line(where, __name__, asdict(effort))
    return panels(found, effort)


def main() -> int:
    """A rank: prints the figures of all, if it is the first."""
    found = rank_main(Effort(**json.loads(sys.argv[1])))
    if found is not None:
        print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
