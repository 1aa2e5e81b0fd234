"""`covey bench`: measures Covey beside torch's Gloo and DDP, MPI and oneCCL."""

from __future__ import annotations

import argparse
import json
import os
import re
from typing import Any, Dict, Iterator, List, Optional, Tuple

from covey.bench import (
    cards,
    cuda_job,
    job,
    on_hosts,
    picture,
    show,
    waiting,
    waiting_hosts,
    waiting_show,
)
from covey.bench.contest import Effort, Row
from covey.cli.say import say
from covey.cli.values import UsageError, number_of_ranks
from covey.launch.book import SECURITIES
from covey.launch.check import check_writable_folder
from covey.launch.hosts import parse as parse_hosts
from covey.launch.spec import JobFailed, LaunchError

_HELP = "measure Covey beside torch's Gloo and DDP, MPI and oneCCL"
_KINDS = {
    "latency": "blocking sums of 8 B to 4 KiB",
    "allreduce": "blocking sums of 8 B to 64 MiB",
    "step": "the 161 gradients of a ResNet-50, averaged",
    "fusion": "1,000 gradients of 256 bytes, averaged",
    "model": "whole training steps of a ResNet-18 and a small GPT",
    "kernels": "on cuda: reduce, scale, cast and add beside the card's own copy",
    "methods": "steps by method when no rank is late",
    "codecs": "encoding and decoding of float32 on one core, beside a copy",
    "waiting": "how long a late, slow or stopped rank delays the others, by method",
}
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "MB": 10**6}
_EPILOG = """examples:
  covey bench step --np 2
  covey bench allreduce --np 4 --vs none --out results
  covey bench step --np 8 --device cuda
  covey bench allreduce --sizes 8,64KiB,1MiB,25MB --vs gloo,openmpi,mpich
  covey bench allreduce -H a:4,b:4
  covey bench waiting -H a,b,c,d

The contestants take turns in the same processes. Compare figures of one run only, and rather the
ratios: machines change their speed by themselves. Beside each workload stands what the machine was
like: how long a word that one process writes takes to be seen by another that spins.

A process holds one MPI: each further one has a job of its own, in which Covey takes part again.
Every library has its own defaults, also for the binding of processes to cores. "NAME, C" is called
in a loop in C, the others from Python. Missing libraries are named; tools/setup --with bench-peers
brings them.

Between hosts (-H) coveyrun starts the ranks as it starts a job's, over the network and with the
encryption that jobs have there; Gloo, which has none, and DDP over it take part.

On cards (--device cuda) a job measures one path: nccl, ipc, then staged, as far as there are, each
beside torch's NCCL where every rank has a GPU, else beside torch's Gloo. `allreduce` says GB/s
(the tensor's bytes by the time); `step` how much 100 MB of gradients add to a backward of 50 ms;
`kernels` GB/s read and written. Without a usable GPU it says what is missing and ends with code 2.
"""


def peers(text: str) -> Tuple[str, ...]:
    """argparse type of --vs."""
    names = tuple(name for name in text.split(",") if name not in ("", "none"))
    for name in names:
        if name not in job.PEERS:
            raise UsageError(f"{name} is none of {', '.join(job.PEERS)}, none")
    return names


