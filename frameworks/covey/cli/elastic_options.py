"""`coveyrun`'s options for jobs whose ranks may come and go, and the terms that they make."""

from __future__ import annotations

import argparse
from typing import Optional

from covey.cli.values import count, number_of_ranks, seconds
from covey.launch.spec import LaunchError
from covey.launch.worlds import RESTARTS, TIMEOUT_S, Terms

NEEDS_LEAST = "{} needs --min-np N, the number of ranks that must be left"
_OTHERS = (
    "--max-np",
    "--max-restarts",
    "--host-discovery-script",
    "--slots-per-host",
    "--reset-limit",
    "--elastic-timeout",
)


def describe(parser: argparse.ArgumentParser) -> None:
    """Adds them."""
    title = "ranks that come and go, for scripts with hvd.elastic.run"
    add = parser.add_argument_group(title).add_argument
    add(
        "--min-np",
        "--min-num-proc",
        type=number_of_ranks,
        metavar="N",
        help="when a rank fails, the others go on from their last commit if N are left, and a "
        "process that is started in its place joins them at a commit",
    )
    add(
        "--max-np",
        "--max-num-proc",
        type=number_of_ranks,
        metavar="N",
        help="with -H: more than -np ranks, N at most, where hosts have slots for them (default: "
        "-np; others take the place of ranks whose host is lost)",
    )
    add(
        "--max-restarts",
        type=count,
        metavar="N",
        help=f"start at most N processes in the place of others (default: {RESTARTS})",
    )
    add(
        "--host-discovery-script",
        metavar="COMMAND",
        help="instead of -H: each second it prints the hosts that the job may use now, a line "
        "HOST or HOST:N each; hosts join the job, and leave it, as it says",
    )
    add(
        "--slots-per-host",
        "--slots",
        type=number_of_ranks,
        metavar="N",
        help="of a host for which it prints no number (default: 1)",
    )
    add("--reset-limit", type=count, metavar="N", help="end the job when ranks change once more")
    add(
        "--elastic-timeout",
        type=seconds,
        metavar="S",
        help="end the job when fewer than --min-np ranks are there for S, and a rank for which the "
        f"others wait for S (default: {TIMEOUT_S:g})",
    )


def terms(arguments: argparse.Namespace, size: int, is_on_hosts: bool) -> Optional[Terms]:
    """Those of an elastic job of `size` ranks at first; None: it is none. `is_on_hosts`: hosts are
    named or listed. Raises LaunchError."""
    least, most = arguments.min_np, arguments.max_np
    if least is None:
        for name in _OTHERS:
            if getattr(arguments, name[2:].replace("-", "_")) is not None:
                raise LaunchError(NEEDS_LEAST.format(name))
        return None
    if least > size:
        raise LaunchError(f"--min-np {least}: there are only -np {size} ranks")
    if most is not None and most < size:
        raise LaunchError(f"--max-np {most}: there are -np {size} ranks at first")
    if arguments.serve or arguments.join:
        raise LaunchError(
            "--min-np is for one coveyrun, which starts all ranks, by ssh on other hosts (-H), and "
            "--serve and --join for several: say either"
        )
    restarts, timeout = arguments.max_restarts, arguments.elastic_timeout
    return Terms(
        least=least,
        most=most or size,
        restarts=RESTARTS if restarts is None else restarts,
        resets=arguments.reset_limit,
        timeout_s=float(timeout or TIMEOUT_S),
        may_grow=is_on_hosts,
    )
