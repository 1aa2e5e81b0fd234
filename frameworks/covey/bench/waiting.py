"""`covey bench waiting`: how long a late rank delays the others, by the methods' defaults.

Sleeping stands for computing, so that ranks wait for each other and not for a core. Three
questions, each with the wanted and the best possible figure: one of 4 ranks is stopped (`kill
-STOP`) for seconds; one of 4 is 10 times slower for good; each step one random rank of 8 is late.
With little effort those 8 are 4. `waiting_hosts` asks them of several hosts.
"""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
import warnings
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Tuple

import covey
from covey.bench.bound import ends, skipping_seconds
from covey.bench.method_text import setting
from covey.bench.waiting_show import Line, Panel
from covey.inject import drawn, parse
from covey.launch.run_function import run
from covey.method import full_text, methods, plan

ELEMENTS = 1_000_000
WAIT_FACTOR, LEAST_WAIT_S = 10, 1.0  # max_wait by default: core/partial/step_time.h.
PATIENCE = 1 / 3  # Of a pass: core/train/pass_clock.h.
SLOW = 10


@dataclass(frozen=True)
class Effort:
    """How much: times are seconds.

    Attributes:
        step_s: computing time of a step; where a random rank is late it is twice as long.
        stop_s: how long a rank is stopped.
        slow_s: how long one is slow.
        ranks: of which a random one is late, and
        steps: for so many steps.
        max_wait: of the methods; empty: their default.
    """

    step_s: float = 0.05
    stop_s: float = 5.0
    slow_s: float = 10.0
    ranks: int = 8
    steps: int = 60
    max_wait: str = ""

    def method(self, text: str) -> str:
        """The text with this max_wait."""
        if not self.max_wait or text == "allreduce":
            return text
        return f"{text}{',' if ':' in text else ':'}max_wait={self.max_wait}"

    @property
    def wait_s(self) -> float:
        """The resolved max_wait."""
        configured = float(self.max_wait.removesuffix("ms")) / 1000 if self.max_wait else 0.0
        return configured or max(LEAST_WAIT_S, WAIT_FACTOR * self.step_s)


SMALL = Effort(step_s=0.004, stop_s=0.2, slow_s=0.6, ranks=4, steps=12, max_wait="100ms")


# ---- On the ranks ------------------------------------------------------------------------------


class Trainer:
    """An optimizer whose steps compute nothing but sleep."""

    def __init__(self, method: str) -> None:
        import torch

        import covey.torch as hvd
        from covey.bench.step import NoCompute

        warnings.simplefilter("ignore")  # The missing ranks are what is measured.
        self.model = NoCompute([(ELEMENTS,)])
        sgd = torch.optim.SGD(self.model.parameters(), lr=0.0)
        self.optimizer: Any = hvd.DistributedOptimizer(sgd, model=self.model, method=method)
        self.lengths: List[float] = []

    def step(self, compute_s: float, delay: Callable[[], float] = lambda: 0.0) -> None:
        """Computes, steps and is late, by the seconds that `delay` has said when it began; notes
        how long it all took."""
        began = time.monotonic()
        self.optimizer.zero_grad()  # Decisions of other ranks are taken up here.
        delay_s = delay()
        loss = self.model()
        time.sleep(compute_s)
        loss.backward()
        self.optimizer.step()
        time.sleep(delay_s)
        self.lengths.append(round(time.monotonic() - began, 6))


def start() -> None:
    """This process becomes a rank."""
    os.environ.pop("COVEY_SUMMARY_FD", None)  # The bench has its own table.
    covey.init()


def _finish(optimizer: Any) -> None:
    """Until all have come, however busy the machine is."""
    while True:
        try:
            optimizer.finish(strict=True)
            return
        except covey.Timeout:
            pass  # max_wait, which is short here.


def timed(work: Callable[[Trainer], None], method: str, base_s: float) -> Dict[str, Any]:
    """The figures of this rank in `work`, after steps that warm up."""
    trainer = Trainer(method)
    for _ in range(12):  # Makes max_wait's median, and what is made once.
        trainer.step(base_s)
    _finish(trainer.optimizer)
    trainer.lengths.clear()
    covey.barrier()
    begun = trainer.optimizer.version
    began, processor = time.monotonic(), time.process_time()
    work(trainer)
    seconds, processor = time.monotonic() - began, time.process_time() - processor
    _finish(trainer.optimizer)
    return {"lengths": trainer.lengths, "seconds": seconds, "processor_s": processor,
            "begun": begun}


