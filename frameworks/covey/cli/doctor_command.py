"""`covey doctor`: the obstacles of a job on this host or on several, before it is started."""

from __future__ import annotations

import argparse
import contextlib
import os
from typing import Any

from covey.cli import host_options
from covey.cli.say import say
from covey.cli.values import number_of_ranks, seconds
from covey.doctor import checks, table
from covey.doctor.check import would_start
from covey.doctor.visit import Visit
from covey.launch.hosts import shared_out
from covey.launch.spec import Host, LaunchError

_HELP = "tell what would go wrong, before a job is started"
_EPILOG = """examples:
  covey doctor                     this host
  covey doctor -np 4               with 4 ranks on it
  covey doctor -H a:4,b:4          the hosts of such a job, by the agents and ssh of coveyrun

Each line is ok, note, warning or failed: note changes no job, warning may make one slow or end it,
and with failed a job would not start. The exit code is 0 if a job would start and 1 if not; 2 for a
mistake in the command.
"""


def add_to(commands: Any) -> None:
    """Adds `doctor` to the subcommands of `covey`."""
    parser = commands.add_parser(
        "doctor", help=_HELP, description=f"{_HELP[0].upper()}{_HELP[1:]}.", epilog=_EPILOG
    )
    add = parser.add_argument
    add("-np", "--num-proc", type=number_of_ranks, metavar="N", help="number of ranks")
    add("--start-timeout", type=seconds, metavar="S", help="give up a host after S")
    add("--json", action="store_true", help="all that was seen, for scripts")
    host_options.describe(parser)
    parser.set_defaults(act=_act, parser=parser)


def _act(arguments: argparse.Namespace) -> int:
    """Visits, prints, returns the exit code."""
    try:
        named = host_options.named(arguments)
        if named is None:
            named = [Host("localhost", arguments.num_proc or 1)]
        size = host_options.size_of(arguments, named)
        plan = host_options.way_to(arguments, shared_out(named, size))
        with contextlib.closing(Visit(plan, os.environ)) as visit:
            found = visit.make()
    except LaunchError as error:
        say(arguments.parser.prog, *str(error).splitlines())
        return 2
    made = checks.of(found)
    print(table.as_json(found, made) if arguments.json else "\n".join(table.lines(made)))
    return 0 if would_start(made) else 1
