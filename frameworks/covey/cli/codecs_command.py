"""`covey codecs`: the codecs that make tensors smaller before they travel."""

from __future__ import annotations

import argparse
import json
import textwrap
from typing import Any, Dict

from covey import _native

_HELP = "list the codecs that make tensors smaller before they travel"
_EPILOG = """A codec is given by its name, with other parameters after an @:
  hvd.allreduce(tensor, codec="int8@block=512")
  hvd.DistributedOptimizer(optimizer, compression=hvd.Compression.of("topk@bits=2"))
Methods that have codecs name one in their text, with + between its parameters:
  coveyrun -np 4 --method allreduce:codec=topk@bits=2+block=512 python train.py
  coveyrun -np 4 --method swarm:codec=lattice@8 python train.py
"""


def add_to(commands: Any) -> None:
    """Adds `codecs` to the subcommands of `covey`."""
    parser = commands.add_parser(
        "codecs", help=_HELP, description=f"{_HELP[0].upper()}{_HELP[1:]}.", epilog=_EPILOG
    )
    parser.set_defaults(act=_act)


def _act(_: argparse.Namespace) -> int:
    """Prints."""
    print("\n".join(_lines(codec) for codec in json.loads(_native.codecs())))
    return 0


def _lines(codec: Dict[str, Any]) -> str:
    indent = " " * 8
    card = textwrap.fill(f"{codec['name']:7} {codec['card']}", 88, subsequent_indent=indent)
    return "\n".join([card, *(indent + _range(parameter) for parameter in codec["parameters"])])


def _range(parameter: Dict[str, Any]) -> str:
    multiple = f", a multiple of {parameter['multiple']}" if parameter["multiple"] > 1 else ""
    return (
        f"  {parameter['name']}={parameter['default']}: "
        f"{parameter['minimum']} to {parameter['maximum']}{multiple}"
    )