def _stop_for(pid: int, after_s: float, seconds: float) -> None:
    time.sleep(after_s)
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


def stopped_on_rank(names: Tuple[str, ...], effort: Effort) -> Dict[str, Any]:
    """By method the figures of all ranks, of which the last is stopped."""
    pids = covey.allgather_object(os.getpid())
    before_s = 20 * effort.step_s

    def work(trainer: Trainer) -> None:
        end = time.monotonic() + 2 * before_s + effort.stop_s + effort.wait_s
        stopper = threading.Thread(target=_stop_for, args=(pids[-1], before_s, effort.stop_s))
        if covey.rank() == 0:
            stopper.start()
        while time.monotonic() < end:
            trainer.step(effort.step_s)
        if covey.rank() == 0:
            stopper.join()

    return {name: covey.allgather_object(timed(work, effort.method(name), effort.step_s))
            for name in names}


def slow_on_rank(names: Tuple[str, ...], effort: Effort) -> Dict[str, Any]:
    """By method the figures of all ranks when none is slow ("free"), and when the last is."""
    found = {}
    for name in names:
        for free in (True, False):
            is_slow = not free and covey.rank() == covey.size() - 1
            length = effort.slow_s / 3 if free else effort.slow_s

            def work(trainer: Trainer, is_slow: bool = is_slow, length: float = length) -> None:
                end = time.monotonic() + length
                while time.monotonic() < end:
                    trainer.step(effort.step_s * (SLOW if is_slow else 1))

            mine = timed(work, effort.method(name), effort.step_s)
            found[name + (", free" if free else "")] = covey.allgather_object(mine)
    return found


def few_main(names: Tuple[str, ...], effort: Effort) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """Both, in one job."""
    start()
    return stopped_on_rank(names, effort), slow_on_rank(names, effort)


def random_on_rank(
    texts: Tuple[str, ...], delays: List[List[float]], base_s: float, steps: int
) -> List[Any]:
    """By method the figures of all ranks of which a random one is late each step. A rank that skips
    ahead ends with the version of so many steps."""
    found = []
    for text in texts:
        chosen = plan(full_text(text), 0, 0)
        skips, needed = chosen.skips_ahead, chosen.needed

        def work(trainer: Trainer, skips: bool = skips) -> None:
            first, number = trainer.optimizer.version, 0

            def delay() -> float:
                nonlocal number
                if skips:
                    number = min(trainer.optimizer.version - first, steps - 1)
                return delays[number][covey.rank()]

            while number < steps:
                trainer.step(base_s, delay)
                number = trainer.optimizer.version - first if skips else number + 1

        figures = {**timed(work, text, base_s), "needed": needed, "skips": skips}
        found.append(covey.allgather_object(figures))
    return found


def random_main(
    texts: Tuple[str, ...], delays: List[List[float]], base_s: float, steps: int
) -> List[Any]:
    """The same in a job of its own."""
    start()
    return random_on_rank(texts, delays, base_s, steps)


# ---- Questions ---------------------------------------------------------------------------------


def busy(ranks: List[Dict[str, Any]]) -> float:
    """Processor time of all ranks in parts of this host's cores."""
    seconds = max(rank["seconds"] for rank in ranks)
    return sum(rank["processor_s"] for rank in ranks) / seconds / len(os.sched_getaffinity(0))


def _names() -> Tuple[str, ...]:
    return tuple(m["name"] for m in methods() if m["name"] in ("eager", "wagma"))


def stopped(effort: Effort, found: Dict[str, Any]) -> Panel:
    """The longest step of those that are not stopped."""
    lines = []
    for name, ranks in found.items():
        others = [length for rank in ranks[:-1] for length in rank["lengths"]]
        ordinary = [length for length in others if length < 0.8 * effort.wait_s]
        wanted = effort.wait_s + max(ordinary, default=effort.step_s)
        lines.append(Line(name, max(others), wanted, None, busy(ranks), {"ranks": ranks}))
    title = f"one of 4 ranks stopped for {effort.stop_s:g} s: longest step of the others"
    return Panel(title, "s", True, lines)