def sizes(text: str) -> Tuple[int, ...]:
    """argparse type of --sizes: whole float32s."""
    found = []
    for word in text.split(","):
        match = re.fullmatch(r"(\d+) ?(\w*)", word.strip())
        if match is None or match.group(2) not in _UNITS:
            raise UsageError(f"{word} is not a size such as 8, 64KiB or 25MB")
        found.append(max(4, int(match.group(1)) * _UNITS[match.group(2)] // 4 * 4))
    return tuple(found)


def device(text: str) -> str:
    """argparse type of --device."""
    if text not in cards.DEVICES:
        raise UsageError(f"{text} is none of {', '.join(cards.DEVICES)}")
    return text


def add_to(commands: Any) -> None:
    """Adds `bench` to the subcommands of `covey`."""
    kinds = "\n".join(f"  {name:10} {what}" for name, what in _KINDS.items())
    parser = commands.add_parser(
        "bench",
        help=_HELP,
        description=f"{_HELP[0].upper()}{_HELP[1:]}.\n\n{kinds}",
        epilog=_EPILOG,
    )
    parser.add_argument("kind", choices=list(_KINDS), metavar="WHAT", help="one of the above")
    parser.add_argument("-np", "--np", type=number_of_ranks, default=2, metavar="N", dest="size")
    parser.add_argument(
        "--vs",
        type=peers,
        metavar="PEERS",
        help=f"{', '.join(job.PEERS)}, with commas between, or none; default: what fits",
    )
    parser.add_argument(
        "--device",
        type=device,
        default="cpu",
        metavar="DEVICE",
        help=f"{' or '.join(cards.DEVICES)} (cpu); on cuda: {', '.join(cards.KINDS)}",
    )
    parser.add_argument("--sizes", type=sizes, metavar="SIZES", help="of latency and allreduce")
    parser.add_argument("--rounds", type=number_of_ranks, default=5, help="turns of each (5)")
    parser.add_argument("--samples", type=number_of_ranks, default=5, help="samples per turn (5)")
    parser.add_argument("--out", metavar="DIR", help="also write DIR/WHAT.json and DIR/WHAT.png")
    parser.add_argument(
        "-H",
        "--hosts",
        metavar="HOST:N,...",
        help="on these hosts, N ranks on each, as coveyrun -H starts them, instead of --np",
    )
    parser.add_argument("--network", metavar="IFACE|CIDR", help="with -H: as coveyrun takes it")
    parser.add_argument(
        "--network-security",
        choices=SECURITIES,
        help="with -H: as coveyrun takes it (tls)",
    )
    parser.add_argument("--small", action="store_true", help="little work: does it run at all?")
    parser.set_defaults(act=_act, parser=parser)


def _act(arguments: argparse.Namespace) -> int:
    """Measures, prints, writes. `waiting` has neither contestants nor a choice of ranks."""
    kind = arguments.kind
    why_not = _unfit(arguments)
    if why_not is not None:
        say("covey bench", why_not)
        return 2
    arguments.where = _where(arguments)
    if kind == "waiting":
        return _act_waiting(arguments)
    if kind in job.ALONE:
        arguments.size = 1
    found: List[Row] = []
    try:
        if arguments.where is not None:
            arguments.size = _slots(arguments.where)
        about = show.describe(kind, arguments.size, arguments.where)
        if arguments.out is not None:
            check_writable_folder("--out", arguments.out)
        on_cuda = arguments.device == "cuda"
        on_cpu = _on_host if arguments.where is None else _on_hosts
        for rows, versions in (_on_cards if on_cuda else on_cpu)(arguments, about):
            found += rows
            about.update(versions)
            print("\n".join(show.table(about, versions, rows)), flush=True)
    except LaunchError as error:
        say("covey bench", str(error))
        return 2
    except JobFailed as error:
        return error.exit_code  # the launcher has told why
    for name, why in about["absent"].items():
        print(f"{name} is absent: {why}")
    if arguments.out is not None:
        _write(arguments.out, kind, show.as_json(about, found))
        why = picture.draw(about, found, os.path.join(arguments.out, kind + ".png"))
        if why is not None:
            print(f"no picture: {why}")
    return 0


def _unfit(arguments: argparse.Namespace) -> Optional[str]:
    """Why this cannot be measured on the device asked for; None: it can."""
    if arguments.hosts is not None:
        return _unfit_for_hosts(arguments)
    for name in ("network", "network_security"):
        if getattr(arguments, name) is not None:
            return f"--{name.replace('_', '-')} is for several hosts: -H"
    if arguments.device == "cpu":
        return "kernels are those of cards: --device cuda" if arguments.kind == "kernels" else None
    if arguments.kind not in cards.KINDS:
        return f"{arguments.kind} has no --device cuda: {', '.join(cards.KINDS)} have"
    if arguments.vs:
        return f"{arguments.vs[0]} does not take part on cuda: torch's own do, or --vs none"
    missing = cards.missing(_torch())
    return missing or (cards.without_kernels() if arguments.kind == "kernels" else None)


def _unfit_for_hosts(arguments: argparse.Namespace) -> Optional[str]:
    kinds = (*on_hosts.KINDS, "waiting")
    if arguments.kind not in kinds:
        return f"{arguments.kind} is measured on one host; {', '.join(kinds)} have -H"
    if arguments.device != "cpu":
        return "-H measures the CPUs of hosts: without --device"
    for name in arguments.vs or ():
        if name not in on_hosts.PEERS:
            return f"{name} does not take part between hosts: {', '.join(on_hosts.PEERS)} do"
    return None


def _where(arguments: argparse.Namespace) -> Optional[on_hosts.Where]:
    """None: on this host."""
    if arguments.hosts is None:
        return None
    security = arguments.network_security or SECURITIES[0]
    return on_hosts.Where(arguments.hosts, arguments.network, security)


def _slots(where: on_hosts.Where) -> int:
    """The ranks of all hosts. Raises LaunchError."""
    return sum(host.slots for host in parse_hosts(where.hosts))


def _torch() -> Any:
    """None: it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    return torch


def _work(arguments: argparse.Namespace) -> job.Work:
    effort = Effort(rounds=arguments.rounds, samples=arguments.samples)
    return job.Work(arguments.kind, effort, arguments.small, arguments.sizes)


def _on_host(arguments: argparse.Namespace, about: Dict[str, Any]) -> Iterator[job.Found]:
    """The findings of each job; about["absent"] is filled on the way, as below."""
    names = job.DEFAULT_PEERS[arguments.kind] if arguments.vs is None else arguments.vs
    jobs, about["absent"] = job.plan(names)
    for mpi, peer_names in jobs:
        yield job.measure(_work(arguments), arguments.size, mpi, peer_names)


def _on_hosts(arguments: argparse.Namespace, about: Dict[str, Any]) -> Iterator[job.Found]:
    names = job.DEFAULT_PEERS[arguments.kind] if arguments.vs is None else arguments.vs
    about["absent"] = {}
    peer_names = [name for name in names if name in on_hosts.PEERS]
    yield on_hosts.measure(_work(arguments), arguments.where, peer_names)


def _on_cards(arguments: argparse.Namespace, about: Dict[str, Any]) -> Iterator[job.Found]:
    torch = _torch()
    about.update(device="cuda", **cards.describe(torch))
    said = {name: about[name] for name in ("card", "driver", "cuda", "when")}
    if arguments.kind == "kernels":  # of one card, whatever the path
        about.update(ranks=1, absent={})
        rows, versions = cuda_job.measure(_work(arguments), 1, "auto", None)
        yield rows, {**versions, **said}
        return
    count = torch.cuda.device_count()
    plan = cuda_job.plan(arguments.size, count, wants_peer=arguments.vs is None)
    paths, backend, about["absent"] = plan
    for path in paths:
        rows, versions = cuda_job.measure(_work(arguments), arguments.size, path, backend)
        yield rows, {**versions, **said}


def _act_waiting(arguments: argparse.Namespace) -> int:
    where: Optional[on_hosts.Where] = arguments.where
    try:
        size = 8 if where is None else _slots(where)
        about = show.describe("waiting", size)
        if arguments.out is not None:
            check_writable_folder("--out", arguments.out)
        small = arguments.small
        panels = waiting.bench(small) if where is None else waiting_hosts.bench(where, small)
    except LaunchError as error:
        say("covey bench", str(error))
        return 2
    except JobFailed as error:
        return error.exit_code
    print("\n".join(waiting_show.table(about, panels)), flush=True)
    if arguments.out is not None:
        text = json.dumps(waiting_show.as_json(about, panels)) + "\n"
        _write(arguments.out, "waiting", text)
        why = waiting_show.draw(panels, os.path.join(arguments.out, "waiting.png"))
        if why is not None:
            print(f"no picture: {why}")
    return 0


def _write(folder: str, kind: str, text: str) -> None:
    with open(os.path.join(folder, kind + ".json"), "w", encoding="utf-8") as file:
        file.write(text)
