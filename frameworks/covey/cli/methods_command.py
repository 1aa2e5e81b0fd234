"""`covey methods [NAME]`: the summary of each method, or of one; `--table`: a line of each."""

from __future__ import annotations

import argparse
from typing import Any

from covey.cli.say import say
from covey.launch.check import nearest
from covey.method import methods
from covey.method_summary import full_summary, table

_HELP = "list the methods by which ranks train together, with their parameters"
_EPILOG = """A method is one argument:
  coveyrun -np 4 --method local:local_steps=8 python train.py
  COVEY_METHOD=local:local_steps=8 coveyrun -np 4 python train.py
  hvd.DistributedOptimizer(optimizer, method="local", local_steps=8)
Of every method: warmup_steps=N, clip_norm=X, and as the last setting then=METHOD@N, another method
from step N on; whatever follows then= belongs to that method:
  coveyrun -np 4 --method allreduce:then=local@1000:H=8,then=allreduce@9000 python train.py
The script wins over the flag, unless --force-method is given, and the flag over the variable; what
is ignored is announced.
"""


def add_to(commands: Any) -> None:
    """Adds `methods` to the subcommands of `covey`."""
    parser = commands.add_parser(
        "methods", help=_HELP, description=f"{_HELP[0].upper()}{_HELP[1:]}.", epilog=_EPILOG
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="only this one")
    parser.add_argument("--table", action="store_true", help="a Markdown table of all instead")
    parser.set_defaults(act=_act, parser=parser)


def _act(arguments: argparse.Namespace) -> int:
    """Prints."""
    if arguments.table:
        print(table())
        return 0
    known = {method["name"]: method for method in methods()}
    name = arguments.name
    if name is not None and name not in known:
        near = nearest(name, list(known)) or f" (there are: {', '.join(known)})"
        say(arguments.parser.prog, f"there is no method {name}{near}")
        return 2
    chosen = known.values() if name is None else [known[name]]
    print("\n\n".join(full_summary(method) for method in chosen))
    return 0