def _pace_after_first_wait(lengths: List[float], wait_s: float) -> float:
    """Steps per second after those that were longer than usual by max_wait in all; of all where
    none were, and of those before where the last of these comes late."""
    usual, waited, begin = statistics.median(lengths), 0.0, 0
    for number, length in enumerate(lengths, 1):
        waited += length - usual if length > 2 * usual else 0.0
        if waited >= 0.8 * wait_s:
            begin = number
            break
    rest = max(lengths[begin:], lengths[: begin - 1] if begin else [], key=len)
    return len(rest) / sum(rest) if rest else 0.0


def percent_of_free_pace(
    others: List[Dict[str, Any]], free: List[Dict[str, Any]], wait_s: float
) -> float:
    """The pace of these ranks, after they have waited for a late one for the first time."""
    alone = statistics.fmean(len(rank["lengths"]) / sum(rank["lengths"]) for rank in free)
    pace = statistics.fmean(_pace_after_first_wait(rank["lengths"], wait_s) for rank in others)
    return 100 * pace / alone


def slow(effort: Effort, found: Dict[str, Any]) -> Panel:
    """The pace of those that are not slow, in percent of their pace without the slow rank."""
    lines = []
    for name in _names():
        ranks, free = found[name], found[name + ", free"]
        pace = percent_of_free_pace(ranks[:-1], free, effort.wait_s)
        lines.append(Line(name, pace, 90.0, 100.0, busy(ranks), {"ranks": ranks, "free": free}))
    title = f"one of 4 ranks {SLOW} times slower for good: pace of the others after the first wait"
    return Panel(title, "% of free pace", False, lines)


# Name, method, steps/s wanted of 100 ms and 300 ms.
_RANDOM = (
    ("allreduce", "allreduce", 2.4),
    ("solo", "eager:admit=solo,log=64,max_staleness=64", 6.5),
    ("eager", "eager", 5.6),
    ("wagma", "wagma", 4.7),
    ("eager, skip", "eager:progress=skip", 9.0),
    ("solo, skip", "eager:admit=solo,progress=skip", 9.0),
)


def random(effort: Effort) -> Panel:
    """Steps per second of the average rank."""
    base_s, size, steps = 2 * effort.step_s, effort.ranks, effort.steps
    there = {method["name"] for method in methods()}
    chosen = [one for one in _RANDOM if one[1].partition(":")[0] in there]
    delays = drawn(parse(f"delay:{round(3e6 * base_s)}us@1"), steps, size)
    texts = tuple(text for _, text, _ in chosen)
    found = run(random_main, (texts, delays, base_s, steps), num_proc=size)[0]
    lines = []
    for (name, text, wanted), ranks in zip(chosen, found):
        needed = ranks[0]["needed"]
        if ranks[0]["skips"]:
            bound = steps / skipping_seconds(delays, base_s, needed, steps, base_s * PATIENCE)
            value = steps / min(rank["seconds"] for rank in ranks)
        else:
            tau = int(setting(full_text(text), "sync_every", "0"))
            last = ends(delays, base_s, needed, tau, begun=ranks[0]["begun"])
            bound = steps * size / sum(last)
            value = steps * size / sum(rank["seconds"] for rank in ranks)
        scaled = wanted * 0.1 / base_s
        lines.append(Line(name, value, scaled, bound, busy(ranks), {"ranks": ranks}))
    title = (f"one random rank of {size} late by {3e3 * base_s:g} ms each step of "
             f"{1e3 * base_s:g} ms, {ELEMENTS:,} float32, {steps} steps")
    return Panel(title, "steps/s", False, lines)


def bench(small: bool) -> List[Panel]:
    """All three; the first two are one job."""
    effort = SMALL if small else Effort()
    was_stopped, was_slow = run(few_main, (_names(), effort), num_proc=4)[0]
    return [stopped(effort, was_stopped), slow(effort, was_slow), random(effort)]
