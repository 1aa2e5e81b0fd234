"""`covey trace`: the traces of a job's ranks as one, and in words."""

from __future__ import annotations

import argparse
import os
from typing import Any

from covey.cli.say import say
from covey.errors import InvalidArgument
from covey.trace import merging, reading, words

_HELP = "merge the ranks' traces of coveyrun --timeline, and tell who waited for whom"
_EPILOG = """examples:
  covey trace merge trace                  folder of coveyrun --timeline: makes trace/trace.json
  covey trace merge a b -o all.json        folders of two hosts, or single files
  covey trace summary trace                only the words

Clocks of several hosts are set by the exchanges in the traces. ui.perfetto.dev shows the file.
Traces of torch.profiler beside them, rank.N.torch.json or .gz, go into it too.
"""


def add_to(commands: Any) -> None:
    """Adds `trace` to the subcommands of `covey`."""
    parser = commands.add_parser(
        "trace", help=_HELP, description=f"{_HELP[0].upper()}{_HELP[1:]}.", epilog=_EPILOG
    )
    parser.add_argument("action", choices=("merge", "summary"))
    parser.add_argument("places", nargs="+", metavar="PLACE", help="a folder, or a trace")
    parser.add_argument("-o", "--out", metavar="FILE", help="of merge; else trace.json beside them")
    parser.set_defaults(act=_act, parser=parser)


def _act(arguments: argparse.Namespace) -> int:
    """Reads, writes, prints; returns the exit code."""
    try:
        paths = reading.files(arguments.places)
        found = merging.merged(paths)
        if arguments.action == "merge":
            out = arguments.out or os.path.join(os.path.dirname(paths[0]), merging.NAME)
            merging.write(found, out)
            print(f"{out}: ui.perfetto.dev shows it")
    except InvalidArgument as error:
        say(arguments.parser.prog, str(error))
        return 2
    print("\n".join(words.lines(found)))
    return 0
